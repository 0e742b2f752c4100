"""Many Frameworks at once before an API server with a limited rate of requests: they end one after the other."""

import asyncio
import statistics
from pathlib import Path

import orjson
import pytest

from frameworkcontroller.api.status import State
from frameworkcontroller.controller.driver import Driver
from frameworkcontroller.kube.concurrency import ConcurrencyLimit
from frameworkcontroller.kube.resources import NAMESPACES
from frameworkcontroller.machine.reconciler import Reconciler
from tests.support.frameworks import Frameworks, role
from tests.support.frontdoor import Request
from tests.support.site import Site, site
from tests.support.virtual_clock import run

RATE = 300.0
"""Requests a second."""

FAR_SEC = 0.1
"""Until each answer of an API server that is far away."""


class Busy:
    """An API server with one request at a time: the others wait in order of arrival."""

    def __init__(self) -> None:
        self._free_at = 0.0

    def __call__(self, request: Request) -> float:
        if request.verb in ("list", "watch"):
            return 0.0
        now = asyncio.get_running_loop().time()
        self._free_at = max(now, self._free_at) + 1 / RATE
        return self._free_at - now


def far(request: Request) -> float:
    return 0.0 if request.verb in ("list", "watch") else FAR_SEC


async def storm(folder: Path, number: int, *, is_far: bool = False, namespaces: int = 1) -> list[float]:
    """The seconds until each of the Frameworks of 2 Tasks, spread over the namespaces, is completed."""
    async with site(folder, Site) as here:
        client, controller = here.client, here.controller
        names = [f"{here.cluster.namespace}-{index}" for index in range(namespaces)]
        for name in names:
            await client.create(NAMESPACES, orjson.dumps({"metadata": {"name": name}}))
        clock = asyncio.get_running_loop().time
        completed: dict[str, float] = {}
        with here.door.delaying(far if is_far else Busy()):
            for index in range(number):
                frameworks = Frameworks(client, names[index % namespaces])
                await frameworks.create(f"f{index}", role(number=2, simulate={"run-seconds": 0.1}))
            began = clock()
            async with asyncio.timeout(600):
                while len(completed) < number:
                    await asyncio.sleep(0.1)
                    for machine in controller.reconcilers.values():
                        if is_completed(machine):
                            completed.setdefault(machine.key, clock() - began)
        return sorted(completed.values())


def is_completed(machine: object) -> bool:
    if not isinstance(machine, Reconciler):
        return False
    status = machine.tracker.status
    return status is not None and status.state is State.COMPLETED and machine.tracker.is_clean


def in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """All Frameworks take turns, as many at once as there are workers."""
    monkeypatch.setattr(Driver, "remaining", lambda _driver, _key: 0)
    monkeypatch.setattr(ConcurrencyLimit, "allows", lambda *_: True)


def ordered_and_in_turns(
    number: int, folders: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, *, is_far: bool
) -> tuple[list[float], list[float]]:
    """The same storm twice: when each Framework was completed."""
    ordered = run(storm(folders.mktemp("ordered"), number, is_far=is_far))
    with monkeypatch.context() as patches:
        in_turns(patches)
        return ordered, run(storm(folders.mktemp("turns"), number, is_far=is_far))


def test_half_of_a_storm_is_over_long_before_the_last_one(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    took, turns = ordered_and_in_turns(200, tmp_path_factory, monkeypatch, is_far=False)
    assert statistics.median(turns) > 0.85 * turns[-1]
    assert statistics.median(took) <= 0.6 * took[-1]
    assert statistics.median(took) <= 0.7 * statistics.median(turns)
    # Those that are served sooner merge fewer status writes.
    assert took[-1] <= 1.1 * turns[-1]


def test_a_storm_in_twenty_namespaces_ends_as_one_in_one(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    took = run(storm(tmp_path_factory.mktemp("shared"), 200, namespaces=20))
    assert statistics.median(took) <= 0.66 * took[-1]
    # With a limit for each namespace, there are as many in progress as there are workers.
    allows = ConcurrencyLimit.allows
    monkeypatch.setattr(ConcurrencyLimit, "allows", lambda limit, running, *_: allows(limit, running, running, 1))
    apart = run(storm(tmp_path_factory.mktemp("apart"), 200, namespaces=20))
    assert statistics.median(took) <= 0.92 * statistics.median(apart)
    assert took[-1] <= 1.1 * apart[-1]


def test_a_storm_takes_no_longer_where_answers_take_long_but_as_many_at_once_as_one_likes(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    took, turns = ordered_and_in_turns(100, tmp_path_factory, monkeypatch, is_far=True)
    # It takes some answers to learn that more may be in flight. With 16 all the time, it takes thrice as long.
    assert took[-1] <= 1.3 * turns[-1]
