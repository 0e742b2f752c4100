"""Fields and types of API objects, and placeholders in their texts.

scripts/pod_fields.py generates the table of fields from the API models of kubernetes-asyncio.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson

from frameworkcontroller.api import hostlists, names
from frameworkcontroller.api.inputmodel import whole
from frameworkcontroller.api.problems import KeyPath, suggestion
from frameworkcontroller.api.quantities import parse_quantity
from frameworkcontroller.commands.lint.findings import Finding, error, warning

VARIABLES: Final = [
    value
    for value in vars(names).values()
    if isinstance(value, str) and value.startswith("FC_") and value not in (*names.ONLY_PLACEHOLDERS, names.WHEN_SCALED)
]
"""Environment variables that each container gets."""

BRACES: Final = re.compile(r"\{\{([^{}]*)\}\}")

_COLLECTION: Final = re.compile(r"(list|dict)[\[(](?:str, ?)?(.+)[\])]")
_QUANTITIES: Final = frozenset({"capacity", "divisor", "limits", "overhead", "requests", "sizeLimit"})
"""Fields of quantities, which may also be numbers: in the models, they are text."""

_SCALARS: Final = {
    "str": ((str,), "must be text (put it in quotes)"),
    "bool": ((bool,), "must be true or false"),
    "int": ((int,), "must be a whole number"),
    "float": ((int, float), "must be a number"),
}


def check_fields(value: Any, path: KeyPath, kind: str, last: str = "", *, closed: bool = False) -> Iterator[Finding]:
    """Find fields that the API does not have, and values of the wrong type, which each API server refuses.

    Args:
        kind: the type of the value, in the words of the models.
        last: the innermost named field that contains it.
        closed: an unknown field is an error, else a warning, since a newer cluster may know it.
    """
    collection = _COLLECTION.fullmatch(kind)
    if value is None:
        return
    if kind in _SCALARS:
        value = whole(value)
        types, text = _SCALARS[kind]
        wrong = not isinstance(value, types) or (isinstance(value, bool) and kind != "bool")
        if wrong and not (last in _QUANTITIES and isinstance(value, int | float)):
            yield error(path, text, value=value)
        # Claims have a check of their own.
        elif last in _QUANTITIES and isinstance(value, str) and "volumeClaimTemplates" not in path:
            yield from _check_quantity(value, path)
    elif collection is not None:
        form, inner_kind = collection.groups()
        if not isinstance(value, list if form == "list" else dict):
            yield error(path, f"must be a {'list' if form == 'list' else 'mapping'}", value=value)
            return
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from check_fields(item, (*path, key), inner_kind, last)
    elif fields := fields_of(kind):
        if not isinstance(value, dict):
            yield error(path, "must be a mapping", value=value)
            return
        for key, inner in value.items():
            if key in fields:
                yield from check_fields(inner, (*path, key), fields[key], key)
            elif closed:
                yield unknown_field((*path, key), fields)
            else:
                hint = suggestion(str(key), fields)
                yield warning((*path, key), f"is not a known field of a {kind.removeprefix('V1')}{hint}")


def _check_quantity(text: str, path: KeyPath) -> Iterator[Finding]:
    if "{{" in text:
        return
    try:
        parse_quantity(text)
    except ValueError:
        yield error(path, "must be a quantity, such as 500m, 2 or 4Gi", value=text)


def unknown_field(path: KeyPath, known: Collection[str]) -> Finding:
    """Return the error of a field that is none of those known."""
    return error(path, f"unknown field{suggestion(str(path[-1]), known)}")


def fields_of(kind: str) -> Mapping[str, str]:
    """Return the JSON names and types of a model's fields; none for another type, such as a time."""
    return _all_fields().get(kind, {})


@cache
def _all_fields() -> Mapping[str, Mapping[str, str]]:
    found: Mapping[str, Mapping[str, str]] = orjson.loads(Path(__file__).with_name("podfields.json").read_bytes())
    return found


def check_placeholders(value: Any, path: KeyPath, known: Collection[str], of_network: str) -> Iterator[Finding]:
    """Find words in double braces that look like a placeholder but are not.

    ``of_network``: why placeholders of network have no effect.
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from check_placeholders(key, (*path, str(key)), known, of_network)
            yield from check_placeholders(inner, (*path, str(key)), known, of_network)
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from check_placeholders(inner, (*path, position), known, of_network)
    elif isinstance(value, str):
        for found in BRACES.finditer(value):
            word = found[1].strip()
            # Host lists have arguments, which the spec checks.
            before = word.partition(":")[0]
            name = before if before in hostlists.NAMES else word
            if (found[1] == word and name in known) or not word.upper().startswith("FC_"):
                continue  # the last: for another program, such as a template of the user
            if name in known:
                hint = f"; write {{{{{word}}}}}, without blanks"
            elif name in names.NETWORK_PLACEHOLDERS or name in hostlists.NAMES:
                hint = f"; {of_network}"
            elif word in VARIABLES:
                hint = f"; it is known only when the Pod runs: use its environment variable {word}"
            else:
                hint = suggestion(before, known)
            yield warning(path, f"{found[0]} is not a placeholder and stays unchanged{hint}")
