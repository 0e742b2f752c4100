"""A Framework without later fields of the API: its requests, records and waits equal the recorded traces.

tests/golden/traces.py recorded them. Intended changes are left out: the reason to wait in the message of the condition
Running; disruptions of Pods that have just started count in the row of retries; an attempt is looked at two minutes
after the deletion of its ConfigMap. Others are recorded again: the changes of each write; no write is refused because
of a new spec; creations wait for half a second after a Pod was deleted before it ran, also if ConfigMaps were just
listed.
"""

from pathlib import Path

import pytest

from frameworkcontroller.machine import terminating
from frameworkcontroller.machine.kernel import manifests, policy
from tests.golden import traces

BEFORE = traces.unpacked((Path(traces.__file__).parent / "traces.xz").read_bytes())
DIFFERENT_SEEDS = 5


@pytest.mark.parametrize("seed", range(traces.HISTORIES))
def test_nothing_has_changed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminating, "_watch_collector", lambda *_: None)
    assert traces.diff(BEFORE[seed], traces.trace(seed)) == ""


def test_the_histories_tell_much() -> None:
    lines = [line for one in BEFORE for line in one]
    for happened in (
        "FrameworkSucceeded",
        "FrameworkFailed",
        "FrameworkRetried",
        "FrameworkAttemptCompleted",
        "TaskRoleScaled",
        "TaskRoleDeleted",
        "ConfigMapDeleting",
        "PodNotAnswered",
        "Progressing",
        " TaskRetried: ",
        " TaskReplaced: ",
        " TaskDeleted: ",
        "LabelRestored",
        "DeletionByTaintManager",
        '"gracePeriodSeconds":0',
        "StopFrameworkRequested",
        "POST ",
        "DELETE ",
        "GET ",
    ):
        assert sum(happened in line for line in lines) > 1, happened
    assert not any(line.startswith("raised") for line in lines)


def test_another_body_of_a_pod_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "pod_annotations", lambda *_, **__: {"other": "1"})
    assert sum(traces.diff(BEFORE[seed], traces.trace(seed)) != "" for seed in range(DIFFERENT_SEEDS)) > 1


def test_another_delay_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "RETRIES_AT_ONCE", 0)
    assert any(traces.diff(BEFORE[seed], traces.trace(seed)) for seed in range(DIFFERENT_SEEDS))
