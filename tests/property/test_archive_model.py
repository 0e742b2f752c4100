"""The archive on both databases against dictionaries: records in any order, again and again, and all queries."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete

from frameworkcontroller.api.completion import REQUESTED, Outcome, outcome_of
from frameworkcontroller.api.historyrecords import STAGES
from frameworkcontroller.history.archive import HistoryArchive
from frameworkcontroller.history.database import CHILDREN, frameworks
from frameworkcontroller.history.reads import (
    CountFailures,
    FailureKey,
    GetAttempt,
    GetTaskAttempt,
    ListFrameworks,
    ListTasks,
)
from tests.support.archives import EPOCH, framework_record, pod_record, task_record, task_status

WHERE = {"u1": "a/train", "u2": "a/serve", "u3": "b/train", "u4": "c/x%y"}
CODES = st.sampled_from([None, 0, 1, 137, -101, -210, -220, -240])
NODES = st.sampled_from([None, "", "node-1", "node-2", "node\x00\u00e4"])
DAY = 86_400


@st.composite
def statuses(draw: st.DrawFn, index: int) -> dict[str, Any]:
    return {
        "number": draw(st.integers(0, 1)),
        "code": draw(CODES),
        "node": draw(NODES),
        "completed": draw(st.sampled_from([0, 5, DAY - 1, DAY, 3 * DAY])),
    }


@st.composite
def one_record(draw: st.DrawFn, time: int) -> bytes:
    uid = draw(st.sampled_from(list(WHERE)))
    attempt = draw(st.integers(0, 1))
    kind = draw(st.sampled_from(["Framework", "Task", "Task", "Pod"]))
    index = draw(st.integers(0, 2))
    common: dict[str, Any] = {"attempt": attempt, "time": time, "where": WHERE[uid]}
    if kind == "Pod":
        return pod_record(uid, index, draw(st.integers(0, 1)), pod=draw(st.sampled_from(["p", "q"])), **common)
    if kind == "Task":
        common["trigger"] = draw(st.sampled_from(["OnTaskRetry", "OnTaskDeletion"]))
        return task_record(uid, index, role=draw(st.sampled_from(["worker", "ps"])), **draw(statuses(index)), **common)
    roles = {
        role: [task_status(number, **draw(statuses(number))) for number in range(draw(st.integers(0, 3)))]
        for role in draw(st.lists(st.sampled_from(["worker", "ps"]), unique=True))
    }
    code = draw(CODES)
    return framework_record(
        uid,
        trigger=draw(st.sampled_from(["OnFrameworkRetry", "OnFrameworkCompletion", "OnFrameworkDeletion"])),
        code=code,
        created=draw(st.sampled_from([0, 1, 2 * DAY])),
        completed=None if code is None else draw(st.sampled_from([5, DAY, 3 * DAY])),
        state=draw(st.sampled_from(["Completed", "AttemptRunning"])),
        roles=roles,
        cause=draw(st.sampled_from([None, ("worker", 0), ("ps", 1)])),
        **common,
    )


@st.composite
def calls(draw: st.DrawFn) -> list[list[bytes]]:
    """Records with different times, some of them twice, in any order, over some calls."""
    count = draw(st.integers(1, 12))
    lines = [draw(one_record(time)) for time in draw(st.permutations(range(0, 3_000_000 * count, 3_000_000)))]
    lines += draw(st.lists(st.sampled_from(lines), max_size=3))
    cuts = sorted(draw(st.lists(st.integers(0, len(lines)), max_size=3)))
    return [lines[start:end] for start, end in zip([0, *cuts], [*cuts, len(lines)], strict=True)]


class Model:
    """The expected answers of the archive, from all records at once."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self.frameworks: dict[str, dict[str, Any]] = {}
        self.attempts: dict[tuple[str, int], dict[str, Any]] = {}
        self.tasks: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.pods: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.seen: dict[str, list[str]] = {}
        records = [orjson.loads(line) for line in set(lines)]
        for record in sorted(records, key=lambda found: (STAGES[found["trigger"]], found["time"])):
            self._add(record)

    def _add(self, record: dict[str, Any]) -> None:
        uid, number, *more = record["id"].split("/")
        attempt = (uid, int(number))
        self.seen.setdefault(uid, []).append(record["time"])
        self.attempts.setdefault(attempt, {})
        match more:
            case []:
                self.frameworks[uid] = max(self.frameworks.get(uid, record), record, key=_life)
                self.attempts[attempt] = record
                for role in record["object"]["status"]["attemptStatus"]["taskRoleStatuses"]:
                    for status in role["taskStatuses"]:
                        self._task(attempt, role["name"], status, record, own=False)
            case [role, _, _]:
                self._task(attempt, role, record["object"]["status"], record, own=True)
            case [*key, pod]:
                self.pods[*attempt, *key, pod] = record

    def _task(
        self, attempt: tuple[str, int], role: str, status: dict[str, Any], record: dict[str, Any], *, own: bool
    ) -> None:
        key = (*attempt, role, status["index"], status["instanceUID"], status["attemptStatus"]["id"])
        known = self.tasks.get(key)
        if known is None or own or not known["own"]:
            self.tasks[key] = {"own": own, "status": status, "record": record}

    def created(self, uid: str) -> str:
        if uid in self.frameworks:
            text: str = self.frameworks[uid]["object"]["metadata"]["creationTimestamp"]
            return text
        return f"{min(self.seen[uid])[:19]}Z"

    def failures(self, by: str, namespaces: frozenset[str], since: str, until: str) -> dict[str, list[Any]]:
        """By key: Task attempts, Framework attempts, Frameworks, first, last."""
        found: dict[str, tuple[list[str], list[str], set[str]]] = {}

        def count(kind: int, key: str | None, uid: str, at: str) -> None:
            if key:
                group = found.setdefault(key.replace("\x00", "\ufffd"), ([], [], set()))
                (group[0] if kind == 0 else group[1]).append(at)
                group[2].add(uid)

        def failed(status: dict[str, Any]) -> bool:
            end, at = status["completionStatus"], status["completionTime"]
            return bool(end and at and end["code"] != 0 and end["code"] not in REQUESTED and since <= at < until)

        for (uid, _, role, *_), task in self.tasks.items():
            status = task["status"]["attemptStatus"]
            if WHERE[uid][0] in namespaces and failed(status):
                end = status["completionStatus"]
                keys = {"code": str(end["code"]), "node": status["podNodeName"], "role": role, "cause": _cause(end)}
                count(0, keys.get(by, status["completionTime"][:10]), uid, status["completionTime"])
        for (uid, _), record in self.attempts.items():
            status = record and record["object"]["status"]["attemptStatus"]
            if not record or WHERE[uid][0] not in namespaces or not failed(status):
                continue
            end = status["completionStatus"]
            cause = end.get("trigger", {"taskRoleName": None, "taskIndex": None})
            node = None
            for role in status["taskRoleStatuses"]:
                for task in role["taskStatuses"]:
                    if (role["name"], task["index"]) == (cause["taskRoleName"], cause["taskIndex"]):
                        node = task["attemptStatus"]["podNodeName"]
            by_task = cause["taskRoleName"]
            # The cause of a Task is counted there.
            keys = {"code": str(end["code"]), "node": node, "role": by_task, "cause": None if by_task else _cause(end)}
            count(1, keys.get(by, status["completionTime"][:10]), uid, status["completionTime"])
        return {
            key: [len(tasks), len(attempts), len(uids), min(tasks + attempts), max(tasks + attempts)]
            for key, (tasks, attempts, uids) in found.items()
        }


def _cause(end: dict[str, Any]) -> str:
    """The code, and the words without their numbers."""
    return f"{end['code']} {re.sub('[0-9]+', '#', end['diagnostics'])}"


def _life(record: dict[str, Any]) -> tuple[bool, int, bool, str]:
    """The order of records of a Framework by age."""
    deleted, completed = record["trigger"] == "OnFrameworkDeletion", record["object"]["status"]["state"] == "Completed"
    return deleted, int(record["id"].partition("/")[2]), completed, record["time"]


@pytest.fixture
def runner() -> Iterable[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@pytest.fixture
def archive(database_url: str, runner: asyncio.Runner) -> Iterable[HistoryArchive]:
    opened = runner.run(HistoryArchive.open(database_url))
    yield opened
    runner.run(opened.close())


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_the_archive_answers_as_its_model(archive: HistoryArchive, runner: asyncio.Runner, data: st.DataObject) -> None:
    given_calls = data.draw(calls())
    together = data.draw(st.booleans())
    runner.run(_compare(archive, given_calls, data, together=together))


async def _compare(
    archive: HistoryArchive, given_calls: list[list[bytes]], data: st.DataObject, *, together: bool
) -> None:
    async with archive._database.writing() as connection:
        for table in (frameworks, *(table for table, _ in CHILDREN)):
            await connection.execute(delete(table))
    if together:
        await asyncio.gather(*(archive.store(lines) for lines in given_calls))
    else:
        for lines in given_calls:
            await archive.store(lines)
    model = Model(line for lines in given_calls for line in lines)

    namespaces = frozenset(data.draw(st.sets(st.sampled_from("abc"))))
    seen = None if data.draw(st.booleans()) else namespaces
    visible = frozenset("abc") if seen is None else seen
    since, until = data.draw(st.sampled_from([(None, None), (0, DAY), (5, 3 * DAY), (DAY, None)]))
    times: dict[str, Any] = {
        "since": None if since is None else EPOCH + since,
        "until": None if until is None else EPOCH + until,
    }

    # Lists, by pages of any size.
    query: dict[str, Any] = data.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "namespace": st.sampled_from("abc"),
                "name": st.sampled_from(["train", "serve"]),
                "state": st.sampled_from(["Completed", "AttemptRunning"]),
                "code": st.sampled_from([0, 1, 137]),
                "q": st.sampled_from(["r", "TRAIN", "%", "_", "a/ Phrase", "137 completed", "u1", "ended with -2"]),
                "phase": st.sampled_from(["succeeded", "stopped", "failed", "running"]),
            },
        )
    )
    limit, after = data.draw(st.integers(1, 4)), ""
    listed: list[Any] = []
    while True:
        page = await archive.read(ListFrameworks(limit=limit, after=after, **query, **times), seen)
        listed += page["items"]
        if page["next"] is None:
            break
        after = page["next"]
    assert [item["created"] for item in listed] == sorted((item["created"] for item in listed), reverse=True)
    assert sorted(item["uid"] for item in listed) == sorted(
        uid for uid in model.seen if WHERE[uid][0] in visible and _matches(model, uid, query, times)
    )
    for item in listed:
        uid = item["uid"]
        record = model.frameworks.get(uid)
        assert item["created"] == model.created(uid)
        assert item["archived"] == f"{max(model.seen[uid])[:19]}Z"
        if record is None:
            assert item["state"] is item["code"] is item["attempts"] is None
            continue
        status = record["object"]["status"]
        end = status["attemptStatus"]["completionStatus"]
        assert item["state"] == status["state"]
        assert item["code"] == (end and end["code"])
        assert item["completed"] == status["completionTime"]
        assert (item["deleted"] is not None) == (record["trigger"] == "OnFrameworkDeletion")
        held = [task for role in status["attemptStatus"]["taskRoleStatuses"] for task in role["taskStatuses"]]
        assert item["tasks"] == len(held)
        ends = [task["attemptStatus"]["completionStatus"] for task in held]
        outcomes = [outcome_of(end["code"], end["phrase"], end["type"]["name"]) for end in ends if end]
        for outcome in ("succeeded", "stopped", "failed"):
            assert item[f"{outcome}Tasks"] == outcomes.count(Outcome(outcome))
        assert item["phase"] == _phase(record)

    for uid, number in model.attempts:
        attempt = await archive.read(GetAttempt(uid, number), seen)
        if WHERE[uid][0] not in visible:
            assert attempt is None
            continue
        assert attempt is not None
        assert attempt["object"] == (model.attempts[uid, number] or {"object": None})["object"]
        its_tasks = await archive.read(ListTasks(uid, number, limit=1000), seen)
        assert its_tasks is not None
        assert its_tasks["next"] is None
        assert [_key(uid, item) for item in its_tasks["items"]] == sorted(
            key for key in model.tasks if key[:2] == (uid, number)
        )
        for shown in its_tasks["items"]:
            task = model.tasks[_key(uid, shown)]
            status = task["status"]["attemptStatus"]
            assert shown["trigger"] == task["record"]["trigger"]
            assert shown["code"] == (status["completionStatus"] and status["completionStatus"]["code"])
            assert shown["node"] == ((status["podNodeName"] or "").replace("\x00", "\ufffd") or None)
            place = (shown["role"], shown["index"], shown["taskUid"], shown["attempt"])
            whole = await archive.read(GetTaskAttempt(uid, number, *place), seen)
            assert whole is not None
            if task["own"]:
                assert whole["object"] == task["record"]["object"]
            its_pods = [
                record["object"]
                for key, record in model.pods.items()
                if key[:5] == (uid, number, shown["role"], shown["taskUid"], str(shown["attempt"]))
            ]
            assert sorted(whole["pods"], key=str) == sorted(its_pods, key=str)

    for by in FailureKey:
        items = (await archive.read(CountFailures(by=by, **times), seen))["items"]
        first = "" if times["since"] is None else _text(since or 0)
        last = "9" if times["until"] is None else _text(until or 0)
        assert {
            item["key"]: [item[name] for name in ("taskAttempts", "frameworkAttempts", "frameworks", "first", "last")]
            for item in items
        } == model.failures(by, visible, first, last)


def _key(uid: str, item: Any) -> tuple[Any, ...]:
    return (uid, item["frameworkAttempt"], item["role"], item["index"], item["taskUid"], item["attempt"])


def _text(seconds: int) -> str:
    from tests.support.archives import at

    return at(seconds)


def _phase(record: dict[str, Any] | None) -> str:
    if record is None:
        return "running"
    status = record["object"]["status"]
    completed, end = status["state"] == "Completed", status["attemptStatus"]["completionStatus"]
    if not completed and record["trigger"] != "OnFrameworkDeletion":
        return "running"
    if end is None:
        return "failed" if completed else "stopped"
    return str(outcome_of(end["code"], end["phrase"], end["type"]["name"]))


def _searched(uid: str, record: dict[str, Any] | None) -> str:
    text = f"{WHERE[uid]} {uid}"
    if record is not None:
        status = record["object"]["status"]
        end = status["attemptStatus"]["completionStatus"] or {"code": "", "phrase": "", "diagnostics": ""}
        text += f" {status['state']} {end['code']} {end['phrase']} {end['diagnostics']}"
    return text.lower()


def _matches(model: Model, uid: str, query: dict[str, Any], times: dict[str, Any]) -> bool:
    namespace, _, name = WHERE[uid].partition("/")
    record = model.frameworks.get(uid)
    status: dict[str, Any] = (
        record["object"]["status"] if record else {"state": None, "attemptStatus": {"completionStatus": None}}
    )
    end = status["attemptStatus"]["completionStatus"]
    ended = None
    if record:
        ended = status["completionTime"]
        if ended is None and record["trigger"] == "OnFrameworkDeletion":
            ended = f"{record['time'][:19]}Z"
    since, until = times["since"], times["until"]
    return (
        query.get("namespace", namespace) == namespace
        and query.get("name", name) == name
        and query.get("state", status["state"]) == status["state"]
        and ("code" not in query or (end is not None and end["code"] == query["code"]))
        and all(word in _searched(uid, record) for word in query.get("q", "").lower().split())
        and query.get("phase", _phase(record)) == _phase(record)
        and (since is None or ended is None or ended >= _text(since - EPOCH))
        and (until is None or model.created(uid) < _text(until - EPOCH))
    )
