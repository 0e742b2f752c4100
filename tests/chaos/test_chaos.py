"""Random histories under random faults: every guarantee holds, everything comes to its end, and nothing leaks.

A bounded part of `make chaos`. A failing history names its seed, and is shortened.
"""

import os
import time
from pathlib import Path

import pytest

from tests.chaos import real
from tests.chaos.embedded import failure_of, play
from tests.chaos.etcd import KEEPING_THE_RECORD
from tests.chaos.proxy import Fault, Kind
from tests.chaos.shrink import shrink
from tests.chaos.story import Step, Story, make_story
from tests.support.frameworks import Json, role
from tests.support.realcluster import ControlPlane, find_assets

HISTORIES = int(os.environ.get("HISTORIES", "60"))
REAL_HISTORIES = (45, 80, 884, 1419, 1656, 1763)
_SHRINK_SEC = 60.0


def fail_with_short_story(story: Story, error: AssertionError) -> None:
    """Fail the test with the shortest story that ends in such an error, as found in a minute."""
    end = time.monotonic() + _SHRINK_SEC
    short, _ = shrink(story, lambda shorter: failure_of(shorter) if time.monotonic() < end else None)
    again = f"python -m tests.chaos --histories 1 --seed {story.seed}"
    raise AssertionError(f"{again} fails; in short:\n{short}\n{error}") from error


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_nothing_is_lost(seed: int) -> None:
    story = make_story(seed)
    outcome = play(story)
    if outcome.error is not None:
        fail_with_short_story(story, outcome.error)


def test_a_history_repeats_itself() -> None:
    first, second = play(make_story(7)), play(make_story(7))
    assert (first.writes, first.recovery, first.injected) == (second.writes, second.recovery, second.injected)
    assert first.writes > 10


# Stories that have shown something, made short.


def _one(retry: Json | None = None, **simulate: str) -> Step:
    task = {"retryPolicy": retry or {}}
    return Step(0.0, "create", ("f0", [role("a", 1, simulate=simulate, task=task)], {}))


def test_an_event_that_a_watch_lost_is_made_up_for() -> None:
    skip = Step(0.5, "fault", (Fault(Kind.SKIPPED, resource="pods", times=3),))
    outcome = play(Story(0, (_one(None, **{"run-seconds": "2"}), skip)))
    assert outcome.error is None
    assert outcome.injected["skipped"] == 1
    assert 1 < outcome.recovery < 800


def test_a_controller_that_is_shown_the_past_at_its_start_does_not_act_on_it() -> None:
    # The list says that the Task's first Pod is still to be created; by now its second one runs.
    steps = [
        Step(0.0, "fault", (Fault(Kind.FAILED, "create", "pods", times=3),)),
        _one({"maxRetryCount": 1}, **{"run-seconds": "1, forever", "exit-code": "1"}),
        Step(1.0, "kill_controller", (0.2,)),
        Step(20.0, "fault", (Fault(Kind.STALE, "list", "frameworks"),)),
        Step(20.0, "fault", (Fault(Kind.DELAY, "watch", "frameworks", seconds=10.0),)),
        Step(21.0, "kill_controller", (1.0,)),
        Step(40.0, "annotate", ("f0",)),
    ]
    outcome = play(Story(0, tuple(steps)))
    assert outcome.error is None
    assert outcome.injected == {"failed": 3, "stale": 1, "delay": 1}


def test_a_service_that_is_gone_is_not_learnt_again_with_another_status() -> None:
    # Decisions on an older spec are dropped, observations are kept, and so is the later end of the Service.
    steps = [
        Step(0.0, "create", ("f0", [role("a", 2, task={"retryPolicy": {"maxRetryCount": 3}})], {"network": {}})),
        Step(5.0, "delete_service", ("f0",)),
        Step(6.0, "deny", ("services", ("create",), 20.0)),
        Step(7.0, "delete_service", ("f0",)),
        Step(7.5, "fault", (Fault(Kind.HELD, "", "frameworks", seconds=10.0),)),
        Step(8.0, "rescale", ("f0", "a", 3)),
        Step(8.5, "fail_pod", (0, 1)),
        Step(40.0, "annotate", ("f0",)),
    ]
    outcome = play(Story(0, tuple(steps)))
    assert outcome.error is None
    assert outcome.injected == {"denied": 1, "held": 1}


@pytest.mark.parametrize("seed", [7151, 7468])
def test_a_workload_is_released_that_was_deleted_while_a_status_was_to_be_written(seed: int) -> None:
    # The patch with its end is refused, as the garbage collector has changed it: no event follows the last write.
    # In the second story that write had time, and plans followed one another without end.
    story = make_story(seed, odd=False)
    assert story.quota is not None
    assert play(story).error is None


def _happenings(story: Story) -> set[str]:
    return {step.args[0].kind.name if step.act == "fault" else step.act for step in story.steps}


def test_all_that_can_happen_on_a_real_control_plane_does() -> None:
    can, does = (
        set().union(*(_happenings(make_story(seed, length=real.LENGTH, virtual=False)) for seed in seeds))
        for seeds in (range(200), REAL_HISTORIES)
    )
    assert {kind.name for kind in Kind} <= can
    assert can == does


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a minute where nothing else is at work
async def test_nothing_is_lost_on_a_real_control_plane(plane_name: str, tmp_path: Path) -> None:
    assets = find_assets(plane_name)
    assert assets is not None
    stories = [make_story(seed, length=real.LENGTH, virtual=False) for seed in REAL_HISTORIES]
    with ControlPlane(assets, api_args=KEEPING_THE_RECORD) as plane:
        outcomes = await real.play_all(stories, plane, tmp_path)
    failed = [f"{outcome.story}\n{outcome.error}" for outcome in outcomes if outcome.error is not None]
    assert not failed, "\n\n".join(failed)
    assert all(outcome.writes > 0 for outcome in outcomes)
    # Not that all of it was over before the controllers were at work.
    assert sum(outcome.injected.total() for outcome in outcomes) > 5
