"""Which processes have certainly ended, by a lock file."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from frameworkcontroller.manager import processlock
from frameworkcontroller.manager.processlock import ProcessLock

_HOLD = """
import sys, time
from pathlib import Path
from frameworkcontroller.manager.processlock import ProcessLock
lock = ProcessLock(Path(sys.argv[1]), "pod-0")
print(lock.identity, flush=True)
time.sleep(600)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def test_each_process_knows_those_before_it(file: Path) -> None:
    first = ProcessLock(file, "pod-0")
    first.release()
    second = ProcessLock(file, "pod-0")
    second.release()
    third = ProcessLock(file, "pod-0")
    assert first.identity.startswith("pod-0_")
    assert third.has_ended(first.identity)
    assert third.has_ended(second.identity)
    assert not third.has_ended(third.identity)
    assert not second.has_ended(third.identity)
    third.release()


@pytest.mark.parametrize("identity", ["", "pod-0", "pod-0_1", "other_0", "pod-0_x_0"])
def test_others_may_live(file: Path, identity: str) -> None:
    ProcessLock(file, "pod-0").release()
    lock = ProcessLock(file, "pod-0")
    assert not lock.has_ended(identity)
    lock.release()


def test_two_at_once_know_nothing_of_each_other(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = ProcessLock(file, "pod-0")
    second = ProcessLock(file, "pod-0")
    assert "Cannot lock" in caplog.text
    assert not second.has_ended(first.identity)
    assert not first.has_ended(second.identity)
    first.release()
    third = ProcessLock(file, "pod-0")
    assert third.has_ended(first.identity)
    assert not third.has_ended(second.identity)
    third.release()


def test_a_process_that_is_killed_has_ended_and_not_before(file: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(file)], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as process:
        assert process.stdout is not None
        identity = process.stdout.readline().strip()
        process.send_signal(signal.SIGSTOP)
        # Stopped is not ended.
        assert not ProcessLock(file, "pod-0").has_ended(identity)
        process.kill()
    after = ProcessLock(file, "pod-0")
    assert after.has_ended(identity)
    after.release()


def test_a_child_does_not_hold_it(file: Path) -> None:
    first = ProcessLock(file, "pod-0")
    with subprocess.Popen(["sleep", "600"], close_fds=False) as child:
        first.release()
        second = ProcessLock(file, "pod-0")
        assert second.has_ended(first.identity)
        child.kill()
    second.release()


@pytest.mark.parametrize("content", [b"", b"x", b"a b c d", b"\xff\xfe", b"other-boot pod-0_1234 5\n", b"0" * 600])
def test_invalid_content_of_the_file_is_ignored(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    lock = ProcessLock(file, "pod-0")
    assert lock.identity.endswith("_0")
    assert not lock.has_ended("pod-0_1234_4")
    lock.release()


def test_another_boot_or_machine_is_a_new_beginning(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ProcessLock(file, "pod-0")
    first.release()
    boot = tmp_path / "boot_id"
    boot.write_text("another\n")
    monkeypatch.setattr(processlock, "_BOOT_ID", boot)
    second = ProcessLock(file, "pod-0")
    assert not second.has_ended(first.identity)
    second.release()
    third = ProcessLock(file, "another-host")
    assert not third.has_ended(second.identity)
    third.release()


def test_without_a_file_the_identity_is_still_unique(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = {ProcessLock(path, "pod-0").identity for path in (None, None, tmp_path / "missing" / "lock")}
    assert len(found) == 3
    assert caplog.text.count("Cannot lock") == 1
