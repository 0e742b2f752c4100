"""docs/first-training-job.md: its commands as they are written, in an empty home, except the downloads."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.examples import ROOT
from tests.support.fences import blocks

PAGE = ROOT / "docs/first-training-job.md"
SCRIPTS = [block.text for block in blocks(PAGE, "sh")]

TORCHRUN = """\
#!/bin/sh
echo "$1 as $PET_NODE_RANK of $PET_NNODES at $PET_MASTER_ADDR"
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with the virtual environment of the first step, which has the commands of this one."""
    folder = tmp_path / "fc/bin"
    folder.mkdir(parents=True)
    (folder / "frameworkcontroller").symlink_to(Path(sys.executable).parent / "frameworkcontroller")
    (folder / "torchrun").write_text(TORCHRUN)
    (folder / "torchrun").chmod(0o755)
    (folder / "activate").write_text(f"PATH={folder}:$PATH\n")
    (tmp_path / "tmp").mkdir()
    return tmp_path


def test_the_commands_of_the_page(home: Path) -> None:
    install, up, *steps = SCRIPTS
    assert "pip install" in install
    environment = {
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "PATH": f"{Path(shutil.which('python3') or sys.executable).parent}:{os.environ['PATH']}",
    }
    activated = f". ~/fc/bin/activate\nexec {up}"
    with subprocess.Popen(
        ["sh", "-eu", "-c", activated], env=environment, stdout=subprocess.PIPE, text=True
    ) as cluster:
        try:
            assert cluster.stdout is not None
            assert any("export KUBECONFIG" in line for line in cluster.stdout)
            ran = subprocess.run(
                ["sh", "-eu", "-c", "".join(step for step in steps if not step.startswith("pip install"))],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=300,
                check=False,
            )
        finally:
            cluster.terminate()
    assert ran.returncode == 0, ran.stdout
    shown = [line for block in blocks(PAGE, "") for line in block.text.splitlines()]
    printed = ran.stdout.splitlines()
    missing = [line for line in shown if line.startswith(("worker[", "pi: created")) and line not in printed]
    assert missing == []
    assert "again: Succeeded after" in ran.stdout
    assert "not retried: maxRetryCount is 0" in ran.stdout
    assert "worker[3] | ddp.py as 3 of 4 at ddp-worker-0.ddp" in ran.stdout
    assert "no problems in 1 file" in ran.stdout
