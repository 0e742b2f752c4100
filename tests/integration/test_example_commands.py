"""The commands that pages and examples have people type, on a local cluster with real processes, with kubectl."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.examples import EXAMPLES, ROOT
from tests.support.fences import blocks
from tests.support.kubectl import find_kubectl

PAGES = {
    "first": ROOT / "docs/write-a-framework.md",
    "services": ROOT / "docs/services.md",
    **{name: EXAMPLES / name / "README.md" for name in ("service", "startstop", "rescale")},
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where people are: in the repository, as far as examples/ goes. A cluster runs, and kubectl finds it."""
    kubectl = find_kubectl()
    if isinstance(kubectl, str):
        pytest.skip(kubectl)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/kubectl").symlink_to(kubectl)
    (tmp_path / "tmp").mkdir()
    shutil.copytree(EXAMPLES, tmp_path / "examples", symlinks=True)
    hold_removed_tasks(tmp_path / "examples/rescale", tmp_path / "ends")
    command = [sys.executable, "-m", "frameworkcontroller", "local", "up"]
    up = [*command, "--kubeconfig", str(tmp_path / "kubeconfig"), "--log-level", "error"]
    with subprocess.Popen(up, cwd=ROOT, env=environment(tmp_path), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert any("export KUBECONFIG" in line for line in process.stdout)
            yield tmp_path
        finally:
            process.terminate()
    assert list((tmp_path / "tmp").iterdir()) == []


def environment(folder: Path) -> dict[str, str]:
    return {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "HOME": str(folder),
        "TMPDIR": str(folder / "tmp"),
        "KUBECONFIG": str(folder / "kubeconfig"),
    }


def hold_removed_tasks(example: Path, ends: Path) -> None:
    """Let the removed Tasks that the walk-through looks at take until it has seen them, not three seconds."""
    ends.touch()
    for name, changes in {
        "rescalebasic.yaml": (
            ("sleep 3; exit 0", f"until [ -e {ends} ]; do sleep 0.1; done; exit 0"),
            ("terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds: 600"),
        ),
        "walkthrough.sh": (
            ("seq 300", "seq 3000"),
            ("\nscale 2\nuntil_tasks", f"\nrm {ends}\nscale 2\nuntil_tasks"),
            ('say "... a-3 is gone."', f'touch {ends}\nsay "... a-3 is gone."'),
            (
                'until_tasks "a-0*$running a-1*$running a-2*$running a-3*$running a-4',
                f'touch {ends}\nuntil_tasks "a-0*$running a-1*$running a-2*$running a-3*$running a-4',
            ),
        ),
    }.items():
        text = (example / name).read_text()
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (example / name).write_text(text)


def test_the_commands_of_the_pages_work(folder: Path) -> None:
    """Each page from its top to its end, as one script that ends at the first error; all at once, to save time."""

    def follow(name: str) -> str:
        script = "".join(block.text for block in blocks(PAGES[name], "sh"))
        assert script, name
        # A busy machine may need minutes. A wait of 1 s is one step of a loop.
        script = re.sub(r"--timeout=\d{2,}s", "--timeout=300s", script)
        ran = subprocess.run(
            ["sh", "-eu", "-c", script],
            cwd=folder,
            env=environment(folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        assert ran.returncode == 0, f"{name}:\n{ran.stdout}"
        return ran.stdout

    with ThreadPoolExecutor(len(PAGES)) as pool:
        said = dict(zip(PAGES, pool.map(follow, PAGES), strict=True))
    assert '"phrase":"Succeeded"' in said["first"]
    assert "1: attempt 1, AttemptRunning" in said["service"]
    assert "StopFrameworkRequested" in said["service"]
    assert "It is still the first attempt, and a-0 and a-1 never noticed.\nattempt 0, AttemptRunning" in said["rescale"]
    archived = (folder / "poststop.archived.json").read_text()
    assert "-210" in archived
    assert "-220" in archived
