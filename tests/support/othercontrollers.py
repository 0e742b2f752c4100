"""The resources of other controllers: their manifests in examples/moving/before, and the schemas of their fields.

``otherfields`` has the names of the fields and the values of enumerations, one file for each resource. The
CustomResourceDefinitions themselves are not part of the project. They are looked for in ``../shared/crds`` next to the
repository, or in the folder that the variable OTHER_CRDS names; the names of the files do not matter. With them,
``python -m tests.support.othercontrollers`` writes the files again.
"""

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson
import yaml
from kubernetes_asyncio.client import models

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import ApiError, NotFound
from frameworkcontroller.kube.resources import CRDS, Resource
from tests.support.eventually import eventually
from tests.support.examples import BEFORE, ROOT

Json = dict[str, Any]

CRDS_FOLDER: Final = Path(os.environ.get("OTHER_CRDS") or ROOT.parent / "shared/crds")


def manifest(name: str) -> Json:
    """The manifest ``name``.yaml before the move."""
    body: Json = yaml.safe_load((BEFORE / f"{name}.yaml").read_text())
    return body


@cache
def _crds() -> dict[tuple[str, str], Json]:
    """By group and kind. JSON is YAML; only the parser in C reads megabytes in a second."""
    found = {}
    for path in sorted(CRDS_FOLDER.glob("*.*")) if CRDS_FOLDER.is_dir() else ():
        if path.suffix not in (".json", ".yaml", ".yml"):
            continue
        for document in yaml.load_all(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(document, dict) and document.get("kind") == "CustomResourceDefinition":
                found[document["spec"]["group"], document["spec"]["names"]["kind"]] = document
    return found


def crd_of(body: Json) -> Json | None:
    """The CustomResourceDefinition of an object without descriptions, and its version alone; None if there is none."""
    group, _, version = body["apiVersion"].partition("/")
    crd = _crds().get((group, body["kind"]))
    if crd is None:
        return None
    versions = [{**one, "storage": True} for one in crd["spec"]["versions"] if one["name"] == version]
    assert versions, f"{CRDS_FOLDER}: {body['kind']} has no version {version}"
    spec = {key: crd["spec"][key] for key in ("group", "names", "scope")}
    slim: Json = _without_descriptions(
        {
            "apiVersion": crd["apiVersion"],
            "kind": crd["kind"],
            "metadata": {"name": crd["metadata"]["name"], "annotations": crd["metadata"].get("annotations") or {}},
            "spec": {**spec, "versions": versions},
        }
    )
    return slim


@asynccontextmanager
async def served(client: KubeClient, crd: Json) -> AsyncIterator[Resource]:
    """Let the API server serve the resource of that CustomResourceDefinition, in place of another test's."""
    spec, name = crd["spec"], crd["metadata"]["name"]
    version, kind, plural = spec["versions"][0]["name"], spec["names"]["kind"], spec["names"]["plural"]
    resource = Resource(spec["group"], version, plural, kind, namespaced=spec["scope"] == "Namespaced")
    await _remove(client, name)
    await client.create(CRDS, orjson.dumps(crd))

    async def is_served() -> None:
        answer = orjson.loads(await client.get(CRDS, name))
        conditions = (answer.get("status") or {}).get("conditions") or []
        assert ("Established", "True") in {(one["type"], one["status"]) for one in conditions}
        try:
            await client.list(resource)
        except ApiError as error:
            raise AssertionError("its storage is not ready") from error

    try:
        await eventually(is_served)
        yield resource
    finally:
        await _remove(client, name)


async def _remove(client: KubeClient, name: str) -> None:
    async def is_gone() -> None:
        try:
            await client.delete(CRDS, name)
        except NotFound:
            return
        raise AssertionError(name)

    await eventually(is_gone)


def _without_descriptions(value: Any) -> Any:
    """Without the texts of a schema, which make a CRD too large for etcd."""
    if isinstance(value, dict):
        return {
            key: _without_descriptions(one)
            for key, one in value.items()
            if not (key == "description" and isinstance(one, str))
        }
    return [_without_descriptions(one) for one in value] if isinstance(value, list) else value


def fields_of(name: str) -> dict[str, list[str]]:
    """The paths of all fields of the resource's spec, lists without brackets, with the values of enumerations.

    A Pod template is one field.
    """
    if name == "job":
        return {path: [] for path in _fields_of_model("V1JobSpec", "")}
    lines = (line.partition(":") for line in fields_file(name).read_text().splitlines() if not line.startswith("#"))
    return {path: values.split() for path, _, values in lines}


def fields_file(name: str) -> Path:
    """The file of the resource's fields."""
    return Path(__file__).parent / "otherfields" / f"{name}.txt"


def fields_of_crd(crd: Json) -> dict[str, list[str]]:
    """Likewise, of a CustomResourceDefinition."""
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return dict(_fields(schema["properties"]["spec"], ""))


def _fields(schema: Json, path: str) -> Iterator[tuple[str, list[str]]]:
    while schema.get("type") == "array":
        schema = schema["items"]
    properties = schema.get("properties") or {}
    if "containers" in (properties.get("spec", {}).get("properties") or {}):
        properties = {}
    if path and not properties:
        yield path, [str(value) for value in schema.get("enum", []) if value]
    for name, below in properties.items():
        yield from _fields(below, f"{path}.{name}" if path else name)


def _fields_of_model(model: str, path: str) -> Iterator[str]:
    types = models.__dict__[model].openapi_types
    names = models.__dict__[model].attribute_map
    for attribute, kind in types.items():
        below = f"{path}.{names[attribute]}" if path else names[attribute]
        inner = kind.removeprefix("list[").removesuffix("]")
        if inner in models.__dict__ and inner not in ("V1PodTemplateSpec", "V1LabelSelector"):
            yield from _fields_of_model(inner, below)
        else:
            yield below


def fields_in(spec: Mapping[str, Any]) -> list[str]:
    """The paths of the fields that a spec has, down to values, lists without brackets."""
    return sorted(set(_fields_in(spec, "")))


def _fields_in(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for name, below in value.items():
            yield from _fields_in(below, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value:
        for one in value:
            yield from _fields_in(one, path)
    else:
        yield path


def _write() -> None:
    for path in sorted(BEFORE.glob("*.yaml")):
        if (crd := crd_of(manifest(path.stem))) is None:
            continue
        file = fields_file(path.stem)
        head = [line for line in file.read_text().splitlines() if line.startswith("#")] if file.exists() else []
        lines = [" ".join([f"{field}:" if values else field, *values]) for field, values in fields_of_crd(crd).items()]
        file.write_text("\n".join([*head, *lines]) + "\n")


if __name__ == "__main__":
    _write()
