"""``top``: totals of all Frameworks, the most retries, the slowest starts, and the use of CPU and memory."""

from __future__ import annotations

import argparse
import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.text import Text

from frameworkcontroller.api import names
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.commands import program
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.commands.objects import Json
from frameworkcontroller.commands.output import counted, duration, table
from frameworkcontroller.commands.phases import BEFORE_RUNNING
from frameworkcontroller.commands.podmetrics import NoMetrics, read_usage
from frameworkcontroller.commands.summary import Summary, summarize, tasks_of

_HOUR: Final = 3600.0


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """Show it. Return the exit code."""
    found: list[Summary] = []
    starts: list[tuple[int, str, str, str, bool]] = []
    now = invocation.wall()

    def take(body: Json) -> None:
        summary = summarize(body)
        found.append(summary)
        for start in _starts(body, summary, now):
            if len(starts) < options.most:
                heapq.heappush(starts, start)
            elif options.most:
                heapq.heappushpop(starts, start)

    await invocation.each(FRAMEWORKS, take, all_namespaces=options.all_namespaces)
    if not found:
        invocation.note("there are no Frameworks")
        return program.EXIT_OK
    _print_totals(invocation, found)
    _print_most_retried(invocation, found, now, options.most)
    _print_slowest(invocation, sorted(starts, reverse=True))
    await _print_usage(invocation, options)
    return program.EXIT_OK


def _starts(body: Mapping[str, Any], summary: Summary, now: float) -> Iterator[tuple[int, str, str, str, bool]]:
    """Yield the time that the current attempt of each Task waited to run; with True: still waits."""
    if summary.unreadable or not summary.state:
        return
    for role, task in tasks_of(body["status"]["attemptStatus"]):
        try:
            attempt = task["attemptStatus"]
            run = attempt.get("runTime")
            if run is None and (task["state"] not in BEFORE_RUNNING or summary.execution == "Create"):
                continue
            until = now if run is None else parse_time(run)
            waited = int(until - parse_time(attempt["startTime"]))
            name = f"{role}[{task['index']}]"
        except (KeyError, TypeError, ValueError, AttributeError):
            continue  # another controller wrote it
        yield waited, summary.namespace, summary.name, name, run is None


def _print_totals(invocation: Invocation, found: Sequence[Summary]) -> None:
    states = Counter(one.state or "not seen by a controller" for one in found)
    results = Counter(one.result for one in found if one.completed)
    stalled = sum(bool(one.stalled) and not one.completed for one in found)
    tasks: Counter[str] = Counter()
    for one in found:
        tasks.update(one.tasks)
    invocation.print(f"{counted(len(found), 'Framework')}: {_counts(states)}")
    if results:
        invocation.print(f"  of those completed: {_counts(results)}")
    if stalled:
        invocation.print(f"  stalled: {stalled}")
    invocation.print(f"{counted(tasks.total(), 'Task')}: {_counts(tasks) or 'none yet'}")
    retries = sum(one.retries for one in found)
    task_retries = sum(one.task_retries for one in found)
    invocation.print(
        f"{counted(retries, 'retry', 'retries')} of Frameworks, {task_retries:,} of Tasks in their last attempts"
    )


def _print_most_retried(invocation: Invocation, found: Sequence[Summary], now: float, most: int) -> None:
    def retries(one: Summary) -> int:
        return one.retries + one.task_retries

    retried = heapq.nlargest(most, (one for one in found if retries(one)), key=retries)
    if not retried:
        return
    rows = table("RETRIED MOST", "RETRIES", "TASK RETRIES", "AN HOUR", "STATE")
    for one in retried:
        hours = max(60.0, (one.completion_time or now) - one.created) / _HOUR
        rows.add_row(
            f"{one.namespace}/{one.name}",
            str(one.retries),
            str(one.task_retries),
            f"{retries(one) / hours:.1f}",
            one.state,
        )
    invocation.print()
    invocation.print_table(rows)


def _print_slowest(invocation: Invocation, starts: Sequence[tuple[int, str, str, str, bool]]) -> None:
    if not starts:
        return
    rows = table("SLOWEST TO START", "TASK", "WAITED")
    for waited, namespace, name, task, still in starts:
        text = Text(f"{duration(waited)}, and still waits", "yellow") if still else Text(duration(waited))
        rows.add_row(f"{namespace}/{name}", task, text)
    invocation.print()
    invocation.print_table(rows)


async def _print_usage(invocation: Invocation, options: argparse.Namespace) -> None:
    namespace = None if options.all_namespaces else invocation.namespace
    invocation.print()
    try:
        usage = await read_usage(invocation.client, namespace, names.FRAMEWORK_NAME)
    except NoMetrics as error:
        invocation.print(f"CPU and memory: unknown: {error}")
        return
    if not usage:
        invocation.print("CPU and memory: the metrics API has no Pods of Frameworks (yet)")
        return
    rows = table("USES MOST", "PODS", "CPU", "MEMORY")
    for (where, name), used in heapq.nlargest(
        options.most, usage.items(), key=lambda item: (item[1].cpu, item[1].memory)
    ):
        rows.add_row(f"{where}/{name}", str(used.pods), f"{used.cpu:.2f}", f"{used.memory / 2**20:,.0f} MiB")
    invocation.print_table(rows)


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counts.most_common())
