"""Checks of host names, together with the Services of the same file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from frameworkcontroller.api import names
from frameworkcontroller.api.problems import KeyPath
from frameworkcontroller.commands.lint.findings import Finding, error, warning


def check_services(framework: Mapping[Any, Any], services: Sequence[Mapping[Any, Any]]) -> Iterator[Finding]:
    """Check a Framework of host names, by its network or by hand. Malformed fields are reported elsewhere."""
    metadata, spec = _mapping(framework.get("metadata")), _mapping(framework.get("spec"))
    name, network = metadata.get("name"), spec.get("network")
    beside: dict[str, Mapping[Any, Any]] = {}
    for service in services:
        of_service = _mapping(service.get("metadata"))
        if of_service.get("namespace") == metadata.get("namespace"):
            beside[str(of_service.get("name"))] = _mapping(service.get("spec"))
    if network is None:
        for path, subdomain in _set_by_hand(spec):
            wanted = str(subdomain).replace(names.placeholder(names.FRAMEWORK_NAME), str(name))
            # A Service that selects a role does more than that of a network.
            if beside.get(wanted, {}).get("selector") == {names.FRAMEWORK_NAME: name}:
                text = f"with Service {wanted} of this file: spec.network sets it and hostname, and makes the Service"
                yield warning(path, text, value=subdomain)
    elif isinstance(network, dict) and network.get("enableDNSHostnames") is not False:
        made = str(network.get("subdomain") or name)
        if made in beside:
            text = f"makes Service {made}, which this file makes, too: the Framework will not start"
            yield error(("spec", "network"), f"{text} (Stalled, NamingConflict); remove the Service")
        for path, value in _set_by_hand(spec):
            text = "takes the place of what spec.network sets: no placeholder knows the host names of these Pods"
            yield warning(path, text, value=value)


def _set_by_hand(spec: Mapping[Any, Any]) -> Iterator[tuple[KeyPath, Any]]:
    """Yield the subdomains in templates, or hostnames where there is no subdomain."""
    roles = spec.get("taskRoles")
    for position, role in enumerate(roles if isinstance(roles, list) else ()):
        pod = _mapping(_mapping(_mapping(role).get("task")).get("pod")).get("spec")
        for field in ("subdomain", "hostname"):
            if value := _mapping(pod).get(field):
                yield ("spec", "taskRoles", position, "task", "pod", "spec", field), value
                break


def _mapping(value: object) -> Mapping[Any, Any]:
    return value if isinstance(value, dict) else {}
