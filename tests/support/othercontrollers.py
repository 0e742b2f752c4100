"""The resources of other controllers: their manifests in examples/moving/before, and the schemas of their fields.

The schemas of CustomResourceDefinitions are not part of the project. They are looked for in ``../shared/crds`` next to
the repository, or in the folder that the variable OTHER_CRDS names; the names of the files do not matter.
"""

import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes_asyncio.client import models

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


def _without_descriptions(value: Any) -> Any:
    """Without the texts of a schema, which make a CRD too large for etcd."""
    if isinstance(value, dict):
        return {
            key: _without_descriptions(one)
            for key, one in value.items()
            if not (key == "description" and isinstance(one, str))
        }
    return [_without_descriptions(one) for one in value] if isinstance(value, list) else value


def fields_of_crd(crd: Json) -> list[str]:
    """The paths of all fields of the spec, lists without brackets; a Pod template is one field."""
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return list(_fields(schema["properties"]["spec"], ""))


def _fields(schema: Json, path: str) -> Iterator[str]:
    while schema.get("type") == "array":
        schema = schema["items"]
    properties = schema.get("properties") or {}
    if "containers" in (properties.get("spec", {}).get("properties") or {}):
        properties = {}
    if path and not properties:
        yield path
    for name, below in properties.items():
        yield from _fields(below, f"{path}.{name}" if path else name)


def values_of(crd: Json, field: str) -> list[str]:
    """The values that a field of the spec may have."""
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    for name in field.split("."):
        schema = schema["properties"][name]
        schema = schema.get("items", schema)
    values: list[str] = schema["enum"]
    return values


def fields_of_job() -> list[str]:
    """The paths of all fields of a Job's spec, likewise."""
    return list(_fields_of_model("V1JobSpec", ""))


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
