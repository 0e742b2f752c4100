"""Manifest files: reading, errors, and the API server's defaults."""

import io
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.resources import CONFIGMAPS, NAMESPACES
from frameworkcontroller.local.apiserver.restserver import ApiServer
from frameworkcontroller.local.manifest_files import ManifestError, create_all, read_manifests
from tests.support.virtual_clock import wall

GOOD = """\
# A comment before anything.
---
apiVersion: v1
kind: ConfigMap
metadata: {name: first, annotations: {when: 2026-01-31, day: "yes"}}
---
{"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "second-"}}
---
"""


def write(folder: Path, text: str, name: str = "f.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_documents_of_all_kinds_in_order(tmp_path: Path) -> None:
    items = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}],
    }
    paths = [write(tmp_path, GOOD), write(tmp_path, orjson.dumps(items).decode(), "l.json")]
    manifests = read_manifests(paths)
    assert [str(manifest) for manifest in manifests] == [
        f"{tmp_path}/f.yaml: document 1 (ConfigMap first)",
        f"{tmp_path}/f.yaml: document 2 (Namespace second-)",
        f"{tmp_path}/l.json: document 1, item 1 (Pod p)",
    ]
    # JSON has no dates: a string that looks like one is text.
    assert manifests[0].body["metadata"]["annotations"] == {"when": "2026-01-31", "day": "yes"}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: b: c", ":1: document 1: is not YAML: mapping values are not allowed here"),
        (
            "{apiVersion: v1, kind: A, metadata: {name: a}}\n---\nfoo: *bar",
            ":3: document 2: is not YAML: found undefined alias 'bar'",
        ),
        ("- a", ": document 1: must be a mapping, not list"),
        ("text", ": document 1: must be a mapping, not str"),
        ("{}", ": document 1: metadata: is required"),
        ("metadata: 5", ": document 1: metadata: must be a mapping"),
        ("metadata: {name: a}", ": document 1: apiVersion: is required"),
        ("{apiVersion: 1, metadata: {name: a}}", ": document 1: apiVersion: must be text (put it in quotes): 1"),
        ("{apiVersion: v1, metadata: {name: a}}", ": document 1: kind: is required"),
        ("{apiVersion: v1, kind: A, metadata: {}}", ": document 1: metadata.generateName: is required"),
        (
            "{apiVersion: v1, kind: A, metadata: {name: 7}}",
            ": document 1: metadata.name: must be text (put it in quotes): 7",
        ),
        (
            "{apiVersion: v1, kind: A, metadata: {name: a, namespace: 7}}",
            ": document 1: metadata.namespace: must be text (put it in quotes): 7",
        ),
        ("{kind: List, items: 5}", ": document 1: items: must be a list"),
        (
            "{apiVersion: v1, kind: A, metadata: {name: a}, 1: 2}",
            ": document 1: cannot be represented in JSON: Dict key must be str",
        ),
        ("a: &a [*a]", ": document 1: metadata: is required"),
        ("[" * 5000, ": document 1: is nested too deeply, or contains itself"),
        ("a: 99999-99-99T99:99:99Z\nb: !!timestamp 2026-99-99", ": document 1: is not YAML: month must be in 1..12"),
    ],
)
def test_an_unusable_file_is_named(tmp_path: Path, text: str, error: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ManifestError) as caught:
        read_manifests([path])
    # Python 3.14 adds which month it was.
    assert str(caught.value).split("\n")[0].removesuffix(", not 99") == f"{path}{error}"


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("{}"))
    with pytest.raises(ManifestError) as caught:
        read_manifests([Path("-")])
    assert str(caught.value) == "standard input: document 1: metadata: is required"


def test_all_errors_are_reported_at_once(tmp_path: Path) -> None:
    paths = [
        tmp_path / "absent.yaml",
        write(tmp_path, "{}\n---\n{}", "bad.yaml"),
        write(tmp_path, GOOD),
        tmp_path,
    ]
    (tmp_path / "latin.yaml").write_bytes(b"caf\xe9")
    with pytest.raises(ManifestError) as caught:
        read_manifests([*paths, tmp_path / "latin.yaml"])
    assert str(caught.value).split("\n") == [
        f"{tmp_path}/absent.yaml: cannot be read: No such file or directory",
        f"{tmp_path}/bad.yaml: document 1: metadata: is required",
        f"{tmp_path}/bad.yaml: document 2: metadata: is required",
        f"{tmp_path}: cannot be read: Is a directory",
        f"{tmp_path}/latin.yaml: is not UTF-8 text (byte 3)",
    ]


@pytest.fixture
async def client() -> AsyncIterator[KubeClient]:
    async with ApiServer(wall=wall) as server, KubeClient(Connection.to_address(server.url)) as client:
        yield client


@pytest.mark.virtual_clock
async def test_objects_are_created_in_their_namespaces(client: KubeClient, tmp_path: Path) -> None:
    text = GOOD + "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: third, namespace: kube-system}\n"
    created = await create_all(client, read_manifests([write(tmp_path, text)]))
    assert [body["metadata"].get("namespace") for _, body in created] == ["default", None, "kube-system"]
    generated = created[1][1]["metadata"]["name"]
    assert generated.startswith("second-")
    assert orjson.loads(await client.get(NAMESPACES, generated))["metadata"]["name"] == generated
    assert orjson.loads(await client.get(CONFIGMAPS, "third", "kube-system"))["metadata"]["uid"]


@pytest.mark.virtual_clock
@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "{apiVersion: example.com/v1, kind: A, metadata: {name: a}}",
            "document 1 (A a): apiVersion: the API server does not serve example.com/v1",
        ),
        (
            "{apiVersion: v1, kind: Gadget, metadata: {name: a}}",
            "document 1 (Gadget a): kind: the API server has no Gadget in v1",
        ),
        (
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: nowhere}}",
            'document 1 (ConfigMap a): namespaces "nowhere" not found',
        ),
        (
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: A_B}}",
            'document 1 (ConfigMap A_B): metadata.name: Invalid value: "A_B": a lowercase RFC 1123 subdomain',
        ),
        (
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, dada: {b: c}}",
            'document 1 (ConfigMap a): ConfigMap in version "v1" cannot be handled as a ConfigMap: '
            'strict decoding error: unknown field "dada"',
        ),
        (
            "{apiVersion: ../../version, kind: A, metadata: {name: a}}",
            "document 1 (A a): apiVersion: the API server does not serve ../../version",
        ),
    ],
)
async def test_an_object_refused_by_the_api_server_is_named(
    client: KubeClient, tmp_path: Path, text: str, error: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ManifestError) as caught:
        await create_all(client, read_manifests([path]))
    assert str(caught.value).startswith(f"{path}: {error}")
