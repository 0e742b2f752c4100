"""``top``: totals of all Frameworks, the most retries, the slowest starts, and the use of CPU and memory."""

from __future__ import annotations

import argparse
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest, nsmallest
from itertools import chain
from typing import Any, Final, NamedTuple

import orjson
from rich.table import Table
from rich.text import Text

from frameworkcontroller.api import names
from frameworkcontroller.api.phases import BEFORE_RUNNING
from frameworkcontroller.api.quantities import Amounts
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.status import Phase
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.commands import program
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.commands.output import table
from frameworkcontroller.kube.errors import ApiError, ApiServerError, Forbidden, NotFound
from frameworkcontroller.kube.resources import Resource
from frameworkcontroller.views.summary import Summary, summarize, tasks_of
from frameworkcontroller.views.texts import counted, duration

_POD_METRICS: Final = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")


class _Start(NamedTuple):
    """The time that the current attempt of a Task waited to run, in seconds."""

    waited: int
    namespace: str
    name: str
    task: str
    still_waits: bool


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """Show it. Return the exit code."""
    found: list[Summary] = []
    slowest: list[_Start] = []
    now = invocation.wall()
    async for body in invocation.each(FRAMEWORKS, all_namespaces=options.all_namespaces):
        found.append(summarize(body))
        slowest = nlargest(options.most, chain(slowest, _starts(body, found[-1], now)))
    if not found:
        invocation.note("there are no Frameworks")
        return program.EXIT_OK
    _print_totals(invocation, found)
    _print_longest_waiting(invocation, found, now, options.most)
    _print_most_retried(invocation, found, now, options.most)
    rows = table("SLOWEST TO START", "TASK", "WAITED")
    for start in slowest:
        waited = duration(start.waited)
        text = Text(f"{waited}, and still waits", "yellow") if start.still_waits else Text(waited)
        rows.add_row(f"{start.namespace}/{start.name}", start.task, text)
    _print_rows(invocation, rows)
    invocation.print()
    await _print_usage(invocation, options)
    return program.EXIT_OK


def _starts(body: Mapping[str, Any], summary: Summary, now: float) -> Iterator[_Start]:
    if summary.unreadable or not summary.state:
        return
    held = summary.execution == "Create" or summary.suspended == "True"
    for role, task in tasks_of(body["status"]["attemptStatus"]):
        try:
            attempt = task["attemptStatus"]
            run = attempt.get("runTime")
            if run is None and (task["state"] not in BEFORE_RUNNING or held):
                continue
            waited = int((now if run is None else parse_time(run)) - parse_time(attempt["startTime"]))
            yield _Start(waited, summary.namespace, summary.name, f"{role}[{task['index']}]", run is None)
        except (KeyError, TypeError, ValueError, AttributeError):
            continue  # another controller wrote it


def _print_totals(invocation: Invocation, found: Sequence[Summary]) -> None:
    phases = Counter(str(one.phase) for one in found)
    stalled = sum(bool(one.stalled) for one in found)
    waiting = sum(one.waits for one in found) - stalled
    tasks = sum((one.phases for one in found), Counter[Phase]())
    retries = sum(one.retries for one in found)
    task_retries = sum(one.task_retries for one in found)
    invocation.print(f"{counted(len(found), 'Framework')}: {_counts(phases)}")
    if stalled:
        invocation.print(f"  stalled: {stalled}")
    if waiting:
        invocation.print(f"  waiting: {waiting}")
    invocation.print(f"{counted(tasks.total(), 'Task')}: {_counts(_lower(tasks)) or 'none yet'}")
    invocation.print(
        f"{counted(retries, 'retry', 'retries')} of Frameworks, {task_retries:,} of Tasks in their last attempts"
    )


def _lower(tasks: Mapping[Phase, int]) -> Counter[str]:
    return Counter({phase.lower(): number for phase, number in tasks.items()})


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counts.most_common())


def _print_rows(invocation: Invocation, rows: Table) -> None:
    if rows.rows:
        invocation.print()
        invocation.print_table(rows)


def _waits_since(one: Summary) -> float:
    if not one.state:
        return one.created
    return math.inf if one.idle_since is None else one.idle_since


def _print_longest_waiting(invocation: Invocation, found: Sequence[Summary], now: float, most: int) -> None:
    rows = table("WAITING LONGEST", "FOR", "WHY")
    for one in nsmallest(most, (one for one in found if one.waits), key=_waits_since):
        since = _waits_since(one)
        waited = "-" if math.isinf(since) else duration(now - since)
        left = _lower({phase: number for phase, number in one.phases.items() if not phase.is_final})
        why = one.message or (f"Tasks: {_counts(left)}" if left else one.phase)
        rows.add_row(f"{one.namespace}/{one.name}", waited, why)
    _print_rows(invocation, rows)


def _print_most_retried(invocation: Invocation, found: Sequence[Summary], now: float, most: int) -> None:
    def retries(one: Summary) -> int:
        return one.retries + one.task_retries

    rows = table("RETRIED MOST", "RETRIES", "TASK RETRIES", "AN HOUR", "PHASE")
    for one in nlargest(most, filter(retries, found), key=retries):
        hours = max(60.0, (one.completion_time or now) - one.created) / 3600
        an_hour = f"{retries(one) / hours:.1f}"
        rows.add_row(f"{one.namespace}/{one.name}", str(one.retries), str(one.task_retries), an_hour, one.phase)
    _print_rows(invocation, rows)


async def _print_usage(invocation: Invocation, options: argparse.Namespace) -> None:
    """Print the CPU and memory of Pods, from the metrics API (metrics-server) of clusters that have it."""
    namespace = None if options.all_namespaces else invocation.namespace
    try:
        listed = orjson.loads(
            await invocation.client.list(_POD_METRICS, namespace, label_selector=names.FRAMEWORK_NAME)
        )
    except ApiError as error:
        problem = str(error)
        if isinstance(error, NotFound):
            problem = "this cluster has no metrics API (metrics-server)"
        elif isinstance(error, Forbidden | ApiServerError):
            problem = f"the metrics API does not answer: {error}"
        invocation.print(f"CPU and memory: unknown: {problem}")
        return
    pods: Counter[str] = Counter()
    usage: defaultdict[str, Amounts] = defaultdict(Amounts)
    for pod in listed.get("items") or ():
        metadata = pod["metadata"]
        name = f"{metadata['namespace']}/{(metadata.get('labels') or {}).get(names.FRAMEWORK_NAME, '')}"
        pods[name] += 1
        for container in pod.get("containers") or ():
            usage[name].add(Amounts.of(container["usage"]))
    if not pods:
        invocation.print("CPU and memory: the metrics API has no Pods of Frameworks (yet)")
        return
    rows = table("USES MOST", "PODS", "CPU", "MEMORY")
    used = {name: tuple(float(usage[name].by_name.get(one, 0)) for one in ("cpu", "memory")) for name in pods}
    for name in nlargest(options.most, used, key=used.__getitem__):
        cpu, memory = used[name]
        rows.add_row(name, str(pods[name]), f"{cpu:.2f}", f"{memory / 2**20:,.0f} MiB")
    invocation.print_table(rows)
