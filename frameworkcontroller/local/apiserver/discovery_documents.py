"""Discovery documents, legacy and aggregated."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from typing import Any

from frameworkcontroller.local.apiserver.api_resources import ApiResource, Subresource

Json = dict[str, Any]

_VERSION = re.compile(r"v([0-9]+)(?:(alpha|beta)([0-9]+))?")
_STAGES = {"alpha": 0, "beta": 1, None: 2}


def api_versions(address: str) -> Json:
    """``/api``: APIVersions; ``address`` is the server's ``host:port``."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": _addresses(address)}


def api_group_list(types: Iterable[ApiResource], address: str) -> Json:
    """``/apis``: APIGroupList."""
    served = list(types)
    found = [_group(served, group) for group in _groups(served)]
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [{**group, "serverAddressByClientCIDRs": _addresses(address)} for group in found],
    }


def api_group(types: Iterable[ApiResource], group: str) -> Json | None:
    """``/apis/GROUP``: APIGroup; None if there is no such group."""
    served = list(types)
    if group not in _groups(served):
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(served, group)}


def api_resource_list(types: Iterable[ApiResource], group: str, version: str) -> Json | None:
    """``/api/v1`` (group "") and ``/apis/GROUP/VERSION``: APIResourceList; None if there is no such version."""
    found = [t for t in types if (t.group, t.version) == (group, version)]
    if not found:
        return None
    resources = [entry for t in sorted(found, key=lambda t: t.plural) for entry in _resources(t)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": found[0].group_version,
        "resources": resources,
    }


def aggregated(types: Iterable[ApiResource], *, core: bool, version: str = "v2") -> Json:
    """``/api`` (core) or ``/apis`` as APIGroupDiscoveryList of apidiscovery.k8s.io/``version`` (v2 or v2beta1)."""
    served = [t for t in types if (not t.group) == core]
    items = []
    for group in sorted({t.group for t in served}):
        versions = [
            {
                "version": name,
                "resources": [
                    _aggregated_resource(t)
                    for t in sorted(served, key=lambda t: t.plural)
                    if (t.group, t.version) == (group, name)
                ],
                "freshness": "Current",
            }
            for name in _versions(served, group)
        ]
        items.append({"metadata": {"name": group} if group else {}, "versions": versions})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }


def root_paths(types: Iterable[ApiResource], others: Iterable[str] = ()) -> Json:
    """``/``: the paths that exist, those of ``types`` and ``others``."""
    paths = {"/api", "/api/v1", "/apis", "/apis/", *others}
    for t in types:
        if t.group:
            paths |= {f"/apis/{t.group}", f"/apis/{t.group_version}"}
    return {"paths": sorted(paths)}


def version_info(git_version: str) -> Json:
    """``/version``, as a Kubernetes of ``git_version`` (such as ``v1.32.0+frameworkcontroller``)."""
    major, minor = git_version.removeprefix("v").split(".")[:2]
    return {
        "major": major,
        "minor": minor,
        "gitVersion": git_version,
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        # There is no Go here, but clients look for the platform in this field.
        "goVersion": "",
        "compiler": f"Python {platform.python_version()}",
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }


def version_rank(version: str) -> tuple[int, int, int, str]:
    """Sort key of an API's versions, best last: others, alpha, beta, stable; within those by number."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return (-1, 0, 0, version)
    return (_STAGES[found[2]], int(found[1]), int(found[3] or 0), version)


def _addresses(address: str) -> list[Json]:
    return [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]


def _groups(types: Iterable[ApiResource]) -> list[str]:
    """The named groups, in order of first appearance."""
    return list(dict.fromkeys(t.group for t in types if t.group))


def _versions(types: Iterable[ApiResource], group: str) -> list[str]:
    return sorted({t.version for t in types if t.group == group}, key=version_rank, reverse=True)


def _group(types: list[ApiResource], group: str) -> Json:
    versions = [{"groupVersion": f"{group}/{name}", "version": name} for name in _versions(types, group)]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resources(t: ApiResource) -> Iterable[Json]:
    entry: Json = {
        "name": t.plural,
        "singularName": t.singular,
        "namespaced": t.namespaced,
        "kind": t.kind,
        "verbs": list(t.verbs),
    }
    if t.short_names:
        entry["shortNames"] = list(t.short_names)
    if t.categories:
        entry["categories"] = list(t.categories)
    yield entry
    for sub in sorted(t.subresources, key=lambda sub: sub.name):
        entry = {"name": f"{t.plural}/{sub.name}", "singularName": "", "namespaced": t.namespaced}
        if sub.group is not None:
            entry |= {"group": sub.group, "version": sub.version}
        yield {**entry, "kind": sub.kind, "verbs": list(sub.verbs)}


def _aggregated_resource(t: ApiResource) -> Json:
    entry: Json = {
        "resource": t.plural,
        "responseKind": {"group": t.group, "version": t.version, "kind": t.kind},
        "scope": "Namespaced" if t.namespaced else "Cluster",
        "singularResource": t.singular,
        "verbs": list(t.verbs),
    }
    if t.short_names:
        entry["shortNames"] = list(t.short_names)
    if t.categories:
        entry["categories"] = list(t.categories)
    if t.subresources:
        entry["subresources"] = [_aggregated_subresource(t, s) for s in sorted(t.subresources, key=lambda s: s.name)]
    return entry


def _aggregated_subresource(t: ApiResource, sub: Subresource) -> Json:
    kind = {
        "group": t.group if sub.group is None else sub.group,
        "version": sub.version or t.version,
        "kind": sub.kind,
    }
    return {"subresource": sub.name, "responseKind": kind, "verbs": list(sub.verbs)}
