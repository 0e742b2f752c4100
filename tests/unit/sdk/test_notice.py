"""The notice of an end, as a program in a Task reads it."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

import frameworkcontroller as fc
from tests.unit.sdk.test_taskrunner import RUNNER, call

LOOK = """
import frameworkcontroller as fc

def look():
    found = fc.notice()
    return found and [found.reason, found.deadline.isoformat()]
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that a Pod sees."""
    found = tmp_path / "notice"
    monkeypatch.setenv("FC_NOTICE_FILE", str(found))
    return found


def test_a_notice_has_reason_and_deadline(file: Path) -> None:
    file.write_text("Suspension 2026-11-28T05:00:00Z")
    found = fc.notice()
    assert found is not None
    assert (found.reason, found.deadline) == ("Suspension", datetime(2026, 11, 28, 5, tzinfo=timezone.utc))  # noqa: UP017 - of the oldest Python
    reason, deadline = found
    assert (reason, deadline.utcoffset()) == ("Suspension", found.deadline.utcoffset())


@pytest.mark.parametrize("text", [None, "", "Suspension", "Suspension soon", "2026-11-28T05:00:00Z", "\0"])
def test_without_a_notice_there_is_none(file: Path, text: str | None) -> None:
    if text is not None:
        file.write_text(text)
    assert fc.notice() is None


def test_without_the_variable_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FC_NOTICE_FILE", raising=False)
    assert fc.notice() is None


def test_an_image_without_the_package_has_it(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(LOOK)
    (tmp_path / "notice").write_text("Eviction 2026-11-28T05:00:00Z")
    source = RUNNER.read_text().replace("find_spec(_SDK) is None", "True")
    assert source != RUNNER.read_text()
    ended = subprocess.run(
        [sys.executable, "-c", source, "m:look", '{"args": [], "kwargs": {}}'],
        cwd=tmp_path,
        env={"FC_NOTICE_FILE": "notice", "FC_LOCAL_TERMINATION_LOG": str(tmp_path / "log"), "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "log").read_text() == '{"value":["Eviction","2026-11-28T05:00:00+00:00"]}'


def test_a_function_of_a_program_reads_it(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(LOOK)
    (tmp_path / "notice").write_text("Eviction 2026-11-28T05:00:00Z")
    ended = call(tmp_path, "look", FC_NOTICE_FILE="notice")
    assert ended.message == '{"value":["Eviction","2026-11-28T05:00:00+00:00"]}'
