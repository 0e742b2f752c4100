"""``print-manifests`` prints the objects that kustomize builds, and ``--check-config`` checks as a start does."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from frameworkcontroller.cli.kustomize import build
from frameworkcontroller.cli.main import main
from tests.integration.test_manifests import BUILT, MANIFESTS, apply, documents, overlaid
from tests.support.clusters import Cluster
from tests.support.kubectl import Kubectl

Json = dict[str, Any]

COMPONENTS = sorted(
    file.parent.name
    for file in MANIFESTS.rglob("kustomization.yaml")
    if yaml.safe_load(file.read_text())["kind"] == "Component"
)
AFTER = {
    "archive-cert-manager": ("archive", "dashboard"),
    "archive-monitoring": ("archive",),
    "archive-postgresql": ("archive",),
    "network-policies": ("archive", "dashboard"),
}
"""Components that other components precede."""
IN_ANY = ("critical", "gang", "history", "kueue", "network-policies")
"""Components for any base."""

pytestmark = pytest.mark.usefixtures("logging_as_before")


def by_name(made: list[Json]) -> dict[tuple[str, str, str], Json]:
    found = {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one for one in made}
    assert len(found) == len(made)
    return found


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[Json]:
    capsys.readouterr()
    assert main(["print-manifests", *arguments]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


@pytest.mark.parametrize("folder", BUILT, ids=str)
@pytest.mark.virtual_clock
async def test_an_overlay_is_as_kustomize_builds_it(
    kubectl: Kubectl, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    wanted = by_name(await documents(kubectl, folder))
    assert by_name(printed(capsys, str(folder).removeprefix("overlays/"))) == wanted


@pytest.mark.parametrize(
    ("folder", "component"),
    [
        *(("base", name) for name in COMPONENTS if "single" not in name),
        *(("overlays/single-namespace", name) for name in COMPONENTS if "single" in name or name in IN_ANY),
        ("overlays/single-namespace", "archive-monitoring"),
    ],
)
@pytest.mark.virtual_clock
async def test_a_component_is_as_kustomize_builds_it(
    kubectl: Kubectl, capsys: pytest.CaptureFixture[str], tmp_path: Path, folder: str, component: str
) -> None:
    end = "-single-namespace" if "single" in folder else ""
    names = [*(f"{name}{end}" for name in AFTER.get(component, ())), component]
    fields = {"namespace": "frameworks"} if "single" in folder else {}
    paths = [one if (MANIFESTS / "components" / one).is_dir() else f"../{one}" for one in names]
    wanted = by_name(await overlaid(kubectl, tmp_path, folder, *paths, **fields))
    assert by_name(printed(capsys, folder.removeprefix("overlays/"), *names)) == wanted


@pytest.mark.virtual_clock
async def test_image_and_configuration_are_replaced(
    kubectl: Kubectl, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    text = 'kueue: {mode: enabled}  # "quoted" <&> é\nleaderElection: {enabled: true}\n'
    (overlay / "frameworkcontroller.yaml").write_text(text)
    generator = {"name": "frameworkcontroller-config", "namespace": "frameworkcontroller", "behavior": "replace"}
    fields: Json = {
        "configMapGenerator": [{**generator, "files": ["frameworkcontroller.yaml"]}],
        "images": [{"name": "frameworkcontroller", "newName": "registry.example/fc", "newTag": "2"}],
    }
    wanted = by_name(await overlaid(kubectl, overlay, "overlays/full", "../monitoring", **fields))
    options = ("--config", str(overlay / "frameworkcontroller.yaml"), "--image", "registry.example/fc:2")
    assert by_name(printed(capsys, "full", "monitoring", *options)) == wanted


async def test_api_servers_accept_the_output(
    cluster: Cluster, kubectl: Kubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    if cluster.embedded:
        pytest.skip("the embedded API server does not validate them")
    made = [one for one in printed(capsys, "full", "critical") if one["kind"] != "PodDisruptionBudget"]
    await kubectl("create", "namespace", "frameworkcontroller")
    answer = await apply(cluster, kubectl, made, "--dry-run=server")
    assert answer.code == 0, answer.err
    assert len(re.findall(r"\(server dry run\)", answer.out)) == len(made)


def test_the_list_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["print-manifests", "--list"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    shipped = [*map(str, BUILT), *COMPONENTS]
    assert sorted(listed) == sorted(re.sub("^(overlays|components)/", "", one) for one in shipped)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["ful"], "there is no overlay 'ful'; did you mean full?"),
        (["base", "zzz"], "there is no component 'zzz'; --list shows all names"),
        (["single", "full"], "there is no component 'full'; --list shows all names"),
    ],
)
def test_wrong_names(capsys: pytest.CaptureFixture[str], names: list[str], said: str) -> None:
    capsys.readouterr()
    assert main(["print-manifests", *names]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"frameworkcontroller: print-manifests: {said}\n")


def test_a_wrong_configuration_is_not_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("workerNumber: -3\n")
    capsys.readouterr()
    assert main(["print-manifests", "--config", str(tmp_path / "c.yaml")]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"frameworkcontroller: {tmp_path}/c.yaml:1: workerNumber: -3: must be above 0\n")


# --- --check-config ---


@pytest.mark.parametrize("folder", BUILT, ids=str)
def test_shipped_configurations_are_valid(capsys: pytest.CaptureFixture[str], tmp_path: Path, folder: Path) -> None:
    file = tmp_path / "c.yaml"
    texts = [one["data"]["frameworkcontroller.yaml"] for one in build(MANIFESTS / folder) if is_configuration(one)]
    for text in texts:
        file.write_text(text)
        capsys.readouterr()
        assert main(["--check-config", str(file)]) == 0
        assert capsys.readouterr() == (f"{file}: valid\n", "")
    assert len(texts) == (0 if folder.name in ("users", "cluster") else 1)


def is_configuration(one: Json) -> bool:
    return one["kind"] == "ConfigMap" and "frameworkcontroller.yaml" in one["data"]


def test_every_mistake_is_named_and_nothing_contacted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No API server is named, and none is asked for. A start says the same."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    monkeypatch.delenv("KUBE_APISERVER_ADDRESS", raising=False)
    file = tmp_path / "c.yaml"
    file.write_text("kubeApiServerAddress: http://127.0.0.1:1\nworkerNumber: -3\nkueue: {mode: sometimes}\n")
    said = []
    for option in ("--check-config", "--config"):
        capsys.readouterr()
        assert main([option, str(file)]) == 2
        said.append(capsys.readouterr())
    assert said[0] == said[1]
    assert said[0].out == ""
    assert said[0].err.splitlines() == [
        f"frameworkcontroller: {file}:2: workerNumber: -3: must be above 0",
        f"frameworkcontroller: {file}:3: kueue.mode: 'sometimes': must be disabled or enabled",
    ]
    file.write_text("kubeApiServerAddress: http://127.0.0.1:1\n")
    assert main(["--check-config", str(file)]) == 0
    assert main(["--check-config", str(tmp_path / "absent")]) == 2
