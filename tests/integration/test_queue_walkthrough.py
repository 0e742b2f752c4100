"""`make demo-queue` and the README of examples/kueue, with real processes and kubectl.

The examples run for seconds, which a busy machine may take for a command. Here they run until a file exists.
"""

import os
import shutil
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


def replaced(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


def patient(folder: Path) -> Path:
    """A copy of the examples, whose Pods run until a file exists: `resumed-N` for attempt N, or `urgent`."""
    copy = folder / "kueue"
    shutil.copytree(EXAMPLES / "kueue", copy)
    forever = f'while [ "$step" -lt 20 ] || ! [ -e {folder}/resumed-$FC_FRAMEWORK_ATTEMPT_ID ]'
    for name, old, new in (
        ("resumed.yaml", 'while [ "$step" -lt 20 ]', forever),
        ("urgent.yaml", "sleep 20;", f"until [ -e {folder}/urgent ]; do sleep 0.2; done;"),
    ):
        (copy / name).write_text(replaced((copy / name).read_text(), old, new))
    return copy


def with_ends(script: str, folder: Path, urgent: str, resumed: str) -> str:
    """The script, which ends `urgent` and then the second attempt of `resumed` before these lines."""
    for line, name in ((urgent, "urgent"), (resumed, "resumed-1")):
        script = replaced(script, line, f"touch {folder}/{name}\n{line}")
    return script.replace("--timeout=60s", "--timeout=300s").replace("--timeout=120s", "--timeout=300s")


def test_the_demo_preempts_and_resumes(tmp_path: Path) -> None:
    walkthrough = patient(tmp_path) / "walkthrough.sh"
    script = with_ends(
        walkthrough.read_text(),
        tmp_path,
        'say "When urgent is done',
        "kubectl wait --for=condition=Succeeded framework/resumed",
    )
    walkthrough.write_text(replaced(replaced(script, "seq 600", "seq 1500"), "sleep 3", "sleep 10"))
    command = [sys.executable, str(ROOT / "scripts/demo_queue.py"), str(walkthrough)]
    variables = environment(tmp_path)
    ran = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=500, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "insufficient unused quota for cpu in flavor default-flavor, 500m more needed" in ran.stdout
    assert "1 retry, 0 counted" in ran.stdout
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_readme_works(tmp_path: Path) -> None:
    variables = environment(tmp_path)
    shown = "".join(block.text for block in blocks(EXAMPLES / "kueue/README.md", "sh"))
    script = replaced(shown, "examples/kueue", str(patient(tmp_path)))
    both = "kubectl wait --for=condition=Succeeded"
    script = with_ends(script, tmp_path, "kubectl describe framework resumed", both)
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
