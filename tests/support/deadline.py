"""An end for tests that hang, on event loops too.

The exception that a signal handler raises ends the running code. On an event loop that is mostly some task, and
it takes the exception for its own result and dies, while the test hangs on. So a loop of virtual time, which never
sleeps, is asked to raise it itself between two tasks; and on any loop the signal comes again until one has hit.
"""

import asyncio
import signal
import traceback
from types import FrameType
from typing import Final

import pytest

from tests.support.virtual_clock import VirtualClockLoop

_AGAIN: Final = 2.0
"""Real seconds between one signal and the next."""


def start(seconds: float) -> None:
    """Fail the test that runs in the main thread if it has not called `stop` in ``seconds`` of real time."""
    asked: list[VirtualClockLoop] = []

    def strike(_signal: int, frame: FrameType | None) -> None:
        where = "".join(traceback.format_stack(frame, limit=12))
        overdue = pytest.fail.Exception(f"still not done after {seconds:g} s; it was here:\n{where}", pytrace=False)
        loop = asyncio._get_running_loop()
        if isinstance(loop, VirtualClockLoop) and loop not in asked:
            asked.append(loop)
            loop.interrupt(overdue)
        else:
            raise overdue

    signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)


def stop() -> None:
    """The test is done."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
