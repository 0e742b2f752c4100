"""Discovery: what the server serves, in the legacy documents and in the aggregated one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from frameworkcontroller.local.apiserver.served import ServedType


def api_versions(address: str) -> dict[str, Any]:
    """``/api``: APIVersions; ``address`` is the server's ``host:port``."""
    raise NotImplementedError


def api_group_list(types: Iterable[ServedType], address: str) -> dict[str, Any]:
    """``/apis``: APIGroupList."""
    raise NotImplementedError


def api_group(types: Iterable[ServedType], group: str, address: str) -> dict[str, Any] | None:
    """``/apis/GROUP``: APIGroup; None if there is no such group."""
    raise NotImplementedError


def api_resource_list(types: Iterable[ServedType], group: str, version: str) -> dict[str, Any] | None:
    """``/api/v1`` (group "") and ``/apis/GROUP/VERSION``: APIResourceList; None if there is no such version."""
    raise NotImplementedError


def aggregated(types: Iterable[ServedType], *, core: bool, version: str = "v2") -> dict[str, Any]:
    """``/api`` (core) or ``/apis`` as APIGroupDiscoveryList of apidiscovery.k8s.io/``version`` (v2 or v2beta1)."""
    raise NotImplementedError


def root_paths(types: Iterable[ServedType]) -> dict[str, Any]:
    """``/``: the paths that exist."""
    raise NotImplementedError


def version_info(git_version: str) -> dict[str, Any]:
    """``/version``, as a Kubernetes of ``git_version`` (such as ``v1.32.0+frameworkcontroller``)."""
    raise NotImplementedError
