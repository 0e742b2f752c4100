"""`python -m benchmarks scale`, small: its copies in the store match the objects of a controller."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.realcluster import ROOT

FRAMEWORKS, TASKS, PODS = 4, 6, 30


@pytest.mark.newest
def test_a_controller_finds_the_copies_in_order(plane_name: str, tmp_path: Path) -> None:
    results = tmp_path / "scale.json"
    size = ["--frameworks", str(FRAMEWORKS), "--tasks", str(TASKS), "--pods", str(PODS)]
    load = ["--seconds", "2", "--resync", "20", "--changes", "10", "--probes", "2"]
    subprocess.run(
        [sys.executable, "-m", "benchmarks", "scale", *size, *load, "--cluster", plane_name, "--json", str(results)],
        cwd=ROOT,
        check=True,
        timeout=400,
    )
    [result] = json.loads(results.read_text())
    figures = result["figures"]
    # One probe was created meanwhile, and only its status was written.
    assert figures["Frameworks"] == FRAMEWORKS + 1 + 1
    assert PODS <= figures["Pods"] <= PODS + 1
    assert figures["start: status writes"] <= 2
    for phase in ("steady", "comparison", "relist", "resync", "restarted"):
        assert figures[f"{phase}: probes"] > 0
        assert figures[f"{phase}: controller CPU"] > 0
        assert figures[f"{phase}: API server CPU"] > 0
