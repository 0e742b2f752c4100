"""`make demo` as a user runs it: the installed program, the example files, real processes, real time."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ("batchsucceeded", "batchretried", "serverworkers")


def test_the_demo_succeeds_and_leaves_nothing_behind(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("frameworkcontroller")
    home, scratch = tmp_path / "home", tmp_path / "scratch"
    home.mkdir()
    scratch.mkdir()
    ran = subprocess.run(
        [program, "local", "run", *(f"examples/batch/{name}.yaml" for name in EXAMPLES)],
        cwd=ROOT,
        env={"HOME": str(home), "TMPDIR": str(scratch), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    for name in EXAMPLES:
        assert re.search(rf"^{name}: Succeeded ", ran.stdout, re.MULTILINE), ran.stdout
    assert "worker: 3 Tasks, 1 retry: 3 x 0 Succeeded" in ran.stdout
    assert "SucceededTaskCount 3 has reached MinSucceededTaskCount 3" in ran.stdout
    assert [path for folder in (home, scratch) for path in folder.iterdir()] == []


def test_make_demo_runs_these_examples() -> None:
    wanted = "local run " + " ".join(f"examples/batch/{name}.yaml" for name in EXAMPLES)
    assert wanted in (ROOT / "Makefile").read_text()
