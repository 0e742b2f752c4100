"""How code reaches the Pods, besides their image."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
import subprocess
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from frameworkcontroller.api.problems import Problem
from frameworkcontroller.sdk.exceptions import InvalidSpec
from frameworkcontroller.sdk.podtemplates import CONTAINER, Json, merged, with_volume

FOLDER: Final = "/mnt/code"
"""The folder of the code in the container, first on PYTHONPATH."""

MAX_BYTES: Final = 900 * 1024
"""Of a ConfigMap's content: etcd takes 1 MiB with all metadata and base64."""

_VOLUME: Final = "code"
_GIT_IMAGE: Final = "alpine/git:2.47.2"
_SKIPPED: Final = frozenset({"__pycache__", ".git", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache"})
_PACKED: Final = "/mnt/packed/code.tgz"
_UNPACK: Final = "import sys, tarfile; tarfile.open(sys.argv[1]).extractall('.')"
"""Python is in every image that runs Python code; tar may not be."""
_COMMIT: Final = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_KEY: Final = re.compile(r"(?!\.\.)[-._a-zA-Z0-9]{1,253}(?<!^\.)")
"""A key of a ConfigMap."""

_PATH: Final = "PYTHONPATH"
_RESOLVE_SEC: Final = 60.0


class Code:
    """Code for the Pods of a Framework, made by `files`, `git` or `claim`. It is mounted at `FOLDER`, read-only.

    `FOLDER` is the working directory of the container "main", and first on its PYTHONPATH.
    """

    def __init__(self, kind: Literal["files", "git", "claim"], source: Mapping[str, str], content: Mapping[str, bytes]):
        """Use the functions of the class."""
        self.kind: Final = kind
        self._source = dict(source)
        self._content = dict(content)

    def __eq__(self, other: object) -> bool:
        """Compare sources and content."""
        mine = (self.kind, self._source, self._content)
        return isinstance(other, Code) and mine == (other.kind, other._source, other._content)

    def __hash__(self) -> int:
        return hash((self.kind, *sorted(self._source.items()), *sorted(self._content)))

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self._content or self._source.values()))
        return f"Code.{self.kind}({names})"

    @classmethod
    def files(cls, *paths: str | os.PathLike[str]) -> Code:
        """Files, and folders with all that is below them, in a ConfigMap. Names are relative to each path's parent.

        Raises:
            InvalidSpec: a path cannot be read, or all together have more than 900 KiB compressed.
        """
        found: dict[str, Path] = {}
        content: dict[str, bytes] = {}
        for path in map(Path, paths):
            # The name is the given one, also of a link.
            root = Path(os.path.abspath(path))  # noqa: PTH100 - links stay
            try:
                for file in sorted(root.rglob("*")) if root.is_dir() else [root]:
                    inner = file.relative_to(root.parent)
                    if file != root and (not file.is_file() or _SKIPPED.intersection(inner.parts)):
                        continue
                    name = inner.as_posix()
                    if found.setdefault(name, file) != file:
                        text = f"has the same name in the Pods as {found[name]}"
                        raise InvalidSpec([Problem(("code",), text, str(file))])
                    content[name] = file.read_bytes()
            except OSError as error:
                raise InvalidSpec([Problem(("code",), f"cannot be read: {error.strerror}", str(path))]) from None
        if not content:
            raise InvalidSpec([Problem(("code",), "has no file", ", ".join(map(str, paths)))])
        return cls("files", {}, {}).with_files(content)

    @classmethod
    def git(cls, url: str, *, commit: str, image: str = _GIT_IMAGE) -> Code:
        """A repository at a commit, which an init container of each Pod fetches. ``image``: one that has git.

        A branch or tag is resolved once, by the git of this machine when the Framework is submitted.
        """
        return cls("git", {"url": url, "commit": commit, "image": image}, {})

    @classmethod
    def claim(cls, name: str, path: str = "") -> Code:
        """A folder of a PersistentVolumeClaim that all Pods may mount. ``path``: within it."""
        return cls("claim", {"name": name, "path": path}, {})

    def resolved(self) -> Code:
        """Return the code with the commit of its branch or tag. It runs git, and takes up to a minute.

        Raises:
            InvalidSpec: there is no such branch or tag, or git cannot tell.
        """
        if self.kind != "git" or _COMMIT.fullmatch(self._source["commit"]):
            return self
        url, name = self._source["url"], self._source["commit"]
        try:
            found = subprocess.run(  # noqa: S603 - an option cannot follow --
                ["git", "ls-remote", "--", url, name, f"{name}^{{}}"],  # noqa: S607
                capture_output=True,
                text=True,
                timeout=_RESOLVE_SEC,
                check=False,
                env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
            )
        except (OSError, subprocess.SubprocessError) as error:
            text = f"cannot be resolved to a commit: {error}"
            raise InvalidSpec([Problem(("code", "commit"), text, name)]) from None
        refs = {ref: commit for commit, _, ref in (line.partition("\t") for line in found.stdout.splitlines())}
        # git also lists refs whose names only end with this one. An annotated tag has an object of its own; the ref
        # with ^{} has its commit.
        for ref in (f"refs/tags/{name}^{{}}", f"refs/tags/{name}", f"refs/heads/{name}", f"{name}^{{}}", name):
            if ref in refs:
                return Code("git", {**self._source, "commit": refs[ref]}, {})
        why = next((line for line in found.stderr.splitlines() if line.startswith(("fatal:", "error:"))), "")
        raise InvalidSpec([Problem(("code", "commit"), why or f"{url} has no such branch or tag", name)])

    def with_files(self, content: Mapping[str, bytes]) -> Code:
        """Return the code with further files.

        Raises:
            InvalidSpec: it is of another kind than "files", or too large.
        """
        if self.kind != "files":
            raise InvalidSpec([Problem(("code",), f"must be Code.files here, and is Code.{self.kind}")])
        made = Code("files", {}, {**self._content, **content})
        if (size := len(made._packed())) > MAX_BYTES:
            text = (
                f"{size:,} bytes compressed, where a ConfigMap has room for {MAX_BYTES:,}; use Code.git, Code.claim or "
                "an image"
            )
            raise InvalidSpec([Problem(("code",), text)])
        return made

    @property
    def configmap(self) -> str:
        """The name of the ConfigMap, by its content; "" if there is none."""
        if self.kind != "files":
            return ""
        digest = hashlib.sha256()
        for name, data in sorted(self._content.items()):
            digest.update(f"{len(name)}:{len(data)}:{name}".encode() + data)
        return f"framework-code-{digest.hexdigest()[:20]}"

    def manifest(self) -> Json:
        """Return the ConfigMap, without owner."""
        data = {"code.tgz": base64.b64encode(self._packed()).decode()}
        if self._is_flat:
            data = {name: base64.b64encode(text).decode() for name, text in sorted(self._content.items())}
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.configmap},
            "binaryData": data,
            "immutable": True,
        }

    def mounted(self, pod: Json) -> Json:
        """Return the Pod template, which has a container "main", with the code."""
        spec: Json = pod["spec"]
        main = next(one for one in spec["containers"] if one["name"] == CONTAINER)
        folder = {"name": _VOLUME, "mountPath": FOLDER}
        if self.kind == "claim":
            volume = {"name": _VOLUME, "persistentVolumeClaim": {"claimName": self._source["name"], "readOnly": True}}
            inner = {"subPath": self._source["path"]} if self._source["path"] else {}
            spec = with_volume(spec, volume, {**folder, "readOnly": True, **inner})
        elif self.kind == "git":
            spec = with_volume(spec, {"name": _VOLUME, "emptyDir": {}}, {**folder, "readOnly": True})
            fetch = 'git init -q . && git fetch -q --depth 1 "$URL" "$COMMIT" && git checkout -q FETCH_HEAD'
            env = [{"name": key.upper(), "value": self._source[key]} for key in ("url", "commit")]
            spec = _with_first(spec, self._source["image"], ["sh", "-c", fetch], env, [folder])
        elif self._is_flat:
            volume = {"name": _VOLUME, "configMap": {"name": self.configmap}}
            spec = with_volume(spec, volume, {**folder, "readOnly": True})
        else:
            spec = with_volume(spec, {"name": _VOLUME, "emptyDir": {}}, {**folder, "readOnly": True})
            spec = merged(spec, {"volumes": [{"name": "packed", "configMap": {"name": self.configmap}}]})
            packed = {"name": "packed", "mountPath": "/mnt/packed", "readOnly": True}
            unpack = ["python3", "-c", _UNPACK, _PACKED]
            spec = _with_first(spec, main.get("image"), unpack, [], [packed, folder])
        return {**pod, "spec": merged(spec, {"containers": [{"name": CONTAINER, "workingDir": FOLDER}]})}

    @staticmethod
    def on_path(pod: Json) -> Json:
        """Return the Pod template with the folder of the code first on the PYTHONPATH of "main"."""
        main = next(one for one in pod["spec"]["containers"] if one["name"] == CONTAINER)
        former = next((one for one in main.get("env") or () if one.get("name") == _PATH), {"value": ""})
        if "value" not in former or FOLDER in former["value"].split(":"):
            return pod
        path = {"name": _PATH, "value": ":".join(filter(None, (FOLDER, former["value"])))}
        return dict(merged(pod, {"spec": {"containers": [{"name": CONTAINER, "env": [path]}]}}))

    @property
    def _is_flat(self) -> bool:
        """Whether the files can be read in the ConfigMap: their names are keys, and they are small."""
        size = sum(map(len, self._content.values()))
        return size < MAX_BYTES // 2 and all(map(_KEY.fullmatch, self._content))

    def _packed(self) -> bytes:
        """Return the files as a gzip archive, the same for the same content."""
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as archive:
            for name, data in sorted(self._content.items()):
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                entry.mode = 0o644
                archive.addfile(entry, io.BytesIO(data))
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        return packer.compress(made.getvalue()) + packer.flush()


def _with_first(spec: Json, image: str | None, command: list[str], env: list[Json], mounts: list[Json]) -> Json:
    """Return the Pod's spec with an init container that fetches the code before all others."""
    first: dict[str, Any] = {"name": "code", "command": command, "volumeMounts": mounts, "workingDir": FOLDER}
    if image is not None:
        first["image"] = image
    if env:
        first["env"] = env
    others = [one for one in spec.get("initContainers") or () if one.get("name") != first["name"]]
    return {**spec, "initContainers": [first, *others]}
