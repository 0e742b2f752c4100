"""Removal of temporary files of earlier processes, and its limits."""

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from frameworkcontroller.local import scratch
from frameworkcontroller.local.scratch import scratch_directory


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def abandoned(parent: Path, name: str) -> Path:
    directory = parent / name
    (directory / "pods" / "unwritable").mkdir(parents=True)
    (directory / "pods" / "unwritable" / "file").touch()
    (directory / "pods" / "unwritable").chmod(0o500)
    (directory / "frameworkcontroller.lock").touch()
    return directory


def test_it_lasts_as_long_as_it_is_used(parent: Path) -> None:
    with scratch_directory() as first:
        assert first.parent == parent
        assert first.stat().st_mode & 0o777 == 0o700
        (first / "file").touch()
        with scratch_directory() as second:
            assert first != second
            assert (first / "file").exists()
        assert list(parent.iterdir()) == [first]
    assert list(parent.iterdir()) == []


def test_an_unused_folder_is_removed(parent: Path) -> None:
    abandoned(parent, "frameworkcontroller-a")
    abandoned(parent, "frameworkcontroller-b")
    with scratch_directory() as directory:
        assert list(parent.iterdir()) == [directory]


def test_a_foreign_folder_is_kept(parent: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = abandoned(tmp_path_factory.mktemp("elsewhere"), "frameworkcontroller-c")
    (parent / "frameworkcontroller-link").symlink_to(elsewhere)
    (parent / "frameworkcontroller-source").mkdir()
    (parent / "frameworkcontroller-file").touch()
    abandoned(parent, "another")
    if os.geteuid() == 0:
        os.chown(abandoned(parent, "frameworkcontroller-of-others"), 1, 1)
    before = set(parent.iterdir())
    with scratch_directory() as directory:
        assert set(parent.iterdir()) == before | {directory}
    assert (elsewhere / "frameworkcontroller.lock").exists()


def test_one_that_is_taken_for_abandoned_while_it_is_made_is_made_again(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, taken = fcntl.flock, list[Path]()

    def slow(descriptor: int, how: int) -> None:
        if not taken:
            taken.extend(parent.iterdir())
            scratch._remove_abandoned(parent)
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", slow)
    with scratch_directory() as directory:
        assert directory.exists()
        assert len(taken) == 1
        assert list(parent.iterdir()) == [directory]
