"""The file that calls a function in a Task, run as it is in a Pod."""

from __future__ import annotations

import ast
import importlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import frameworkcontroller
from frameworkcontroller import Code, InvalidSpec, RemoteError, function

RUNNER = Path(frameworkcontroller.__file__).parent / "sdk" / "taskrunner.py"
OLDEST = (3, 8)
VERMIN = str(Path(sys.executable).with_name("vermin"))

MODULE = r"""
import os, sys

class Odd(Exception):
    def __str__(self):
        raise ValueError("never")

class Outer:
    class Inner(Exception):
        pass

    @staticmethod
    def inner():
        return "inner"

def give(*args, **kwargs):
    print("called")
    return [list(args), kwargs]

def large(): return "x" * 4090
def fits(): return "x" * 4084
def nothing(): pass
def strange(): return {1, 2}
def own(): raise Outer.Inner("m")
def odd(): raise Odd
def wide(): raise RuntimeError("\U0001f600" * 5000)
def surrogate(): raise RuntimeError("\udc80" * 500)
def even(n=200): return uneven(n - 1) if n else 1 / 0
def uneven(n): return even(n - 1)
def leaves(): sys.exit(3)
def leaves_well(): sys.exit()
def leaves_with_words(): sys.exit("no data")
def interrupted(): raise KeyboardInterrupt
def here(): return [os.getcwd() in sys.path, __name__]
def chained():
    try:
        1 / 0
    except ZeroDivisionError as error:
        raise ValueError("after") from error
"""


class Ended(NamedTuple):
    code: int
    message: str
    out: str
    err: str

    @property
    def error(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.message.partition("\n")[0])["error"]
        return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m.py").write_text(MODULE)
    return tmp_path


def run(folder: Path, *words: str, python: str = sys.executable, inline: bool = False, **environ: Any) -> Ended:
    log = folder / "termination-log"
    log.unlink(missing_ok=True)
    start = ["-c", RUNNER.read_text()] if inline else [str(RUNNER)]
    ended = subprocess.run(
        [python, *start, *words],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "FC_LOCAL_TERMINATION_LOG": str(log), "PYTHONUTF8": "1", **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Ended(ended.returncode, log.read_text() if log.exists() else "", ended.stdout, ended.stderr)


def call(folder: Path, name: str, *args: Any, **environ: Any) -> Ended:
    return run(folder, f"m:{name}", json.dumps({"args": args, "kwargs": {}}), **environ)


@pytest.mark.parametrize("inline", [False, True])
def test_a_value(folder: Path, inline: bool) -> None:
    ended = run(folder, "m:give", '{"args": [1, "ü"], "kwargs": {"a": null}}', inline=inline)
    assert (ended.code, ended.out, ended.err) == (0, "called\n", "")
    assert json.loads(ended.message) == {"value": [[1, "ü"], {"a": None}]}
    assert call(folder, "nothing").message == '{"value":null}'
    assert json.loads(call(folder, "Outer.inner").message) == {"value": "inner"}
    assert json.loads(call(folder, "here").message) == {"value": [True, "m"]}


LARGE = (
    "the function returned 4102 bytes of JSON, where a result has at most 4096: write larger results to storage and "
    "return their place"
)


@pytest.mark.parametrize(
    ("name", "type_name", "message"),
    [
        ("own", "m.Outer.Inner", "m"),
        ("odd", "m.Odd", "(no text)"),
        ("chained", "ValueError", "after"),
        ("interrupted", "KeyboardInterrupt", ""),
        ("strange", "TypeError", "the function must return a JSON value: Object of type set is not JSON serializable"),
        ("large", "ValueError", LARGE),
        ("missing", "AttributeError", "module 'm' has no attribute 'missing'"),
    ],
)
def test_an_error(folder: Path, name: str, type_name: str, message: str) -> None:
    ended = call(folder, name)
    assert ended.code == 1
    assert (ended.error["type"], ended.error["message"]) == (type_name, message)
    assert ended.error["traceback"].startswith("Traceback (most recent call last):")
    # A function's traceback begins in the function.
    assert "taskrunner.py" not in ended.error["traceback"] or name in ("strange", "large", "missing")
    # The last line is the cause that the controller shows.
    assert ended.message.partition("\n")[2] == f"{type_name}: {message}".strip()
    assert "Traceback (most recent call last):" in ended.err


def test_the_largest_value_fits(folder: Path) -> None:
    ended = call(folder, "fits")
    assert (ended.code, len(ended.message)) == (0, 4096)


@pytest.mark.parametrize("name", ["wide", "surrogate", "even"])
def test_an_error_is_cut_to_a_termination_message(folder: Path, name: str) -> None:
    ended = call(folder, name)
    assert ended.code == 1
    assert 1000 < len(ended.message.encode()) <= 4096
    # The end of a traceback says the most.
    if name == "even":
        assert ended.error["traceback"].endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [("leaves", 3, ""), ("leaves_well", 0, '{"value": null}'), ("leaves_with_words", 1, "")],
)
def test_an_exit_is_kept(folder: Path, name: str, code: int, message: str) -> None:
    ended = call(folder, name)
    assert (ended.code, ended.message) == (code, message)


def test_torchrun_reads_the_error(folder: Path) -> None:
    file = folder / "error.json"
    ended = call(folder, "own", TORCHELASTIC_ERROR_FILE=str(file))
    read = json.loads(file.read_text())["message"]
    assert read["message"] == "m.Outer.Inner: m"
    # torch.distributed.elastic.multiprocessing.errors.ProcessFailure needs both.
    assert read["extraInfo"]["py_callstack"] == ended.error["traceback"]
    assert int(read["extraInfo"]["timestamp"]) > 0
    file.unlink()
    call(folder, "nothing", TORCHELASTIC_ERROR_FILE=str(file))
    assert not file.exists()


def test_without_a_termination_log_the_call_counts(folder: Path) -> None:
    ended = call(folder, "nothing", FC_LOCAL_TERMINATION_LOG="/nowhere/log")
    assert ended.code == 0
    assert "/nowhere/log: cannot be written: " in ended.err


def test_a_pickled_call_needs_the_same_python(folder: Path) -> None:
    (folder / "cloudpickle.py").write_text("from pickle import *\n")
    version = f"{sys.version_info.major}.{sys.version_info.minor}".encode()
    pickled = pickle.dumps((max, [1, 5], {}))
    (folder / "call").write_bytes(version + b"\n" + pickled)
    assert run(folder, "--pickled", "call", PYTHONPATH=str(folder)).message == '{"value":5}'
    (folder / "call").write_bytes(b"2.7\n" + pickled)
    ended = run(folder, "--pickled", "call", PYTHONPATH=str(folder))
    assert "the function was pickled by Python 2.7 and cannot run in Python " in ended.error["message"]


def test_the_oldest_python_can_run_it() -> None:
    ast.parse(RUNNER.read_text(), feature_version=OLDEST)
    check = [VERMIN, "--no-tips", f"-t={OLDEST[0]}.{OLDEST[1]}-", str(RUNNER)]
    ended = subprocess.run(check, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize("python", [f"python3.{minor}" for minor in range(OLDEST[1], 15)])
def test_each_python_here_runs_it(folder: Path, python: str) -> None:
    path = shutil.which(python)
    if path is None or subprocess.run([path, "-V"], capture_output=True, check=False).returncode:
        pytest.skip(f"no {python}")
    assert run(folder, "m:give", '{"args": [], "kwargs": {}}', python=path).message == '{"value":[[],{}]}'
    assert run(folder, "m:own", '{"args": [], "kwargs": {}}', python=path).error["type"] == "m.Outer.Inner"


# --- the builder ---


@pytest.fixture
def give(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function of a module."""
    monkeypatch.syspath_prepend(folder)
    yield importlib.import_module("m").give
    sys.modules.pop("m", None)


def test_a_function_goes_by_reference(give: Any) -> None:
    framework = function(give, tasks=2, args=[1], kwargs={"a": "$(HOME) $$"})
    (role,) = framework.roles
    assert role.tasks == 2
    assert role.image == f"python:{sys.version_info.major}.{sys.version_info.minor}-slim"
    start, target, call = role.command[2:]
    assert (start, target) == ("/mnt/code/framework_task_runner.py", "m:give")
    # Kubernetes replaces $(NAME) and $$ in commands.
    assert "$" not in call
    assert json.loads(call) == {"args": [1], "kwargs": {"a": "$(HOME) $$"}}
    assert framework.code is not None
    assert framework.code.configmap


def test_a_name_needs_no_code() -> None:
    framework = function("package.module:f")
    assert framework.code is None
    assert framework.roles[0].command[2:4] == ["-c", RUNNER.read_text()]
    shipped = function("package.module:f", code=Code.claim("data"))
    assert shipped.roles[0].command[2] == "-c"
    assert "{{" not in RUNNER.read_text()
    assert "$" not in RUNNER.read_text()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda _: function(lambda: 1), "is not a function of a module that can be imported; send"),
        (lambda _: function(print), "'print': is not a function of a module that can be imported"),
        (lambda give: function(give, args=[{1}]), "args: must be JSON: Object of type set"),
        (lambda give: function(give, args=[float("nan")]), "args: must be JSON: "),
        (lambda _: function("m:f", by_value=True), "by_value: 'm:f': needs a function, not its name"),
    ],
)
def test_a_call_that_cannot_be_sent(give: Any, make: Any, words: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        make(give)
    assert words in str(caught.value)


def test_a_value_needs_files(give: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="by_value: needs cloudpickle"):
        function(give, by_value=True)
    (tmp_path / "cloudpickle.py").write_text("import os\ndef dumps(_): return os.urandom(1000000)\n")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        with pytest.raises(InvalidSpec, match="bytes compressed, where a ConfigMap has room"):
            function(give, by_value=True)
        with pytest.raises(InvalidSpec, match=r"must be Code\.files here"):
            function(give, by_value=True, code=Code.claim("data"))
    finally:
        sys.modules.pop("cloudpickle", None)


def test_a_remote_error_has_the_traceback_as_a_note() -> None:
    error = RemoteError("ValueError", "m", "Traceback\n  line\n")
    assert str(error) == "ValueError: m"
    assert error.__notes__ == ["Traceback of the Task:\nTraceback\n  line"]
    assert str(RemoteError("ValueError", "", "")) == "ValueError"
