"""Creates a Pod's volumes as directories, and lists the mounts of its containers.

Supported: emptyDir, hostPath, persistentVolumeClaim, configMap, secret, downwardAPI, and projected of the last three.
Data from the API server is not updated after the Pod's start, except tokens with an audience of their own. Other kinds
need a network, a driver or privileges: those that are mapped to a directory of this machine use that, others fail the
Pod.
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
from frameworkcontroller.local.kubelet.podsources import ContainerConfigError, PodSources

Json = Mapping[str, Any]

SUPPORTED: Final = ("emptyDir", "hostPath", "persistentVolumeClaim", "configMap", "secret", "downwardAPI", "projected")

_IDENTITY: Final[Mapping[str, tuple[str, ...]]] = {
    "nfs": ("server", "path"),
    "glusterfs": ("endpoints", "path"),
    "cephfs": ("path",),
    "azureFile": ("shareName",),
    "azureDisk": ("diskName",),
    "csi": ("driver",),
    "flexVolume": ("driver",),
    "iscsi": ("targetPortal", "iqn"),
    "rbd": ("pool", "image"),
    "awsElasticBlockStore": ("volumeID",),
    "gcePersistentDisk": ("pdName",),
}
"""The fields that identify a volume of each kind that can be mapped to a directory."""

_DEFAULT_MODE: Final = 0o644
_HOST_PATH_TYPES: Final = {
    "Directory": stat.S_ISDIR,
    "File": stat.S_ISREG,
    "Socket": stat.S_ISSOCK,
    "CharDevice": stat.S_ISCHR,
    "BlockDevice": stat.S_ISBLK,
}


class _File(NamedTuple):
    """One file of a volume; ``private``: only for the Pod's user, regardless of the volume's mode."""

    data: bytes
    mode: int
    private: bool = False


class UnsupportedVolume(Exception):
    """A volume that is not supported here; the text says what to do."""


def parse_map(text: str) -> tuple[str, Path]:
    """Parse ``KIND:IDENTITY=DIRECTORY``, such as ``nfs:SERVER:/PATH=DIRECTORY``. Raise ValueError."""
    identity, _, directory = text.rpartition("=")
    kind, _, rest = identity.partition(":")
    if not directory or not rest:
        raise ValueError(f"{text!r} is not of the form nfs:SERVER:/PATH=DIRECTORY")
    if kind not in _IDENTITY:
        raise ValueError(f"{kind!r} is none of {', '.join(_IDENTITY)}")
    if not Path(directory).is_dir():
        raise ValueError(f"{directory}: is not a directory")
    return identity, Path(directory).resolve()


def _identity(volume: Json) -> str:
    """Return ``KIND:IDENTITY`` of a volume of another kind; "" if it cannot be mapped."""
    for kind, fields in _IDENTITY.items():
        if source := volume.get(kind):
            return ":".join((kind, *(str(source.get(field) or "") for field in fields)))
    return ""


def check_volumes(pod: Json, mapped: Mapping[str, Path]) -> None:
    """Raise UnsupportedVolume if the Pod has a volume that is neither supported nor mapped to a directory."""
    for volume in pod["spec"].get("volumes") or ():
        kinds = [key for key in volume if key != "name"]
        identity = _identity(volume)
        if kinds and kinds[0] not in SUPPORTED and identity not in mapped:
            hint = f"; `local up --map-volume {identity}=DIRECTORY` uses a directory in its place" if identity else ""
            raise UnsupportedVolume(
                f'volume "{volume["name"]}" is a {kinds[0]}, which the local cluster does not support: '
                f"use emptyDir, hostPath or persistentVolumeClaim, or a real cluster{hint}"
            )


async def make_volumes(
    pod: Json,
    directory: Path,
    claims: Path,
    downward: DownwardApi,
    sources: PodSources,
    service_account: Mapping[str, bytes],
    user: tuple[int, int] | None = None,
    mapped: Mapping[str, Path] | None = None,
) -> dict[str, Path]:
    """Create the Pod's volumes below ``directory``; return their paths by name.

    ``claims`` has a directory for each claim, by uid. ``mapped``: directories of other volumes, by identity. ``user``:
    user and group of token files; None: this process's.

    Raises ConfigError if a reference is missing, KubeError if that cannot be determined, OSError.
    """
    made: dict[str, Path] = {}
    for volume in pod["spec"].get("volumes") or ():
        path = directory / volume["name"]
        claim = volume.get("persistentVolumeClaim")
        if claim:
            path = claims / await sources.claim(claim.get("claimName") or "")
        if found := (mapped or {}).get(_identity(volume)):
            made[volume["name"]] = found
            continue
        if volume.get("hostPath"):
            made[volume["name"]] = _host_path(volume["hostPath"])
            continue
        made[volume["name"]] = path
        if not path.exists():
            path.mkdir(parents=True)
            path.chmod(0o777)
        if volume.get("projected"):
            for source in volume["projected"].get("sources") or ():
                mode = volume["projected"].get("defaultMode")
                _write(path, await _files(pod, source, mode, downward, sources, service_account), user)
        else:
            _write(path, await _files(pod, volume, None, downward, sources, service_account), user)
    return made


_USUAL_TOKEN_SEC: Final = 3600
_RENEW_AFTER: Final = 0.8
"""The part of a token's life after which kubelets renew it."""


def renewal_sec(pod: Json) -> float | None:
    """Seconds after which the tokens in the Pod's volumes are renewed, None if there are none to renew."""
    lives = [token.get("expirationSeconds") or _USUAL_TOKEN_SEC for _, token in _own_tokens(pod)]
    return _RENEW_AFTER * min(lives) if lives else None


async def renew_tokens(
    pod: Json, volumes: Mapping[str, Path], sources: PodSources, user: tuple[int, int] | None
) -> None:
    """Replace the tokens in the Pod's volumes. Raises ConfigError, KubeError, OSError."""
    for volume, source in _own_tokens(pod):
        path = volumes[volume] / _inside(source["path"])
        new = path.with_name(f"{path.name}.new")
        new.unlink(missing_ok=True)
        write_new(new, await sources.token(pod, source), 0o600, user)
        new.replace(path)


def _own_tokens(pod: Json) -> list[tuple[str, Json]]:
    """The tokens with an audience of their own, with the names of their volumes."""
    return [
        (volume["name"], token)
        for volume in pod["spec"].get("volumes") or ()
        for source in (volume.get("projected") or {}).get("sources") or ()
        if (token := source.get("serviceAccountToken")) and token.get("audience")
    ]


async def _files(
    pod: Json,
    source: Json,
    mode: int | None,
    downward: DownwardApi,
    sources: PodSources,
    service_account: Mapping[str, bytes],
) -> dict[str, _File]:
    """The files of one source, with modes, by path in the volume."""
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
        # The API server takes the cluster's own token only.
        own = bool(reference.get("audience"))
        token = await sources.token(pod, reference) if own else service_account.get("token", b"")
        return {reference["path"]: _File(token, 0o600, private=True)}
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
            raise ContainerConfigError(f"{kind} references non-existent key: {item['key']}")
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
        raise ContainerConfigError(f"hostPath {path} does not exist")
    elif kind and not _HOST_PATH_TYPES[kind](path.stat().st_mode):
        raise ContainerConfigError(f"hostPath {path} is not a {kind}")
    return path


def _inside(path: str) -> PurePosixPath:
    """Check that a path stays below its volume."""
    relative = PurePosixPath(path)
    if relative.is_absolute() or ".." in relative.parts:
        raise ContainerConfigError(f"path {path!r} leads out of its volume")
    return relative


# --- mounts of a container --------------------------------------------------------------------------------------------


def container_mounts(
    pod: Json, container: Json, volumes: Mapping[str, Path], env: Mapping[str, str]
) -> list[tuple[Path, str, bool]]:
    """The container's mounts: (source, mountPath, read-only). Raises ConfigError."""
    read_only = {
        volume["name"]
        for volume in pod["spec"].get("volumes") or ()
        if any(isinstance(source, dict) and source.get("readOnly") for source in volume.values())
    }
    mounts = []
    for mount in container.get("volumeMounts") or ():
        source = volumes.get(mount["name"])
        if source is None:
            raise ContainerConfigError(f"volume {mount['name']} is not defined")
        sub_path = mount.get("subPath") or expand(mount.get("subPathExpr") or "", env)
        if sub_path:
            source = source / _inside(sub_path)
            if not source.exists():
                source.mkdir(parents=True)
                source.chmod(0o777)
        target = mount["mountPath"] if mount["mountPath"].startswith("/") else f"/{mount['mountPath']}"
        mounts.append((source, target, bool(mount.get("readOnly")) or mount["name"] in read_only))
    return mounts


def volume_variables(volumes: Mapping[str, Path]) -> dict[str, str]:
    """``FC_LOCAL_VOLUME_{NAME}`` for each volume: its path on the machine, valid in every container."""
    return {f"FC_LOCAL_VOLUME_{re.sub('[^A-Z0-9]', '_', name.upper())}": str(path) for name, path in volumes.items()}


class PathMap:
    """Replaces mountPaths in text with the volumes' paths, where mounts are impossible.

    It matches whole path segments where a path can begin: ``/data`` is replaced in ``--in=/data/x``, but not in
    ``/mnt/data`` or ``/database``. Paths inside programs and scripts are not replaced.
    """

    def __init__(self, mounts: list[tuple[Path, str, bool]]) -> None:
        self._paths = {target.rstrip("/"): str(source) for source, target, _ in mounts if target.rstrip("/")}
        longest_first = sorted(self._paths, key=len, reverse=True)
        self._pattern = re.compile(rf"(?<![\w./-])(?:{'|'.join(map(re.escape, longest_first))})(?![\w.-])")

    def rewrite(self, text: str) -> str:
        """Replace the paths in a text."""
        return self._pattern.sub(lambda found: self._paths[found[0]], text) if self._paths else text
