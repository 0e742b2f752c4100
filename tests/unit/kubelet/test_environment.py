"""References in commands and environments, the downward API, and substitutes for mounts."""

from pathlib import Path
from typing import Any

import pytest

from frameworkcontroller.local.kubelet.downward import DownwardApi
from frameworkcontroller.local.kubelet.environment import expand
from frameworkcontroller.local.kubelet.images import LocalImage, NoCommand, argv, repository
from frameworkcontroller.local.kubelet.podsources import ContainerConfigError
from frameworkcontroller.local.kubelet.volumes import (
    PathMap,
    UnsupportedVolume,
    check_volumes,
    container_mounts,
    parse_map,
)
from tests.support.pods import bound, pod_manifest


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("plain", "plain"),
        ("$(A)", "1"),
        ("x$(A)y$(B)z", "x1y22z"),
        ("$(NO)", "$(NO)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("$A", "$A"),
        ("$", "$"),
        ("cost: 5$", "cost: 5$"),
        ("$(A", "$(A"),
        ("$()", "$()"),
        ("$(A$(B)", "$(A$(B)"),
        ("$(C)", "$(A)"),
        ("$(A)$(A)", "11"),
    ],
)
def test_references(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1", "B": "22", "C": "$(A)"}) == expanded


def downward(**container: Any) -> DownwardApi:
    manifest = pod_manifest(
        {"name": "main", **container},
        labels={"a": 'quote"d', "b": "x"},
        annotations={"FC_TASK_INDEX": "4"},
        serviceAccountName="robot",
    )
    return DownwardApi(bound(manifest), "127.16.0.9")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "f-r-0"),
        ("metadata.namespace", "default"),
        ("metadata.labels['b']", "x"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['FC_TASK_INDEX']", "4"),
        ("metadata.labels", 'a="quote\\"d"\nb="x"'),
        ("spec.nodeName", "local"),
        ("spec.serviceAccountName", "robot"),
        ("status.podIP", "127.16.0.9"),
        ("status.podIPs", "127.16.0.9"),
        ("status.hostIP", "127.0.0.1"),
    ],
)
def test_fields(path: str, value: str) -> None:
    assert downward().field(path) == value


def test_a_field_that_is_none() -> None:
    with pytest.raises(ContainerConfigError, match=r"unsupported fieldPath: spec\.hostname"):
        downward().field("spec.hostname")


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ({"resource": "limits.memory"}, str(64 << 20)),
        ({"resource": "limits.memory", "divisor": "1Mi"}, "64"),
        ({"resource": "limits.memory", "divisor": "1Gi"}, "1"),
        ({"resource": "requests.cpu"}, "1"),
        ({"resource": "requests.cpu", "divisor": "1m"}, "250"),
        ({"resource": "requests.memory"}, "0"),
        ({"resource": "limits.memory", "containerName": "main"}, str(64 << 20)),
    ],
)
def test_resources(reference: dict[str, Any], value: str) -> None:
    api = downward(resources={"limits": {"memory": "64Mi"}, "requests": {"cpu": "250m"}})
    assert api.resource(reference, "main") == value


def test_an_unset_limit_is_the_capacity_of_the_node() -> None:
    assert int(downward().resource({"resource": "limits.cpu"}, "main")) >= 1
    with pytest.raises(ContainerConfigError, match="container other not found"):
        downward().resource({"resource": "limits.cpu", "containerName": "other"}, "main")


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("/mnt/data", "/V/d"),
        ("/mnt/data/", "/V/d/"),
        ("/mnt/data/file.txt", "/V/d/file.txt"),
        (". /mnt/data/injector.sh; cat </mnt/data/x", ". /V/d/injector.sh; cat </V/d/x"),
        ("--in=/mnt/data --out=/out:/mnt/data/sub/x", "--in=/V/d --out=/V/o:/V/s/x"),
        ("'/mnt/data'", "'/V/d'"),
        ("/mnt/database", "/mnt/database"),
        ("/mnt/data.bak", "/mnt/data.bak"),
        ("/other/mnt/data", "/other/mnt/data"),
        ("x/out", "x/out"),
        ("/mnt", "/mnt"),
        ("", ""),
    ],
)
def test_paths_in_text(text: str, rewritten: str) -> None:
    paths = PathMap(
        [
            (Path("/V/d"), "/mnt/data/", False),
            (Path("/V/s"), "/mnt/data/sub", False),
            (Path("/V/o"), "/out", True),
        ]
    )
    assert paths.rewrite(text) == rewritten


def test_without_mounts_text_stays() -> None:
    assert PathMap([]).rewrite("/mnt/data") == "/mnt/data"


def test_mounts_of_a_container(tmp_path: Path) -> None:
    container = {
        "name": "main",
        "volumeMounts": [
            {"name": "v", "mountPath": "relative"},
            {"name": "v", "mountPath": "/b", "subPathExpr": "$(POD)/x", "readOnly": True},
        ],
    }
    pod = pod_manifest(volumes=[{"name": "v", "emptyDir": {}}])
    assert container_mounts(pod, container, {"v": tmp_path}, {"POD": "p"}) == [
        (tmp_path, "/relative", False),
        (tmp_path / "p" / "x", "/b", True),
    ]
    assert (tmp_path / "p" / "x").is_dir()
    for mount, complaint in [
        ({"name": "w", "mountPath": "/b"}, "volume w is not defined"),
        ({"name": "v", "mountPath": "/b", "subPath": "../x"}, "leads out of its volume"),
    ]:
        with pytest.raises(ContainerConfigError, match=complaint):
            container_mounts(pod, {"name": "main", "volumeMounts": [mount]}, {"v": tmp_path}, {})


def test_volumes_that_cannot_be_had() -> None:
    check_volumes(pod_manifest(volumes=[{"name": "a", "emptyDir": {}}, {"name": "b"}]), {})
    pod = pod_manifest(volumes=[{"name": "c", "nfs": {"server": "s", "path": "/x"}}])
    with pytest.raises(UnsupportedVolume, match=r'volume "c" is a nfs.*--map-volume nfs:s:/x=DIRECTORY'):
        check_volumes(pod, {"nfs:s:/": Path("/")})
    check_volumes(pod, {"nfs:s:/x": Path("/")})


def test_maps_of_volumes(tmp_path: Path) -> None:
    assert parse_map(f"nfs:s:/a=b={tmp_path}") == ("nfs:s:/a=b", tmp_path.resolve())
    for text, complaint in (
        ("nfs", "is not of the form nfs:SERVER:/PATH=DIRECTORY"),
        (f"nfs={tmp_path}", "is not of the form"),
        (f"emptyDir:x={tmp_path}", "'emptyDir' is none of nfs, "),
        ("nfs:s:/=/nowhere", "/nowhere: is not a directory"),
    ):
        with pytest.raises(ValueError, match=complaint):
            parse_map(text)


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("busybox", "busybox"),
        ("busybox:1.36", "busybox"),
        ("docker.io/library/busybox:1", "busybox"),
        ("docker.io/frameworkcontroller/frameworkbarrier:v1.0.0", "frameworkcontroller/frameworkbarrier"),
        ("example.com:5000/team/app", "example.com:5000/team/app"),
        ("example.com:5000/team/app:2@sha256:abc", "example.com:5000/team/app"),
    ],
)
def test_names_of_images(image: str, name: str) -> None:
    assert repository(image) == name


def test_command_of_a_container() -> None:
    known = {"team/tool": LocalImage(("python3", "-m", "tool"))}
    assert argv({"name": "c", "command": ["a"], "args": ["b"], "image": "team/tool:1"}, known) == ["a", "b"]
    assert argv({"name": "c", "args": ["-x"], "image": "team/tool:1"}, known) == ["python3", "-m", "tool", "-x"]
    assert argv({"name": "c", "args": ["sleep", "1"], "image": "busybox"}, known) == ["sleep", "1"]
    with pytest.raises(NoCommand, match='"c" has no command, and the local cluster does not pull its image "busybox"'):
        argv({"name": "c", "image": "busybox"}, known)
