"""ConcurrencyLimit: at its least while answers are slow, at its most while they are fast and it is needed."""

from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.kube.concurrency import LEAST, LEAST_SHARE, WINDOW_SEC, ConcurrencyLimit


def answer(limit: ConcurrencyLimit, seconds: float, number: int = 1000, *, now: float = 0.0, kind: str = "k") -> None:
    """This number of answers, while one sync too many is to run."""
    for _ in range(number):
        limit.allows(10**6, 10**6, 1)
        limit.answered(kind, seconds, now)


def allowed(limit: ConcurrencyLimit) -> int:
    return next(number for number in range(10**4) if not limit.allows(number, number, 1))


def test_it_grows_while_answers_are_as_fast_as_ever() -> None:
    limit = ConcurrencyLimit(200)
    assert allowed(limit) == LEAST
    answer(limit, 0.1, 20)
    assert LEAST < allowed(limit) < 30
    answer(limit, 0.1)
    assert allowed(limit) == 200


def test_it_shrinks_when_answers_become_slow_or_it_is_not_needed() -> None:
    limit = ConcurrencyLimit(200)
    answer(limit, 0.01)
    answer(limit, 0.1, 250)
    assert allowed(limit) == LEAST
    answer(limit, 0.01)
    assert allowed(limit) == 200
    for _ in range(1000):
        assert limit.allows(0, 0, 1)
        limit.answered("k", 0.01, 0.0)
    assert allowed(limit) == LEAST


def test_answers_are_compared_with_recent_ones_of_their_kind() -> None:
    limit = ConcurrencyLimit(200)
    answer(limit, 0.001, 1, kind="fast")
    answer(limit, 0.1, kind="slow")
    assert allowed(limit) == 200
    answer(limit, 0.1, kind="fast")
    assert allowed(limit) == LEAST
    for window in (1, 2):
        answer(limit, 0.1, kind="fast", now=window * WINDOW_SEC)
    assert allowed(limit) == 200


@given(most=st.integers(1, 300), answers=st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=100))
def test_it_stays_within_its_bounds(most: int, answers: list[tuple[float, bool]]) -> None:
    limit = ConcurrencyLimit(most)
    for seconds, wanted in answers:
        limit.allows(number := 10**6 if wanted else 0, number, 1)
        limit.answered("k", seconds, 0.0)
        assert min(LEAST, most) <= allowed(limit) <= most


def test_namespaces_share_it_and_none_waits_for_another_one() -> None:
    limit = ConcurrencyLimit(200)
    assert limit.allows(LEAST - 1, LEAST - 1, 1)
    assert limit.allows(LEAST - 2, LEAST - 1, 2), "the other one does not need its share"
    assert not limit.allows(LEAST - 1, LEAST, 2)
    assert limit.allows(0, LEAST, 2)
    assert limit.allows(LEAST // 2 - 1, LEAST, 2)
    assert not limit.allows(LEAST // 2, LEAST, 2)
    assert limit.allows(LEAST_SHARE - 1, 10**6, 10**6)
    assert not limit.allows(LEAST_SHARE, 10**6, 10**6)
