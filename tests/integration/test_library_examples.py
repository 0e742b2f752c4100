"""The examples with libraries, as `make example-NAME` runs them, for each library that this machine has."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.examples import ROOT
from tests.unit.test_generated_pages import generator

SCRIPT: Any = generator("run_example")


def places(example: Any) -> Iterator[Path]:
    """The folders of the interpreters that may have the library: the one of `make example-NAME`, then PATH's."""
    if example.bin.exists():
        yield example.bin
    if found := shutil.which("python3"):
        yield Path(found).parent


def has(folder: Path, library: str) -> bool:
    find = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({library!r}) is None)"
    return subprocess.run([folder / "python3", "-c", find], check=False).returncode == 0


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SCRIPT.EXAMPLES)
def test_it_ends_with_the_right_result(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = SCRIPT.EXAMPLES[name]
    if example.needs and shutil.which(example.needs) is None:
        pytest.skip(f"no {example.needs} on this machine")
    folder = next((folder for folder in places(example) if has(folder, example.library)), None)
    if folder is None:
        pytest.skip(f"no {example.library} on this machine; `make example-{name}` installs it")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert SCRIPT.run(example, folder) is None
    assert list(tmp_path.iterdir()) == []


def test_make_lists_them() -> None:
    listed = subprocess.check_output(["make", "help"], cwd=ROOT, env={"PATH": os.environ["PATH"]}, text=True)
    assert [name for name in SCRIPT.EXAMPLES if f"make example-{name} " not in listed] == []
