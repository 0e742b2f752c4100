"""Pods that have ended, their records for the archive, and their cost, computed one by one.

Nothing here is the product's: the requests of a Pod, the spans and the days are computed in another way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, cast

from frameworkcontroller.history.archive import HistoryArchive
from frameworkcontroller.history.reads import CostKey, CountCost
from tests.support.archives import EPOCH, at, framework_record, task_record, task_status

DAY: Final = 86_400
RESOURCES: Final = ("cpu", "memory", "nvidia.com/gpu")
_UNITS: Final = {"cpu": "m", "memory": "Mi", "nvidia.com/gpu": ""}
_SPANS: Final = ("waiting", "useful", "lost")

Amounts = Mapping[str, int]
"""Thousandths of CPUs, MiB of memory, GPUs."""


@dataclass(frozen=True)
class Template:
    """The Pods of a role. ``inits``: init containers, and whether each is a sidecar."""

    containers: tuple[Amounts, ...]
    inits: tuple[tuple[Amounts, bool], ...] = ()
    overhead: Amounts = field(default_factory=dict)

    def spec(self) -> dict[str, Any]:
        """The spec of the Pod."""

        def container(amounts: Amounts, **more: Any) -> dict[str, Any]:
            return {"resources": {"requests": _texts(amounts)}, **more}

        return {
            "containers": [container(one) for one in self.containers],
            "initContainers": [
                container(one, **({"restartPolicy": "Always"} if sidecar else {})) for one, sidecar in self.inits
            ],
            "overhead": _texts(self.overhead),
        }

    def requests(self, resource: str) -> int:
        """The reservation of the scheduler: the most that is needed at any time."""
        beside, most = 0, 0
        for amounts, sidecar in self.inits:
            most = max(most, beside + amounts.get(resource, 0))
            beside += amounts.get(resource, 0) if sidecar else 0
        most = max(most, beside + sum(amounts.get(resource, 0) for amounts in self.containers))
        return most + self.overhead.get(resource, 0)


def _texts(amounts: Amounts) -> dict[str, str]:
    return {name: f"{amount}{_UNITS[name]}" for name, amount in amounts.items()}


@dataclass(frozen=True)
class Attempt:
    """An attempt of a Framework. ``progress``: of change and checkpoint. ``archived``: it has a record of its own."""

    uid: str
    where: str
    number: int = 0
    code: int | None = 0
    queue: str = ""
    user: str = ""
    progress: tuple[int, int | None] | None = None
    archived: bool = True

    @property
    def namespace(self) -> str:
        return self.where.partition("/")[0]


@dataclass(frozen=True)
class PodRun:
    """A Pod of an attempt of a Task. ``ended`` None: its Framework was deleted while it ran, at ``deleted``.

    ``old``: archived before costs were known. ``containers_ended``: the controller saw only the end.
    """

    attempt: Attempt
    role: str
    template: Template
    index: int = 0
    number: int = 0
    scheduled: int | None = 0
    ran: int | None = 0
    ended: int | None = 10
    code: int = 0
    node: str | None = "node-0"
    old: bool = False
    containers_ended: bool = False
    retried: bool = False

    def status(self) -> dict[str, Any]:
        """The status of the Task."""
        status = task_status(
            self.index, self.number, code=None if self.ended is None else self.code, uid=f"{self.role}-{self.index}",
            node=self.node, completed=self.ended or 0,
        )  # fmt: skip
        attempt = status["attemptStatus"]
        attempt["runTime"] = None if self.ran is None else at(self.ran)
        if self.containers_ended and self.ended is not None:
            attempt["completionStatus"]["pod"] = {"containers": [{"name": "main", "code": self.code}]}
        if self.scheduled is not None and not self.old:
            attempt["scheduledTime"] = at(self.scheduled)
        return status

    @property
    def is_unknown(self) -> bool:
        """Whether it had a node, and nothing says since when."""
        return self.scheduled is None or self.old

    def spans(self, deleted: int) -> Iterator[tuple[str, int, int]]:
        """Its spans: name, begin and end. ``deleted``: the time of the deletion of its Framework."""
        held = self.scheduled or 0
        freed = max(held, deleted if self.ended is None else self.ended)
        busy = self.ran
        if busy is None:
            busy = held if self.containers_ended and self.ended is not None else freed
        busy = min(max(held, busy), freed)
        yield "waiting", held, busy
        of = self.attempt
        stopped = self.ended is None or self.code in (0, -210, -220)
        if of.archived and of.code == 0 and stopped:
            yield "useful", busy, freed
            return
        good = busy
        if of.archived and of.progress is not None:
            change, checkpoint = of.progress
            good = min(max(busy, change if checkpoint is None else checkpoint), freed)
        yield "useful", busy, good
        yield "lost", good, freed


DELETED: Final = 5 * DAY
"""When Frameworks are deleted that still run."""


def records(pods: Iterable[PodRun]) -> list[bytes]:
    """The records of the attempts and of their Tasks."""
    lines: list[bytes] = []
    by_attempt: dict[tuple[str, int], list[PodRun]] = {}
    for pod in pods:
        by_attempt.setdefault((pod.attempt.uid, pod.attempt.number), []).append(pod)
    for found in by_attempt.values():
        of = found[0].attempt
        roles: dict[str, list[dict[str, Any]]] = {}
        templates: dict[str, Any] = {}
        for pod in found:
            task = {"pod": {"spec": pod.template.spec()}}
            templates[pod.role] = task
            if pod.retried or not of.archived:
                lines.append(
                    task_record(of.uid, pod.index, pod.number, attempt=of.number, role=pod.role, where=of.where,
                                time=DELETED * 1_000_000, status=pod.status(), spec=task)
                )  # fmt: skip
            else:
                roles.setdefault(pod.role, []).append(pod.status())
        if of.archived:
            lines.append(_framework(of, roles, templates))
    return lines


def _framework(of: Attempt, roles: dict[str, list[dict[str, Any]]], templates: Mapping[str, Any]) -> bytes:
    progress = None
    if of.progress is not None:
        change, checkpoint = of.progress
        progress = {
            "frameworkAttemptID": of.number,
            "lastChangeTime": at(change),
            **({} if checkpoint is None else {"lastCheckpointTime": at(checkpoint)}),
        }
    return framework_record(
        of.uid,
        attempt=of.number,
        where=of.where,
        time=DELETED * 1_000_000,
        code=of.code,
        completed=None if of.code is None else DELETED,
        state="Completed" if of.code is not None else "AttemptRunning",
        trigger="OnFrameworkDeletion" if of.code is None else "OnFrameworkCompletion",
        roles=roles,
        spec={"taskRoles": [{"name": name, "task": task} for name, task in templates.items()]},
        metadata={
            "labels": {"kueue.x-k8s.io/queue-name": of.queue},
            "annotations": {"frameworkcontroller.microsoft.com/user": of.user},
        },
        more_status={"progress": progress} if progress is not None else {},
    )


_KEYS: Final[Mapping[CostKey, Callable[[PodRun], str]]] = {
    CostKey.FRAMEWORK: lambda pod: pod.attempt.uid,
    CostKey.NAMESPACE: lambda pod: pod.attempt.namespace,
    CostKey.QUEUE: lambda pod: f"{pod.attempt.namespace}/{pod.attempt.queue}" if pod.attempt.queue else "",
    CostKey.USER: lambda pod: pod.attempt.user,
    CostKey.NODE: lambda pod: pod.node or "",
    CostKey.CODE: lambda pod: "" if pod.ended is None else str(pod.code),
    CostKey.ATTEMPT: lambda pod: str(pod.attempt.number),
}

Found = dict[str, dict[str, Any]]
"""By key: ``attempts`` and ``unknown``, and resource-seconds by resource and span, of CPUs thousandths."""


def cost_of(pods: Iterable[PodRun], by: CostKey, since: int | None, until: int | None) -> Found:
    """The cost of the Pods, one by one and day by day."""
    found: Found = {}
    begin, end = -(1 << 40) if since is None else since, 1 << 40 if until is None else until
    for pod in pods:
        if pod.is_unknown:
            if pod.node is not None and pod.ended is not None and begin <= pod.ended < end:
                key = _day(pod.ended) if by is CostKey.DAY else _KEYS[by](pod)
                _group(found, key)["unknown"] += 1
            continue
        spans = list(pod.spans(DELETED))
        held, freed = spans[0][1], spans[-1][2]
        if freed <= begin or held >= end:
            continue
        last = max(min(freed, end) - 1, held, begin) if freed > held else held
        _group(found, _day(last) if by is CostKey.DAY else _KEYS[by](pod))["attempts"] += 1
        for day in range(held // DAY, freed // DAY + 1):
            for span, starts, ends in spans:
                seconds = min(ends, end, (day + 1) * DAY) - max(starts, begin, day * DAY)
                if seconds <= 0:
                    continue
                key = _day(day * DAY) if by is CostKey.DAY else _KEYS[by](pod)
                for resource in RESOURCES:
                    amount = pod.template.requests(resource) * (1 << 20 if resource == "memory" else 1)
                    if amount:
                        sums = _group(found, key).setdefault(resource, dict.fromkeys(_SPANS, 0))
                        sums[span] += amount * seconds
    return found


def _group(found: Found, key: str) -> dict[str, Any]:
    return found.setdefault(key, {"attempts": 0, "unknown": 0})


def _day(seconds: int) -> str:
    return datetime.fromtimestamp(EPOCH + seconds, UTC).strftime("%Y-%m-%d")


async def check_costs(
    archive: HistoryArchive,
    pods: list[PodRun],
    since: int | None,
    until: int | None,
    readable: frozenset[str] | None = None,
) -> None:
    """Assert that the archive has the cost of the Pods, the same in total however it is grouped.

    ``readable``: the namespaces of the viewer, None: all.
    """
    if readable is not None:
        pods = [pod for pod in pods if pod.attempt.namespace in readable]
    window: dict[str, Any] = {
        "since": None if since is None else EPOCH + since,
        "until": None if until is None else EPOCH + until,
    }
    totals: list[dict[str, Any]] = []
    for by in CostKey:
        expected = {key: _nonzero(one) for key, one in cost_of(pods, by, since, until).items()}
        answer = cast("Any", await archive.read(CountCost(by=by, **window), readable))
        items = {item["key"]: _counted(item) for item in answer["items"]}
        assert len(items) == len(answer["items"])
        assert items == expected, f"by {by}: {items} in the archive, {expected} of the Pods"
        totals.append(_counted(answer["total"]))
        assert totals[-1] == _sum(expected.values()), f"total by {by}: {totals[-1]}, and the groups have another one"
    assert all(total == totals[0] for total in totals), f"the totals differ: {totals}"


def _counted(item: Mapping[str, Any]) -> dict[str, Any]:
    found = {"attempts": item["attempts"], "unknown": item["unknownAttempts"]}
    for resource, spans in item["resources"].items():
        scale = 1000 if resource == "cpu" else 1
        found[resource] = {span: round(value * scale) for span, value in spans.items()}
    return _nonzero(found)


def _nonzero(one: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in one.items() if not isinstance(value, dict) or any(value.values())}


def _sum(groups: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {"attempts": 0, "unknown": 0}
    for one in groups:
        for name, value in one.items():
            if isinstance(value, dict):
                sums = total.setdefault(name, dict.fromkeys(_SPANS, 0))
                for span, amount in value.items():
                    sums[span] += amount
            else:
                total[name] += value
    return total
