"""Releases of the Helm chart on real control planes: install, upgrade, uninstall."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
import yaml

from frameworkcontroller import __version__
from tests.integration.test_chart import CHART
from tests.support.kubectl import find_helm, find_kubectl
from tests.support.realcluster import ControlPlane, find_assets

Json = dict[str, Any]

NAME: Final = "frameworkcontroller"
OLD: Final = ["--server-side=false", "--disable-openapi-validation"]
CRD: Final = "frameworks.frameworkcontroller.microsoft.com"


@dataclass
class Site:
    """A control plane without the CRD, and a home for helm."""

    plane: ControlPlane
    home: Path
    old: bool

    def run(self, program: Path | str, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [str(program), f"--kubeconfig={self.plane.kubeconfig}", f"--namespace={NAME}", *args]
        environment = {"HOME": str(self.home), "PATH": "/usr/bin:/bin"}
        return subprocess.run(command, input=stdin, env=environment, capture_output=True, text=True, check=False)

    def helm(self, *args: str) -> str:
        ran = self.run(find_helm(), *args)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def change(self, verb: str, chart: Path, *values: str) -> str:
        """Install or upgrade. Releases of API servers before 1.25 are not applied on the server: README.md."""
        options = OLD if self.old else []
        return self.helm(verb, NAME, str(chart), *options, *(f"--set={one}" for one in values))

    def kubectl(self, *args: str, stdin: str = "") -> str:
        ran = self.run(find_kubectl(), *args, stdin=stdin)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def get(self, *args: str) -> Json:
        found: Json = orjson.loads(self.kubectl("get", *args, "--output=json"))
        return found

    def properties(self) -> Json:
        """The fields of a Framework's spec that the CRD has."""
        (version,) = self.get("crd", CRD)["spec"]["versions"]
        found: Json = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        return found


@pytest.fixture
def site(plane_name: str, tmp_path: Path) -> Iterator[Site]:
    assets = find_assets(plane_name)
    assert assets is not None
    with ControlPlane(assets, crds=()) as plane:
        found = Site(plane, tmp_path, plane_name == "1.20")
        found.kubectl("create", "namespace", NAME)
        yield found


FRAMEWORK: Final = yaml.safe_dump(
    {
        "apiVersion": "frameworkcontroller.microsoft.com/v1",
        "kind": "Framework",
        "metadata": {"name": "f"},
        "spec": {
            "executionType": "Start",
            "retryPolicy": {"fancyRetryPolicy": False, "maxRetryCount": 0},
            "taskRoles": [],
        },
    }
)


def older_chart(folder: Path) -> Path:
    """The chart as of a version that did not know ``spec.network``."""
    chart = folder / "older"
    shutil.copytree(CHART, chart)
    metadata = chart / "Chart.yaml"
    metadata.write_text(metadata.read_text().replace(f"version: {__version__}", "version: 0.0.1", 1))
    file = chart / "templates/manifests/crd-frameworks.yaml"
    note, condition, *body, end = file.read_text().splitlines()
    crd = yaml.safe_load("\n".join(body))
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"]["network"], spec["x-kubernetes-validations"]
    file.write_text("\n".join([note, condition, yaml.safe_dump(crd), end]))
    return chart


def test_a_release_on_a_real_control_plane(site: Site, tmp_path: Path) -> None:
    """From install by upgrade to uninstall, which keeps the CRD and the Frameworks; and a second installation."""
    site.change("install", older_chart(tmp_path))
    before = site.properties()
    assert before
    assert "network" not in before
    site.kubectl("wait", "--for=condition=Established", f"crd/{CRD}")
    site.kubectl("create", "-f", "-", stdin=FRAMEWORK)
    uid = site.get("framework", "f")["metadata"]["uid"]

    site.change("upgrade", CHART, "controller.replicas=3", "history.enabled=true")
    assert "network" in site.properties()
    assert site.get("statefulset", NAME)["spec"]["replicas"] == 3
    assert site.get("service", "archive")
    assert (site.run(find_kubectl(), "get", "pdb", NAME).returncode == 0) is not site.old

    site.helm("rollback", NAME, "1", *(["--server-side=false"] if site.old else []))
    assert site.get("statefulset", NAME)["spec"]["replicas"] == 2

    site.helm("uninstall", NAME)
    assert site.run(find_kubectl(), "get", "statefulset", NAME).returncode != 0
    assert not site.get("crd", CRD)["metadata"].get("deletionTimestamp")
    assert site.get("framework", "f")["metadata"]["uid"] == uid

    site.change("install", CHART)
    assert "network" in site.properties()
    assert site.get("framework", "f")["metadata"]["uid"] == uid


def test_a_release_takes_the_objects_of_the_kustomizations(site: Site) -> None:
    made = list(yaml.safe_load_all(site.kubectl("kustomize", str(CHART.parent / "base"))))
    made = [one for one in made if one["kind"] != "PodDisruptionBudget" or not site.old]
    how = ["--validate=false"] if site.old else ["--server-side"]
    site.kubectl("apply", *how, "-f", "-", stdin=yaml.safe_dump_all(made))
    site.kubectl("wait", "--for=condition=Established", f"crd/{CRD}")
    site.kubectl("create", "-f", "-", stdin=FRAMEWORK)
    assert site.run(find_helm(), "install", NAME, str(CHART)).returncode != 0
    options = OLD if site.old else ["--force-conflicts"]
    site.helm("install", NAME, str(CHART), "--take-ownership", *options)
    site.helm("uninstall", NAME)
    assert site.get("framework", "f")
