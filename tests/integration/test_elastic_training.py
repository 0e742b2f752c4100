"""The elastic training example, as its README has it run: it loses workers, gains others, and finds the same model."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.examples import EXAMPLES


def test_the_walkthrough(tmp_path: Path) -> None:
    """The script checks every step of it; here, that it got to its end, and left nothing behind."""
    home, scratch = tmp_path / "home", tmp_path / "scratch"
    home.mkdir()
    scratch.mkdir()
    walked = subprocess.run(
        # The Python of the tests, which has no PyTorch: another may have one, and takes seconds to load it.
        [sys.executable, EXAMPLES / "training/elastic/walkthrough.py", sys.executable],
        cwd=tmp_path,
        env={"HOME": str(home), "TMPDIR": str(scratch), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert walked.returncode == 0, walked.stdout + walked.stderr
    assert "with plain Python" in walked.stdout
    assert "Framework: Succeeded" in walked.stdout
    found = re.search(r"the two models differ by (\S+) at most", walked.stdout)
    assert found is not None
    assert float(found[1]) < 1e-9
    assert [path for folder in (home, scratch) for path in folder.iterdir()] == []
