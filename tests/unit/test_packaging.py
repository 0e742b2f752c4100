"""The distribution: the lock files, the package's data, and the manifest of the API."""

import importlib.resources
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import frameworkcontroller

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ("requirements.lock", "requirements-build.lock", "requirements-dev.lock")
FURTHER_LOCKS = ("requirements-client.lock", "requirements-release.lock")


def locked(lock: str) -> dict[str, str]:
    """Each locked distribution with its version."""
    text = (ROOT / lock).read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


@pytest.mark.parametrize("lock", LOCKS + FURTHER_LOCKS)
def test_a_lock_holds_hashes_and_names_no_registry(lock: str) -> None:
    entries = (ROOT / lock).read_text().replace("\\\n", " ").splitlines()
    assert entries
    for entry in entries:
        assert re.fullmatch(r"[a-z0-9-]+==[^ ]+( ; [^-]+?)?( +--hash=sha256:[0-9a-f]{64})+", entry), entry


def test_the_locks_agree() -> None:
    runtime, build, everything = (locked(lock) for lock in LOCKS)
    assert runtime.items() | build.items() <= everything.items()
    client, release = (locked(lock) for lock in FURTHER_LOCKS)
    assert client.items() <= runtime.items()
    assert all(everything.get(name, version) == version for name, version in release.items())


def test_the_plugin_holds_the_dependencies_of_a_client() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {re.split(r"[<>=]", one, maxsplit=1)[0].lower() for one in project["dependencies"]}
    assert wanted <= locked("requirements-client.lock").keys()


def test_every_dependency_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    dev = [one for one in groups["dev"] if isinstance(one, str)]
    extras = project["project"]["optional-dependencies"]
    product = [*project["project"]["dependencies"], *extras["controller"], *extras["archive"]]
    wanted = [*product, *groups["build"], *dev]
    names = {re.split(r"[<>=;\[ ]", requirement, maxsplit=1)[0].lower().replace("_", "-") for requirement in wanted}
    assert names <= locked("requirements-dev.lock").keys()


def test_the_demo_installs_the_product_alone(tmp_path: Path) -> None:
    def plan(venv: Path) -> str:
        command = ["make", "--dry-run", "--directory", str(ROOT), "demo", f"VENV={venv}"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    fresh = plan(tmp_path / "absent")
    assert "requirements.lock requirements-build.lock" in fresh
    assert "requirements-dev.lock" not in fresh
    # Where the developers' packages are, they stay.
    for stamp in (".locked", ".project"):
        (tmp_path / stamp).touch()
    assert "make-venv" not in plan(tmp_path)


def test_the_package_carries_the_crd_that_people_apply() -> None:
    data = importlib.resources.files(frameworkcontroller) / "crd" / "frameworks.yaml"
    assert data.read_text() == (ROOT / "crd" / "frameworks.yaml").read_text()


def test_the_images_leave_the_embedded_cluster_out() -> None:
    """tests/integration/test_images.py looks into the built image."""
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored.index("!/frameworkcontroller") < ignored.index("/frameworkcontroller/local")
