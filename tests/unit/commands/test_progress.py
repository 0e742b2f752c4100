"""The display of running Frameworks."""

import io
from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from rich.console import Console
from rich.text import Text

from frameworkcontroller.api.codec import encode_status
from frameworkcontroller.api.completion import (
    CONTAINER_PERMANENT_FAILED,
    CONTAINER_TRANSIENT_FAILED,
    POD_SUCCEEDED,
    Code,
    CompletionStatus,
    Trigger,
)
from frameworkcontroller.api.status import (
    Condition,
    FrameworkAttemptStatus,
    FrameworkStatus,
    State,
    TaskAttemptStatus,
    TaskRoleStatus,
    TaskStatus,
)
from frameworkcontroller.commands.progress import LineProgress, LiveProgress, ending, progress_on
from tests.support.virtual_clock import HandClock


def task(index: int, state: State, *, ip: str | None = None, code: Code | None = None, retried: int = 0) -> TaskStatus:
    completion = None if code is None else CompletionStatus.of(code, "said the Pod")
    made = TaskStatus(index, "uid", 0, 0, TaskAttemptStatus(retried, 0, pod_ip=ip, completion_status=completion), state)
    made.retry.total_retried_count = retried
    return made


def framework(state: State, *tasks: TaskStatus, completion: CompletionStatus | None = None, **more: Any) -> Any:
    attempt = FrameworkAttemptStatus(
        0, 0, completion_status=completion, roles=[TaskRoleStatus("worker", "u", None, list(tasks))]
    )
    status = FrameworkStatus(100, 100, attempt, state, **more)
    metadata = {"name": "f", "namespace": "default"}
    return {"metadata": metadata, "status": orjson.loads(encode_status("f", status))}


async def lines(*steps: Mapping[str, Any], width: int = 40) -> list[str]:
    """The output on a console that is no terminal, a second between the steps."""
    clock = HandClock(50.0)
    console = Console(file=io.StringIO(), width=width)
    async with progress_on(console, clock) as progress:
        assert isinstance(progress, LineProgress)
        for step in steps:
            progress.show("default/f", step)
            clock.now += 1
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


async def test_a_line_for_each_change() -> None:
    assert await lines(
        {},
        framework(State.CREATION_PENDING, task(0, State.CREATION_PENDING), task(1, State.CREATION_PENDING)),
        framework(State.RUNNING, task(0, State.RUNNING, ip="127.0.0.2"), task(1, State.CREATION_PENDING)),
        framework(State.RUNNING, task(0, State.RUNNING, ip="127.0.0.2"), task(1, State.CREATION_PENDING)),
        framework(State.RUNNING, task(0, State.ATTEMPT_COMPLETED, code=CONTAINER_TRANSIENT_FAILED)),
        framework(State.RUNNING, task(0, State.CREATION_PENDING, retried=1)),
        framework(State.COMPLETED, completion=CompletionStatus.of(POD_SUCCEEDED, "")),
    ) == [
        "    1.0s f: Pending (attempt 0)",
        "    1.0s f worker[0]: Pending (attempt 0)",
        "    1.0s f worker[1]: Pending (attempt 0)",
        "    2.0s f: Running (attempt 0)",
        "    2.0s f worker[0]: Running (attempt 0)",
        "    4.0s f worker[0]: Ending (attempt 0): said the Pod (200 ContainerTransientFailed)",
        "    5.0s f worker[0]: Pending (attempt 1)",
        "    6.0s f: Succeeded (attempt 0)",
    ]


async def test_status_that_cannot_be_read_is_as_none() -> None:
    assert await lines({"status": {"state": "Odd"}}, {"status": 5}) == []


def screen(console: Console, progress: LiveProgress) -> list[str]:
    with console.capture() as capture:
        console.print(progress.picture())
    return [line.rstrip() for line in capture.get().splitlines()]


def live(height: int) -> tuple[Console, HandClock, LiveProgress]:
    clock = HandClock(50.0)
    clock.now = 130.0
    console = Console(
        file=io.StringIO(), width=120, height=height, force_terminal=True, color_system=None, legacy_windows=False
    )
    return console, clock, LiveProgress(console, clock)


def test_trees_of_all_frameworks() -> None:
    console, clock, progress = live(height=24)
    tasks = (
        task(0, State.RUNNING, ip="127.0.0.2"),
        task(1, State.COMPLETED, ip="127.0.0.3", code=POD_SUCCEEDED, retried=2),
    )
    progress.show("default/f", framework(State.RUNNING, *tasks))
    progress.show("other/g", {"metadata": {"name": "g", "namespace": "other"}})
    clock.now += 7
    assert screen(console, progress) == [
        "f  Running  attempt 0  waiting for 2m17s",
        "└── worker  ██████████▓▓▓▓▓▓▓▓▓▓  2 Tasks: 1 running, 1 succeeded; 2 retries",
        "    ├── [0]  Running    attempt 0  2m17s  127.0.0.2",
        "    └── [1]  Succeeded  attempt 2  2m17s  127.0.0.3",
        "other/g  not seen by a controller yet: is one running?",
    ]


def test_the_roles_of_a_framework_share_the_lines_of_the_screen() -> None:
    console, _, progress = live(height=9)
    tasks = [task(index, State.RUNNING) for index in range(70)]
    tasks += [
        task(70, State.COMPLETED, code=POD_SUCCEEDED, retried=3),
        task(71, State.COMPLETED, code=CONTAINER_PERMANENT_FAILED),
    ]
    progress.show("default/f", framework(State.RUNNING, *tasks))
    assert screen(console, progress) == [
        "f  Running  attempt 0  waiting for 2m10s",
        "└── worker  █x▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓  72 Tasks: 1 failed, 70 running, 1 succeeded; 3 retries",
        "    ├── [71]    Failed     attempt 0  2m10s",
        "    │   said the Pod (210 ContainerPermanentFailed); not retried: maxRetryCount is 0",
        "    ├── [0-69]  Running    70 Tasks",
        "    └── [70]    Succeeded  attempt 3  2m10s",
    ]


async def test_live_trees_are_drawn_and_left_on_the_screen() -> None:
    console, clock, _ = live(height=24)
    async with progress_on(console, clock) as progress:
        assert isinstance(progress, LiveProgress)
        progress.show("default/f", framework(State.RUNNING, task(0, State.RUNNING)))
        progress.draw()
        progress.show("default/f", framework(State.COMPLETED))
    assert isinstance(console.file, io.StringIO)
    written = console.file.getvalue()
    assert "Running" in written
    assert written.rindex("Failed") > written.rindex("Running")
    assert written.endswith("\x1b[?25h")


async def test_lines_are_printed_above_the_live_trees() -> None:
    console, clock, _ = live(30)
    async with progress_on(console, clock) as progress:
        progress.show("default/f", framework(State.RUNNING, task(0, State.RUNNING)))
        progress.print(Text("f-worker-0 | one"))
        progress.print(Text("f-worker-0 | two"))
    assert isinstance(console.file, io.StringIO)
    seen = console.file.getvalue()
    assert seen.count("| one\n") == seen.count("| two\n") == 1
    assert seen.index("| one") < seen.index("| two") < seen.rindex("Running")


def test_ending_of_a_success() -> None:
    done = framework(
        State.COMPLETED,
        task(0, State.COMPLETED, code=POD_SUCCEEDED),
        task(1, State.COMPLETED, code=POD_SUCCEEDED, retried=1),
        completion=CompletionStatus.of(POD_SUCCEEDED, "CompletedTaskCount 2 has reached TotalTaskCount 2"),
        completion_time=107,
    )
    found = ending("default/f", done)
    assert found.succeeded
    assert found.text == "f: Succeeded after 7s\n    worker: 2 Tasks, 1 retry: 2 succeeded"


def test_ending_of_a_failure_says_why() -> None:
    completion = CompletionStatus.of(
        CONTAINER_PERMANENT_FAILED,
        "said the Pod",
        trigger=Trigger("FailedTaskCount 1 has reached MinFailedTaskCount 1 in the TaskRole", "worker", 0),
    )
    failed = framework(
        State.COMPLETED,
        task(0, State.COMPLETED, code=CONTAINER_PERMANENT_FAILED),
        task(1, State.CREATION_PENDING),
        completion=completion,
        completion_time=101,
    )
    found = ending("other/f", failed)
    assert not found.succeeded
    assert found.text.split("\n") == [
        "other/f: Failed after 1s: worker[0]: said the Pod",
        "    210 ContainerPermanentFailed, "
        "by worker[0]: FailedTaskCount 1 has reached MinFailedTaskCount 1 in the TaskRole",
        "    worker: 2 Tasks, 0 retries: 1 failed with 210 ContainerPermanentFailed, 1 pending",
    ]


@pytest.mark.parametrize(
    ("last", "text"),
    [
        (None, "f: was deleted before it completed"),
        ({}, "f: not seen by a controller yet"),
        (
            framework(State.RUNNING, task(0, State.RUNNING)),
            "f: Running\n    worker: 1 Task, 0 retries: 1 running",
        ),
        (
            framework(
                State.RUNNING, conditions=[Condition("Stalled", "True", "Quota", "exceeded\n\x1b[1mquota", 0, 1)]
            ),
            "f: Running: exceeded  [1mquota\n    worker: 0 Tasks, 0 retries",
        ),
    ],
)
def test_ending_of_a_framework_that_has_not_ended(last: Mapping[str, Any] | None, text: str) -> None:
    found = ending("default/f", last)
    assert (found.succeeded, found.text) == (False, text)
