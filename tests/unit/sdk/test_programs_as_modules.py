"""A Task imports the program that has submitted its function: in images without the SDK, and with it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from frameworkcontroller.sdk import taskrunner

PROGRAM = """
import frameworkcontroller as fc

def double(number, how: fc.Retry = None):
    return 2 * number

{guard}
    with fc.{connect}() as cluster:
        cluster.run(fc.function(double))
"""
GUARDED, UNGUARDED = 'if __name__ == "__main__":', "if True:"


def called(folder: Path, program: str, *options: str) -> Any:
    """The termination message of a Task that calls the function."""
    (folder / "program.py").write_text(program)
    message = folder / "message"
    subprocess.run(
        [sys.executable, *options, taskrunner.__file__, "program:double", '{"args": [2], "kwargs": {}}'],
        cwd=folder,
        env={"FC_LOCAL_TERMINATION_LOG": str(message)},
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return json.loads(message.read_text().partition("\n")[0])


@pytest.mark.parametrize("connect", ["connect", "aio.connect"])
@pytest.mark.parametrize("options", [[], ["-S"]], ids=["with the SDK", "without"])
def test_a_program_that_submits_only_as_a_program_is_called(tmp_path: Path, connect: str, options: list[str]) -> None:
    assert called(tmp_path, PROGRAM.format(guard=GUARDED, connect=connect), *options) == {"value": 4}


def test_one_that_submits_when_it_is_imported_is_refused(tmp_path: Path) -> None:
    error = called(tmp_path, PROGRAM.format(guard=UNGUARDED, connect="connect"))["error"]
    assert error["type"] == "RuntimeError"
    assert error["message"].startswith('a Task imports this file: connect below `if __name__ == "__main__":`')


@pytest.mark.parametrize("connect", ["connect", "aio.connect"])
def test_one_that_submits_when_it_is_imported_is_refused_without_the_sdk(tmp_path: Path, connect: str) -> None:
    error = called(tmp_path, PROGRAM.format(guard=UNGUARDED, connect=connect), "-S")["error"]
    expected = f'frameworkcontroller.{connect}: not in this image; call it below `if __name__ == "__main__":`'
    assert error["message"] == expected
