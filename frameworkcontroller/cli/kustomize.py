"""Builds the manifests of this package as ``kubectl kustomize`` does, for people who have the package alone.

It knows only the fields that our own kustomizations use. A test compares every overlay and component with kustomize.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import yaml

Json = dict[str, Any]

MANIFESTS: Final = Path(__file__).parents[1] / "manifests"
FILE: Final = "kustomization.yaml"
CONFIG_FILE: Final = "frameworkcontroller.yaml"

_CLUSTER_SCOPED: Final = re.compile("Cluster.*|CustomResourceDefinition|Namespace|ValidatingAdmissionPolicy.*")
_WITH_HASH: Final = "with hash"
"""The mark of a ConfigMap whose name gets the hash of its content."""
_LETTERS: Final = str.maketrans("013ae", "ghkmt")
"""Kustomize replaces these characters of a hash, so that it contains no rude words."""
_AS_GO: Final[Json] = {"ensure_ascii": False, "sort_keys": True, "separators": (",", ":")}


def build(
    base: Path, components: Iterable[Path] = (), *, image: str | None = None, config: str | None = None
) -> list[Json]:
    """Return the objects of a folder and of components after it.

    ``image``: of all containers. ``config``: the text of the controller's configuration.
    """
    namespace = _read(base).get("namespace")
    made = _add(MANIFESTS, {"resources": [base], "components": components, "namespace": namespace}, [])
    for one in made:
        if config is not None and CONFIG_FILE in one.get("data", {}):
            one["data"] = {CONFIG_FILE: config}
        for container in _containers(one) if image is not None else ():
            container["image"] = image
    _add_hashes(made)
    return made


def _read(folder: Path) -> Json:
    content: Json
    (content,) = _load(folder / FILE)
    return content


def _load(file: Path) -> list[Any]:
    # The loader in C is several times faster for the CRD.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return list(yaml.load_all(file.read_bytes(), Loader=loader))


def _add(folder: Path, given: Json, made: list[Json]) -> list[Json]:
    """Add the objects of a kustomization, and return all after its changes."""
    for path in (folder / name for name in given.get("resources", ())):
        made += _add(path, _read(path), []) if path.is_dir() else _load(path)
    for generated in given.get("configMapGenerator", ()):
        _generate(folder, generated, made)
    for path in (folder / name for name in given.get("components", ())):
        made = _add(path, _read(path), made)
    for patch in given.get("patches", ()):
        (change,) = _load(folder / patch["path"]) if "path" in patch else yaml.safe_load_all(patch["patch"])
        if "target" in patch:
            for one in made:
                if _is_target(one, patch["target"]):
                    _change(one, change)
        elif change["$patch"] == "delete":
            made = [one for one in made if _name(one) != _name(change)]
    _set_fields(given, made)
    return made


def _generate(folder: Path, given: Json, made: list[Json]) -> None:
    files = [name.rpartition("=")[0::2] for name in given["files"]]
    data = {key or name: (folder / name).read_text(encoding="utf-8") for key, name in files}
    if given.get("behavior") == "replace":
        (replaced,) = (one for one in made if _name(one) == ("ConfigMap", given["name"]))
        replaced["data"] = data
        return
    options = given.get("options", {})
    fields = {**given, **options}
    metadata = {key: fields[key] for key in ("name", "namespace", "labels") if key in fields}
    one = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    made.append(one if options.get("disableNameSuffixHash") else {**one, _WITH_HASH: True})


def _set_fields(given: Json, made: list[Json]) -> None:
    labels = [pair for one in given.get("labels", ()) for pair in one["pairs"].items()]
    accounts = [name for kind, name in map(_name, made) if kind == "ServiceAccount"]
    for one in made:
        kind, metadata = one["kind"], one["metadata"]
        if namespace := given.get("namespace"):
            for subject in one.get("subjects", ()):
                if subject["kind"] == "ServiceAccount" and subject["name"] in accounts:
                    subject["namespace"] = namespace
            if not _CLUSTER_SCOPED.fullmatch(kind):
                metadata["namespace"] = namespace
            elif kind == "Namespace":
                metadata["name"] = namespace
        if labels:
            metadata["labels"] = {**metadata.get("labels", {}), **dict(labels)}
        for replicas in given.get("replicas", ()):
            if _name(one) == ("StatefulSet", replicas["name"]):
                one["spec"]["replicas"] = replicas["count"]
        for image in given.get("images", ()):
            for container in _containers(one):
                if container["image"].partition(":")[0] == image["name"]:
                    container["image"] = f"{image['name']}:{image['newTag']}"


def _name(one: Json) -> tuple[str, str]:
    return one["kind"], one["metadata"]["name"]


def _pod(one: Json) -> Json:
    found: Json = one.get("spec", {}).get("template", {}).get("spec", {})
    return found


def _containers(one: Json) -> Iterator[Json]:
    yield from _pod(one).get("containers", ())


def _is_target(one: Json, target: Json) -> bool:
    key, _, value = target.get("labelSelector", "").partition("=")
    if key and one["metadata"].get("labels", {}).get(key) != value:
        return False
    wanted = zip((target.get("kind"), target.get("name")), _name(one), strict=True)
    return all(pattern is None or re.fullmatch(pattern, text) for pattern, text in wanted)


def _change(one: Json, operations: list[Json]) -> None:
    """Apply a JSON patch."""
    for operation in operations:
        *path, last = operation["path"].removeprefix("/").split("/")
        place: Any = one
        for step in path:
            place = place[int(step) if isinstance(place, list) else step]
        value = deepcopy(operation.get("value"))
        key = last if isinstance(place, dict) else len(place) if last == "-" else int(last)
        match operation["op"]:
            case "add" if isinstance(place, list):
                place.insert(key, value)
            case "add" | "replace":
                place[key] = value
            case "remove":
                del place[key]


def _add_hashes(made: list[Json]) -> None:
    """Name ConfigMaps by their content, so that a change of it replaces the Pods."""
    renamed = {}
    for one in (one for one in made if one.pop(_WITH_HASH, False)):
        name = one["metadata"]["name"]
        text = json.dumps({"data": one["data"], "kind": one["kind"], "name": ""}, **_AS_GO)
        for character in "<>&":
            text = text.replace(character, f"\\u{ord(character):04x}")
        digest = hashlib.sha256(text.encode()).hexdigest()[:10].translate(_LETTERS)
        renamed[name] = one["metadata"]["name"] = f"{name}-{digest}"
    for one in made:
        for volume in _pod(one).get("volumes", ()):
            if "configMap" in volume:
                volume["configMap"]["name"] = renamed[volume["configMap"]["name"]]
