"""Attempts over time, from a status and a log of history, and their picture."""

from typing import Any
from xml.etree import ElementTree as ET

import orjson
import pytest

from frameworkcontroller.api.codec import StatusError
from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.views.attempts import AttemptHistory
from frameworkcontroller.views.timelinesvg import MAX_ROWS, draw, draw_inline, draw_page

SVG = "{http://www.w3.org/2000/svg}"


def attempt(number: int, start: int, run: int | None, end: int | None, code: int | None = None) -> dict[str, Any]:
    completion = None
    if code is not None:
        completion = {"code": code, "phrase": "P<&>", "type": {"name": "Failed" if code else "Succeeded"}}
    return {
        "id": number,
        "startTime": format_time(start),
        "runTime": None if run is None else format_time(run),
        "completionTime": None if end is None else format_time(end),
        "completionStatus": completion,
        "podNodeName": "n1",
    }


def task(index: int, last: dict[str, Any], since: int = 0, uid: str = "t") -> dict[str, Any]:
    return {
        "index": index,
        "instanceUID": f"{uid}{index}",
        "startTime": format_time(since),
        "transitionTime": format_time(since),
        "state": "AttemptRunning",
        "retryPolicyStatus": {"totalRetriedCount": last["id"]},
        "attemptStatus": last,
    }


def framework(number: int, *roles: tuple[str, list[dict[str, Any]]], end: int | None = None) -> dict[str, Any]:
    last = attempt(number, 100 * number, 100 * number + 5, end, None if end is None else 1)
    last["taskRoleStatuses"] = [{"name": name, "taskStatuses": tasks} for name, tasks in roles]
    status = {
        "startTime": format_time(0),
        "transitionTime": format_time(0),
        "state": "AttemptRunning",
        "retryPolicyStatus": {"totalRetriedCount": number},
        "attemptStatus": last,
    }
    return {"kind": "Framework", "metadata": {"name": "f", "namespace": "d", "uid": "F"}, "status": status}


def snapshot(body: dict[str, Any]) -> str:
    return f"I1121 05:00:00.0 1 sync.py:1] [d/f]: x: OnTaskRetry: ObjectSnapshot: {orjson.dumps(body).decode()}\n"


def task_snapshot(role: str, body: dict[str, Any]) -> str:
    annotations = {"FC_FRAMEWORK_UID": "F", "FC_TASKROLE_NAME": role, "FC_TASK_INDEX": str(body["index"])}
    return snapshot({"kind": "Task", "metadata": {"annotations": annotations}, "status": body})


def outcome(completion: CompletionStatus | None) -> str:
    if completion is None:
        return ""
    return "succeeded" if completion.succeeded else "failed" if completion.unexpected else "stopped"


def told(svg: str) -> list[str]:
    return [title.text or "" for title in ET.fromstring(svg).iter(f"{SVG}title")]


def test_a_status_knows_the_last_attempts() -> None:
    chronicle = AttemptHistory("F")
    chronicle.add_framework(
        framework(0, ("a", [task(0, attempt(0, 0, 10, 60, 0)), task(1, attempt(2, 50, None, None))]))
    )
    assert told(draw("d/f", chronicle.rows, 90)) == [
        "Framework attempt 0: waited for 5s",
        "Framework attempt 0: ran for 1m25s, and still runs",
        "a[0] attempt 0: waited for 10s",
        "a[0] attempt 0: ran for 50s on n1, then 0 P<&>",
        "2 earlier attempts",
        "a[1] attempt 2: waited for 40s",
    ]


def test_a_container_that_was_too_quick_to_be_seen_has_run() -> None:
    chronicle = AttemptHistory("F")
    ended = [task(0, attempt(0, 0, None, 2, 7)), task(1, attempt(0, 0, None, 2, -220))]
    chronicle.add_framework(framework(0, ("a", ended)))
    svg = draw_inline("d/f", chronicle.rows, 90, lambda _row: "")
    bars = {bar.findtext(f"{SVG}title", "").partition(":")[0]: bar for bar in ET.fromstring(svg).iter(f"{SVG}rect")}
    assert bars["a[0] attempt 0"].get("class") == "failed"
    assert bars["a[1] attempt 0"].get("class") == "waiting"
    assert "a[0] attempt 0: waited and ran for 2s, then 7 P<&>" in told(svg)


def test_a_log_knows_those_before() -> None:
    chronicle = AttemptHistory("F")
    first = task(0, attempt(0, 0, 10, 30, 7), uid="old")
    chronicle.add_framework(framework(1, ("b", []), ("a", [task(0, attempt(1, 130, 140, 150, 0), since=100)])))
    taken = chronicle.add_log(
        [
            "nothing of the kind\n",
            "x: ObjectSnapshot: {cut off",
            task_snapshot("a", first),
            task_snapshot("a", task(0, attempt(0, 100, 110, 120, 7), since=100)),
            task_snapshot("gone", task(3, attempt(0, 0, 1, 2, 0))),
            snapshot(framework(0, ("a", [task(0, attempt(1, 40, 50, 60, -220), uid="old")]), end=90)),
            snapshot(framework(0) | {"metadata": {"uid": "another"}}),
        ]
    )
    assert taken == 4
    rows = [
        (row.role, row.index, [(each.id, each.start_time, outcome(each.completion_status)) for each in row.ordered])
        for row in chronicle.rows
    ]
    assert rows == [
        ("", 0, [(0, 0, "failed"), (1, 100, "")]),
        ("a", 0, [(0, 0, "failed"), (1, 40, "stopped"), (0, 100, "failed"), (1, 130, "succeeded")]),
        ("gone", 3, [(0, 0, "succeeded")]),
    ]


def test_a_known_end_is_not_forgotten() -> None:
    chronicle = AttemptHistory("F")
    chronicle.add_log([task_snapshot("a", task(0, attempt(0, 0, 1, 2, 0)))])
    chronicle.add_log([task_snapshot("a", task(0, attempt(0, 0, 1, None)))])
    assert chronicle.rows[0].ordered[0].completion_time == 2


def test_a_status_that_is_none() -> None:
    body = framework(0)
    del body["status"]["attemptStatus"]
    with pytest.raises(StatusError):
        AttemptHistory("F").add_framework(body)


def test_bars_are_where_their_times_are() -> None:
    chronicle = AttemptHistory("F")
    chronicle.add_framework(framework(0, ("a", [task(0, attempt(0, 0, 50, 100, 0))]), end=100))
    bars = [
        one
        for one in ET.fromstring(draw("t", chronicle.rows, 500)).iter(f"{SVG}rect")
        if one.find(f"{SVG}title") is not None
    ]
    waited, ran = bars[-2:]
    middle = 150 + (1200 - 150 - 20) / 2
    assert (float(waited.get("x", "")), float(ran.get("x", ""))) == (150, middle)
    assert float(waited.get("width", "")) == float(ran.get("width", "")) == middle - 150


def test_a_result_is_written_once() -> None:
    chronicle = AttemptHistory("F")
    chronicle.add_framework(framework(0, ("a", [task(0, attempt(0, 0, 50, 60, 7))]), end=1000))
    texts = [one.text for one in ET.fromstring(draw("t", chronicle.rows, 1000)).iter(f"{SVG}text")]
    assert texts.count("7 P<&>") == 1


def test_in_a_page_it_tells_its_times() -> None:
    chronicle = AttemptHistory("F")
    chronicle.add_framework(framework(0, ("a", [task(0, attempt(0, 0, 50, 60, 7))]), end=1000))
    svg = ET.fromstring(draw_inline("t", chronicle.rows, 1000, lambda row: f"tasks/{row.index}" if row.role else ""))
    assert (svg.get("data-begin"), svg.get("data-end")) == ("0", "1000")


def test_of_many_tasks_the_most_eventful_are_drawn() -> None:
    chronicle = AttemptHistory("F")
    tasks = [task(index, attempt(5 if index == 4321 else 0, 0, 1, 2, 0)) for index in range(5000)]
    chronicle.add_framework(framework(0, ("a", tasks), end=100))
    svg = draw("t", chronicle.rows, 200)
    assert f"the {MAX_ROWS - 1} most eventful of 5,000 Tasks" in svg
    assert any(text.startswith("a[4321] ") for text in told(svg))
    assert sum(text.startswith("a[") and "ran for" in text for text in told(svg)) == MAX_ROWS - 1


def test_page() -> None:
    chronicle = AttemptHistory("F")
    chronicle.add_framework(framework(0))
    page = draw_page("<d>/f", chronicle.rows, 10)
    assert "<title>&lt;d&gt;/f</title>" in page
    assert "<svg " in page
