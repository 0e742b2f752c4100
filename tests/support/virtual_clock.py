"""An event loop whose time is virtual: hours pass in milliseconds, and in the same order on every run.

Time stands still while anything can happen: callbacks that are ready, bytes on a socket, a job in an executor. When
nothing of that is left, it jumps to the next timer exactly. Client and server may be in one process and talk over
loopback sockets: the kernel has delivered such bytes by the time that nothing is ready.

Work that the loop cannot see ends in real time, so until it has, time does not jump:

* a job in an executor: time stands still for up to `PATIENCE` real seconds, then flows as real time does, so that a job
  that waits for a timer of this loop ends;
* a subprocess started through the loop: time flows as real time does until it has ended;
* anything else (a thread, a process started otherwise): say so with `VirtualClockLoop.outside()`, as for an executor.

When nothing is ready, nothing is in progress outside and no timer is set, no callback can ever run again: `Deadlock` is
raised out of the loop, naming every task and where it waits, instead of hanging.

A test runs on this loop when it is marked `virtual_clock` or asks for the fixture `clock`.
"""

import asyncio
import contextvars
import heapq
import io
import math
import selectors
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, TypeVar, TypeVarTuple

EPOCH = 1_767_225_600.0
"""What `wall` says when a loop is new: 2026-01-01T00:00:00Z."""

START = 1_000.0
"""What `VirtualClockLoop.time` says when a loop is new; not 0, which code could take for "unset"."""

PATIENCE = 5.0
"""Real seconds for which time stands still for a job in an executor."""

_ROUNDS = 2
"""How often the kernel is asked for bytes in flight before a jump: their delivery can cause an acknowledgement."""

_IDLE_STEPS = 20
"""How many pauses at most become one while nothing happens: what a probe finds may depend on the time alone."""

_DEADLOCK_GRACE = 10.0
"""Real seconds to wait for anything at all before a deadlock is reported."""

_Ts = TypeVarTuple("_Ts")
_T = TypeVar("_T")


class Deadlock(Exception):
    """Nothing can ever happen again on this loop; the text names every task that waits, and where."""


def wall() -> float:
    """Seconds since the Unix epoch by the running `VirtualClockLoop`, for code that needs a wall clock."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualClockLoop), "wall() needs a test marked virtual_clock"
    return loop.wall()


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run `main` to its end on a new `VirtualClockLoop`: for tests that are not coroutines, such as hypothesis's."""
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        return runner.run(main)


class HandClock:
    """Seconds that a test sets."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """See the module. Timers that are due at the same instant run in the order in which they were set."""

    def __init__(self) -> None:
        self._now = START
        self._order = count()
        self._settlers: list[asyncio.Future[None]] = []
        self._onlookers: list[asyncio.Future[None]] = []
        self._interruption: BaseException | None = None
        self._outside = 0
        self._outside_since = 0.0
        self._processes: set[asyncio.SubprocessTransport] = set()
        self._loopback = _Loopback()
        super().__init__(_JumpingSelector(self))
        # Callbacks run that are due before now plus this. Were it lost in the rounding of a large `now`, as a real
        # clock's nanosecond is after a virtual year, a timer that is due exactly now would never run.
        self._clock_resolution = 1e-6
        # A new loop watches its own wake-up pipe; all else is sockets and pipes of the test.
        self._own_files = len(self._jumping_selector.get_map())

    def time(self) -> float:
        """Virtual seconds since an arbitrary start."""
        return self._now

    def _reach(self, moment: float) -> None:
        self._now = max(self._now, moment)

    def wall(self) -> float:
        """Virtual seconds since the Unix epoch."""
        return EPOCH + (self._now - START)

    def close(self) -> None:
        """As the base class."""
        super().close()
        self._loopback.close()

    async def settled(self) -> None:
        """Wait until nothing more can happen at this instant, without letting any time pass."""
        waiter: asyncio.Future[None] = self.create_future()
        self._settlers.append(waiter)
        await waiter

    async def pause(self, seconds: float, until: float) -> None:
        """Sleep for `seconds`, or for the smallest multiple of it within which something happens.

        For probes: while no timer runs and no byte arrives, their result stays the same. Not longer than
        `_IDLE_STEPS` times, since a probe may look at the time alone, nor past the first multiple at or after `until`.
        """
        began = self._now
        steps = math.ceil(min(_IDLE_STEPS, (until - began) / seconds))
        if steps > 1 and not self.flows and not self._outside:
            onlooker: asyncio.Future[None] = self.create_future()
            self._onlookers.append(onlooker)
            timer = self.call_at(began + (steps - 0.5) * seconds, _release, onlooker)
            try:
                await onlooker
            finally:
                timer.cancel()
            steps = max(1, math.ceil((self._now - began) / seconds))
        else:
            steps = 1
        await asyncio.sleep(began + steps * seconds - self._now)

    def _happens(self) -> None:
        """A timer runs, or bytes have arrived."""
        if self._onlookers:
            onlookers, self._onlookers = self._onlookers, []
            for onlooker in onlookers:
                _release(onlooker)

    def interrupt(self, error: BaseException) -> None:
        """Raise `error` out of this loop, in between two of its callbacks; signal handlers may call it."""
        self._interruption = error

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Announce something unseen in progress that will call back, so that time must not jump meanwhile."""
        self._outside_begins()
        try:
            yield
        finally:
            self._outside_ends()

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """As the base class, but timers of one instant keep their order: with real time such ties hardly ever occur."""
        self._check_closed()  # type: ignore[attr-defined]  # the base class's own guard, absent from its stub
        timer = _OrderedTimer(next(self._order), when, callback, args, self, context)
        heapq.heappush(self._timers, timer)
        timer._scheduled = True  # type: ignore[attr-defined]  # the base class sets it for its cancelled count
        return timer

    def run_in_executor(self, executor: Executor | None, func: Callable[[*_Ts], _T], *args: *_Ts) -> asyncio.Future[_T]:
        """As the base class; time stands still until the job has ended."""
        job = super().run_in_executor(executor, func, *args)
        self._outside_begins()
        job.add_done_callback(self._outside_ends)
        return job

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """As the base class, but `timeout` is not applied: it would be over in no time, being virtual."""
        with self.outside():
            await super().shutdown_default_executor()

    async def subprocess_exec(self, *args: Any, **kwargs: Any) -> Any:
        """As the base class; time flows as real time does until the process has ended."""
        with self.outside():
            transport, protocol = await super().subprocess_exec(*args, **kwargs)
        self._processes.add(transport)
        return transport, protocol

    async def subprocess_shell(self, *args: Any, **kwargs: Any) -> Any:
        """As `subprocess_exec`."""
        with self.outside():
            transport, protocol = await super().subprocess_shell(*args, **kwargs)
        self._processes.add(transport)
        return transport, protocol

    @property
    def _timers(self) -> list[asyncio.TimerHandle]:
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]  # the base class's heap of timers
        return timers

    @property
    def _jumping_selector(self) -> "_JumpingSelector":
        selector: _JumpingSelector = self._selector  # type: ignore[attr-defined]  # set in __init__
        return selector

    def _raise_interruption(self) -> None:
        if self._interruption is not None:
            error, self._interruption = self._interruption, None
            raise error

    def _outside_begins(self) -> None:
        if self._outside == 0:
            self._outside_since = time.monotonic()
        self._outside += 1

    def _outside_ends(self, _job: object = None) -> None:
        self._outside -= 1

    @property
    def flows(self) -> bool:
        """Whether time flows as it really does, because of progress outside."""
        self._processes = {process for process in self._processes if process.get_returncode() is None}
        patience_is_over = self._outside > 0 and time.monotonic() - self._outside_since >= PATIENCE
        return bool(self._processes) or patience_is_over

    def _pass_time(self, timeout: float | None, poll: Callable[[float], list[Any]]) -> list[Any]:
        """Called when nothing is ready: give the outside its chance, or jump. `timeout`: until the next timer."""
        if self.flows:
            began = time.monotonic()
            events = poll(0.05 if timeout is None else min(timeout, 0.05))
            elapsed = time.monotonic() - began
            self._now += elapsed if timeout is None else min(elapsed, timeout)
            if not events:
                self._release_settlers()
            return events
        if self._outside:
            return poll(max(0.0, self._outside_since + PATIENCE - time.monotonic()))
        if len(self._jumping_selector.get_map()) > self._own_files:
            for _ in range(_ROUNDS):
                self._loopback.flush()
                if events := poll(0):
                    return events
        if self._release_settlers():
            return []
        if timeout is None:
            if events := poll(_DEADLOCK_GRACE):
                return events
            raise Deadlock(self._who_waits())
        # Not `+= timeout`: rounding would leave the timer a hair ahead of the clock.
        self._now = max(self._now, self._timers[0].when())
        return []

    def _release_settlers(self) -> bool:
        settlers = [waiter for waiter in self._settlers if not waiter.done()]
        self._settlers.clear()
        for waiter in settlers:
            waiter.set_result(None)
        return bool(settlers)

    def _who_waits(self) -> str:
        story = io.StringIO()
        story.write(
            "nothing is ready, no timer is set and nothing is under way outside the event loop; waiting for ever:\n"
        )
        for task in sorted(asyncio.all_tasks(self), key=lambda task: task.get_name()):
            task.print_stack(limit=4, file=story)
        return story.getvalue()


def _release(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


class _JumpingSelector(selectors.DefaultSelector):
    """Polls real files, and asks its loop to let time pass where another selector would sleep."""

    def __init__(self, loop: VirtualClockLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop._raise_interruption()
        events = super().select(0)
        if not events and (timeout is None or timeout > 0):
            events = self._loop._pass_time(timeout, super().select)
        if events:
            self._loop._happens()
        return events


class _Loopback:
    """The kernel's loopback device, which delivers in order: when a packet arrives, so have those sent before it.

    Mostly it delivers within the call that sends; a busy kernel leaves that to a thread of its own for a while.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.connect(self._socket.getsockname())
        self._socket.settimeout(1.0)

    def flush(self) -> None:
        """Wait until all bytes that this process has sent so far are delivered."""
        self._socket.send(b".")
        with suppress(TimeoutError):
            self._socket.recv(1)

    def close(self) -> None:
        self._socket.close()


class _OrderedTimer(asyncio.TimerHandle):
    """A timer that comes after those set earlier for the same instant, and that never runs before its own."""

    __slots__ = ("_clock", "_order")

    def __init__(
        self,
        order: int,
        when: float,
        callback: Callable[..., object],
        args: Any,
        loop: VirtualClockLoop,
        context: contextvars.Context | None,
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self._clock = loop
        self._order = order

    def _run(self) -> None:
        # The base class runs it up to its clock's resolution too early: code that then waits for the rest would do so
        # forever, where a real clock had continued meanwhile.
        self._clock._reach(self.when())
        self._clock._happens()
        super()._run()

    def __lt__(self, other: asyncio.TimerHandle) -> bool:
        if isinstance(other, _OrderedTimer):
            return (self.when(), self._order) < (other.when(), other._order)
        return super().__lt__(other)
