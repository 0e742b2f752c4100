"""`make demo-queue` and the README of examples/kueue, with real processes and kubectl."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.examples import EXAMPLES, ROOT
from tests.support.fences import blocks
from tests.support.kubectl import find_kubectl


def environment(folder: Path) -> dict[str, str]:
    kubectl = find_kubectl()
    if isinstance(kubectl, str):
        pytest.skip(kubectl)
    for name in ("bin", "tmp"):
        (folder / name).mkdir()
    (folder / "bin/kubectl").symlink_to(kubectl)
    return {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "HOME": str(folder),
        "TMPDIR": str(folder / "tmp"),
        "KUBECONFIG": str(folder / "kubeconfig"),
    }


def test_the_demo_preempts_and_resumes(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts/demo_queue.py")]
    variables = environment(tmp_path)
    ran = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=500, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "insufficient unused quota for cpu in flavor default-flavor, 500m more needed" in ran.stdout
    assert "1 retry, 0 counted" in ran.stdout
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_readme_works(tmp_path: Path) -> None:
    variables = environment(tmp_path)
    script = "".join(block.text for block in blocks(EXAMPLES / "kueue/README.md", "sh"))
    assert "urgent" in script
    command = [sys.executable, "-m", "frameworkcontroller", "local", "up", "--queue", "cpu=1", "--log-level", "error"]
    command += ["--kubeconfig", variables["KUBECONFIG"]]
    with subprocess.Popen(command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True) as cluster:
        try:
            assert cluster.stdout is not None
            assert any("export KUBECONFIG" in line for line in cluster.stdout)
            ran = subprocess.run(
                ["sh", "-eu", "-c", script],
                cwd=ROOT,
                env=variables,
                capture_output=True,
                text=True,
                timeout=500,
                check=False,
            )
        finally:
            cluster.terminate()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "framework-resumed-" in ran.stdout
