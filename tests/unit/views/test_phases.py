"""Phases: from the status, or computed where another controller wrote it."""

import orjson
import pytest

from frameworkcontroller.api.causes import normalized
from frameworkcontroller.api.codec import decode_status, encode_status
from frameworkcontroller.api.completion import Outcome
from frameworkcontroller.api.phases import phase_of_framework, task_phase
from frameworkcontroller.api.status import Phase, State
from frameworkcontroller.views.looks import LOOKS, OF_TASKS
from frameworkcontroller.views.summary import summarize
from tests.unit.machine.test_headline import TABLE, headline

WITHOUT = {"phase", "reason", "message"}


@pytest.mark.parametrize("situation", list(TABLE))
def test_a_status_without_a_phase_gets_the_one_that_this_controller_would_write(situation: str) -> None:
    build, (phase, _, message) = TABLE[situation]
    bench = build()
    headline(bench)
    status = orjson.loads(encode_status("f", bench.status))
    metadata = {"name": "f", "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z"}
    shown = summarize({"metadata": metadata, "status": status})
    # Most characters of a message are shown; control characters are blanks in a terminal.
    assert (shown.phase, len(shown.message)) == (phase, len(message))
    older = {key: value for key, value in status.items() if key not in WITHOUT}
    decoded = decode_status(older)
    assert decoded is not None
    assert phase_of_framework(decoded) == phase
    assert summarize({"metadata": metadata, "status": older}).phase == phase


@pytest.mark.parametrize("situation", ["stopped", "out of memory", "no quota"])
def test_a_status_without_a_message_gets_one_from_its_other_fields(situation: str) -> None:
    bench = TABLE[situation][0]()
    bench.status.phase = ""
    status = orjson.loads(encode_status("f", bench.status))
    metadata = {"name": "f", "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z"}
    assert summarize({"metadata": metadata, "status": status}).message


def test_a_task_is_in_one_of_six_phases() -> None:
    found = {
        task_phase(state, outcome, delay) for state in State for outcome in (*Outcome, None) for delay in (None, 0, 5)
    }
    assert found == set(OF_TASKS) == set(Phase) - {Phase.QUEUED, Phase.SUSPENDED}
    assert set(LOOKS) == set(Phase)
    assert task_phase(State.ATTEMPT_COMPLETED, Outcome.FAILED, 5) is Phase.PENDING
    assert task_phase(State.ATTEMPT_COMPLETED, Outcome.FAILED, 0) is Phase.ENDING
    assert task_phase(State.COMPLETED, Outcome.STOPPED, None) is Phase.STOPPED


def test_words_that_differ_in_numbers_are_alike() -> None:
    one = 'lost Pod "f-worker-12" of rank 9 at 0xDEADBEEF\nin 5f3c9a1b2c at 10.0.0.1:80'
    other = 'lost Pod "f-worker-7" of rank 11 at 0x1 in 99999999ab at 10.0.0.22:8080'
    assert normalized(one) == normalized(other)
    assert normalized("main exited with 7") == "main exited with #"
    assert normalized("feedback on accede") == "feedback on accede"
    assert normalized("exit a") != normalized("exit b")
