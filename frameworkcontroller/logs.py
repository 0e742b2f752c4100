"""The log formats: klog's, which log collectors parse, and JSON. Each record is one line.

    I0823 05:59:12.287405      10 sync.py:421] [default/f]: FrameworkRunning: ...

These are severity (I, W, E, F), month and day, time, process id in seven columns, file and line, and the message. The
time is local, as in klog; JSON has UTC.

Messages contain text of users and API servers, which must not forge anything. Line ends and other control characters
are escaped as in JSON (``\\n``, ``\\u001b``), which keeps a snapshot valid JSON. The mark of a snapshot is altered
except at the end of records that carry one.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TextIO

import orjson

from frameworkcontroller.api.names import SNAPSHOT_MARK

LogFormat = Literal["klog", "json"]

LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
FORMATS: Final[tuple[LogFormat, ...]] = ("klog", "json")

_LETTERS: Final = {logging.CRITICAL: "F", logging.ERROR: "E", logging.WARNING: "W"}

# C0, DEL and C1, bidirectional controls, and the two separators that some readers take for line ends.
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# The start of lines about a Framework, and of a snapshot in a line.
_SUBJECT: Final = re.compile(
    r"\[(?P<framework>[^\[\]/\s]+/[^\[\]/\s]+)\](?:\[(?P<role>[^\[\]\s]+)\]\[(?P<index>[0-9]+)\])?: "
    r"(?:(?P<reason>[A-Z][A-Za-z]+): )?"
)
_SNAPSHOT: Final = re.compile(r": (?P<trigger>On[A-Za-z]+): ObjectSnapshot: ")

_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


def configure_logging(level: str = "info", log_format: LogFormat = "klog", stream: TextIO | None = None) -> None:
    """Log to ``stream`` (default stderr) from ``level`` (a key of ``LEVELS``) on; replaces an earlier configuration.

    Unless the level is debug, libraries log from warnings on.
    """
    handler = LineHandler(stream, JsonFormatter() if log_format == "json" else KlogFormatter())
    root = logging.getLogger()
    for former in [former for former in root.handlers if isinstance(former, LineHandler)]:
        root.removeHandler(former)
    root.addHandler(handler)
    number = LEVELS[level]
    root.setLevel(number if number == logging.DEBUG else max(number, logging.WARNING))
    logging.getLogger(__package__).setLevel(number)
    logging.captureWarnings(capture=True)
    # No format shows these, so records need not look them up.
    logging.logThreads = False
    logging.logProcesses = False
    logging.logMultiprocessing = False
    logging.logAsyncioTasks = False  # type: ignore[attr-defined,unused-ignore]  # since Python 3.12


@contextmanager
def logging_to_file(path: Path, log_format: LogFormat = "klog") -> Iterator[None]:
    """Log to a new file while inside; the configured stream gets errors only. Raises OSError."""
    root = logging.getLogger()
    streams = [handler for handler in root.handlers if isinstance(handler, LineHandler)]
    with path.open("w", encoding="utf-8") as file:
        handler = LineHandler(file, JsonFormatter() if log_format == "json" else KlogFormatter())
        for stream in streams:
            stream.setLevel(logging.ERROR)
        root.addHandler(handler)
        try:
            yield
        finally:
            root.removeHandler(handler)
            for stream in streams:
                stream.setLevel(logging.NOTSET)


class LineHandler(logging.Handler):
    """Writes each record as one line, with one call; never raises."""

    def __init__(self, stream: TextIO | None, formatter: logging.Formatter) -> None:
        """``stream`` None: the current ``sys.stderr``, which a live table replaces while it is shown."""
        super().__init__()
        self._stream = stream
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record. Errors of the stream are ignored, because there is no other place to report them."""
        stream = sys.stderr if self._stream is None else self._stream
        try:
            stream.write(f"{self.format(record)}\n")
            stream.flush()
        except (OSError, ValueError):
            pass


class KlogFormatter(logging.Formatter):
    """The format of klog."""

    def __init__(self) -> None:
        super().__init__()
        self._pid = f"{os.getpid():7d}"
        self._second = (-1, "")

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        second = int(record.created)
        if second != self._second[0]:
            self._second = (second, time.strftime("%m%d %H:%M:%S", time.localtime(second)))
        micros = int((record.created - second) * 1_000_000)
        message = _message(record)
        if record.exc_info:
            message = f"{message}: {_unforged(self.formatException(record.exc_info))}"
        return (
            f"{_LETTERS.get(record.levelno, 'I')}{self._second[1]}.{micros:06d} {self._pid} "
            f"{record.filename}:{record.lineno}] {one_line(message)}"
        )


class JsonFormatter(logging.Formatter):
    """The JSON format. docs/logs.md guarantees names and types of the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        message = _encodable(_message(record))
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "site": f"{record.filename}:{record.lineno}",
            "message": message,
        }
        subject = _SUBJECT.match(message)
        if subject is not None:
            entry.update((name, value) for name, value in subject.groupdict().items() if value is not None)
            if "index" in entry:
                entry["index"] = int(entry["index"])
        snapshot = _SNAPSHOT.search(message)
        if snapshot is not None:
            text = message[snapshot.end() :]
            # Without valid JSON, it is text of the message.
            with suppress(ValueError):
                orjson.loads(text)
                # The text itself, because orjson parses deeper nesting than it writes.
                entry["snapshot"] = orjson.Fragment(text)
                entry["trigger"] = snapshot["trigger"]
                entry["message"] = message[: snapshot.start()]
        if record.exc_info:
            entry["trace"] = _encodable(_unforged(self.formatException(record.exc_info)))
        return one_line(orjson.dumps(entry).decode())


def one_line(text: str) -> str:
    """Escape control characters and line ends as in JSON."""
    if _UNPRINTABLE.search(text) is None:
        return text
    return _UNPRINTABLE.sub(lambda found: _SHORT.get(found[0]) or f"\\u{ord(found[0]):04x}", text)


def _encodable(text: str) -> str:
    """Escape lone surrogates, for example of file names, which UTF-8 cannot encode."""
    return text.encode("utf-8", "backslashreplace").decode()


def _message(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except Exception:  # noqa: BLE001 - an argument may raise anything, and the rest of the line is useful
        text = f"{record.msg} (invalid log arguments)"
    if not getattr(record, "snapshot", False):
        return _unforged(text)
    head, mark, snapshot = text.rpartition(SNAPSHOT_MARK)
    return f"{_unforged(head)}{mark}{snapshot}"


def _unforged(text: str) -> str:
    """Alter the mark of snapshots in ``text``."""
    return text.replace(SNAPSHOT_MARK, "ObjectSnapshot ")
