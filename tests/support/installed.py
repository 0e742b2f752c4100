"""Installed programs, run as a user runs them."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.realcluster import ROOT

PROGRAM = Path(sys.executable).with_name("frameworkcontroller")


def run_cleanly(folder: Path, *command: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run the command with a home and temporary files in ``folder``. It must leave no file behind."""
    home, scratch = folder / "home", folder / "scratch"
    for made in (home, scratch):
        made.mkdir(parents=True)
    ran = subprocess.run(
        command,
        cwd=cwd,
        env={"HOME": str(home), "TMPDIR": str(scratch), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert [path for made in (home, scratch) for path in made.iterdir()] == [], ran.stdout + ran.stderr
    return ran
