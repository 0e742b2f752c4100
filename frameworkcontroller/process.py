"""What concerns the process as a whole: its event loop, signals, exit codes and garbage collector."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import uvloop

from frameworkcontroller.logs import one_line

T = TypeVar("T")

PROGRAM: Final = "frameworkcontroller"

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
"""Asked for wrongly: by an option, the configuration, or a file named."""
EXIT_INTERRUPTED: Final = 130

_log: Final = logging.getLogger(__name__)

_ECHO_SEC: Final = 0.5
"""Within so many seconds a further signal is the same one again: a terminal and a wrapper that passes it on, say."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def fail(text: str, code: int = EXIT_FAILED) -> int:
    """Say on stderr what is wrong, each line with the name of the program in front. Returns the exit code."""
    for line in text.splitlines():
        print(f"{PROGRAM}: {one_line(line)}", file=sys.stderr)  # noqa: T201 - a command line speaks to its user
    return code


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` to its end on an event loop of its own."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


@contextmanager
def stopped_by_signals(stop: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Within, the first SIGTERM, SIGINT or SIGHUP calls ``stop``; another one, later, ends the process at once.

    To be entered on the running event loop, in the main thread. A signal that is ignored (nohup) stays so.
    """
    loop = asyncio.get_running_loop()
    first: tuple[signal.Signals, float] | None = None

    def on_signal(number: signal.Signals) -> None:
        nonlocal first
        if first is None:
            first = (number, loop.time())
            _log.info("Received %s: stopping; another one exits at once", number.name)
            stop(number)
        elif loop.time() - first[1] >= _ECHO_SEC:
            _log.warning("Received %s after %s: exiting at once", number.name, first[0].name)
            sys.stderr.flush()
            # Not sys.exit: what is being waited for is what whoever sends a second signal does not want to wait for.
            os._exit(128 + number)

    heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heeded:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in heeded:
            loop.remove_signal_handler(number)


def settle_garbage_collector() -> None:
    """Take what is there now for long-lived, and collect less often.

    Caches of many thousand objects are walked by every full collection and are never garbage; what a sync makes is
    freed by reference counts, and cycles are rare.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
