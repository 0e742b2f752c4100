"""The codes of the contract (docs/failure-codes.md)."""

from __future__ import annotations

import pytest

from frameworkcontroller.api.completion import (
    NEVER_RETRIED,
    PREDEFINED,
    RESERVED,
    CompletionStatus,
    Outcome,
    outcome_of,
)

TABLE = {
    0: ("Succeeded", "Succeeded", ()),
    200: ("ContainerTransientFailed", "Failed", ("Transient",)),
    201: ("ContainerTransientConflictFailed", "Failed", ("Transient", "Conflict")),
    210: ("ContainerPermanentFailed", "Failed", ("Permanent",)),
    -100: ("ConfigMapExternalDeleted", "Failed", ("Transient",)),
    -101: ("PodExternalDeleted", "Failed", ("Transient",)),
    -110: ("ConfigMapLocalCacheCreationTimeout", "Failed", ("Transient",)),
    -111: ("PodLocalCacheCreationTimeout", "Failed", ("Transient",)),
    -120: ("PodCreationTransientError", "Failed", ("Transient",)),
    -200: ("PodCreationPermanentError", "Failed", ("Permanent",)),
    -210: ("StopFrameworkRequested", "Failed", ("Permanent",)),
    -220: ("FrameworkAttemptCompletion", "Failed", ("Permanent",)),
    -230: ("DeleteTaskRequested", "Failed", ("Permanent",)),
    -240: ("FrameworkSuspendRequested", "Failed", ("Transient",)),
    -241: ("FrameworkEvicted", "Failed", ("Transient",)),
    -242: ("TaskTemplateUpdated", "Failed", ("Transient",)),
    -250: ("FrameworkActiveDeadlineExceeded", "Failed", ("Permanent",)),
    -252: ("NoProgress", "Failed", ("Transient",)),
    -260: ("TaskPreRunningDeadlineExceeded", "Failed", ("Transient", "Conflict")),
    -261: ("TaskAvoidedNodeGivenUp", "Failed", ("Transient",)),
    -300: ("PodFailedWithoutFailedContainer", "Failed", ()),
    -310: ("PodCreationUnknownError", "Failed", ()),
}


def test_the_table_is_whole() -> None:
    assert set(PREDEFINED) == set(TABLE)


@pytest.mark.parametrize("code", list(TABLE))
def test_codes(code: int) -> None:
    found = PREDEFINED[code]
    assert found.code == code
    assert (found.phrase, found.type_name, found.attributes) == TABLE[code]
    status = CompletionStatus.of(found, "why")
    assert (status.code, status.phrase, status.type_name, status.attributes) == (code, *TABLE[code])
    assert status.succeeded is (code == 0)
    assert status.failed is (code != 0)
    assert status.has("Transient") is ("Transient" in TABLE[code][2])


def test_reserved_are_the_ranges_of_the_contract_and_hold_all_that_is_predefined() -> None:
    reserved = {code for span in RESERVED for code in span}
    assert reserved == set(range(-999, 1)) | set(range(200, 220))
    assert set(TABLE) <= reserved


def test_codes_that_are_never_retried() -> None:
    assert {-210, -220, -230, -250} == NEVER_RETRIED


def test_no_attributes_given_is_as_none_of_them() -> None:
    status = CompletionStatus(300, "Mine", "Failed", None, "why")
    assert not status.has("Transient")


def test_an_attempt_that_ended_on_request_was_stopped() -> None:
    outcomes = {code: CompletionStatus.of(made, "").outcome for code, made in PREDEFINED.items()}
    assert {code for code, one in outcomes.items() if one is Outcome.SUCCEEDED} == {0}
    stopped = {-210, -220, -230, -240, -241, -242, -261}
    assert {code for code, one in outcomes.items() if one is Outcome.STOPPED} == stopped
    assert outcome_of(7, None, None) is outcome_of(0, "", "Failed") is Outcome.FAILED
    assert outcome_of(-220, "", "Succeeded") is Outcome.SUCCEEDED
    assert outcome_of(-220, "ContainerUnrecognizedFailed", "Failed") is Outcome.FAILED
