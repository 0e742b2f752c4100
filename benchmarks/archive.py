"""Fill the archive of the history, and measure how fast it takes records and answers.

    python -m benchmarks archive [--database sqlite|postgresql] [--tasks 1000000] [--folder DIR]

Prints a table for each database. The PostgreSQL is started for it, with fsync on.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import orjson

from benchmarks.usage import load
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.history.archive import HistoryArchive
from frameworkcontroller.history.reads import (
    CostKey,
    CountCost,
    CountFailures,
    FailureKey,
    GetAttempt,
    GetFramework,
    GetTaskHistory,
    ListFrameworks,
    ListTasks,
)
from tests.support.postgres import Postgres, find_postgres

_BATCH_BYTES: Final = 1 << 20
_CALLERS: Final = 8
_DAY: Final = 86_400
_END: Final = 1_790_000_000
_DAYS: Final = 60
_ROUNDS: Final = 15
_CODES: Final = ((0, 70), (1, 8), (137, 8), (-101, 5), (-1009, 3), (210, 3), (-120, 2), (139, 1))
"""Completion codes of Task attempts, and how many of a hundred have them."""

_POD_SPEC: Final = {
    "taskNumber": 20,
    "task": {
        "retryPolicy": {"fancyRetryPolicy": True, "maxRetryCount": 5},
        "pod": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/training/pytorch:2.4-cuda12",
                        "command": ["sh", "-c", "exec python -m train --config /config/train.yaml"],
                        "env": [{"name": f"SETTING_{number}", "value": f"value-{number}"} for number in range(10)],
                        "resources": {"limits": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"}},
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    }
                ],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            }
        },
    },
}


class Records:
    """Records of Frameworks of 20 Tasks each; every thousandth has 10,000 more attempts of them."""

    def __init__(self, tasks: int) -> None:
        self._rng = random.Random(16)
        self.tasks = tasks
        self.codes = self._rng.choices([code for code, _ in _CODES], [count for _, count in _CODES], k=997)
        self.large = ""

    def __iter__(self) -> Iterator[bytes]:
        left, number = self.tasks, 0
        while left > 0:
            uid = f"{self._rng.getrandbits(128):032x}"
            count = min(left, 10_000 if number % 1000 == 500 else 20)
            if count == 10_000:
                self.large = uid
            yield from self._framework(uid, number, count)
            left -= count
            number += 1

    def _framework(self, uid: str, number: int, count: int) -> Iterator[bytes]:
        namespace, name = f"team-{number % 40}", f"train-{number % 977}-{number}"
        began = _END - _DAYS * _DAY + number * _DAYS * _DAY // max(1, self.tasks // 20)
        envelope = {"cluster": "c", "namespace": namespace, "name": name, "generation": 1, "controller": "1.0"}
        for index in range(count):
            code = self.codes[(number * 20 + index) % 997]
            end = {
                "code": code,
                "phrase": f"Phrase{code}",
                "type": {"name": "Succeeded" if code == 0 else "Failed", "attributes": ["Transient"]},
                "diagnostics": f"Pod failed: container main exited with {code}: step {index} of {number}",
            }
            began_at, ended_at = format_time(began), format_time(began + 60 + index)
            status = {
                "index": index,
                "instanceUID": f"{index:08x}-{uid[:23]}",
                "startTime": began_at,
                "state": "AttemptCompleted",
                "retryPolicyStatus": {"totalRetriedCount": 0, "accountableRetriedCount": 0, "retryDelaySec": 0},
                "attemptStatus": {
                    "id": 0,
                    "startTime": began_at,
                    "scheduledTime": began_at,
                    "runTime": format_time(began + index % 60),
                    "completionTime": ended_at,
                    "podName": f"{name}-worker-{index}",
                    "podUID": f"{uid[:8]}-{index:08x}",
                    "podNodeName": f"node-{(number * 7 + index) % 1000}",
                    "podIP": "10.1.2.3",
                    "podHostIP": "192.168.1.2",
                    "completionStatus": end,
                },
            }
            body = {
                "apiVersion": "frameworkcontroller.microsoft.com/v1",
                "kind": "Task",
                "metadata": {"name": f"{name}-worker-{index}", "namespace": namespace, "creationTimestamp": began_at},
                "spec": _POD_SPEC["task"],
                "status": status,
            }
            key = f"{uid}/0/worker/{status['instanceUID']}/0"
            yield orjson.dumps(
                {"id": key, "trigger": "OnTaskRetry", "time": f"{ended_at[:-1]}.000000Z", **envelope, "object": body}
            )
        code = self.codes[number % 997]
        end = {"code": code, "phrase": f"Phrase{code}", "type": {"name": "Succeeded" if code == 0 else "Failed"}}
        ended_at = format_time(began + 100)
        whole = {
            "kind": "Framework",
            "metadata": {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": format_time(began)},
            "spec": {"taskRoles": [{"name": "worker", **_POD_SPEC}]},
            "status": {
                "state": "Completed",
                "startTime": format_time(began),
                "completionTime": ended_at,
                "attemptStatus": {"id": 0, "completionTime": ended_at, "completionStatus": end, "taskRoleStatuses": []},
            },
        }
        time_text = f"{ended_at[:-1]}.000001Z"
        yield orjson.dumps(
            {"id": f"{uid}/0", "trigger": "OnFrameworkCompletion", "time": time_text, **envelope, "object": whole}
        )


def batches(records: Records) -> Iterator[list[bytes]]:
    """Calls of about 1 MiB."""
    lines: list[bytes] = []
    size = 0
    for line in records:
        lines.append(line)
        size += len(line)
        if size >= _BATCH_BYTES:
            yield lines
            lines, size = [], 0
    if lines:
        yield lines


async def fill(archive: HistoryArchive, records: Records) -> tuple[int, int, float, float]:
    """Return records, bytes, seconds and CPU seconds of this process, without making the records."""
    count = size = 0
    seconds = cpu = 0.0
    source = batches(records)
    while True:
        some = [lines for _, lines in zip(range(_CALLERS), source, strict=False)]
        if not some:
            return count, size, seconds, cpu
        began, used = time.perf_counter(), _cpu()
        await asyncio.gather(*(archive.store(lines) for lines in some))
        seconds, cpu = seconds + time.perf_counter() - began, cpu + _cpu() - used
        count += sum(map(len, some))
        size += sum(len(line) for lines in some for line in lines)


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def measure(query: Callable[[], Awaitable[Any]]) -> tuple[float, float]:
    """The median and the worst of some rounds, in ms."""
    times = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        await query()
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times), max(times)


async def queries(archive: HistoryArchive, records: Records) -> dict[str, Callable[[], Awaitable[Any]]]:
    """What is measured, by name."""
    listed = [item for item in (await archive.read(ListFrameworks(limit=1000)))["items"] if item["tasks"] == 0]
    one = listed[len(listed) // 2]
    far = (await archive.read(ListFrameworks(limit=1, until=_END - 50 * _DAY)))["next"] or ""
    some = await archive.read(ListTasks(records.large or one["uid"], 0, limit=1000))
    after = (some["next"] if some else None) or ""
    mine = frozenset(f"team-{number}" for number in range(4))
    many = frozenset(f"team-{number}" for number in range(30))
    month: dict[str, Any] = {"since": _END - 30 * _DAY, "until": _END}

    def page(namespaces: frozenset[str] | None = None, **query: Any) -> Callable[[], Awaitable[Any]]:
        return lambda: archive.read(ListFrameworks(**query), namespaces)

    def failures(by: FailureKey, namespaces: frozenset[str] | None = None) -> Callable[[], Awaitable[Any]]:
        return lambda: archive.read(CountFailures(by=by, **month), namespaces)

    def cost(by: CostKey, **query: Any) -> Callable[[], Awaitable[Any]]:
        return lambda: archive.read(CountCost(by=by, **query))

    large = records.large or one["uid"]
    return {
        "list: first page": page(),
        "list: a page far behind": page(after=far),
        "list: namespace": page(namespace="team-7"),
        "list: name": page(name=one["name"]),
        "list: state that none has": page(state="AttemptRunning"),
        "list: code": page(code=139),
        "list: namespace, state and code": page(namespace="team-7", state="Completed", code=139),
        "list: part of many names": page(q="-500"),
        "list: part of no name": page(q="nothing"),
        "list: a week, a month ago": page(since=_END - 37 * _DAY, until=_END - 30 * _DAY),
        "list: viewer of 4 of 40 namespaces": page(mine),
        "list: viewer of 30 of 40 namespaces, part of no name": page(many, q="nothing"),
        "one Framework": lambda: archive.read(GetFramework(one["uid"])),
        "its attempt, with the object": lambda: archive.read(GetAttempt(one["uid"], 0)),
        "a page of 100 of 10,000 Tasks": lambda: archive.read(ListTasks(large, 0, after=after)),
        "a page of 1,000 of 10,000 Tasks": lambda: archive.read(ListTasks(large, 0, limit=1000)),
        "a page of failed Tasks": lambda: archive.read(ListTasks(large, 0, failed=True)),
        "one Task over all attempts": lambda: archive.read(GetTaskHistory(large, "worker", 19)),
        **{f"failures of 30 days by {by}": failures(by) for by in FailureKey},
        "failures by node, viewer of 4 of 40 namespaces": failures(FailureKey.NODE, mine),
        **{f"cost of all time by {by}": cost(by) for by in CostKey},
        "cost of 7 days by node": cost(CostKey.NODE, since=_END - 7 * _DAY),
        "cost of 7 days by day": cost(CostKey.DAY, since=_END - 7 * _DAY),
    }


@contextmanager
def _databases(kind: str, folder: Path) -> Iterator[tuple[str, Postgres | None]]:
    if kind == "sqlite":
        yield f"sqlite:///{folder}/history.db", None
        return
    programs = find_postgres()
    if programs is None:
        sys.exit("no PostgreSQL: initdb is neither in PATH nor in /usr/lib/postgresql")
    server = Postgres(programs, folder, durable=True)
    server.start()
    try:
        yield server.new_database(), server
    finally:
        server.stop()


async def _run(kind: str, tasks: int, folder: Path) -> None:
    with _databases(kind, folder) as (url, server):
        records = Records(tasks)
        async with await HistoryArchive.open(url) as archive:
            others = server.cpu_seconds() if server else 0.0
            count, size, seconds, cpu = await fill(archive, records)
            used = await archive.usage()
            print(f"{kind}: {tasks:,} Task attempts of {used.frameworks:,} Frameworks, {load()}")
            speed = f"{count / seconds:,.0f} records/s of {size / count:,.0f} bytes"
            print(f"  taken: {speed}, {size / seconds / 1e6:.1f} MB/s")
            line = f"  CPU a record: {cpu / count * 1e6:.0f} us"
            if server:
                line += f", and {(server.cpu_seconds() - others) / count * 1e6:.0f} us of the server"
            print(line)
            print(f"  stored: {used.bytes / 1e6:,.0f} MB, {used.bytes / tasks:,.0f} bytes a Task attempt", flush=True)
            for name, query in (await queries(archive, records)).items():
                median, worst = await measure(query)
                print(f"  {name:55} {median:7.1f} ms, at most {worst:7.1f} ms", flush=True)


def main(arguments: list[str]) -> None:
    """Run as asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks archive", description=__doc__.partition("\n")[0])
    parser.add_argument("--database", choices=("sqlite", "postgresql"), action="append", help="default: both")
    parser.add_argument("--tasks", type=int, default=1_000_000, help="Task attempts; default: %(default)s")
    parser.add_argument("--folder", type=Path, help="where the databases are made; default: a temporary directory")
    options = parser.parse_args(arguments)
    for kind in options.database or ("sqlite", "postgresql"):
        folder = Path(tempfile.mkdtemp(prefix="archive-", dir=options.folder))
        try:
            asyncio.run(_run(kind, options.tasks, folder))
        finally:
            shutil.rmtree(folder)
