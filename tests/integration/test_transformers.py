"""An unmodified program of Hugging Face Transformers on a local cluster: its progress in commands, SDK and status.

TRANSFORMERS_PYTHON is a Python with Transformers 5.23 or newer, PyTorch and accelerate.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import frameworkcontroller as fc
from tests.support.examples import ROOT

PYTHON: Final = os.environ.get("TRANSFORMERS_PYTHON", "")
PROGRAM: Final = ROOT / "examples/training/transformers/train.py"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not PYTHON, reason="TRANSFORMERS_PYTHON is not set")]


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """A local cluster."""
    path = tmp_path / "kubeconfig"
    up = [sys.executable, "-m", "frameworkcontroller", "local", "up", "--kubeconfig", str(path), "--log-level", "error"]
    with subprocess.Popen(up, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert any("export KUBECONFIG" in line for line in process.stdout)
            yield path
        finally:
            process.terminate()


def test_progress_is_shown_everywhere(kubeconfig: Path) -> None:
    def command(*words: str) -> str:
        program = Path(sys.executable).with_name("kubectl-framework")
        return subprocess.check_output([program, "--kubeconfig", kubeconfig, *words], text=True)

    words = [PYTHON, str(PROGRAM)]
    training = fc.command(words, name="train", image="none", progress=fc.Progress(interval=5))
    with fc.connect(kubeconfig=str(kubeconfig)) as cluster:
        run = cluster.submit(training)
        progress = None
        for status in run.watch():
            assert not status.is_final, status
            progress = status.progress
            if progress is not None and "loss" in progress.metrics:
                break
        assert progress is not None
        assert progress.step is not None
        assert 0 < progress.step < progress.metrics["total_steps"] == 1000
        assert progress.percent == progress.step // 10
        assert progress.remaining_seconds is not None
        stored = status.object["status"]["progress"]
        assert (stored["step"], stored["percentage"]) == (progress.step, progress.percent)
        shown = command("status", "train")
        assert re.search(r"━ *─+  \d+%, step \d+ of 1,000, loss \d\S+, .*s left\n", shown), shown
        assert re.search(r"Running +1/1 +\d+%, (\dm)?\d+s left ", listed := command("list")), listed
        status = run.wait(timeout=300)
        assert status.phase == "Succeeded"
        assert status.progress is not None
        assert status.progress.percent == 100
        assert status.progress.text.startswith("100%, step ")
        assert re.search(r"Succeeded +1/1 +100% ", listed := command("list")), listed
