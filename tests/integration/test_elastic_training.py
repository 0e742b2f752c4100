"""The elastic training example, as its README has it run: it loses workers, gains others, and finds the same model."""

import re
import sys
from pathlib import Path

from tests.support.examples import EXAMPLES
from tests.support.installed import run_cleanly


def test_the_walkthrough(tmp_path: Path) -> None:
    """The script checks every step of it; here, that it got to its end, and left nothing behind."""
    # The Python of the tests, which has no PyTorch: another may have one, and takes seconds to load it.
    script = EXAMPLES / "training/elastic/walkthrough.py"
    walked = run_cleanly(tmp_path, sys.executable, script, sys.executable, cwd=tmp_path)
    assert walked.returncode == 0, walked.stdout + walked.stderr
    assert "with plain Python" in walked.stdout
    assert "Framework: Succeeded" in walked.stdout
    found = re.search(r"the two models differ by (\S+) at most", walked.stdout)
    assert found is not None
    assert float(found[1]) < 1e-9
