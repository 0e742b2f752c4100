"""Programs of another user of this machine, whom only root can be. Tests that cannot have one are skipped."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

NOBODY: Final = 65534

AS_NOBODY: Final[dict[str, Any]] = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "cwd": "/"}
"""What makes a subprocess one of user nobody."""


def nobodys_python() -> str:
    """A Python that the user `nobody` may run."""
    found, why = _nobodys_python()
    if not found:
        pytest.skip(why)
    return found


@contextmanager
def passable_directory() -> Iterator[Path]:
    """A new directory that others may pass through, which those that pytest makes are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o711)
        yield Path(name)


@cache
def _nobodys_python() -> tuple[str, str]:
    if os.geteuid() != 0:
        return "", "only root can be another user"
    # The folder of a virtual environment, or of its Python, may be closed to other users.
    for python in dict.fromkeys((sys.executable, os.path.realpath(sys.executable), "/usr/bin/python3")):
        with suppress(OSError):
            if subprocess.run([python, "-I", "-c", ""], **AS_NOBODY, capture_output=True, check=False).returncode == 0:
                return python, ""
    return "", "no Python that user nobody may run"
