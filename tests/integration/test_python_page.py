"""The first ten minutes of docs/python.md: its cells in one process, and the output that it shows."""

import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.support.examples import ROOT
from tests.support.fences import blocks

PAGE = ROOT / "docs/python.md"

NOTEBOOK = """
import sys, traceback
for cell in sys.stdin.read().split("\\0"):
    try:
        exec(cell, globals())
    except Exception:
        traceback.print_exc(file=sys.stdout)
"""

CLOUDPICKLE = """
import builtins, importlib, marshal, types

def dumps(call):
    function, args, kwargs = call
    modules = [name for name, value in function.__globals__.items() if type(value) is types.ModuleType]
    used = [name for name in modules if name in function.__code__.co_names]
    return marshal.dumps((function.__code__, used, args, kwargs))

def loads(data):
    code, used, args, kwargs = marshal.loads(data)
    names = {name: importlib.import_module(name) for name in used}
    return types.FunctionType(code, {"__builtins__": builtins, **names}), args, kwargs
"""
"""Enough for functions that use modules, where the library is missing."""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of an environment with the package and cloudpickle, and of its containers."""
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    (packages,) = (tmp_path / "venv/lib").glob("python*/site-packages")
    # The editable package is a .pth file, too.
    (packages / "tested.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    if subprocess.run([sys.executable, "-c", "import cloudpickle"], stderr=subprocess.DEVNULL, check=False).returncode:
        (packages / "cloudpickle.py").write_text(CLOUDPICKLE)
    return tmp_path / "venv/bin/python"


def ran(folder: Path, command: list[str | Path], text: str = "") -> str:
    """The output of the command, which must leave no file."""
    scratch = folder / "scratch"
    scratch.mkdir()
    done = subprocess.run(
        command,
        input=text,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert list(scratch.iterdir()) == []
    return done.stdout


def test_the_first_cells_print_the_output_of_the_page(python: Path, tmp_path: Path) -> None:
    end = PAGE.read_text().splitlines().index("## Three nouns")
    cells = [block.text for block in blocks(PAGE, "python") if block.line < end]
    shown = [block.text.splitlines() for block in blocks(PAGE, "") if block.line < end]
    output = ran(tmp_path, [python, "-c", NOTEBOOK], "\0".join(cells))
    text = re.sub(r"\bfunction[a-z0-9]{5}\b", "functionXXXXX", output)
    printed = text.replace("frameworkcontroller.sdk.exceptions.", "").splitlines()
    assert [line for lines in shown for line in lines if line not in printed] == []
