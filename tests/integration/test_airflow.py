"""Airflow from PyPI, with tasks that are Frameworks of a local cluster."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUPPORT = ROOT / "tests" / "support"
RATE = "worker[0] on local: main exited with 1: ValueError: the rate is negative"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the library and its dependencies."""
    folder = tmp_path_factory.mktemp("airflow")
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-compile",
        "--retries",
        "2",
        "--target",
        str(folder),
    ]
    done = subprocess.run([*install, "apache-airflow-core==3.3.2"], capture_output=True, text=True, check=False)
    if done.returncode != 0 and "after connection broken by" in done.stderr and "CI" not in os.environ:
        pytest.skip("no registry of packages can be reached")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """A local cluster, with the libraries of this environment."""
    path = tmp_path / "kubeconfig"
    up = [sys.executable, "-m", "frameworkcontroller", "local", "up", "--kubeconfig", str(path), "--log-level", "error"]
    with subprocess.Popen(up, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert any("export KUBECONFIG" in line for line in process.stdout)
            yield path
        finally:
            process.terminate()


def test_tasks_run_as_frameworks(library: Path, kubeconfig: Path, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{library}",
        "HOME": str(tmp_path),
        "KUBECONFIG": str(kubeconfig),
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    dags = tmp_path / "dags"
    dags.mkdir()
    for name in ("airflowapp.py", "airflowtask.py"):
        shutil.copy(SUPPORT / name, dags)
    output = ""
    for words in (["-m", "airflow", "db", "migrate"], [str(dags / "airflowapp.py"), str(tmp_path)]):
        done = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, check=False, env=environment, timeout=300
        )
        output = done.stdout
        assert done.returncode == 0, output + done.stderr
    assert json.loads(output.splitlines()[-1]) == {
        "dag": {
            "good": ["success", {"day": "2026-01-02", "rate": 0.5}],
            "manifest": ["success", None],
            "deferred": ["success", {"day": "2026-01-02", "rate": 2}],
            "bad": ["failed", None],
            "worse": ["failed", None],
        },
        "retry": {
            "attached": True,
            "away": True,
            "value": {"day": "retried", "rate": 0.5},
            "cleared": True,
            "frameworks": 2,
        },
        "missed": [{"day": "missed", "rate": 0.5}, ["Succeeded"]],
        "kill": ["Stopped: User has requested to stop the Framework", ["Stopped"]],
        "timeout": [5, ["Stopped"]],
        "ended": [
            "NAME: Stopped: User has requested to stop the Framework",
            'there is no Framework "NAME" in namespace "default"',
        ],
    }
    logged = re.findall(r"info +\] (worker\[\d\]: (?:manifest|trains 2026).*?) *\[airflow\.task", output)
    assert sorted(logged) == [
        "worker[0]: manifest has 0 of 2",
        # Of good, deferred and worse: bad has get_logs=False.
        *["worker[0]: trains 2026-01-02"] * 3,
        "worker[1]: manifest has 1 of 2",
    ]
    assert len(re.findall(rf"AirflowException: train\w+: Failed: {re.escape(RATE)}", output)) == 2
