"""The fields of a Pod template and their types, from the API models of kubernetes-asyncio.

An unknown field is a warning, since a newer cluster may know it. Each cluster refuses a wrong type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

from frameworkcontroller.api.fields import whole
from frameworkcontroller.api.problems import KeyPath, shown, suggestion
from frameworkcontroller.commands.lint.findings import Finding, error, warning

_COLLECTION: Final = re.compile(r"(list|dict)[\[(](?:str, ?)?(.+)[\])]")
_QUANTITIES: Final = frozenset({"capacity", "divisor", "limits", "overhead", "requests", "sizeLimit"})
"""Fields of quantities, which may also be numbers: in the models, they are text."""

_SCALARS: Final = {
    "str": ((str,), "must be text (put it in quotes)"),
    "bool": ((bool,), "must be true or false"),
    "int": ((int,), "must be a whole number"),
    "float": ((int, float), "must be a number"),
}


def check_fields(value: Any, path: KeyPath, kind: str = "V1PodTemplateSpec", last: str = "") -> Iterator[Finding]:
    """Find fields that the API does not have, and values of the wrong type.

    Args:
        kind: the type of the value, in the words of the models.
        last: the innermost named field that contains it.
    """
    if value is None:
        return
    if kind in _SCALARS:
        value = whole(value)
        types, text = _SCALARS[kind]
        wrong = not isinstance(value, types) or (isinstance(value, bool) and kind != "bool")
        if wrong and not (last in _QUANTITIES and isinstance(value, int | float)):
            yield error(path, text, value=value)
        return
    collection = _COLLECTION.fullmatch(kind)
    if collection is not None:
        if collection[1] == "list" and isinstance(value, list):
            items: Iterable[tuple[Any, Any]] = enumerate(value)
        elif collection[1] == "dict" and isinstance(value, dict):
            items = value.items()
        else:
            yield error(path, f"must be a {'list' if collection[1] == 'list' else 'mapping'}", value=value)
            return
        for key, item in items:
            yield from check_fields(item, (*path, key), collection[2], last)
        return
    fields = _fields_of(kind)
    if fields is None:
        return
    if not isinstance(value, dict):
        yield error(path, "must be a mapping", value=value)
        return
    for key, inner in value.items():
        if key not in fields:
            plain = shown(kind.removeprefix("V1")).strip("'")
            yield warning((*path, key), f"is not a known field of a {plain}{suggestion(str(key), fields)}")
        else:
            yield from check_fields(inner, (*path, key), fields[key], key)


@cache
def _fields_of(kind: str) -> dict[str, str] | None:
    """Return the JSON names and types of a model's fields; None for another type, such as a time."""
    # A late import, as it imports hundreds of modules.
    from kubernetes_asyncio.client import models

    model = getattr(models, kind, None)
    if model is None:
        return None
    types: dict[str, str] = model.openapi_types
    return {model.attribute_map[name]: inner for name, inner in types.items()}
