"""Kubeflow's SDK from PyPI, with its trainers as Frameworks of a local cluster."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.libraries import install

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests" / "support" / "kubeflowapp.py"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the library and its dependencies."""
    folder = tmp_path_factory.mktemp("kubeflow")
    install("kubeflow==0.5.0", "--target", folder)
    return folder


def test_trainers_run_as_frameworks(library: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{library}", "HOME": str(tmp_path)}
    # Elsewhere: modules in the folder of a program precede libraries.
    program = Path(shutil.copy(PROGRAM, tmp_path))
    shutil.copy(PROGRAM.with_name("kubeflowtrain.py"), tmp_path)
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=False, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "runtimes": ["python", "torch-distributed"],
        "job": ["good", "Complete", 4, "python", ["Succeeded"] * 4],
        "seen": "Complete",
        "logs": ["node 3 of 4 trains"],
        "progress": {"intervalSeconds": 60},
        "values": [0.0, 0.5, 1.0, 1.5],
        "failure": (
            "RuntimeError: TrainJob BAD is Failed: worker[2] on local: main exited with 1: "
            "ValueError: the rate is negative"
        ),
        "listed": [["good", "Complete"], ["BAD", "Failed"]],
        "failed": True,
        "gone": 'ValueError: there is no Framework "BAD" in namespace "default"',
        "packages": "ValueError: packages_to_install: Pods install nothing; use an image that has them",
        "runtime": "ValueError: there is no runtime 'mpi', only python and torch-distributed",
        "container": "ValueError: resources_per_node: 'tpu' is not supported; only cpu, memory, gpu and mig-…",
    }
