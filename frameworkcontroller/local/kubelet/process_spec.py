"""Translates a container of a Pod into a process: command, environment, mounts, user."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from frameworkcontroller.local.kubelet.downward import DownwardApi
from frameworkcontroller.local.kubelet.environment import environment, expand
from frameworkcontroller.local.kubelet.images import LocalImage, NoCommand, argv, repository
from frameworkcontroller.local.kubelet.podaccess import SERVICE_ACCOUNT_DIRECTORY, ApiAccess
from frameworkcontroller.local.kubelet.podfiles import PodFiles, hosts_file
from frameworkcontroller.local.kubelet.podhosts import in_domain
from frameworkcontroller.local.kubelet.podsources import PodSources
from frameworkcontroller.local.kubelet.supervisor import ProcessSpec
from frameworkcontroller.local.kubelet.volumes import (
    PathMap,
    UnsupportedVolume,
    check_volumes,
    container_mounts,
    volume_variables,
)

Json = Mapping[str, Any]

TERMINATION_LOG: Final = "/dev/termination-log"
_MAX_HOSTNAME: Final = 63
_MAX_FQDN: Final = 64


class RootRefused(Exception):
    """A container that must not run as root on a cluster that does; the text says what to do."""


def container_manifest(pod: Json, name: str) -> Json:
    """The container or init container with that name. Raises KeyError if there is none."""
    spec = pod["spec"]
    for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
        if container["name"] == name:
            found: Json = container
            return found
    raise KeyError(name)


def hostname(pod: Json) -> str:
    """The host name in the Pod's processes."""
    own = _own_names(pod)
    return own[0 if pod["spec"].get("setHostnameAsFQDN") else -1]


def _own_names(pod: Json) -> list[str]:
    """The Pod's full name, if it has a subdomain, and its short one."""
    spec, metadata = pod["spec"], pod["metadata"]
    name: str = spec.get("hostname") or metadata["name"]
    short = name[:_MAX_HOSTNAME].rstrip("-.")
    if not spec.get("subdomain"):
        return [short]
    return [in_domain(f"{short}.{spec['subdomain']}", metadata["namespace"])[0], short]


def hosts(pod: Json, address: str) -> str:
    """The text of the Pod's /etc/hosts, without other Pods. Raises OSError if its host name is too long for Linux."""
    name = hostname(pod)
    if len(name) > _MAX_FQDN:
        raise OSError(
            f"Failed to construct FQDN from Pod hostname and cluster domain, FQDN {name} is too long "
            f"({_MAX_FQDN} characters is the max, {len(name)} characters requested)"
        )
    aliases: dict[str, list[str]] = {}
    for item in pod["spec"].get("hostAliases") or ():
        aliases.setdefault(item["ip"], []).extend(item.get("hostnames") or ())
    return hosts_file(address, _own_names(pod), aliases)


def resolves_names(pod: Json) -> bool:
    """Whether its DNS would be the cluster's."""
    policy = pod["spec"].get("dnsPolicy") or "ClusterFirst"
    return policy == "ClusterFirstWithHostNet" or (policy == "ClusterFirst" and not pod["spec"].get("hostNetwork"))


@dataclass(slots=True)
class PodSurroundings:
    """The environment shared by the containers of one Pod."""

    manifest: Json
    files: PodFiles
    downward: DownwardApi
    sources: PodSources
    volumes: Mapping[str, Path] = field(default_factory=dict)
    gpus: Mapping[str, str] | None = None
    """By container: the GPUs that it sees, separated by commas. None: all of the machine."""

    def gpu_variables(self, container: str) -> dict[str, str]:
        """The variables by which CUDA finds the GPUs of a container, and no others."""
        if self.gpus is None:
            return {}
        return {"CUDA_VISIBLE_DEVICES": self.gpus[container], "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@dataclass(frozen=True, slots=True)
class Machine:
    """The environment shared by all Pods: API access, known images, PATH, and log size."""

    access: ApiAccess
    images: Mapping[str, LocalImage]
    path: str
    log_limit: int
    volumes: Mapping[str, Path] = field(default_factory=dict)
    """Directories in place of network volumes, by the identity of these."""


class ProcessRefusal(NamedTuple):
    """Why a Pod can never run here, and which container is the cause."""

    reason: str
    container: str
    message: str


def refusal(machine: Machine, pod: Json) -> ProcessRefusal | None:
    """Why this Pod can never run here; None if it may."""
    containers = [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
    for container in containers:
        try:
            argv(container, machine.images)
            user_of(pod, container)
        except (NoCommand, RootRefused) as error:
            return ProcessRefusal(type(error).__name__, container["name"], str(error))
    try:
        check_volumes(pod, machine.volumes)
    except UnsupportedVolume as error:
        return ProcessRefusal(type(error).__name__, containers[0]["name"], str(error))
    return None


async def process_spec(
    machine: Machine, pod: PodSurroundings, name: str, instance: int, *, mounts_work: bool
) -> ProcessSpec:
    """Create the files and the process spec of one instance of a container.

    Raises ConfigError or KubeError if a reference is unavailable now, NoCommand, OSError.
    """
    files, volumes, access, images = pod.files, pod.volumes, machine.access, machine.images
    container = container_manifest(pod.manifest, name)
    user, group, groups = user_of(pod.manifest, container)
    owner = None if user is None else (user, group)
    namespace = pod.manifest["metadata"]["namespace"]
    await asyncio.to_thread(files.make_for, name, instance, owner, access, namespace)
    values = await environment(container, pod.downward, pod.sources, access.service_variables())
    mounts = container_mounts(pod.manifest, container, volumes, values)
    message = files.termination(name, instance)
    mounts.append((message, container.get("terminationMessagePath") or TERMINATION_LOG, False))
    if pod.manifest["spec"].get("automountServiceAccountToken") is not False and not any(
        target.rstrip("/") == SERVICE_ACCOUNT_DIRECTORY for _, target, _ in mounts
    ):
        mounts.append((files.service_account(name), SERVICE_ACCOUNT_DIRECTORY, True))
    command = [expand(word, values) for word in argv(container, images)]
    home = files.home(name)
    directory = container.get("workingDir") or str(home)
    if mounts_work:
        # So that the Pod's processes can resolve its name, which the machine does not know.
        mounts.append((files.hosts, "/etc/hosts", False))
    else:
        rewrite = PathMap(mounts).rewrite
        command = [rewrite(word) for word in command]
        values = {key: rewrite(value) for key, value in values.items()}
        directory = rewrite(directory)
        mounts = []
    image = images.get(repository(container.get("image") or ""))
    env = {
        "PATH": machine.path,
        "HOME": str(home),
        "TMPDIR": str(files.temporary(name)),
        "HOSTNAME": hostname(pod.manifest),
        **access.local_variables(files.kubeconfig(name)),
        **volume_variables(volumes),
        "FC_LOCAL_TERMINATION_LOG": str(message),
        **(image.env if image else {}),
        **values,
        # Last: a container must not use another one's GPUs.
        **pod.gpu_variables(name),
    }
    return ProcessSpec(
        argv=command,
        env=env,
        directory=directory,
        log=files.log(name, instance),
        log_limit=machine.log_limit,
        hostname=hostname(pod.manifest),
        mounts=tuple((str(source), target, read_only) for source, target, read_only in mounts),
        user=user,
        group=group,
        groups=groups,
    )


def user_of_all(pod: Json) -> tuple[int, int] | None:
    """User and group of the Pod's containers, if all run as one user other than the cluster's."""
    spec = pod["spec"]
    found = {user_of(pod, item)[:2] for item in [*(spec.get("initContainers") or ()), *spec["containers"]]}
    user, group = found.pop()
    return None if found or user is None else (user, group)


def user_of(pod: Json, container: Json) -> tuple[int | None, int, tuple[int, ...]]:
    """User, group and supplemental groups by securityContext; None is the cluster's user.

    Raises RootRefused if it would be root and must not be. Ignored unless the cluster runs as root.
    """
    of_pod = pod["spec"].get("securityContext") or {}
    of_both = {
        **of_pod,
        **{key: value for key, value in (container.get("securityContext") or {}).items() if value is not None},
    }
    user = of_both.get("runAsUser")
    if os.geteuid() != 0:
        return None, 0, ()
    if not user and of_both.get("runAsNonRoot"):
        raise RootRefused(
            f'container "{container["name"]}" has runAsNonRoot, but the local cluster runs as root: '
            "set runAsUser, or run the cluster as another user"
        )
    if user is None:
        return None, 0, ()
    groups = [*(of_pod.get("supplementalGroups") or ())]
    if of_pod.get("fsGroup") is not None:
        groups.append(of_pod["fsGroup"])
    return user, of_both.get("runAsGroup") or 0, tuple(groups)
