"""Libraries of other projects, which pip downloads for the tests of integrations."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

_ABSENT: Final = re.compile(
    r"(Connection|ConnectTimeout|ReadTimeout|Proxy|NameResolution)Error|connection broken|timed out|"
    r"No matching distribution found"
)


def install(requirement: str, *options: str | Path, python: Path | None = None) -> None:
    """Install it with its dependencies, by options of pip. ``python``: of another environment.

    Skip the test if the registry cannot be reached, or does not have it: mirrors may only have locked packages.
    """
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--retries=1", "--timeout=20"]
    pip += ["--python", str(python)] if python else []
    words = [*pip, "install", "--quiet", "--no-compile", *map(str, options), requirement]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode and _ABSENT.search(done.stderr):
        pytest.skip(f"the registry of packages does not provide {requirement}")
    assert done.returncode == 0, done.stderr
