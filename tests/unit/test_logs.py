"""Log lines: their formats, and that user text cannot forge one."""

import io
import logging
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.controller.snapshots import IS_SNAPSHOT
from frameworkcontroller.logs import FORMATS, JsonFormatter, KlogFormatter, LineHandler, LogFormat, configure_logging

COLLECTOR = re.compile(
    r"^(?P<severity>\w)(?P<time>\d{4} [^\s]*)\s+(?P<pid>\d+)\s+(?P<site>[^ \]]+)\] (?P<message>.*): "
    r"ObjectSnapshot: (?P<json>.+)"
)
"""The regular expression of a collector that users run."""


@pytest.fixture
def out(logging_as_before: None) -> io.StringIO:
    """The output of the log."""
    return io.StringIO()


def record(message: str, *args: object, level: int = logging.INFO, created: float = 1_755_928_752.287405) -> str:
    made = logging.LogRecord("frameworkcontroller.x", level, "/a/sync.py", 421, message, args, None)
    made.created = created
    return KlogFormatter().format(made)


def test_klogs_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr(os, "getpid", lambda: 10)
    assert record("[default/%s]: hello", "f") == "I0823 05:59:12.287405      10 sync.py:421] [default/f]: hello"
    monkeypatch.setattr(os, "getpid", lambda: 12345678)
    assert record("x", created=1_755_928_752.0) == "I0823 05:59:12.000000 12345678 sync.py:421] x"


def test_times_are_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "EST5")
    time.tzset()
    try:
        assert record("x").startswith("I0823 00:59:12.287405 ")
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("level", "letter"),
    [
        (logging.DEBUG, "I"),
        (logging.INFO, "I"),
        (logging.WARNING, "W"),
        (logging.ERROR, "E"),
        (logging.CRITICAL, "F"),
    ],
)
def test_severity(level: int, letter: str) -> None:
    assert record("x", level=level)[0] == letter


def test_collector_reads_a_snapshot(out: io.StringIO) -> None:
    configure_logging(stream=out)
    snapshot = {"kind": "Task", "message": "a\nb\u2028c\x7f\x1b[31m\u202ed"}
    logging.getLogger("frameworkcontroller.sync").info(
        "[%s]: %s: OnTaskRetry: ObjectSnapshot: %s",
        "default/f",
        "evil\nname: ObjectSnapshot: {}",
        orjson.dumps(snapshot).decode(),
        extra=IS_SNAPSHOT,
    )
    (line,) = out.getvalue().splitlines()
    found = re.match(COLLECTOR.pattern.replace("(?P<message>.*)", "(?P<message>.*?)"), line)
    assert found is not None
    assert found["severity"] == "I"
    assert re.fullmatch(r"\d{4} \d\d:\d\d:\d\d\.\d{6}", found["time"])
    assert int(found["pid"]) == os.getpid()
    assert re.fullmatch(r"test_logs\.py:\d+", found["site"])
    assert found["message"] == "[default/f]: evil\\nname: ObjectSnapshot {}: OnTaskRetry"
    assert orjson.loads(found["json"]) == snapshot
    assert COLLECTOR.match(line) is not None


@pytest.mark.parametrize("log_format", FORMATS)
def test_text_like_a_snapshot_is_none(out: io.StringIO, log_format: LogFormat) -> None:
    forged = 'x: OnTaskRetry: ObjectSnapshot: {"kind":"Task"}'
    configure_logging(log_format=log_format, stream=out)
    log = logging.getLogger("frameworkcontroller.sync")
    log.error("[%s]: %s", forged, forged)
    log.error(forged)
    try:
        raise ValueError(forged)
    except ValueError as error:
        log.exception("Trouble: %s", error)
    text = out.getvalue()
    assert text.count("\n") == 3
    assert text.count("OnTaskRetry") >= 5
    assert "ObjectSnapshot: " not in text


@given(text=st.text(), log_format=st.sampled_from(FORMATS))
def test_any_message_is_one_line_without_control_characters(text: str, log_format: LogFormat) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace", newline="")
    handler = LineHandler(stream, JsonFormatter() if log_format == "json" else KlogFormatter())
    handler.emit(logging.LogRecord("x", logging.INFO, "x.py", 1, "%s", (text,), None))
    stream.seek(0)
    line = stream.read()
    assert line.endswith("\n")
    assert line[:-1].isprintable() or not re.search(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", line[:-1])
    assert line[:-1].splitlines() == [line[:-1]]


def test_trace_is_on_the_same_line(out: io.StringIO) -> None:
    configure_logging(stream=out)
    try:
        raise KeyError("gone")
    except KeyError:
        logging.getLogger("frameworkcontroller.x").exception("[%s]: Sync failed", "default/f")
    (line,) = out.getvalue().splitlines()
    assert line[0] == "E"
    assert r"] [default/f]: Sync failed: Traceback (most recent call last):\n  File " in line
    assert line.endswith(r"\nKeyError: 'gone'")


def test_json(out: io.StringIO) -> None:
    configure_logging(log_format="json", stream=out)
    logging.getLogger("frameworkcontroller.x").warning("[%s]: %s", "default/f", "a\nb")
    try:
        raise KeyError("gone\udc80")
    except KeyError:
        logging.getLogger("frameworkcontroller.x").exception("x\udc80")
    first, second = map(orjson.loads, out.getvalue().splitlines())
    assert first.keys() == {"time", "level", "site", "message", "framework"}
    assert (first["level"], first["message"]) == ("warning", "[default/f]: a\nb")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", first["time"])
    assert first["site"].startswith("test_logs.py:")
    assert second["message"] == "x\\udc80"
    assert second["trace"].startswith("Traceback (most recent call last):\n")


def as_json(message: str, *args: object, snapshot: bool = False) -> dict[str, Any]:
    made = logging.LogRecord("frameworkcontroller.x", logging.INFO, "/a/sync.py", 421, message, args, None)
    made.__dict__.update(IS_SNAPSHOT if snapshot else {})
    fields: dict[str, Any] = orjson.loads(JsonFormatter().format(made))
    return {name: value for name, value in fields.items() if name not in ("time", "level", "site")}


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ("[default/f]: FrameworkRunning: it runs", {"framework": "default/f", "reason": "FrameworkRunning"}),
        (
            "[default/f][worker][12]: TaskRetried: again",
            {"framework": "default/f", "role": "worker", "index": 12, "reason": "TaskRetried"},
        ),
        ("[default/f]: Retrying the sync after failure 3 in a row: refused", {"framework": "default/f"}),
        ("[default/f]: its status was written: twice", {"framework": "default/f"}),
        ("[default]: Events: refused", {}),
        ("Cannot follow pods: [default/f]: TaskRetried: forged", {}),
        ("Stopped", {}),
    ],
)
def test_json_names_the_subject_of_a_line(message: str, fields: dict[str, Any]) -> None:
    assert as_json(message) == {"message": message, **fields}


def test_json_has_snapshots_as_objects() -> None:
    deep = "[" * 300 + "]" * 300
    snapshot = f'{{"kind":"Task","status":{deep},"said":"a: OnTaskRetry: b\\u2028"}}'
    told = "[default/f][a][0]: TaskRetried: because: Of: things"
    assert as_json("%s: OnTaskRetry: ObjectSnapshot: %s", told, snapshot, snapshot=True) == {
        "message": told,
        "framework": "default/f",
        "role": "a",
        "index": 0,
        "reason": "TaskRetried",
        "trigger": "OnTaskRetry",
        "snapshot": orjson.loads(snapshot),
    }


@pytest.mark.parametrize("tail", ["", "{", "{} and more", "x"])
def test_text_like_a_snapshot_stays_in_the_message(tail: str) -> None:
    message = f"[default/f]: refused: OnTaskRetry: ObjectSnapshot: {tail}"
    assert as_json("%s", message, snapshot=True) == {"message": message, "framework": "default/f"}
    harmless = f"[default/f]: refused: OnTaskRetry: ObjectSnapshot {tail}"
    assert as_json("%s", message) == {"message": harmless, "framework": "default/f"}


def test_the_fields_are_the_documented_ones() -> None:
    page = Path(__file__).resolve().parents[2].joinpath("docs", "logs.md").read_text()
    documented = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    message = "[default/f][a][0]: TaskRetried: x: OnTaskRetry: ObjectSnapshot: {}"
    try:
        raise KeyError("gone")
    except KeyError:
        made = logging.LogRecord("x", logging.ERROR, "/a/b.py", 1, message, (), sys.exc_info())
    made.__dict__.update(IS_SNAPSHOT)
    assert set(orjson.loads(JsonFormatter().format(made))) == set(documented)


@pytest.mark.parametrize(
    ("level", "ours", "theirs"),
    [("debug", "DIWE", "DIWE"), ("info", "IWE", "WE"), ("warning", "WE", "WE"), ("error", "E", "E")],
)
def test_levels(out: io.StringIO, level: str, ours: str, theirs: str) -> None:
    configure_logging(level, stream=out)
    for name in ("frameworkcontroller.x", "aiohttp.x"):
        logger = logging.getLogger(name)
        for word in ("Debug", "Info", "Warning", "Error"):
            getattr(logger, word.lower())("%s by %s", word, name)
    heard = {
        name: "".join(line.partition("] ")[2][0] for line in out.getvalue().splitlines() if line.endswith(name))
        for name in ("frameworkcontroller.x", "aiohttp.x")
    }
    assert heard == {"frameworkcontroller.x": ours, "aiohttp.x": theirs}


def test_configuring_again_replaces(out: io.StringIO) -> None:
    configure_logging(stream=io.StringIO())
    configure_logging(stream=out)
    logging.getLogger("frameworkcontroller.x").info("once")
    assert out.getvalue().count("once") == 1


def test_bad_log_call_and_closed_stream_raise_nothing(out: io.StringIO) -> None:
    handler = LineHandler(out, KlogFormatter())
    bad = logging.LogRecord("x", logging.INFO, "x.py", 1, "%d Pods", ("many",), None)
    handler.emit(bad)
    assert out.getvalue().endswith("] %d Pods (invalid log arguments)\n")
    out.close()
    handler.emit(bad)
