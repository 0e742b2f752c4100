"""Reads manifest files (YAML or JSON, with any number of documents) and creates their objects."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from frameworkcontroller.api.yamldocuments import ERRORS, documents, error_text
from frameworkcontroller.api.yamldocuments import place as place_of
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import ApiError, NotFound
from frameworkcontroller.kube.resources import Resource

DEFAULT_NAMESPACE = "default"
_STANDARD_INPUT = Path("-")


class ManifestError(Exception):
    """Unusable files. The text has one line per mistake, with file, document and field."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One document of a file. ``place`` is its position, for messages."""

    place: str
    api_version: str
    kind: str
    name: str
    namespace: str | None
    body: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.place} ({self.kind} {self.name})"


def read_manifests(paths: Sequence[Path]) -> list[Manifest]:
    """Read all documents of all files, in order; a ``List`` counts as its items, and ``-`` is standard input.

    Raises:
        ManifestError: a file cannot be read, or a document is not an API object; the text lists all mistakes.
    """
    manifests: list[Manifest] = []
    wrong: list[str] = []
    for path in paths:
        try:
            for place, document in _documents(path):
                try:
                    manifests.append(_manifest(place, document))
                except ManifestError as error:
                    wrong.append(str(error))
        except ManifestError as error:
            wrong.append(str(error))
    if wrong:
        raise ManifestError("\n".join(wrong))
    return manifests


async def create_all(client: KubeClient, manifests: Sequence[Manifest]) -> list[tuple[Manifest, dict[str, Any]]]:
    """Create the objects in order. Returns each with the API server's answer.

    Raises:
        ManifestError: the API server refused one; the previous ones are created.
        KubeError: the API server cannot be reached.
    """
    resources: dict[str, dict[str, Resource]] = {}
    created = []
    for manifest in manifests:
        if manifest.api_version not in resources:
            resources[manifest.api_version] = await _served(client, manifest)
        resource = resources[manifest.api_version].get(manifest.kind)
        if resource is None:
            raise ManifestError(f"{manifest}: kind: the API server has no {manifest.kind} in {manifest.api_version}")
        namespace = (manifest.namespace or DEFAULT_NAMESPACE) if resource.namespaced else None
        try:
            # Like kubectl, treat an unknown field as an error.
            answer = await client.raw(
                "POST", resource.path(namespace), body=orjson.dumps(manifest.body), query={"fieldValidation": "Strict"}
            )
        except ApiError as error:
            raise ManifestError("\n".join(f"{manifest}: {line}" for line in _reasons(error))) from error
        created.append((manifest, orjson.loads(answer)))
    return created


def _documents(path: Path) -> Iterator[tuple[str, Any]]:
    file = "standard input" if path == _STANDARD_INPUT else str(path)
    try:
        text = sys.stdin.read() if path == _STANDARD_INPUT else path.read_text(encoding="utf-8")
    except OSError as error:
        raise ManifestError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ManifestError(f"{file}: is not UTF-8 text (byte {error.start})") from None
    number = 0
    try:
        # JSON is YAML, so one parser suffices.
        for document, _ in documents(text):
            number += 1
            place = f"{file}: document {number}"
            if isinstance(document, dict) and document.get("kind") == "List":
                items = document.get("items")
                if not isinstance(items, list):
                    raise ManifestError(f"{place}: items: must be a list")
                yield from ((f"{place}, item {position}", item) for position, item in enumerate(items, 1))
            elif document is not None:
                yield place, document
    except ERRORS as error:
        line, problem = error_text(error)
        raise ManifestError(f"{place_of(file, line)}: document {number + 1}: {problem}") from None


def _manifest(place: str, document: Any) -> Manifest:
    if not isinstance(document, dict):
        raise ManifestError(f"{place}: must be a mapping, not {type(document).__name__}")
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        raise ManifestError(f"{place}: metadata: {'must be a mapping' if 'metadata' in document else 'is required'}")
    api_version, kind = _text(place, document, "apiVersion"), _text(place, document, "kind")
    name = _text(f"{place}: metadata", metadata, "name" if metadata.get("name") else "generateName")
    namespace = _text(f"{place}: metadata", metadata, "namespace") if metadata.get("namespace") else None
    try:
        orjson.dumps(document)
    except TypeError as error:
        raise ManifestError(f"{place}: cannot be represented in JSON: {error}") from None
    return Manifest(place, api_version, kind, name, namespace, document)


def _text(place: str, holder: dict[Any, Any], field: str) -> str:
    value = holder.get(field)
    place = f"{place}.{field}" if place.endswith("metadata") else f"{place}: {field}"
    if not value:
        raise ManifestError(f"{place}: is required")
    if not isinstance(value, str):
        raise ManifestError(f"{place}: must be text (put it in quotes): {value}")
    return value


async def _served(client: KubeClient, manifest: Manifest) -> dict[str, Resource]:
    """The served resources of the manifest's group and version, by kind."""
    group, _, version = manifest.api_version.rpartition("/")
    path = f"/apis/{quote(group, safe='')}" if group else "/api"
    try:
        answer = orjson.loads(await client.raw("GET", f"{path}/{quote(version, safe='')}"))
    except NotFound:
        raise ManifestError(f"{manifest}: apiVersion: the API server does not serve {manifest.api_version}") from None
    return {
        item["kind"]: Resource(group, version, item["name"], item["kind"], namespaced=item["namespaced"])
        for item in answer["resources"]
        # A slash marks a subresource.
        if "/" not in item["name"]
    }


def _reasons(error: ApiError) -> list[str]:
    causes = error.details.get("causes") or []
    told = [f"{cause['field']}: {cause.get('message', '')}" for cause in causes if cause.get("field")]
    return told or [error.message]
