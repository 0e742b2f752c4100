"""Makes a Pod's volumes as directories, and says where a container has which.

Made here: emptyDir, hostPath, configMap, secret, downwardAPI, and projected of these. What was read from the API server
stays as it was when the Pod started. Other kinds need a network, a driver or privileges, and the Pod is refused.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

from frameworkcontroller.local.kubelet.downward import DownwardApi
from frameworkcontroller.local.kubelet.environment import expand
from frameworkcontroller.local.kubelet.podfiles import write_new
from frameworkcontroller.local.kubelet.sources import ConfigError, Sources

Json = Mapping[str, Any]

SUPPORTED: Final = ("emptyDir", "hostPath", "configMap", "secret", "downwardAPI", "projected")

_DEFAULT_MODE: Final = 0o644
_HOST_PATH_TYPES: Final = {
    "Directory": stat.S_ISDIR,
    "File": stat.S_ISREG,
    "Socket": stat.S_ISSOCK,
    "CharDevice": stat.S_ISCHR,
    "BlockDevice": stat.S_ISBLK,
}


class _File(NamedTuple):
    """One file of a volume; ``private``: for the Pod's user alone, whatever mode the volume asks for."""

    data: bytes
    mode: int
    private: bool = False


class UnsupportedVolume(Exception):
    """A volume that cannot be had here, now or later; the text says what to do."""


def check_volumes(pod: Json) -> None:
    """Raises UnsupportedVolume if the Pod has a volume of a kind that is not made here."""
    for volume in pod["spec"].get("volumes") or ():
        kinds = [key for key in volume if key != "name"]
        if kinds and kinds[0] not in SUPPORTED:
            raise UnsupportedVolume(
                f'volume "{volume["name"]}" is a {kinds[0]}, which Pods that run as local processes cannot have: '
                "use emptyDir or hostPath, or a cluster of machines"
            )


async def make_volumes(
    pod: Json,
    directory: Path,
    downward: DownwardApi,
    sources: Sources,
    service_account: Mapping[str, bytes],
    user: tuple[int, int] | None = None,
) -> dict[str, Path]:
    """Make the Pod's volumes below ``directory``; where each is, by its name.

    ``user``: the user and group to whom tokens are given, if not to the user of this process.

    Raises ConfigError if something that they refer to is missing, KubeError if that cannot be found out, OSError.
    """
    made: dict[str, Path] = {}
    for volume in pod["spec"].get("volumes") or ():
        path = directory / volume["name"]
        if volume.get("hostPath"):
            made[volume["name"]] = _host_path(volume["hostPath"])
            continue
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o777)
        made[volume["name"]] = path
        if volume.get("projected"):
            for source in volume["projected"].get("sources") or ():
                mode = volume["projected"].get("defaultMode")
                _write(path, await _files(source, mode, downward, sources, service_account), user)
        else:
            _write(path, await _files(volume, None, downward, sources, service_account), user)
    return made


async def _files(
    source: Json, mode: int | None, downward: DownwardApi, sources: Sources, service_account: Mapping[str, bytes]
) -> dict[str, _File]:
    """The files of one source, by their paths in the volume, with their modes."""
    for field, kind in (("configMap", "configmap"), ("secret", "secret")):
        if reference := source.get(field):
            entries = await sources.entries(kind, reference)
            usual = reference.get("defaultMode") or mode or _DEFAULT_MODE
            return {} if entries is None else _select(entries, reference, kind, usual)
    if reference := source.get("downwardAPI"):
        usual = reference.get("defaultMode") or mode or _DEFAULT_MODE
        return {
            item["path"]: _File(_downward(item, downward).encode(), item.get("mode") or usual)
            for item in reference.get("items") or ()
        }
    if reference := source.get("serviceAccountToken"):
        return {reference["path"]: _File(service_account.get("token", b""), 0o600, private=True)}
    return {}


def _select(entries: Mapping[str, bytes], reference: Json, kind: str, mode: int) -> dict[str, _File]:
    items = reference.get("items")
    if not items:
        return {key: _File(value, mode) for key, value in entries.items()}
    files = {}
    for item in items:
        if item["key"] in entries:
            files[item["path"]] = _File(entries[item["key"]], item.get("mode") or mode)
        elif not reference.get("optional"):
            raise ConfigError(f"{kind} references non-existent key: {item['key']}")
    return files


def _downward(item: Json, downward: DownwardApi) -> str:
    if reference := item.get("fieldRef"):
        return downward.field(reference.get("fieldPath") or "")
    return downward.resource(item.get("resourceFieldRef") or {}, "")


def _write(directory: Path, files: Mapping[str, _File], user: tuple[int, int] | None) -> None:
    for name, file in files.items():
        path = directory / _inside(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        write_new(path, file.data, file.mode, user if file.private else None)


def _host_path(volume: Json) -> Path:
    path, kind = Path(volume.get("path") or "/"), volume.get("type") or ""
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif kind == "FileOrCreate":
        path.touch()
    elif not path.exists():
        raise ConfigError(f"hostPath {path} does not exist")
    elif kind and not _HOST_PATH_TYPES[kind](path.stat().st_mode):
        raise ConfigError(f"hostPath {path} is not a {kind}")
    return path


def _inside(path: str) -> PurePosixPath:
    """A path below the volume that it belongs to."""
    relative = PurePosixPath(path)
    if relative.is_absolute() or ".." in relative.parts:
        raise ConfigError(f"path {path!r} leads out of its volume")
    return relative


# --- what a container mounts ------------------------------------------------------------------------------------------


def container_mounts(
    container: Json, volumes: Mapping[str, Path], env: Mapping[str, str]
) -> list[tuple[Path, str, bool]]:
    """Where the container has which directory or file: (source, mountPath, read-only). Raises ConfigError."""
    mounts = []
    for mount in container.get("volumeMounts") or ():
        source = volumes.get(mount["name"])
        if source is None:
            raise ConfigError(f"volume {mount['name']} is not defined")
        sub_path = mount.get("subPath") or expand(mount.get("subPathExpr") or "", env)
        if sub_path:
            source = source / _inside(sub_path)
            if not source.exists():
                source.mkdir(parents=True)
                source.chmod(0o777)
        target = mount["mountPath"]
        mounts.append((source, target if target.startswith("/") else f"/{target}", bool(mount.get("readOnly"))))
    return mounts


def volume_variables(volumes: Mapping[str, Path]) -> dict[str, str]:
    """``FC_LOCAL_VOLUME_{NAME}`` for each volume: where it is on the machine, which holds in every container."""
    return {f"FC_LOCAL_VOLUME_{re.sub('[^A-Z0-9]', '_', name.upper())}": str(path) for name, path in volumes.items()}


class PathMap:
    """Stands in for mounts where they cannot be made: replaces mountPaths in text by where the volumes really are.

    Only whole path segments count, and only where a path can begin: ``/data`` is replaced in ``--in=/data/x``, but not
    in ``/mnt/data`` or ``/database``. What programs and scripts have in themselves is out of reach.
    """

    def __init__(self, mounts: list[tuple[Path, str, bool]]) -> None:
        self._paths = {target.rstrip("/"): str(source) for source, target, _ in mounts if target.rstrip("/")}
        longest_first = sorted(self._paths, key=len, reverse=True)
        self._pattern = re.compile(rf"(?<![\w./-])(?:{'|'.join(map(re.escape, longest_first))})(?![\w.-])")

    def rewrite(self, text: str) -> str:
        """The text with the paths replaced."""
        return self._pattern.sub(lambda found: self._paths[found[0]], text) if self._paths else text
