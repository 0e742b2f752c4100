"""Checks of a role's Pod template: errors for each API server, and common mistakes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from frameworkcontroller.api import names
from frameworkcontroller.api.problems import KeyPath, suggestion
from frameworkcontroller.commands.lint.findings import Finding, error, warning
from frameworkcontroller.commands.lint.podfields import check_fields

PLACEHOLDERS: Final = (
    names.FRAMEWORK_NAMESPACE, names.FRAMEWORK_NAME, names.TASKROLE_NAME, names.TASK_INDEX, names.CONFIGMAP_NAME,
    names.POD_NAME,
)  # fmt: skip
"""Words that are replaced in the strings of a template, in double braces."""

_SET: Final = frozenset(
    {*PLACEHOLDERS, names.FRAMEWORK_UID, names.FRAMEWORK_ATTEMPT_ID, names.FRAMEWORK_ATTEMPT_INSTANCE_UID,
     names.CONFIGMAP_UID, names.TASKROLE_UID, names.TASK_UID, names.TASK_ATTEMPT_ID, names.POD_UID,
     names.TASK_ATTEMPT_INSTANCE_UID}
)  # fmt: skip
_PLACEHOLDER: Final = re.compile(r"\{\{([^{}]*)\}\}")
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def check_pod(role: Mapping[Any, Any], path: KeyPath) -> Iterator[Finding]:
    """Check ``role["task"]["pod"]``."""
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
    yield from check_fields(pod, path)
    yield from _placeholders(pod, path)
    metadata = pod.get("metadata")
    for field in ("name", "namespace", "generateName"):
        if isinstance(metadata, dict) and metadata.get(field):
            yield warning(
                (*path, "metadata", field), "is ignored: each Pod gets that of its Task", value=metadata[field]
            )
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        yield error((*path, "spec"), "is required" if spec is None else "must be a mapping")
        return
    if not spec.get("containers"):
        yield error((*path, "spec", "containers"), "is required: a Pod has at least one")
    elif isinstance(spec["containers"], list) and len(spec["containers"]) > 1 and spec.get("restartPolicy") == "Never":
        yield warning(
            (*path, "spec", "containers"),
            f"are {len(spec['containers'])}, and a Pod runs until all of them have ended: beside a helper that "
            "runs on, a Task never ends; make helpers initContainers with restartPolicy Always (Kubernetes 1.29)",
        )
    seen: set[str] = set()
    for listed in ("initContainers", "containers"):
        containers = spec.get(listed)
        for position, container in enumerate(containers if isinstance(containers, list) else ()):
            if isinstance(container, dict):
                place = (*path, "spec", listed, position)
                yield from _container(container, place, seen, init=listed == "initContainers")


def _container(container: Mapping[Any, Any], path: KeyPath, seen: set[str], *, init: bool) -> Iterator[Finding]:
    name = container.get("name")
    if name is None:
        yield error((*path, "name"), "is required")
    elif isinstance(name, str):
        if not _DNS_LABEL.fullmatch(_PLACEHOLDER.sub("x", name)):
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
    env = container.get("env")
    for position, variable in enumerate(env if isinstance(env, list) else ()):
        if isinstance(variable, dict) and variable.get("name") in _SET:
            yield warning(
                (*path, "env", position, "name"),
                "replaces the controller's variable of this name",
                value=variable["name"],
            )


def _placeholders(value: Any, path: KeyPath) -> Iterator[Finding]:
    """Find words in double braces that look like a placeholder but are not."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _placeholders_in(key, (*path, str(key)))
            yield from _placeholders(inner, (*path, str(key)))
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from _placeholders(inner, (*path, position))
    else:
        yield from _placeholders_in(value, path)


def _placeholders_in(text: Any, path: KeyPath) -> Iterator[Finding]:
    for found in _PLACEHOLDER.finditer(text) if isinstance(text, str) else ():
        word = found[1]
        if word in PLACEHOLDERS or not word.strip().upper().startswith("FC_"):
            continue  # for another program, such as a template of the user
        if word.strip() in PLACEHOLDERS:
            hint = f"; write {{{{{word.strip()}}}}}, without blanks"
        elif word.strip() in _SET:
            hint = f"; it is known only when the Pod runs: use its environment variable {word.strip()}"
        else:
            hint = suggestion(word.strip(), PLACEHOLDERS)
        yield warning(path, f"{found[0]} is not a placeholder and stays unchanged{hint}")
