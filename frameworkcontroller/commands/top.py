"""``top``: all Frameworks in one view: by state, how often they are retried, what is slow to start, what they use."""

from __future__ import annotations

import argparse
import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from frameworkcontroller.api import names
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.commands import program
from frameworkcontroller.commands.humanize import counted, duration
from frameworkcontroller.commands.invocation import Json, Session
from frameworkcontroller.commands.phases import BEFORE_IT_RUNS
from frameworkcontroller.commands.podmetrics import NoMetrics, Usage, read_usage
from frameworkcontroller.commands.summary import Summary, summarize, tasks_of

_HOUR: Final = 3600.0


async def run(session: Session, options: argparse.Namespace) -> int:
    """Show it. Returns the exit code."""
    found: list[Summary] = []
    starts: list[tuple[int, str, str, str, bool]] = []
    now = session.wall()

    def take(body: Json) -> None:
        summary = summarize(body)
        found.append(summary)
        for start in _starts(body, summary, now):
            if len(starts) < options.most:
                heapq.heappush(starts, start)
            elif options.most:
                heapq.heappushpop(starts, start)

    await session.each(FRAMEWORKS, take, all_namespaces=options.all_namespaces)
    if not found:
        session.note("there are no Frameworks")
        return program.EXIT_OK
    _print_totals(session, found)
    _print_most_retried(session, found, now, options.most)
    _print_slowest(session, sorted(starts, reverse=True))
    await _print_usage(session, options)
    return program.EXIT_OK


def _starts(body: Mapping[str, Any], summary: Summary, now: float) -> Iterator[tuple[int, str, str, str, bool]]:
    """How long each Task's current attempt waited to run, or has waited so far (True)."""
    if summary.unreadable or not summary.state:
        return
    for role, task in tasks_of(body["status"]["attemptStatus"]):
        try:
            attempt = task["attemptStatus"]
            run = attempt.get("runTime")
            if run is None and (task["state"] not in BEFORE_IT_RUNS or summary.execution == "Create"):
                continue
            until = now if run is None else parse_time(run)
            waited = int(until - parse_time(attempt["startTime"]))
            name = f"{role}[{task['index']}]"
        except (KeyError, TypeError, ValueError, AttributeError):
            continue  # no controller of ours wrote that
        yield waited, summary.namespace, summary.name, name, run is None


def _print_totals(session: Session, found: Sequence[Summary]) -> None:
    states = Counter(one.state or "not seen by a controller" for one in found)
    results = Counter(one.result for one in found if one.completed)
    stalled = sum(bool(one.stalled) and not one.completed for one in found)
    tasks: Counter[str] = Counter()
    for one in found:
        tasks.update(one.tasks)
    session.say(f"{counted(len(found), 'Framework')}: {_counts(states)}")
    if results:
        session.say(f"  of those completed: {_counts(results)}")
    if stalled:
        session.say(f"  stalled: {stalled}")
    session.say(f"{counted(tasks.total(), 'Task')}: {_counts(tasks) or 'none yet'}")
    retries = sum(one.retries for one in found)
    task_retries = sum(one.task_retries for one in found)
    session.say(
        f"{counted(retries, 'retry', 'retries')} of Frameworks, {task_retries:,} of Tasks in their last attempts"
    )


def _print_most_retried(session: Session, found: Sequence[Summary], now: float, most: int) -> None:
    def retries(one: Summary) -> int:
        return one.retries + one.task_retries

    retried = heapq.nlargest(most, (one for one in found if retries(one)), key=retries)
    if not retried:
        return
    table = _table("RETRIED MOST", "RETRIES", "TASK RETRIES", "AN HOUR", "STATE")
    for one in retried:
        hours = max(60.0, (one.completion_time or now) - one.created) / _HOUR
        table.add_row(
            f"{one.namespace}/{one.name}",
            str(one.retries),
            str(one.task_retries),
            f"{retries(one) / hours:.1f}",
            one.state,
        )
    session.say()
    session.print_table(table)


def _print_slowest(session: Session, starts: Sequence[tuple[int, str, str, str, bool]]) -> None:
    if not starts:
        return
    table = _table("SLOWEST TO START", "TASK", "WAITED")
    for waited, namespace, name, task, still in starts:
        text = Text(f"{duration(waited)}, and still waits", "yellow") if still else Text(duration(waited))
        table.add_row(f"{namespace}/{name}", task, text)
    session.say()
    session.print_table(table)


async def _print_usage(session: Session, options: argparse.Namespace) -> None:
    namespace = None if options.all_namespaces else session.namespace
    session.say()
    try:
        usage = await read_usage(session.client, namespace, names.FRAMEWORK_NAME)
    except NoMetrics as error:
        session.say(f"CPU and memory: not known: {error}")
        return
    if not usage:
        session.say("CPU and memory: the metrics API has nothing on Pods of Frameworks (yet)")
        return
    table = _table("USES MOST", "PODS", "CPU", "MEMORY")
    for (where, name), used in heapq.nlargest(options.most, usage.items(), key=_weight):
        table.add_row(f"{where}/{name}", str(used.pods), f"{used.cpu:.2f}", f"{used.memory / 2**20:,.0f} MiB")
    session.print_table(table)


def _weight(item: tuple[tuple[str, str], Usage]) -> tuple[float, float]:
    return item[1].cpu, item[1].memory


def _table(*titles: str) -> Table:
    return Table(*titles, box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counts.most_common())
