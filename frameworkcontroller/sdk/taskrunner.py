"""Calls a function in a Task, and writes its value, or its error, to the termination message.

It is copied into Pods: Python 3.8 and its standard library are enough.

    python3 framework_task_runner.py MODULE:FUNCTION '{"args": [], "kwargs": {}}'
    python3 framework_task_runner.py --pickled FILE
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_MESSAGE = 4096
"""Bytes of a container's termination message; Kubernetes cuts the rest."""

_SDK = "frameworkcontroller"

framework_task_imports = False
"""Whether the function's file is being imported. The SDK refuses to submit meanwhile, or Tasks would start Tasks."""


class _Absent(ModuleType):
    """Stands in for the SDK where the image has none: a program that submits its own functions imports it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Absent(f"{self.__name__}.{name}")

    def __call__(self, *_args: Any, **_kwargs: Any) -> Any:
        raise RuntimeError(f'{self.__name__}: not in this image; call it below `if __name__ == "__main__":`')


def main(arguments: list[str]) -> int:
    """Call the function. Return the exit code."""
    if find_spec(_SDK) is None:
        sys.modules[_SDK] = _Absent(_SDK)
        vars(sys.modules[_SDK])["notice"] = notice
    try:
        if arguments[0] == "--pickled":
            function, args, kwargs = _by_value(Path(arguments[1]))
        else:
            function, args, kwargs = _by_name(*arguments)
        text = _as_message(function(*args, **kwargs))
    except SystemExit as error:
        if error.code in (None, 0):
            _write(json.dumps({"value": None}))
        raise
    except BaseException as error:  # noqa: BLE001 - it is written down
        traceback.print_exc()
        _write(_of_error(error))
        return 1
    _write(text)
    return 0


def _by_name(target: str, texts: str) -> tuple[Callable[..., Any], Any, Any]:
    import importlib

    global framework_task_imports  # noqa: PLW0603 - the SDK looks here
    module, _, name = target.partition(":")
    framework_task_imports = True
    found: Any = importlib.import_module(module)
    framework_task_imports = False
    for part in name.split("."):
        found = getattr(found, part)
    call = json.loads(texts)
    return found, call["args"], call["kwargs"]


def _by_value(path: Path) -> tuple[Callable[..., Any], Any, Any]:
    import cloudpickle

    version, _, call = path.read_bytes().partition(b"\n")
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if version.decode() != own:
        raise RuntimeError(f"the function was pickled by Python {version.decode()} and cannot run in Python {own}")
    found: tuple[Callable[..., Any], Any, Any] = cloudpickle.loads(call)
    return found


def _as_message(value: Any) -> str:
    try:
        text = json.dumps({"value": value}, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise TypeError(f"the function must return a JSON value: {error}") from None
    if len(text) > MAX_MESSAGE:
        raise ValueError(
            f"the function returned {len(text)} bytes of JSON, where a result has at most {MAX_MESSAGE}: write larger "
            "results to storage and return their place"
        )
    return text


def _of_error(error: BaseException) -> str:
    """Return the error as JSON, with as much of the end of the traceback as fits, and below it in words.

    The last line of a termination message is the cause that the controller shows.
    """
    inner = error.__traceback__ and error.__traceback__.tb_next
    lines = "".join(traceback.format_exception(type(error), error, inner))
    kind = type(error).__qualname__
    if type(error).__module__ not in ("builtins", "__main__"):
        kind = f"{type(error).__module__}.{kind}"
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - an exception's own code
        message = "(no text)"
    size, room = 1000, 3000
    while True:
        found = {"type": kind[:200], "message": message[:size], "traceback": lines[-room:] if room else ""}
        words = " ".join(f"{kind[:200]}: {message[:200]}".split())
        text = json.dumps({"error": found}, separators=(",", ":")) + "\n" + words
        if len(text.encode("utf-8", "replace")) <= MAX_MESSAGE:
            return text
        # Text that is not ASCII takes up to 12 bytes a character.
        room, size = room * 3 // 4, size * 7 // 8


def _write(text: str) -> None:
    # Of the processes that torchrun has started in a container, the first one has the value.
    if os.environ.get("LOCAL_RANK", "0") == "0" or text.startswith('{"error"'):
        _write_to(os.environ.get("FC_LOCAL_TERMINATION_LOG") or "/dev/termination-log", text)
    # torchrun gives each of its processes a file, and reports the first error.
    shared = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if shared and text.startswith('{"error"'):
        error = json.loads(text.partition("\n")[0])["error"]
        more = {"py_callstack": error["traceback"], "timestamp": str(int(time.time()))}
        about = {"message": f"{error['type']}: {error['message']}", "extraInfo": more}
        _write_to(shared, json.dumps({"message": about}))


def _write_to(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        sys.stderr.write(f"{path}: cannot be written: {error}\n")


# --- notices ---

_NOTICE_FILE = "FC_NOTICE_FILE"


class Notice(NamedTuple):
    """The notice that this attempt of the Framework is to end, or that one of its Pods is."""

    reason: str
    """Suspension, Eviction, ActiveDeadline or Disruption; others may follow."""
    deadline: datetime
    """When it ends without a checkpoint, in UTC."""


def notice() -> Notice | None:
    """Return the notice of the end of this attempt of the Framework, None while there is none.

    With ``checkpointGraceSeconds``, the attempt ends once a checkpoint was reported after the notice, or at the
    deadline. A Task sees a notice within about a minute, and not all Tasks at once: let one decide for all. Continue
    after the checkpoint, since a Task that exits has succeeded or failed. It reads a small file.
    """
    try:
        reason, _, deadline = Path(os.environ[_NOTICE_FILE]).read_text(encoding="utf-8").strip().partition(" ")
        return Notice(reason, datetime.strptime(deadline, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc))
    except (KeyError, OSError, ValueError):
        return None


# Where a pickled function finds it, also with `_Absent`.
notice.__module__ = _SDK


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    sys.exit(main(sys.argv[1:]))
