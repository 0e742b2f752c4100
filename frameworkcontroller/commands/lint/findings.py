"""Findings of lint, and access to objects that may be malformed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from frameworkcontroller.api.problems import KeyPath, Problem


@dataclass(frozen=True, slots=True)
class Finding:
    """An error would be refused by the API server or the controller. A warning is about a likely mistake."""

    severity: Literal["error", "warning"]
    problem: Problem

    def __str__(self) -> str:
        return f"{self.severity}: {self.problem}"


def error(path: KeyPath, text: str, **value: object) -> Finding:
    """Return an error; ``value=`` is the value there, if it helps."""
    return Finding("error", Problem(path, text, **value))


def warning(path: KeyPath, text: str, **value: object) -> Finding:
    """Return a warning; ``value=`` is the value there, if it helps."""
    return Finding("warning", Problem(path, text, **value))


def mapping(value: object, *keys: str) -> Mapping[Any, Any]:
    """Return the mapping below the keys; an empty one if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def mappings(value: object) -> Iterator[tuple[int, Mapping[Any, Any]]]:
    """Yield the mappings in a list, with their positions."""
    return ((at, item) for at, item in enumerate(value if isinstance(value, list) else ()) if isinstance(item, dict))


class Role:
    """A TaskRole as it was written. Malformed parts are reported with the fields of the spec."""

    def __init__(self, position: int, body: Mapping[Any, Any]) -> None:
        self.body = body
        self.path: KeyPath = ("spec", "taskRoles", position)
        self.pod_path: KeyPath = (*self.path, "task", "pod")

    @cached_property
    def pod(self) -> Mapping[Any, Any]:
        """The Pod template."""
        return mapping(self.body, "task", "pod")

    @cached_property
    def pod_spec(self) -> Mapping[Any, Any]:
        """The spec of the Pod template."""
        return mapping(self.pod, "spec")

    def containers(self) -> Iterator[tuple[KeyPath, Mapping[Any, Any]]]:
        """Yield the init containers and containers, with their paths."""
        for field in ("initContainers", "containers"):
            for position, container in mappings(self.pod_spec.get(field)):
                yield (*self.pod_path, "spec", field, position), container


def roles_of(framework: Mapping[Any, Any]) -> list[Role]:
    """Return the roles of a Framework."""
    return [Role(position, body) for position, body in mappings(mapping(framework, "spec").get("taskRoles"))]
