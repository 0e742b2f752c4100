"""The limiter in virtual time: rate, burst, fairness, and nothing lost by cancellation."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.kube.ratelimiter import RateLimiter
from tests.support import virtual_clock


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[float, str, float | None]]:
    """(arrives at, flow, gives up after) of each request."""
    request = st.tuples(
        st.floats(0, 5), st.sampled_from("abc"), st.none() | st.sampled_from([0.0, 0.05, 0.1, 0.5, 1.0])
    )
    return draw(st.lists(request, max_size=40))


@given(histories(), st.sampled_from([0.5, 3.0, 10.0, 7.3]), st.integers(0, 5))
def test_any_history(requests: list[tuple[float, str, float | None]], qps: float, burst: int) -> None:
    granted: list[float] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        limiter = RateLimiter(qps, burst)

        async def request(at: float, flow: str, patience: float | None) -> None:
            await asyncio.sleep(at)
            try:
                async with asyncio.timeout(patience):
                    await limiter.acquire(flow)
            except TimeoutError:
                return
            granted.append(loop.time() - began)

        async with asyncio.TaskGroup() as group:
            for one in requests:
                group.create_task(request(*one))
        assert limiter.waiting == 0
        # Nothing that was given up has cost a token: after rest enough, the whole burst is there at once.
        await asyncio.sleep((max(burst, 1) + 1) / qps)
        rested = loop.time()
        for _ in range(max(burst, 1)):
            await limiter.acquire("z")
        assert loop.time() == rested

    virtual_clock.run(scenario())
    granted.sort()
    capacity = max(burst, 1)
    for first in range(len(granted)):
        for last in range(first, len(granted)):
            assert last - first + 1 <= capacity + (granted[last] - granted[first]) * qps + 1e-3
    patient = sum(patience is None for _, _, patience in requests)
    assert len(granted) >= patient


def test_tokens_cost_nothing_while_there_are_any() -> None:
    """No suspension: the coroutine ends at its first step."""

    async def scenario() -> None:
        limiter = RateLimiter(1, 3)
        for _ in range(3):
            with pytest.raises(StopIteration):
                limiter.acquire("a").send(None)

    virtual_clock.run(scenario())


def turns(flows: list[str]) -> list[str]:
    """The order in which the flows get tokens, all of them having asked before the first one came."""
    order: list[str] = []

    async def scenario() -> None:
        limiter = RateLimiter(10, 1)
        await limiter.acquire("warm-up")

        async def request(flow: str) -> None:
            await limiter.acquire(flow)
            order.append(flow)

        async with asyncio.TaskGroup() as group:
            for flow in flows:
                group.create_task(request(flow))
            await asyncio.sleep(0)
            assert limiter.waiting == len(flows)

    virtual_clock.run(scenario())
    return order


def test_namespaces_take_turns_and_flows_within_each() -> None:
    order = turns([f"x/{number}" for number in range(50)] + ["y/a", "y/a", "", ""])
    assert order[:7] == ["x/0", "y/a", "", "x/1", "y/a", "", "x/2"]


def test_the_rate_is_reached() -> None:
    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        limiter = RateLimiter(80, 120)
        began = loop.time()
        for _ in range(120 + 800):
            await limiter.acquire()
        return loop.time() - began

    assert virtual_clock.run(scenario()) == pytest.approx(10.0, rel=1e-3)


@pytest.mark.parametrize("granted_first", [True, False])
def test_a_token_that_came_with_the_cancellation_goes_to_the_next(*, granted_first: bool) -> None:
    """Both happen in the same round of the loop, before the task can take the token."""

    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        limiter = RateLimiter(1, 1)
        await limiter.acquire()
        began = loop.time()
        first = loop.create_task(limiter.acquire("a"))
        second = loop.create_task(limiter.acquire("b"))
        if granted_first:
            await asyncio.sleep(0)  # the limiter's timer is set now, and so comes first
        loop.call_at(began + 1.0, first.cancel)
        await asyncio.gather(first, second, return_exceptions=True)
        assert first.cancelled()
        assert not second.cancelled()
        return loop.time() - began

    assert virtual_clock.run(scenario()) == pytest.approx(1.0)
