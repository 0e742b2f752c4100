"""The cost of attempts on both databases, against the sum over their Pods (E)."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete

from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.history.archive import HistoryArchive
from frameworkcontroller.history.database import CHILDREN, frameworks
from frameworkcontroller.history.reads import CountCost
from tests.support.archive import ARCHIVED
from tests.support.bench import NOW, Bench
from tests.support.bench import role as bench_role
from tests.support.costs import DAY, RESOURCES, Attempt, PodRun, Template, check_costs, records

_GPU: Final[dict[str, int]] = {"cpu": 500, "nvidia.com/gpu": 8}
_PLAIN: Final = Template(({"cpu": 500, "memory": 10},))
_TIMES: Final = [0, 5, 100, DAY - 1, DAY, DAY + 7, 2 * DAY, 3 * DAY + 11, 4 * DAY]


def amounts() -> st.SearchStrategy[dict[str, int]]:
    return st.dictionaries(st.sampled_from(RESOURCES), st.sampled_from([0, 1, 250, 2000, 7]), max_size=3)


def templates() -> st.SearchStrategy[Template]:
    return st.builds(
        Template,
        st.lists(amounts(), min_size=1, max_size=2).map(tuple),
        st.lists(st.tuples(amounts(), st.booleans()), max_size=3).map(tuple),
        amounts(),
    )


@st.composite
def stories(draw: st.DrawFn) -> list[PodRun]:
    """The Pods of some attempts of Frameworks."""
    pods: list[PodRun] = []
    times = st.sampled_from(_TIMES)
    for uid, where in (("u1", "a/train"), ("u2", "a/serve"), ("u3", "b/train")):
        queue, user = draw(st.sampled_from(["", "default", "big"])), draw(st.sampled_from(["", "ann", "=bob"]))
        for number in range(draw(st.integers(0, 2))):
            attempt = Attempt(
                uid, where, number,
                code=draw(st.sampled_from([0, 0, 1, 137, -210])),
                queue=queue, user=user,
                progress=draw(st.none() | st.tuples(times, st.none() | times)),
                archived=draw(st.integers(0, 4)) > 0,
            )  # fmt: skip
            if number and draw(st.booleans()):
                attempt = replace(attempt, code=None, archived=True)
            # The Framework's own fields are known from a record of it alone.
            for role in draw(st.lists(st.sampled_from(["worker", "ps"]), unique=True)):
                pods += draw(_of_role(attempt, role))
    known = {pod.attempt.uid for pod in pods if pod.attempt.archived}
    return [
        pod if pod.attempt.uid in known else replace(pod, attempt=replace(pod.attempt, queue="", user=""))
        for pod in pods
    ]


@st.composite
def _of_role(draw: st.DrawFn, attempt: Attempt, role: str) -> list[PodRun]:
    pods: list[PodRun] = []
    template, times = draw(templates()), st.sampled_from(_TIMES)
    for index in range(draw(st.integers(1, 3))):
        attempts = draw(st.integers(1, 2))
        for number in range(attempts):
            retried = number < attempts - 1
            scheduled = draw(st.none() | times)
            pod = PodRun(
                attempt, role, template, index, number,
                scheduled=scheduled,
                ran=draw(st.none() | times),
                ended=draw(times),
                code=draw(st.sampled_from([0, 1, 137, -101, -220])),
                node=draw(st.sampled_from([None, "node-1", "node-2"])) if scheduled is None else "node-1",
                old=draw(st.integers(0, 5)) == 0,
                containers_ended=draw(st.booleans()),
                retried=retried,
            )  # fmt: skip
            if attempt.code is None and not retried and draw(st.booleans()):
                pod = replace(pod, ended=None)
            pods.append(pod)
    return pods


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@pytest.fixture
def archive(runner: asyncio.Runner, database_url: str) -> Iterator[HistoryArchive]:
    opened = runner.run(HistoryArchive.open(database_url))
    yield opened
    runner.run(opened.close())


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(pods=stories(), data=st.data())
def test_the_cost_is_the_sum_over_the_pods(
    archive: HistoryArchive, runner: asyncio.Runner, pods: list[PodRun], data: st.DataObject
) -> None:
    lines = records(pods)
    order = data.draw(st.permutations(lines))
    cut = data.draw(st.integers(0, len(lines)))
    since, until = data.draw(
        st.sampled_from([(None, None), (DAY + 3, None), (None, 2 * DAY), (5, 3 * DAY), (DAY, DAY)])
    )

    async def compare() -> None:
        await _clear(archive)
        # Some come again.
        for some in (order[:cut], order[cut:], order[:1]):
            await archive.store(some)
        await check_costs(archive, pods, since, until)

    runner.run(compare())


async def _clear(archive: HistoryArchive) -> None:
    async with archive._database.writing() as connection:
        for table in (frameworks, *(table for table, _ in CHILDREN)):
            await connection.execute(delete(table))


@pytest.mark.parametrize("readable", [frozenset("a"), frozenset("b"), frozenset[str]()])
async def test_a_viewer_sees_the_cost_of_readable_namespaces_only(database_url: str, readable: frozenset[str]) -> None:
    pods = [
        PodRun(Attempt(uid, where, queue="q", user="ann"), "worker", _PLAIN, index, ended=100, old=index == 2)
        for uid, where in (("u", "a/train"), ("v", "b/train"))
        for index in range(3)
    ]
    async with await HistoryArchive.open(database_url) as archive:
        await archive.store(records(pods))
        await check_costs(archive, pods, None, None, readable)
        assert (await archive.read(CountCost(namespace="b"), frozenset("a")))["total"]["attempts"] == 0


# --- stories for mutants ----------------------------------------------------------------------------------------


def story(*pods: PodRun, since: int | None = None) -> Any:
    """A tale for tests/property/mutants.py: the cost of these Pods on SQLite."""

    def tale() -> None:
        async def compare() -> None:
            with tempfile.TemporaryDirectory() as folder:
                async with await HistoryArchive.open(f"sqlite:///{folder}/history.db") as archive:
                    await archive.store(records(pods))
                    await check_costs(archive, [*pods], since, None)

        asyncio.run(compare())

    return tale


_DONE: Final = Attempt("u", "a/train")
_FAILED: Final = Attempt("u", "a/train", code=1, progress=(40, None))

long_wait: Final = story(PodRun(_DONE, "worker", _PLAIN, scheduled=0, ran=50, ended=100))
skewed_clocks: Final = story(PodRun(_DONE, "worker", _PLAIN, scheduled=20, ran=10, ended=100))
large_init: Final = story(PodRun(_DONE, "worker", Template(({"cpu": 500},), (({"cpu": 2000}, False),), {"cpu": 250})))
with_sidecar: Final = story(PodRun(_DONE, "worker", Template((_GPU,), (({"cpu": 2000}, True),))))
failed_after_progress: Final = story(PodRun(_FAILED, "worker", _PLAIN, ended=100, code=1))
failed_after_checkpoint: Final = story(PodRun(replace(_FAILED, progress=(40, 30)), "worker", _PLAIN, ended=100, code=1))
failed_in_success: Final = story(
    PodRun(_DONE, "worker", _PLAIN, ended=100, code=137, retried=True),
    PodRun(_DONE, "worker", _PLAIN, number=1, scheduled=110, ran=110, ended=200),
)
succeeded_in_failure: Final = story(PodRun(replace(_FAILED, progress=None), "worker", _PLAIN, ended=100))
over_midnight: Final = story(PodRun(_DONE, "worker", _PLAIN, scheduled=DAY - 10, ran=DAY - 5, ended=3 * DAY + 5))
in_part: Final = story(PodRun(_DONE, "worker", _PLAIN, scheduled=0, ran=0, ended=100), since=60)
from_an_older_version: Final = story(PodRun(_DONE, "worker", _PLAIN, old=True))
seen_only_ended: Final = story(PodRun(_DONE, "worker", _PLAIN, ran=None, ended=100, containers_ended=True))
deleted_while_it_runs: Final = story(PodRun(replace(_DONE, code=None), "worker", _PLAIN, ended=None))


def node_of(*, deleting: bool, gone: bool) -> None:
    """The Pod of a Task has a node when it is first seen."""
    bench = Bench(bench_role(), limit=ARCHIVED)
    bench.held = True
    bench.all_pods()
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": format_time(NOW)}
    bench.show("f-a-0", deleting=NOW + 30 if deleting else None, nodeName="node-1", conditions=[bound])
    if gone:
        bench.drop("f-a-0", removed=True)
    bench.plan()
    bench.restart()
    assert bench.task().attempt.scheduled_time == NOW, "the attempt has no scheduledTime"
