"""The package without extras, as pip installs it: a wheel of this tree in a virtual environment of its own.

pip downloads the dependencies. Without a registry, these tests are skipped; in CI, they fail.
"""

import asyncio
import os
import re
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest
import yaml

from frameworkcontroller import __version__
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.cli.kustomize import MANIFESTS, build
from tests.support.clusters import Cluster
from tests.support.frameworks import Frameworks, role

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.newest, pytest.mark.slow]

SERVERS = {
    "aiosqlite", "alembic", "asyncpg", "google-re2", "greenlet", "jinja2", "kubernetes-asyncio", "prometheus-client",
    "sqlalchemy", "tenacity", "uvloop",
}  # fmt: skip
"""Distributions that only the extras install."""

CONFIGURATION = str(MANIFESTS / "base" / "frameworkcontroller.yaml")


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Such an environment, with the locked versions."""
    folder = tmp_path_factory.mktemp("base")
    place = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *build], check=True)
    (wheel,) = folder.glob("*.whl")
    pins = folder / "pins"
    pins.write_text("\n".join(re.findall(r"^[a-z0-9-]+==\S+", (ROOT / "requirements.lock").read_text(), re.MULTILINE)))
    target = ["--python", str(place / "bin" / "python"), "install", "--retries", "2", "--only-binary", ":all:"]
    install = [sys.executable, "-m", "pip", *target, "--constraint", str(pins), str(wheel)]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode != 0 and "after connection broken by" in done.stderr and "CI" not in os.environ:
        pytest.skip("no registry of packages can be reached")
    assert done.returncode == 0, done.stderr
    return place


async def run(venv: Path, folder: Path, *arguments: str) -> tuple[int | None, str, str]:
    """The exit code, the output and the errors of a program of the environment."""
    process = await asyncio.create_subprocess_exec(
        str(venv / "bin" / arguments[0]),
        *arguments[1:],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


def test_it_brings_no_library_of_a_server(venv: Path) -> None:
    (packages,) = venv.glob("lib/python*/site-packages")
    installed = {one.metadata["Name"].lower().replace("_", "-") for one in distributions(path=[str(packages)])}
    assert "frameworkcontroller" in installed
    assert installed.isdisjoint(SERVERS)


async def test_it_is_imported(venv: Path, tmp_path: Path) -> None:
    program = "import frameworkcontroller; print(frameworkcontroller.__version__)"
    assert await run(venv, tmp_path, "python", "-c", program) == (0, f"{__version__}\n", "")


async def test_the_plugin_shows_its_help(venv: Path, tmp_path: Path) -> None:
    code, out, err = await run(venv, tmp_path, "kubectl-framework", "--help")
    assert (code, out.splitlines()[0][:24], err) == (0, "usage: kubectl framework", "")


async def test_the_plugin_lists_frameworks(venv: Path, cluster: Cluster, tmp_path: Path) -> None:
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    await frameworks.create("train", role(number=3))
    listing = ("list", "--kubeconfig", str(cluster.kubeconfig), "-n", cluster.namespace)
    code, out, err = await run(venv, tmp_path, "kubectl-framework", *listing)
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == ["NAME", "train"]
    code, out, _ = await run(venv, tmp_path, "kubectl-framework", *listing, "-o", "yaml")
    assert code == 0
    (item,) = yaml.safe_load(out)["items"]
    assert (item["kind"], item["metadata"]["name"]) == (FRAMEWORKS.kind, "train")


async def test_it_lints(venv: Path, tmp_path: Path) -> None:
    example = ROOT / "examples" / "batch" / "batchretried.yaml"
    assert (await run(venv, tmp_path, "frameworkcontroller", "lint", str(example)))[0] == 0
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(example.read_text().replace("containers:", "container:"))
    code, out, err = await run(venv, tmp_path, "frameworkcontroller", "lint", str(wrong))
    assert code == 1
    assert "container: is not a known field of a PodSpec; did you mean containers?" in out + err


async def test_it_prints_the_manifests(venv: Path, tmp_path: Path) -> None:
    code, out, err = await run(venv, tmp_path, "frameworkcontroller", "print-manifests", "full", "critical")
    assert (code, err) == (0, "")
    components = [MANIFESTS / "components" / "critical"]
    assert list(yaml.safe_load_all(out)) == build(MANIFESTS / "overlays" / "full", components)


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        ([], "controller"),
        (["--check-config", CONFIGURATION], "controller"),
        (["local", "up"], "local"),
        (["history", "serve"], "archive"),
        (["dashboard"], "archive"),
    ],
)
async def test_a_command_names_the_missing_extra(venv: Path, tmp_path: Path, arguments: list[str], extra: str) -> None:
    assert await run(venv, tmp_path, "frameworkcontroller", *arguments) == (
        2,
        "",
        f"frameworkcontroller: this command needs the extra \"{extra}\": pip install 'frameworkcontroller[{extra}]'\n",
    )
