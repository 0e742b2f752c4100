"""`make demo-training`, with real processes: a failing node, a hang and a preemption, and one table that tells them."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.examples import ROOT


def test_the_demo_shows_what_happened(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    ran = subprocess.run(
        [sys.executable, str(ROOT / "scripts/demo_training.py")],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path / "tmp")},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    title, *rows = ran.stdout.partition("kubectl framework history long\n\n")[2].splitlines()
    failed, hung, preempted, ended, total = rows
    assert "worker[2] on local-2" in failed
    assert "uncorrectable ECC error on local-2" in failed
    assert " NoProgress " in hung
    assert " Preempted " in preempted.replace("(", " ").replace(")", " ")
    assert ended.startswith("3*")
    assert total.startswith("TOTAL")

    def cell(row: str, column: str) -> str:
        return row[title.index(column) :].split(maxsplit=1)[0]

    assert [cell(row, "LEFT NODE") for row in rows[:4]] == ["local-2", "-", "-", "-"]
    lost = [int(cell(row, "STEPS LOST")) for row in rows]
    assert lost[2:4] == [0, 0]
    assert 0 < lost[1] <= 10
    assert lost[4] == sum(lost[:4])
    assert float(cell(total, "CPU HOURS")) > float(cell(total, "USEFUL")) > 0
    assert list((tmp_path / "tmp").iterdir()) == []
