"""The virtual clock on which most tests run."""

import asyncio
import math
import os
import random
import socket
import sys
import threading
import time

import pytest

from tests.support import virtual_clock
from tests.support.eventually import eventually
from tests.support.virtual_clock import EPOCH, START, Deadlock, VirtualClockLoop, run, wall

pytestmark = pytest.mark.virtual_clock


async def test_a_year_of_sleep_takes_no_time_and_ends_exactly(clock: VirtualClockLoop) -> None:
    began = time.monotonic()
    await asyncio.sleep(365 * 86400.0)
    assert clock.time() == START + 365 * 86400.0
    assert wall() == clock.wall() == EPOCH + 365 * 86400.0
    assert time.monotonic() - began < 300


async def test_timers_fire_in_order_each_at_its_own_time(clock: VirtualClockLoop) -> None:
    rng = random.Random(1)
    due = [rng.choice((0.0, 0.1, 1 / 3, 7.0, 86400.5)) * rng.randint(0, 3) for _ in range(300)]
    fired: list[tuple[float, int]] = []

    def fire(number: int) -> None:
        fired.append((clock.time(), number))

    for number, delay in enumerate(due):
        clock.call_at(START + delay, fire, number)
    await asyncio.sleep(3 * 86401)
    # Sorted by time, and at one instant by the order of setting.
    assert fired == sorted((START + delay, number) for number, delay in enumerate(due))


async def test_a_wait_for_less_than_a_clock_can_tell_has_an_end(clock: VirtualClockLoop) -> None:
    until = math.nextafter(clock.time(), math.inf)
    await asyncio.sleep(until - clock.time())
    assert clock.time() == until


async def pauses(clock: VirtualClockLoop, count: int, until: float = math.inf) -> list[float]:
    """When each of some pauses of a second ends."""
    ends = []
    for _ in range(count):
        await clock.pause(1.0, START + until)
        ends.append(clock.time() - START)
    return ends


async def test_a_pause_lasts_while_nothing_happens(clock: VirtualClockLoop) -> None:
    clock.call_at(START + 3.5, int)
    clock.call_at(START + 7.0, int)
    assert await pauses(clock, 3) == [4.0, 7.0, 27.0]


async def test_a_pause_ends_after_bytes_have_arrived(clock: VirtualClockLoop) -> None:
    reader, writer = socket.socketpair()
    with reader, writer:
        clock.add_reader(reader, lambda: reader.recv(1))
        writer.send(b".")
        assert await pauses(clock, 2) == [1.0, 21.0]
        clock.remove_reader(reader)


async def test_a_pause_ends_with_the_time_that_is_left(clock: VirtualClockLoop) -> None:
    assert await pauses(clock, 3, until=5.5) == [6.0, 7.0, 8.0]


async def test_a_pause_is_not_prolonged_while_something_runs_outside(clock: VirtualClockLoop) -> None:
    with clock.outside():
        task = asyncio.create_task(clock.pause(0.01, math.inf))
        await asyncio.sleep(0)
    await task
    assert clock.time() == START + 0.01


async def test_eventually_calls_its_probe_when_something_has_happened_and_at_the_end(clock: VirtualClockLoop) -> None:
    calls = []
    clock.call_at(START + 4.2, int)

    async def probe() -> bool:
        calls.append(clock.time() - START)
        return False

    with pytest.raises(AssertionError, match="still says no"):
        await eventually(probe, within=8.0, every=1.0)
    assert calls == [0.0, 5.0, 8.0]


async def test_settled_waits_for_what_happens_now_and_not_for_what_happens_later(clock: VirtualClockLoop) -> None:
    seen: list[str] = []

    async def chatter() -> None:
        for _ in range(50):
            await asyncio.sleep(0)
        seen.append("now")
        await asyncio.sleep(0.001)
        seen.append("later")

    task = asyncio.create_task(chatter())
    await clock.settled()
    assert seen == ["now"]
    assert clock.time() == START
    await task


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def test_sockets_of_one_process_talk_while_time_stands_still(clock: VirtualClockLoop) -> None:
    pending = asyncio.create_task(asyncio.sleep(3600))
    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        for size in [1, 100, 70_000, 3_000_000]:
            # A deadline one virtual millisecond ahead: were time to jump with bytes in flight, it would strike.
            async with asyncio.timeout(0.001):
                message = os.urandom(size)
                writer.write(message)
                assert await reader.readexactly(size) == message
        writer.close()
        await writer.wait_closed()
    assert clock.time() == START
    assert not pending.done()
    pending.cancel()


async def test_time_stands_still_until_the_last_of_several_jobs(clock: VirtualClockLoop) -> None:
    ended: list[float] = []

    async def job(seconds: float) -> None:
        await asyncio.to_thread(time.sleep, seconds)
        ended.append(clock.time())

    await asyncio.gather(job(0.05), job(0.1), job(0.15), asyncio.sleep(1))
    assert ended == [START] * 3
    assert clock.time() == START + 1


async def test_a_job_that_waits_for_a_timer_of_the_loop_ends(
    clock: VirtualClockLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(virtual_clock, "PATIENCE", 0.1)
    gate = threading.Event()
    clock.call_later(0.2, gate.set)
    began = time.monotonic()
    assert await asyncio.to_thread(gate.wait, 300)
    assert time.monotonic() - began >= 0.25  # the patience, and then the 0.2 s as they really pass
    assert clock.time() >= START + 0.2


async def test_a_call_from_a_thread_is_awaited_if_announced(clock: VirtualClockLoop) -> None:
    answer: asyncio.Future[int] = clock.create_future()
    thread = threading.Timer(0.1, lambda: clock.call_soon_threadsafe(answer.set_result, 42))
    with clock.outside():
        thread.start()
        assert await answer == 42
    thread.join()
    assert clock.time() == START


async def test_time_flows_as_it_does_while_a_subprocess_lives(clock: VirtualClockLoop) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import time; time.sleep(0.3); print('done')", stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(300):  # virtual; had time jumped, it would have struck at once
        output, _ = await process.communicate()
    assert output == b"done\n"
    assert 0.2 < clock.time() - START < 300
    flowed = clock.time()
    await asyncio.sleep(3600)
    assert clock.time() == flowed + 3600


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deadlock is reported soon."""
    monkeypatch.setattr(virtual_clock, "_DEADLOCK_GRACE", 0.2)


def test_a_deadlock_is_reported_with_who_waits(impatient: None) -> None:
    async def one_who_waits_in_vain() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match=r"(?s)nothing is ready.*one_who_waits_in_vain"):
        run(one_who_waits_in_vain())


def test_a_deadlock_is_reported_though_a_server_listens(impatient: None) -> None:
    async def main() -> None:
        async with await asyncio.start_server(echo, "127.0.0.1", 0):
            await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run(main())


def test_a_deadlock_does_not_stop_the_cleaning_up(impatient: None) -> None:
    cleaned: list[float] = []

    async def main() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(10)
            cleaned.append(asyncio.get_running_loop().time())

    with pytest.raises(Deadlock):
        run(main())
    assert cleaned == [START + 10]


def test_closing_waits_for_the_threads_of_the_executor() -> None:
    ended: list[int] = []

    def job() -> None:
        time.sleep(0.1)
        ended.append(1)

    async def main() -> None:
        _unawaited = asyncio.get_running_loop().run_in_executor(None, job)

    run(main())
    assert ended == [1]


def test_two_runs_are_the_same() -> None:
    async def story() -> list[tuple[float, int]]:
        rng = random.Random(7)
        seen: list[tuple[float, int]] = []

        async def actor(number: int) -> None:
            for _ in range(20):
                await asyncio.sleep(rng.choice([0, 0.5, 1]))
                seen.append((asyncio.get_running_loop().time(), number))

        await asyncio.gather(*(actor(n) for n in range(10)))
        return seen

    assert run(story()) == run(story())
