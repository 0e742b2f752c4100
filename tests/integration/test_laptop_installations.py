"""The command line on a laptop: uv tool, pipx and the kubectl plugin's archive, each in an empty home.

Dependencies are downloaded. Without a registry, these tests are skipped; in CI, they fail.
"""

import asyncio
import hashlib
import os
import platform
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from frameworkcontroller import __version__
from tests.support.clusters import Cluster
from tests.support.frameworks import Frameworks, role
from tests.support.kubectl import find_kubectl

ROOT: Final = Path(__file__).resolve().parents[2]
BIN: Final = Path(sys.executable).parent
MACHINE: Final = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
OLD: Final = """\
#!/bin/sh
exec {} -c 'import runpy, sys
sys.version_info = (3, 9, 18)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")' "$@"
"""

pytestmark = [pytest.mark.newest, pytest.mark.slow]


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run to the end; skip the test where no registry can be reached."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_", "REQUESTS_"))}
    done = subprocess.run(
        command, env={"PATH": os.environ["PATH"], **kept, **environment}, capture_output=True, text=True, check=False
    )
    unreachable = re.search("after connection broken by|error sending request|Failed to fetch", done.stderr)
    if done.returncode and unreachable and "CI" not in os.environ:
        pytest.skip("no registry of packages can be reached")
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done = run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, ROOT)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def archives(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin's archives and its manifest."""
    folder = tmp_path_factory.mktemp("archives")
    done = run(
        sys.executable, ROOT / "scripts/build-plugin", wheel, folder, "https://host/owner/name/releases/download/v1"
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def manifest(archives: Path) -> Any:
    return yaml.safe_load((archives / "framework.yaml").read_text())


@pytest.fixture
def unpacked(archives: Path, manifest: Any, tmp_path: Path) -> Path:
    """This machine's archive, installed as krew does it: a version's folder, and a link to `bin` in PATH."""
    (chosen,) = [
        one
        for one in manifest["spec"]["platforms"]
        if one["selector"]["matchLabels"] == {"os": "linux", "arch": MACHINE}
    ]
    store, links = tmp_path / ".krew/store/framework" / manifest["spec"]["version"], tmp_path / ".krew/bin"
    for made in (store, links):
        made.mkdir(parents=True)
    subprocess.run(["tar", "-xzf", archives / chosen["uri"].rpartition("/")[2], "-C", store], check=True)
    (links / "kubectl-framework").symlink_to(store / chosen["bin"])
    return links / "kubectl-framework"


@pytest.mark.parametrize("tool", ["uv", "pipx"])
def test_a_tool_installs_the_commands(tool: str, wheel: Path, tmp_path: Path) -> None:
    places = {
        "HOME": str(tmp_path),
        "PIPX_DEFAULT_PYTHON": sys.executable,
        "PATH": f"{tmp_path}/.local/bin:{os.environ['PATH']}",
    }
    install = ["uv", "tool", "install", "--python", sys.executable] if tool == "uv" else ["pipx", "install"]
    done = run(BIN / install[0], *install[1:], wheel, **places)
    assert done.returncode == 0, done.stderr
    programs = tmp_path / ".local/bin"
    assert {path.name for path in programs.iterdir()} >= {
        "frameworkcontroller",
        "kubectl-framework",
        "kubectl_complete-framework",
    }
    shown = run(programs / "frameworkcontroller", "--version", **places)
    assert (shown.returncode, shown.stdout) == (0, f"frameworkcontroller {__version__}\n")
    example = ROOT / "examples/batch/batchsucceeded.yaml"
    assert run(programs / "frameworkcontroller", "lint", example, **places).returncode == 0
    lacking = run(programs / "frameworkcontroller", "local", "run", example, **places)
    assert (lacking.returncode, lacking.stderr) == (
        2,
        "frameworkcontroller: this command needs the extra \"local\": pip install 'frameworkcontroller[local]'\n",
    )


def test_krew_accepts_the_manifest(archives: Path, manifest: Any) -> None:
    """The rules of krew's validation and of its naming guide."""
    assert (manifest["apiVersion"], manifest["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert re.fullmatch(r"[a-z][a-z-]*", manifest["metadata"]["name"])
    spec = manifest["spec"]
    assert spec["version"] == f"v{__version__}"
    assert spec["homepage"] == "https://host/owner/name"
    assert len(spec["shortDescription"]) <= 50
    assert "\n" not in spec["shortDescription"]
    platforms: list[Mapping[str, Any]] = spec["platforms"]
    assert {tuple(one["selector"]["matchLabels"].values()) for one in platforms} == {
        (system, machine) for system in ("linux", "darwin") for machine in ("amd64", "arm64")
    }
    for one in platforms:
        file = archives / one["uri"].rpartition("/")[2]
        assert one["uri"] == f"https://host/owner/name/releases/download/v1/{file.name}"
        assert one["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
        with tarfile.open(file) as archive:
            members = archive.getmembers()
        # krew unpacks plain files only, and refuses a name with two dots.
        assert all(member.isreg() and ".." not in member.name for member in members)
        names = {member.name for member in members}
        assert {one["bin"], "LICENSE", "lib/frameworkcontroller/__init__.py"} <= names
        for library in (
            "orjson/orjson",
            "pydantic_core/_pydantic_core",
            "httptools/parser/parser",
            "aiohttp/_http_writer",
        ):
            modules = {name for name in names if name.startswith(f"lib/{library}.") and name.endswith(".so")}
            assert {python for name in modules for python in re.findall(r"cpython-(3\d+)", name)} == {
                "311", "312", "313", "314"
            }, (file.name, library)  # fmt: skip


async def test_kubectl_runs_the_plugin(unpacked: Path, cluster: Cluster, tmp_path: Path) -> None:
    kubectl = find_kubectl()
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    await frameworks.create("train", role(number=3))
    # Without a kubectl, as kubectl starts it.
    command = [str(unpacked)] if isinstance(kubectl, str) else [str(kubectl), "framework"]
    home = tmp_path / "home"
    home.mkdir()
    process = await asyncio.create_subprocess_exec(
        *(*command, "list", "--kubeconfig", str(cluster.kubeconfig), "-n", cluster.namespace),
        env={"PATH": f"{unpacked.parent}:{BIN}:/usr/bin:/bin", "HOME": str(home)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert (process.returncode, err.decode()) == (0, "")
    assert [line.split()[0] for line in out.decode().splitlines()] == ["NAME", "train"]


@pytest.fixture
def old_python(tmp_path: Path) -> Path:
    """A folder for PATH whose python3 takes itself for Python 3.9."""
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "python3").write_text(OLD.format(sys.executable))
    (folder / "python3").chmod(0o755)
    return folder


def test_the_plugin_finds_a_newer_python(unpacked: Path, old_python: Path) -> None:
    newer = old_python / f"python3.{sys.version_info.minor}"
    newer.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    newer.chmod(0o755)
    done = subprocess.run(
        ["/usr/bin/env", f"PATH={old_python}", unpacked, "--help"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout[:24], done.stderr) == (0, "usage: kubectl framework", "")


def test_the_plugin_names_the_pythons_that_it_needs(unpacked: Path, old_python: Path) -> None:
    done = subprocess.run(["/usr/bin/env", f"PATH={old_python}", unpacked], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("kubectl framework: needs Python 3.11 to 3.14 in PATH, found only ")


def test_a_release_needs_the_version_of_its_tag() -> None:
    notes = run(ROOT / "scripts/release-notes", f"v{__version__}")
    assert notes.returncode == 0
    assert "## " not in "\n".join(line for line in notes.stdout.splitlines() if not line.startswith("###"))
    other = run(ROOT / "scripts/release-notes", "v99.0.0")
    assert (other.returncode, other.stderr) == (
        1,
        f"release-notes: the tag is v99.0.0, but frameworkcontroller/__init__.py has version {__version__}\n",
    )
