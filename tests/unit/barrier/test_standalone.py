"""The barrier as one file for any image."""

import ast
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import frameworkcontroller
from tests.support.barrier_world import ENVIRON, IDENTITY, NAME, StubApi, framework, written

PACKAGE = Path(frameworkcontroller.__file__).parent
SOURCES = [PACKAGE / "__init__.py", *(PACKAGE / "barrier").glob("*.py"), *(PACKAGE / "kubeconfig").glob("*.py")]
BUILD = PACKAGE.parent / "scripts" / "build-barrier"
COMMAND = [sys.executable, "-m", "frameworkcontroller.barrier"]
OLDEST = (3, 7)
VERMIN = str(Path(sys.executable).with_name("vermin"))
OTHERS = [f"python3.{minor}" for minor in range(OLDEST[1], 15)]
READY = {"server": ["10.0.0.1"], "worker": ["10.0.1.1", "10.0.1.2"]}


def works(python: str) -> bool:
    """Whether there is such a Python here: some tools leave a stand-in that only says that there is none."""
    path = shutil.which(python)
    return path is not None and subprocess.run([path, "-V"], capture_output=True, check=False).returncode == 0


@pytest.fixture
def api() -> Iterator[StubApi]:
    with StubApi() as stub:
        stub.current = framework(READY)
        yield stub


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the image."""
    target = tmp_path_factory.mktemp("built") / "frameworkbarrier"
    subprocess.run([sys.executable, BUILD, target], check=True)
    return target


def run(command: list[str], directory: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=directory, env=environ, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: str(source.relative_to(PACKAGE)))
def test_the_oldest_python_parses_it(source: Path) -> None:
    ast.parse(source.read_text(), feature_version=OLDEST)


def test_the_check_of_the_library_finds_newer_functions(tmp_path: Path) -> None:
    newer = tmp_path / "newer.py"
    newer.write_text("from pathlib import Path\nPath('x').unlink(missing_ok=True)\nimport graphlib\n")
    assert run([VERMIN, "-t=3.7-", str(newer)], tmp_path, {}).returncode != 0


def test_the_built_file_contains_every_source(built: Path) -> None:
    with zipfile.ZipFile(built) as archive:
        for source in SOURCES:
            assert archive.read(str(source.relative_to(PACKAGE.parent))) == source.read_bytes()


def test_the_built_file_is_executable_and_always_the_same(api: StubApi, built: Path, tmp_path: Path) -> None:
    environ = {**ENVIRON, "KUBE_APISERVER_ADDRESS": api.address, "PATH": os.environ["PATH"]}
    assert run([str(built)], tmp_path, environ).returncode == 0
    assert written(tmp_path) == api.current
    assert "FB_WORKER_IPS" in (tmp_path / "injector.sh").read_text()
    subprocess.run([sys.executable, BUILD, tmp_path / "again"], check=True)
    assert (tmp_path / "again").read_bytes() == built.read_bytes()


def test_the_built_file_uses_the_oldest_pythons_library(built: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(built) as archive:
        archive.extractall(tmp_path)
    done = run([VERMIN, "--no-tips", "-t=3.7-", str(tmp_path)], tmp_path, {})
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("command", [COMMAND, [str(Path(sys.executable).with_name("frameworkbarrier"))]])
def test_runs_as_module_and_console_script(api: StubApi, tmp_path: Path, command: list[str]) -> None:
    done = run(command, tmp_path, {**ENVIRON, "KUBE_APISERVER_ADDRESS": api.address})
    assert done.returncode == 0, done.stderr


def test_runs_isolated_on_every_python_that_is_here(api: StubApi, built: Path, tmp_path: Path) -> None:
    connection = {"KUBECONFIG": str(tmp_path / "kubeconfig")}
    (tmp_path / "kubeconfig").write_text(
        f"current-context: &name >-\n  c\ncontexts: [{{name: *name, context: {{cluster: c}}}}]\n"
        f"clusters: [{{name: c, cluster: {{server: '{api.address}'}}}}]\n---\nanother: document\n"
    )
    for python in [sys.executable, *filter(works, OTHERS)]:
        directory = tmp_path / Path(python).name
        directory.mkdir()
        # The whole environment: tools that manage several Pythons read it.
        environ = {**os.environ, **ENVIRON, **IDENTITY, **connection}
        done = run([python, "-I", "-S", "-W", "error", str(built)], directory, environ)
        assert done.returncode == 0, f"{python}: {done.stderr}"
        assert written(directory) == api.current
        assert len(done.stderr.splitlines()) == 2


def test_help_tells_all(tmp_path: Path) -> None:
    done = run([*COMMAND, "--help"], tmp_path, {})
    assert done.returncode == 0
    for word in (
        "FC_FRAMEWORK_NAME",
        "BARRIER_CHECK_TIMEOUT_SEC",
        "BARRIER_WAIT_FOR_NAME",
        "KUBECONFIG",
        "injector.sh",
        "201",
        "210",
    ):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("arguments", "environ", "code", "said"),
    [
        ([], {}, 210, "$FC_FRAMEWORK_NAMESPACE is not set"),
        (["--now"], ENVIRON, 210, "no arguments are taken"),
        ([], ENVIRON, 1, "no API server is known"),
        (
            [],
            {**ENVIRON, "KUBE_APISERVER_ADDRESS": "10.0.0.1"},
            1,
            "$KUBE_APISERVER_ADDRESS must be http[s]://host:port",
        ),
        ([], {**ENVIRON, "KUBECONFIG": "absent"}, 1, "kubeconfig absent: no such file"),
    ],
)
def test_an_immediate_error_is_the_last_line(
    tmp_path: Path, arguments: list[str], environ: dict[str, str], code: int, said: str
) -> None:
    """The last lines become the termination message of the container, and so the diagnostics of the Task."""
    done = run([*COMMAND, *arguments], tmp_path, environ)
    assert done.returncode == code
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_not_found_ends_in_210(api: StubApi, tmp_path: Path) -> None:
    api.current = None
    done = run(COMMAND, tmp_path, {**ENVIRON, "KUBE_APISERVER_ADDRESS": api.address})
    assert done.returncode == 210
    assert done.stderr.endswith(f"ERROR there is no Framework team-a/{NAME}\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ends_at_once_when_told_to(api: StubApi, tmp_path: Path, number: signal.Signals) -> None:
    api.current = framework({"worker": [None]})
    pauses = {"BARRIER_CHECK_INTERVAL_SEC": "3600", "BARRIER_CHECK_TIMEOUT_SEC": "1200"}
    environ = {**ENVIRON, **pauses, "KUBE_APISERVER_ADDRESS": api.address}
    with subprocess.Popen(COMMAND, cwd=tmp_path, env=environ, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        while b"still without" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(number)
        # Long before the next read.
        assert process.wait(300) == 128 + number
    assert list(tmp_path.iterdir()) == []
