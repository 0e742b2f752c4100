"""The variables, the volume and the mounts by which Pods report progress, and see a notice.

The variables have the names and the meaning of Kubeflow Trainer's (KEP-2779), which several libraries know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from frameworkcontroller.api import names

TOKEN_SECONDS: Final = 3600
"""The kubelet replaces a token when a fifth of this time is left."""


@dataclass(frozen=True, slots=True)
class ReportingPods:
    """Pods of one attempt that report to ``url`` with a token for ``audience``; no reports if ``url`` is "".

    ``configmap``: of the attempt. ``notice``: the volume shows the attempt's notice.
    """

    configmap: str
    url: str = ""
    audience: str = ""
    notice: bool = False

    def apply(self, metadata: dict[str, Any], spec: dict[str, Any], pod_name: str) -> None:
        """Add the volume and, in each container of the Pod's whole life, its mount and the variables."""
        volumes = spec.get("volumes")
        if volumes is not None and not isinstance(volumes, list):
            return
        containers = [*_containers(spec)]
        suffix = _unused_suffix(volumes or [], containers)
        volume, path = names.PROGRESS_VOLUME + suffix, names.PROGRESS_PATH + suffix
        mount = {"name": volume, "mountPath": path, "readOnly": True}
        env = [{"name": name, "value": value} for name, value in self._variables(path).items()]
        for container in containers:
            _add(container, "volumeMounts", [mount])
            _add_variables(container, env)
        if self.url and not spec.get("serviceAccountName") and not spec.get("serviceAccount"):
            # A token needs it, and not every API server has the admission plugin that sets it.
            spec["serviceAccountName"] = "default"
        spec["volumes"] = [*(volumes or []), {"name": volume, "projected": {"sources": self._sources()}}]

    def _variables(self, path: str) -> dict[str, str]:
        found = {names.NOTICE_FILE: f"{path}/{names.NOTICE_KEY}"} if self.notice else {}
        if self.url:
            found[names.SERVER_URL] = self.url
            found[names.SERVER_CA_CERT] = f"{path}/{names.CA_KEY}"
            found[names.SERVER_TOKEN] = f"{path}/{names.TOKEN_FILE}"
        return found

    def _sources(self) -> list[dict[str, Any]]:
        keys = [*([names.CA_KEY] if self.url else []), *([names.NOTICE_KEY] if self.notice else [])]
        # Optional: a Pod must start without a notice, and also if a user has removed the CA.
        configmap = {"name": self.configmap, "items": [{"key": key, "path": key} for key in keys], "optional": True}
        token = {"audience": self.audience, "expirationSeconds": TOKEN_SECONDS, "path": names.TOKEN_FILE}
        return [*([{"serviceAccountToken": token}] if self.url else []), {"configMap": configmap}]


def _containers(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The containers, and the init containers that run next to them (sidecars)."""
    for listed in ("initContainers", "containers"):
        for one in _dicts(spec.get(listed)):
            if listed == "containers" or one.get("restartPolicy") == "Always":
                yield one


def _dicts(listed: Any) -> Iterator[dict[str, Any]]:
    return (one for one in (listed if isinstance(listed, list) else ()) if isinstance(one, dict))


def _unused_suffix(volumes: list[Any], containers: Iterable[dict[str, Any]]) -> str:
    """The end of a volume's name, and of a path, that the template does not use."""
    taken = {one.get("name") for one in _dicts(volumes) if isinstance(one.get("name"), str)}
    for container in containers:
        for mount in _dicts(container.get("volumeMounts")):
            if isinstance(path := mount.get("mountPath"), str):
                taken.add(path.rstrip("/"))
    number = 1
    while True:
        suffix = "" if number == 1 else f"-{number}"
        if not taken & {names.PROGRESS_VOLUME + suffix, names.PROGRESS_PATH + suffix}:
            return suffix
        number += 1


def _add_variables(container: dict[str, Any], env: list[dict[str, Any]]) -> None:
    own = {one.get("name") for one in _dicts(container.get("env")) if isinstance(one.get("name"), str)}
    if names.SERVER_URL in own:
        # A URL of the user's goes with a CA and a token of the user's.
        own |= {names.SERVER_CA_CERT, names.SERVER_TOKEN}
    _add(container, "env", [one for one in env if one["name"] not in own])


def _add(container: dict[str, Any], key: str, added: list[dict[str, Any]]) -> None:
    """Add the elements before the template's own."""
    own = container.get(key)
    if added and (own is None or isinstance(own, list)):
        container[key] = [*added, *(own or [])]
