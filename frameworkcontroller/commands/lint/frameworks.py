"""Checks of a Framework: its names and fields, and the errors of its spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError

from frameworkcontroller.api import names
from frameworkcontroller.api.problems import KeyPath, Problem
from frameworkcontroller.api.spec import FrameworkSpec, TaskRoleSpec, TaskSpec, problems_of
from frameworkcontroller.commands.lint import foreign
from frameworkcontroller.commands.lint.fieldtypes import check_fields, unknown_field
from frameworkcontroller.commands.lint.findings import Finding, Role, error, mapping, roles_of, warning
from frameworkcontroller.commands.lint.hostnames import check_long_names, check_network
from frameworkcontroller.commands.lint.pods import check_claims, check_pod
from frameworkcontroller.commands.lint.queues import check_queue
from frameworkcontroller.commands.lint.unlikely import check_spec

_TOP: Final = ("apiVersion", "kind", "metadata", "spec", "status")
_NAMES: Final = ("name", "generateName", "namespace")
_GENERATED: Final = "x" * 5


def check_framework(body: Mapping[Any, Any]) -> Iterator[Finding]:
    """Check an object of kind Framework."""
    yield from (unknown_field((key,), _TOP) for key in body if key not in _TOP)
    if body.get("apiVersion") != names.API_VERSION:
        yield error(("apiVersion",), f"must be {names.API_VERSION}", value=body.get("apiVersion"))
    if "status" in body:
        yield warning(("status",), "is written by the controller, and ignored when a Framework is created")
    yield from _metadata(body.get("metadata"))
    if "spec" not in body:
        yield error(("spec",), "is required: without one there is nothing to run")
        return
    spec = body["spec"]
    parsed, problems = _parsed(spec)
    roles, listed = roles_of(body), mapping(body, "spec").get("taskRoles")
    # The spec's own check of names needs valid roles, and ends at the first one.
    repeated = [*_repeated_names(roles)]
    refused = [Finding("error", _told(one)) for one in problems if one not in repeated]
    refused += [*_unknown_below(FrameworkSpec, spec, ("spec",)), *(Finding("error", one) for one in repeated)]
    yield from refused
    if not isinstance(spec, dict) or not isinstance(listed, list | None) or len(roles) != len(listed or ()):
        return
    if not roles:
        yield warning(("spec", "taskRoles"), "has no role: the Framework runs nothing, and never completes by itself")
        return
    yield from check_queue(body, roles)
    for role in roles:
        yield from check_pod(role, networked=any(spec.get(field) is not None for field in ("network", "coordinator")))
        yield from check_claims(role)
    name = mapping(body, "metadata").get("name")
    if spec.get("network") is None:
        yield from check_long_names(name, roles)
    if not refused and parsed is not None:
        # A wrong name is reported already, and says nothing of host names.
        if isinstance(name, str) and names.is_valid_name(name):
            yield from check_network(name, parsed)
        yield from check_spec(parsed)


def _metadata(metadata: Any) -> Iterator[Finding]:
    path: KeyPath = ("metadata",)
    if not isinstance(metadata, dict):
        yield error(path, "is required" if metadata is None else "must be a mapping")
        return
    others = {key: value for key, value in metadata.items() if key not in _NAMES}
    yield from check_fields(others, path, "V1ObjectMeta", closed=True)
    name, prefix, namespace = (metadata.get(field) for field in _NAMES)
    if name is None and prefix is None:
        yield error((*path, "name"), "is required")
    elif name is not None and not (isinstance(name, str) and names.is_valid_name(name)):
        yield error((*path, "name"), names.NAME_RULE, value=name)
    elif name is None and not (isinstance(prefix, str) and names.is_valid_name(prefix + _GENERATED)):
        text = f"and {len(_GENERATED)} characters more {names.NAME_RULE}"
        yield error((*path, "generateName"), text, value=prefix)
    if namespace is not None and not (isinstance(namespace, str) and names.is_label(namespace)):
        yield error((*path, "namespace"), "is not the name of a namespace", value=namespace)


def _parsed(spec: Any) -> tuple[FrameworkSpec | None, list[Problem]]:
    try:
        return FrameworkSpec.model_validate(spec, by_name=False, by_alias=True), []
    except ValidationError as refused:
        return None, [*problems_of(refused, spec)]


def _told(problem: Problem) -> Problem:
    """Name the action that a Framework has, if one was copied from another kind."""
    if problem.path[-1] == "action" and isinstance(problem.value, str) and problem.value in foreign.ACTIONS:
        kind, ours = foreign.ACTIONS[problem.value]
        return Problem(problem.path, f"is an action of {kind}; a Framework has {ours}", problem.value)
    return problem


def _repeated_names(roles: Sequence[Role]) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for position, role in enumerate(roles):
        name = role.body.get("name")
        if isinstance(name, str) and seen.setdefault(name, position) != position:
            yield Problem((*role.path, "name"), f"is already the name of taskRoles[{seen[name]}]", name)


def _unknown_below(model: type[BaseModel], value: Any, path: KeyPath) -> Iterator[Finding]:
    """Find fields that the API does not have, in this mapping and in those inside."""
    if not isinstance(value, dict):
        return
    fields = {info.alias or name: info.annotation for name, info in model.model_fields.items()}
    for found in value:
        if found not in fields:
            told = foreign.explain(str(found)) if model in (FrameworkSpec, TaskRoleSpec, TaskSpec) else ""
            yield error((*path, found), told) if told else unknown_field((*path, found), fields)
    for key, annotation in fields.items():
        inner, here = value.get(key), (*path, key)
        for below in (annotation, *get_args(annotation)):
            if isinstance(below, type) and issubclass(below, BaseModel):
                yield from _unknown_below(below, inner, here)
                for position, item in enumerate(inner if isinstance(inner, list) else ()):
                    yield from _unknown_below(below, item, (*here, position))
