import random

import pytest

from frameworkcontroller.kube import errors
from frameworkcontroller.kube.reflector import (
    Failure,
    Listing,
    Reflector,
    State,
    Waiting,
    Watching,
    classify,
    is_older,
)


def watching(version: str = "10") -> Reflector:
    reflector = Reflector(random.Random(1))
    assert reflector.on_page([], version, None).complete == set()
    return reflector


def state(reflector: Reflector) -> State:
    # mypy does not know that a method changes the attribute.
    return reflector.state


@pytest.mark.parametrize(
    ("failure", "at_once", "then"),
    [
        (Failure.CLOSED, True, Watching("10")),
        (Failure.SILENT, True, Watching("10")),
        (Failure.EXPIRED, True, Listing()),
        (Failure.RELIST, True, Listing()),
        (Failure.BROKEN, False, Watching("10")),
        (Failure.FAILED, False, Watching("10")),
        (Failure.THROTTLED, False, Watching("10")),
        (Failure.DENIED, False, Watching("10")),
        (Failure.ABSENT, False, Listing()),
        (Failure.REJECTED, False, Listing()),
        (Failure.AHEAD, False, Listing()),
        (Failure.MALFORMED, False, Listing()),
        (Failure.REPLAYED, False, Listing()),
        (Failure.UNTOLD, False, Listing()),
    ],
)
def test_where_each_end_of_a_watch_leads(failure: Failure, *, at_once: bool, then: Listing | Watching) -> None:
    reflector = watching()
    reflector.on_failure(failure, lived=60.0)
    if not at_once:
        assert isinstance(reflector.state, Waiting)
        assert 0.25 <= reflector.state.seconds <= 0.5
        reflector.on_wait_over()
    assert reflector.state == then
    if isinstance(then, Listing):
        reflector.on_page([], "11", None)
    # A second time in a row, soon after, nothing happens at once.
    reflector.on_failure(failure, lived=1.0)
    assert isinstance(state(reflector), Waiting)


def test_pauses_grow_to_five_seconds_and_a_lasting_watch_ends_the_row() -> None:
    reflector = watching()
    pauses = []
    for _ in range(10):
        reflector.on_failure(Failure.BROKEN)
        assert isinstance(reflector.state, Waiting)
        pauses.append(reflector.state.seconds)
        reflector.on_wait_over()
    for pause, whole in zip(pauses, [0.5, 1, 2, 4, 5, 5, 5, 5, 5, 5], strict=True):
        assert whole / 2 <= pause <= whole
    reflector.on_failure(Failure.CLOSED, lived=10.0)
    assert reflector.state == Watching("10")


def test_a_closed_watch_that_brought_news_is_reopened_at_once() -> None:
    """A server closes watches that are slower than what happens; to wait then makes them slower still."""
    reflector = watching()
    for version in range(11, 20):
        assert reflector.on_event(str(version))
        reflector.on_failure(Failure.CLOSED, lived=0.1)
        assert reflector.state == Watching(str(version))
    next_ones = []
    for _ in range(2):
        reflector.on_failure(Failure.CLOSED, lived=0.1)
        next_ones.append(type(reflector.state))
    assert next_ones == [Watching, Waiting]


def test_a_list_that_works_does_not_end_the_row() -> None:
    """A server that expires each version at once must not be listed in a tight circle."""
    reflector = watching()
    pauses = []
    for version in range(11, 20):
        reflector.on_failure(Failure.EXPIRED, lived=0.1)
        if isinstance(reflector.state, Waiting):
            pauses.append(reflector.state.seconds)
            reflector.on_wait_over()
        reflector.on_page([], str(version), None)
    assert len(pauses) == 8
    assert sum(pauses) > 15


def test_a_version_that_expired_while_the_server_was_away_is_listed_at_once() -> None:
    reflector = watching()
    reflector.on_failure(Failure.CLOSED, lived=1.0)
    for _ in range(5):
        reflector.on_failure(Failure.BROKEN)
        reflector.on_wait_over()
    reflector.on_failure(Failure.EXPIRED)
    assert reflector.state == Listing(paged=True)


def test_retry_after_is_obeyed_beyond_the_own_backoff() -> None:
    reflector = watching()
    reflector.on_failure(Failure.THROTTLED, retry_after=45.0)
    assert reflector.state == Waiting(45.0, Watching("10"))
    reflector.on_wait_over()
    reflector.on_failure(Failure.FAILED, retry_after=45.0)
    assert reflector.state == Waiting(5.0, Watching("10"))


def test_inputs_that_were_not_asked_for_are_bugs() -> None:
    reflector = Reflector(random.Random(1))
    with pytest.raises(AssertionError):
        reflector.on_event("1")
    with pytest.raises(AssertionError):
        reflector.on_wait_over()
    reflector.on_failure(Failure.BROKEN)
    with pytest.raises(AssertionError):
        reflector.on_page([], "1", None)
    with pytest.raises(AssertionError):
        reflector.on_failure(Failure.BROKEN)


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (errors.SilenceError(""), Failure.SILENT),
        (errors.TransportError(""), Failure.BROKEN),
        (errors.error_from_status({"code": 410, "reason": "Expired"}), Failure.EXPIRED),
        (errors.error_from_status({"code": 410, "reason": "Gone"}), Failure.EXPIRED),
        (errors.error_from_status({"code": 401}), Failure.DENIED),
        (errors.error_from_status({"code": 403}), Failure.DENIED),
        (errors.error_from_status({"code": 404}), Failure.ABSENT),
        (errors.error_from_status({"code": 429}), Failure.THROTTLED),
        (errors.error_from_status({"code": 400}), Failure.REJECTED),
        (errors.error_from_status({"code": 500}), Failure.FAILED),
        (errors.error_from_status({}), Failure.FAILED),
        (
            errors.error_from_status({"code": 504, "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]}}),
            Failure.AHEAD,
        ),
    ],
)
def test_the_failure_of_an_error(error: errors.KubeError, failure: Failure) -> None:
    assert classify(error) is failure


def test_versions_are_compared_only_if_they_are_numbers() -> None:
    assert is_older("9", "10")
    assert not is_older("10", "9")
    assert not is_older("10", "10")
    assert not is_older("9", None)
    assert not is_older("abc", "10")
    assert not is_older("9", "abc")
