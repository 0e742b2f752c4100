import random

from frameworkcontroller.backoff import Backoff, exponential


def test_the_delay_doubles_up_to_the_maximum() -> None:
    assert [exponential(0.5, 5.0, failures) for failures in range(7)] == [0.0, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_whole_seconds_stay_whole() -> None:
    assert [exponential(3, 10, failures) for failures in range(5)] == [0, 3, 6, 10, 10]
    assert isinstance(exponential(3, 10, 0), int)
    assert isinstance(exponential(3, 10, 2), int)
    assert exponential(3, 10, 10**9) == 10


def test_jitter_shortens_a_delay_by_at_most_its_fraction() -> None:
    rng = random.Random(0)
    backoff = Backoff(base=1.0, maximum=60.0)
    assert backoff.delay(0, rng) == 0.0
    assert 0.5 <= backoff.delay(1, rng) <= 1.0
    assert 30.0 <= backoff.delay(10_000, rng) <= 60.0
    assert all(3.0 <= Backoff(4.0, 4.0, jitter=0.25).delay(3, rng) <= 4.0 for _ in range(100))
