"""Checks of host names: of ``spec.network``, and by hand, with Services of the same file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from frameworkcontroller.api import names
from frameworkcontroller.api.inputmodel import whole
from frameworkcontroller.api.problems import KeyPath, shown
from frameworkcontroller.api.spec import FrameworkSpec, check_hostnames
from frameworkcontroller.commands.lint.findings import Finding, Role, error, mapping, mappings, roles_of, warning

_HOST_LIST_BYTES: Final = 100_000_000
"""Of all Pods. An API server stores and sends them, and etcd has room for 2 GiB by default."""


def check_services(framework: Mapping[Any, Any], services: Sequence[Mapping[Any, Any]]) -> Iterator[Finding]:
    """Check the host names of a Framework, by its network or by hand. Malformed parts are reported elsewhere."""
    metadata, network = mapping(framework, "metadata"), mapping(framework, "spec").get("network")
    beside = {
        str(mapping(service, "metadata").get("name")): mapping(service, "spec")
        for service in services
        if mapping(service, "metadata").get("namespace") == metadata.get("namespace")
    }
    for position, made in _role_services(framework):
        if made in beside:
            text = f"makes Service {made}, which this file makes, too: the Framework will not start"
            place = ("spec", "network", "services", position)
            yield error(place, f"{text} (Stalled, NamingConflict); remove the Service")
    by_hand = [found for role in roles_of(framework) for found in _set_by_hand(role)]
    name = metadata.get("name")
    if network is None:
        for path, subdomain in by_hand:
            wanted = str(subdomain).replace(names.placeholder(names.FRAMEWORK_NAME), str(name))
            # A Service that selects a role does more than a network's.
            if mapping(beside.get(wanted)).get("selector") == {names.FRAMEWORK_NAME: name}:
                text = f"with Service {wanted} of this file: spec.network sets it and hostname, and makes the Service"
                yield warning(path, text, value=subdomain)
    elif isinstance(network, dict) and network.get("enableDNSHostnames") is not False:
        made = str(network.get("subdomain") or name)
        if made in beside:
            text = f"makes Service {made}, which this file makes, too: the Framework will not start"
            yield error(("spec", "network"), f"{text} (Stalled, NamingConflict); remove the Service")
        for path, value in by_hand:
            text = "replaces the name that spec.network sets: no placeholder knows the host names of these Pods"
            yield warning(path, text, value=value)


def _role_services(framework: Mapping[Any, Any]) -> Iterator[tuple[int, str]]:
    """The entries of ``spec.network.services``: the position of each, and the name of its Service."""
    name = str(mapping(framework, "metadata").get("name"))
    for position, one in mappings(mapping(framework, "spec", "network").get("services")):
        yield position, names.role_object(name, str(one.get("taskRole")))


def _set_by_hand(role: Role) -> list[tuple[KeyPath, Any]]:
    """The subdomain in a template, or the hostname where there is no subdomain."""
    found = [((*role.pod_path, "spec", field), role.pod_spec.get(field)) for field in ("subdomain", "hostname")]
    return [one for one in found if one[1]][:1]


def check_long_names(framework: Any, roles: Sequence[Role]) -> Iterator[Finding]:
    """Check the names of Pods, which are their host names without ``spec.network``."""
    for role in roles:
        name, number = role.body.get("name"), whole(role.body.get("taskNumber", 1))
        if isinstance(framework, str) and isinstance(name, str) and type(number) is int and number > 0:
            longest = names.pod_name(framework, name, number - 1)
            if len(longest) > names.MAX_HOSTNAME:
                yield warning(
                    (*role.path, "name"),
                    f"makes Pod names of up to {len(longest)} characters ({shown(longest)}): as host names they are "
                    f"cut after {names.MAX_HOSTNAME}, and several Pods may get the same",
                )


def check_network(framework: str, spec: FrameworkSpec) -> Iterator[Finding]:
    """Check host names and host lists of the Framework of that name, which is valid."""
    if (problem := check_hostnames(framework, spec)) is not None:
        yield Finding("error", problem)
        return
    sizes = {position: (path, place, size) for position, path, place, size in spec.host_list_sizes(framework)}
    for position, (path, place, size) in sizes.items():
        number = spec.task_roles[position].task_number
        if number * size > _HOST_LIST_BYTES:
            yield warning(
                path,
                f"each of {number:,} Pods has a list of {size:,} bytes, {number * size // 10**6} MB in all: the "
                "barrier writes the addresses of all Tasks into files",
                value=place.text,
            )
