"""Checks of a role's Pod template: errors for each API server, and common mistakes.

The fields and their types are those of the API models of kubernetes-asyncio. An unknown field is a warning, since a
newer cluster may know it. Each cluster refuses a wrong type.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any, Final

from frameworkcontroller.api import hostlists, names
from frameworkcontroller.api.inputmodel import whole
from frameworkcontroller.api.problems import KeyPath, suggestion
from frameworkcontroller.commands.lint.findings import Finding, error, warning

PLACEHOLDERS: Final = (
    names.FRAMEWORK_NAMESPACE, names.FRAMEWORK_NAME, names.TASKROLE_NAME, names.TASK_INDEX, names.CONFIGMAP_NAME,
    names.POD_NAME,
)  # fmt: skip
"""Words that are replaced in the strings of a template, in double braces."""

DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

_VARIABLES: Final = [
    value
    for value in vars(names).values()
    if isinstance(value, str) and value.startswith("FC_") and value not in (*names.ONLY_PLACEHOLDERS, names.WHEN_SCALED)
]
"""Environment variables that each container gets."""

_PLACEHOLDER: Final = re.compile(r"\{\{([^{}]*)\}\}")
_COLLECTION: Final = re.compile(r"(list|dict)[\[(](?:str, ?)?(.+)[\])]")
_QUANTITIES: Final = frozenset({"capacity", "divisor", "limits", "overhead", "requests", "sizeLimit"})
"""Fields of quantities, which may also be numbers: in the models, they are text."""

_OF_NETWORK: Final = "it is one only if the spec has network or coordinator"

_SCALARS: Final = {
    "str": ((str,), "must be text (put it in quotes)"),
    "bool": ((bool,), "must be true or false"),
    "int": ((int,), "must be a whole number"),
    "float": ((int, float), "must be a number"),
}


def check_pod(role: Mapping[Any, Any], path: KeyPath, *, networked: bool = False) -> Iterator[Finding]:
    """Check ``role["task"]["pod"]``. ``networked``: the spec has network or coordinator."""
    task = role.get("task")
    if task is not None and not isinstance(task, dict):
        return  # reported with the other fields
    path = (*path, "task", "pod")
    pod = (task or {}).get("pod")
    if pod is None:
        yield error(path, "is required: without a template there is nothing to run")
        return
    if not isinstance(pod, dict):
        return
    yield from check_fields(pod, path, "V1PodTemplateSpec")
    known = (*PLACEHOLDERS, *names.NETWORK_PLACEHOLDERS, *hostlists.NAMES) if networked else PLACEHOLDERS
    yield from check_placeholders(pod, path, known)
    metadata = pod.get("metadata")
    for field in ("name", "namespace", "generateName"):
        if isinstance(metadata, dict) and metadata.get(field):
            place = (*path, "metadata", field)
            yield warning(place, "is ignored: each Pod gets that of its Task", value=metadata[field])
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        yield error((*path, "spec"), "is required" if spec is None else "must be a mapping")
        return
    containers = spec.get("containers")
    if not containers:
        yield error((*path, "spec", "containers"), "is required: a Pod has at least one")
    elif isinstance(containers, list) and len(containers) > 1 and spec.get("restartPolicy") == "Never":
        yield warning(
            (*path, "spec", "containers"),
            f"are {len(containers)}, and a Pod runs until all of them have ended: beside a helper that "
            "runs on, a Task never ends; make helpers initContainers with restartPolicy Always (Kubernetes 1.29)",
        )
    seen: set[str] = set()
    for listed in ("initContainers", "containers"):
        for position, container in mappings_in(spec.get(listed)):
            yield from _container(container, (*path, "spec", listed, position), seen, init=listed == "initContainers")


def _container(container: Mapping[Any, Any], path: KeyPath, seen: set[str], *, init: bool) -> Iterator[Finding]:
    name = container.get("name")
    if name is None:
        yield error((*path, "name"), "is required")
    elif isinstance(name, str):
        if not DNS_LABEL.fullmatch(_PLACEHOLDER.sub("x", name)):
            yield error(
                (*path, "name"), "must be lower case letters, digits and dashes, at most 63 of them", value=name
            )
        if name in seen:
            yield error((*path, "name"), "is already the name of another container", value=name)
        seen.add(name)
    if not container.get("image"):
        yield error((*path, "image"), "is required")
    if not init and not container.get("command") and not container.get("args"):
        yield warning((*path, "command"), "is missing, and so is args: the image decides what runs")
    for position, variable in mappings_in(container.get("env")):
        name = variable.get("name")
        if name in _VARIABLES:
            place = (*path, "env", position, "name")
            yield warning(place, "replaces the controller's variable of this name", value=name)


def mappings_in(value: Any) -> Iterator[tuple[int, dict[Any, Any]]]:
    """Yield the mappings in a list with their positions. Other values have been reported."""
    for position, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, dict):
            yield position, item


def check_placeholders(
    value: Any, path: KeyPath, known: Collection[str], of_network: str = _OF_NETWORK
) -> Iterator[Finding]:
    """Find words in double braces that look like a placeholder but are not.

    ``of_network``: why those of network are none.
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from check_placeholders(key, (*path, str(key)), known, of_network)
            yield from check_placeholders(inner, (*path, str(key)), known, of_network)
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from check_placeholders(inner, (*path, position), known, of_network)
    elif isinstance(value, str):
        for found in _PLACEHOLDER.finditer(value):
            word = found[1].strip()
            # With arguments, that of a host list. The spec checks these.
            before = word.partition(":")[0]
            name = before if before in hostlists.NAMES else word
            if (found[1] == word and name in known) or not word.upper().startswith("FC_"):
                continue  # the last: for another program, such as a template of the user
            if name in known:
                hint = f"; write {{{{{word}}}}}, without blanks"
            elif name in names.NETWORK_PLACEHOLDERS or name in hostlists.NAMES:
                hint = f"; {of_network}"
            elif word in _VARIABLES:
                hint = f"; it is known only when the Pod runs: use its environment variable {word}"
            else:
                hint = suggestion(before, known)
            yield warning(path, f"{found[0]} is not a placeholder and stays unchanged{hint}")


def check_fields(value: Any, path: KeyPath, kind: str, last: str = "") -> Iterator[Finding]:
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
        form, inner_kind = collection.groups()
        if not isinstance(value, list if form == "list" else dict):
            yield error(path, f"must be a {'list' if form == 'list' else 'mapping'}", value=value)
            return
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from check_fields(item, (*path, key), inner_kind, last)
        return
    fields = fields_of(kind)
    if not fields:
        return
    if not isinstance(value, dict):
        yield error(path, "must be a mapping", value=value)
        return
    for key, inner in value.items():
        if key in fields:
            yield from check_fields(inner, (*path, key), fields[key], key)
        else:
            hint = suggestion(str(key), fields)
            yield warning((*path, key), f"is not a known field of a {kind.removeprefix('V1')}{hint}")


@cache
def fields_of(kind: str) -> Mapping[str, str]:
    """Return the JSON names and types of a model's fields; none for another type, such as a time."""
    # A late import, as it imports hundreds of modules.
    from kubernetes_asyncio.client import models

    model = getattr(models, kind, None)
    return {} if model is None else {model.attribute_map[name]: type_ for name, type_ in model.openapi_types.items()}
