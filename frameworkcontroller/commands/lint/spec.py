"""Checks of a Framework: names, fields, types and bounds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError

from frameworkcontroller.api import names
from frameworkcontroller.api.fields import whole
from frameworkcontroller.api.problems import KeyPath, problem_of, shown, suggestion
from frameworkcontroller.api.spec import FrameworkSpec
from frameworkcontroller.commands.lint.findings import Finding, Severity, error, warning
from frameworkcontroller.commands.lint.pods import check_pod
from frameworkcontroller.commands.lint.policies import check_policies

_TOP: Final = ("apiVersion", "kind", "metadata", "spec", "status")
_METADATA: Final = ("annotations", "finalizers", "generateName", "labels", "name", "namespace", "ownerReferences")
_SERVER_SET: Final = frozenset(
    {"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields",
     "resourceVersion", "selfLink", "uid"}
)  # fmt: skip
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LONGEST_HOST_NAME: Final = 63
_GENERATED: Final = 5
_TASKS_THAT_FIT: Final = 300
"""The status of this many always fits into an API object (docs/reference.md)."""


def check_framework(body: Mapping[Any, Any]) -> Iterator[Finding]:
    """Check an object of kind Framework."""
    yield from _unknown(body, _TOP, ())
    if body.get("apiVersion") != names.API_VERSION:
        yield error(("apiVersion",), f"must be {names.API_VERSION}", value=body.get("apiVersion"))
    if "status" in body:
        yield warning(("status",), "is written by the controller, and ignored when a Framework is created")
    yield from _metadata(body.get("metadata"))
    if "spec" not in body:
        yield error(("spec",), "is required: without one there is nothing to run")
        return
    spec = body["spec"]
    refused = list(_fields(spec))
    roles = spec.get("taskRoles") if isinstance(spec, dict) else None
    if isinstance(roles, list) and all(isinstance(role, dict) for role in roles):
        refused += [found for found in _role_names(roles) if found not in refused]
    yield from refused
    if isinstance(spec, dict) and roles in (None, []):
        yield warning(("spec", "taskRoles"), "has no role: the Framework runs nothing, and never completes by itself")
        return
    if not isinstance(roles, list) or not all(isinstance(role, dict) for role in roles):
        return
    yield from _long_names(body.get("metadata"), roles)
    for position, role in enumerate(roles):
        yield from check_pod(role, ("spec", "taskRoles", position))
    if not refused:
        parsed = FrameworkSpec.model_validate(spec, by_name=False, by_alias=True)
        yield from _sizes(parsed)
        yield from check_policies(parsed)


def _metadata(metadata: Any) -> Iterator[Finding]:
    path: KeyPath = ("metadata",)
    if not isinstance(metadata, dict):
        yield error(path, "is required" if metadata is None else "must be a mapping")
        return
    known = (*_METADATA, *_SERVER_SET)
    yield from _unknown(metadata, known, path)
    name, prefix = metadata.get("name"), metadata.get("generateName")
    if name is None and prefix is None:
        yield error((*path, "name"), "is required")
    elif name is not None and not (isinstance(name, str) and names.is_valid_name(name)):
        yield error((*path, "name"), names.NAME_RULE, value=name)
    elif name is None and not (isinstance(prefix, str) and names.is_valid_name(prefix + "x" * _GENERATED)):
        yield error((*path, "generateName"), f"and {_GENERATED} characters more {names.NAME_RULE}", value=prefix)
    namespace = metadata.get("namespace")
    if namespace is not None and not (isinstance(namespace, str) and _NAMESPACE.fullmatch(namespace)):
        yield error((*path, "namespace"), "is not the name of a namespace", value=namespace)
    for field in ("labels", "annotations"):
        texts = metadata.get(field)
        if texts is not None and not isinstance(texts, dict):
            yield error((*path, field), "must be a mapping", value=texts)
            continue
        for key, value in (texts or {}).items():
            if not isinstance(value, str):
                yield error((*path, field, key), "must be text (put it in quotes)", value=value)


def _fields(spec: Any) -> Iterator[Finding]:
    """Find unknown fields of the spec, wrong types, and values out of bounds."""
    try:
        FrameworkSpec.model_validate(spec, by_name=False, by_alias=True)
    except ValidationError as refused:
        for detail in refused.errors():
            yield Finding(Severity.ERROR, problem_of(detail, pattern=names.NAME_RULE, below=("spec",)))
    yield from _unknown_below(FrameworkSpec, spec, ("spec",))


def _unknown_below(model: type[BaseModel], value: Any, path: KeyPath) -> Iterator[Finding]:
    """Find fields that the API does not have, in this mapping and in those inside."""
    if not isinstance(value, dict):
        return
    fields = {info.alias or name: info.annotation for name, info in model.model_fields.items()}
    yield from _unknown(value, fields, path)
    for key, annotation in fields.items():
        inner, here = value.get(key), (*path, key)
        below = _model_in(annotation)
        if below is None:
            continue
        if isinstance(inner, list):
            for position, item in enumerate(inner):
                yield from _unknown_below(below, item, (*here, position))
        else:
            yield from _unknown_below(below, inner, here)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)


def _unknown(mapping: Mapping[Any, Any], known: Any, path: KeyPath) -> Iterator[Finding]:
    for key in mapping:
        if key not in known:
            yield error((*path, key), f"unknown field{suggestion(str(key), known)}")


def _role_names(roles: list[dict[Any, Any]]) -> Iterator[Finding]:
    """Find all names of several roles. The spec's own check needs valid roles, and ends at the first name."""
    seen: dict[str, int] = {}
    for position, role in enumerate(roles):
        name = role.get("name")
        if isinstance(name, str) and seen.setdefault(name, position) != position:
            path = ("spec", "taskRoles", position, "name")
            yield error(path, f"is already the name of taskRoles[{seen[name]}]", value=name)


def _long_names(metadata: Any, roles: list[dict[Any, Any]]) -> Iterator[Finding]:
    framework = metadata.get("name") if isinstance(metadata, dict) else None
    for position, role in enumerate(roles):
        name, number = role.get("name"), whole(role.get("taskNumber", 1))
        if isinstance(framework, str) and isinstance(name, str) and type(number) is int and number > 0:
            longest = names.pod_name(framework, name, number - 1)
            if len(longest) > _LONGEST_HOST_NAME:
                yield warning(
                    ("spec", "taskRoles", position, "name"),
                    f"makes Pod names of up to {len(longest)} characters ({shown(longest)}): as host names they are "
                    f"cut after {_LONGEST_HOST_NAME}, and several Pods may get the same",
                )


def _sizes(spec: FrameworkSpec) -> Iterator[Finding]:
    if spec.task_count == 0:
        yield warning(("spec", "taskRoles"), "have no Task: the Framework runs nothing, and never completes by itself")
    if spec.task_count > _TASKS_THAT_FIT:
        yield warning(
            ("spec", "taskRoles"),
            f"have {spec.task_count:,} Tasks: beyond {_TASKS_THAT_FIT} or so a controller needs "
            "largeFrameworkCompression: true, or their status may not fit into an API object",
        )
    if spec.execution_type == "Stop":
        yield warning(("spec", "executionType"), "is Stop: a Framework that is created so completes without running")
