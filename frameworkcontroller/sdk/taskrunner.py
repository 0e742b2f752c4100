"""Calls a function in a Task, and writes its value, or its error, to the termination message; reports progress.

It is copied into Pods: Python 3.8 and its standard library are enough.

    python3 framework_task_runner.py MODULE:FUNCTION '{"args": [], "kwargs": {}}'
    python3 framework_task_runner.py --pickled FILE
"""

from __future__ import annotations

import atexit
import http.client
import json
import math
import operator
import os
import ssl
import sys
import threading
import time
import traceback
from contextlib import suppress
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
        absent = sys.modules[_SDK] = _Absent(_SDK)
        vars(absent).update(notice=notice, report=report)
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


# --- progress ---

_SERVER = ("KUBEFLOW_TRAINER_SERVER_URL", "KUBEFLOW_TRAINER_SERVER_CA_CERT", "KUBEFLOW_TRAINER_SERVER_TOKEN")
_EVERY_SEC = 5.0
_SOON_SEC = 1.0
"""For checkpoints, and at the end of the process. The controller accepts one report a second from each Pod."""

_TIMEOUT_SEC = 10.0
_EXIT_SEC = 2.0
_MAX_METRICS = 20
_MAX_NAME = 63
_MAX_COUNT = 2**53 - 1
_TRANSIENT = (401, 408, 429)
"""Statuses of refused reports that are sent again, besides those from 500 up."""


def report(
    *,
    percent: float | None = None,
    step: int | None = None,
    metrics: Mapping[str, float] | None = None,
    checkpoint: bool = False,
    remaining_seconds: float | None = None,
) -> None:
    """Report progress of this attempt of the Framework, whose spec has ``progress``. Elsewhere it does nothing.

    A field that is not given keeps its last value. ``metrics``: at most 20 numbers by name, such as the loss.
    ``checkpoint``: one has been completed. It returns at once: a thread sends the newest values every 5 seconds, and
    a checkpoint within one. An unreachable controller is no error. With the variable RANK, only rank 0 reports.

    Raises:
        TypeError: an argument is no number.
        ValueError: an argument is out of range.
    """
    fields = {}  # type: dict[str, Any]
    if percent is not None:
        fields["progressPercentage"] = _number("percent", percent, 100)
    if remaining_seconds is not None:
        fields["estimatedRemainingSeconds"] = int(_number("remaining_seconds", remaining_seconds, _MAX_COUNT))
    if step is not None:
        fields["step"] = _count("step", step)
    if metrics is not None:
        fields["metrics"] = _metrics(metrics)
    if not isinstance(checkpoint, bool):
        raise TypeError(f"checkpoint: must be True or False, not {_brief(checkpoint)}")
    if checkpoint:
        fields["checkpoint"] = True
    fields["lastUpdatedTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    server = tuple(os.environ.get(name, "") for name in _SERVER)
    if all(server) and os.environ.get("RANK", "0") == "0":
        with suppress(RuntimeError):  # no further thread can start
            _sender_to(*server).add(fields)


# Where a pickled function finds it, also with `_Absent`.
report.__module__ = _SDK


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:99]}…"


def _number(name: str, value: Any, most: float) -> float:
    number = _float(name, value)
    if not 0 <= number <= most:
        raise ValueError(f"{name}: must be from 0 to {most}, not {_brief(value)}")
    return number


def _float(name: str, value: Any) -> float:
    try:
        if isinstance(value, (bool, str, bytes)):
            raise TypeError
        return float(value)
    except Exception:  # noqa: BLE001 - of a tensor, for example
        raise TypeError(f"{name}: must be a number, not {_brief(value)}") from None


def _count(name: str, value: Any) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        count = operator.index(value)
    except Exception:  # noqa: BLE001 - of a tensor, for example
        raise TypeError(f"{name}: must be a whole number, not {_brief(value)}") from None
    if not 0 <= count <= _MAX_COUNT:
        raise ValueError(f"{name}: must be from 0 to {_MAX_COUNT}, not {_brief(value)}")
    return count


def _metrics(given: Any) -> list[dict[str, str]]:
    if not hasattr(given, "items"):
        raise TypeError(f"metrics: must be a mapping of names to numbers, not {_brief(given)}")
    found = {}  # type: dict[str, float]
    for name, value in given.items():
        if not isinstance(name, str):
            raise TypeError(f"metrics: {_brief(name)}: a name must be text")
        if not 0 < len(name) <= _MAX_NAME or not name.isprintable():
            raise ValueError(f"metrics: {_brief(name)}: a name must have 1 to {_MAX_NAME} printable characters")
        found[name] = _float(f"metrics: {name}", value)
    if len(found) > _MAX_METRICS:
        raise ValueError(f"metrics: must have at most {_MAX_METRICS} names, not {len(found)}")
    # Training continues with a loss that is not a number, so the call must not fail. JSON cannot express it.
    return [{"name": name, "value": str(value)} for name, value in found.items() if math.isfinite(value)]


class _Sender:
    """Sends reports from a thread. Of values that were not sent yet, the newest counts; a checkpoint stays one."""

    def __init__(self, url: str, ca: str, token: str) -> None:
        self.server = url, ca, token
        self.process = os.getpid()
        # Its lock is reentrant: a signal handler may report.
        self._changed = threading.Condition()
        self._pending = {}  # type: dict[str, Any]
        self._is_sending = self._is_closing = self._has_failed = False
        self._last = -_EVERY_SEC
        threading.Thread(target=self._run, name="framework-reports", daemon=True).start()
        atexit.register(self.close)

    def add(self, fields: dict[str, Any]) -> None:
        """Send the fields later."""
        with self._changed:
            self._pending.update(fields)
            self._changed.notify_all()

    def close(self) -> None:
        """Wait for the last report, but not long."""
        if self.process != os.getpid():
            return
        end = time.monotonic() + _EXIT_SEC
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
            while (self._pending or self._is_sending) and time.monotonic() < end:
                self._changed.wait(end - time.monotonic())

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._pending or self._wait() > 0:
                    self._changed.wait(self._wait() if self._pending else None)
                fields, self._pending = self._pending, {}
                self._is_sending = True
            is_refused = self._send(fields)
            with self._changed:
                if is_refused:
                    self._pending = {**fields, **self._pending}
                self._is_sending, self._last = False, time.monotonic()
                self._changed.notify_all()

    def _wait(self) -> float:
        """Return the seconds until the next report."""
        is_urgent = self._is_closing or (self._pending.get("checkpoint") and not self._has_failed)
        return self._last + (_SOON_SEC if is_urgent else _EVERY_SEC) - time.monotonic()

    def _send(self, fields: dict[str, Any]) -> bool:
        """Send a report. Return whether to send it again."""
        url, ca, token = self.server
        try:
            place = urlsplit(url)
            if place.scheme != "https" or not place.hostname:
                raise ValueError(f"{_SERVER[0]}: must be an https URL, not {_brief(url)}")
            # Both files change: read them each time. No proxy and no redirect may see the token.
            headers = {
                "Authorization": f"Bearer {Path(token).read_text(encoding='ascii').strip()}",
                "Content-Type": "application/json",
            }
            context = ssl.create_default_context(cafile=ca)
            connection = http.client.HTTPSConnection(place.hostname, place.port, timeout=_TIMEOUT_SEC, context=context)
            try:
                body = json.dumps({"trainerStatus": fields}).encode()
                connection.request("POST", place._replace(scheme="", netloc="").geturl() or "/", body, headers)
                answer = connection.getresponse()
                text = answer.read(1000).decode("utf-8", "replace")
            finally:
                connection.close()
        except Exception as error:  # noqa: BLE001 - nothing here may end a training
            return self._failed(f"{type(error).__name__}: {error}", again=True)
        if answer.status >= 400:
            again = answer.status in _TRANSIENT or answer.status >= 500
            return self._failed(f"{answer.status} {answer.reason}: {' '.join(text.split())}", again=again)
        self._has_failed = False
        return False

    def _failed(self, text: str, *, again: bool) -> bool:
        """Write the first failure in a row to standard error."""
        if not self._has_failed:
            sys.stderr.write(f"frameworkcontroller: progress cannot be reported: {text[:500]}\n")
        self._has_failed = True
        return again


_senders = []  # type: list[_Sender]
_senders_lock = threading.RLock()


def _sender_to(url: str, ca: str, token: str) -> _Sender:
    """Return the sender of this process: a fork has none of its threads."""
    with _senders_lock:
        if not _senders or _senders[0].server != (url, ca, token):
            _senders[:] = [_Sender(url, ca, token)]
        return _senders[0]


def _forget_sender() -> None:
    global _senders_lock  # noqa: PLW0603 - another thread of the parent may hold it
    _senders_lock = threading.RLock()
    _senders.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_sender)


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    sys.exit(main(sys.argv[1:]))
