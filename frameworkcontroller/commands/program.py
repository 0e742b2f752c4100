"""What concerns the process as a whole: its event loop, signals, exit codes and garbage collector."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, TypeVar

from frameworkcontroller.kube.errors import ConnectionConfigError, KubeError
from frameworkcontroller.logs import one_line

T = TypeVar("T")

PROGRAM: Final = "frameworkcontroller"

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
"""Asked for wrongly: by an option, the configuration, or a file named."""
EXIT_INTERRUPTED: Final = 130
EXIT_NOBODY_READS: Final = 141
"""As a shell tells of a program that SIGPIPE ended: ``frameworkcontroller list | head -1``."""

_log: Final = logging.getLogger(__name__)

_ECHO_SEC: Final = 0.5
"""Within so many seconds a further signal is the same one again: a terminal and a wrapper that passes it on, say."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(slots=True)
class _Said:
    """What stands in front of each line on stderr."""

    error: str = f"{PROGRAM}: "
    remark: str = f"{PROGRAM}: "


_said: Final = _Said()


class CommandError(Exception):
    """A command that cannot be done, or not be brought to its end; the text tells the user why."""

    def __init__(self, text: str, code: int = EXIT_FAILED) -> None:
        super().__init__(text)
        self.code = code


def speak(*, as_plugin: bool) -> None:
    """From now on say errors and remarks with the program's name in front, or as kubectl does, whose plugin it is."""
    _said.error, _said.remark = ("error: ", "") if as_plugin else (f"{PROGRAM}: ", f"{PROGRAM}: ")


def fail(text: str, code: int = EXIT_FAILED) -> int:
    """Say on stderr what is wrong, each line marked as `speak` says. Returns the exit code."""
    for line in text.splitlines():
        print(complaint(line), file=sys.stderr)  # noqa: T201 - a command line speaks to its user
    return code


def complaint(line: str) -> str:
    """What tells the user, on stderr, of something that went wrong."""
    return f"{_said.error}{one_line(line)}"


def remark(text: str) -> str:
    """What tells the user, on stderr, of something that is neither the result nor an error."""
    return f"{_said.remark}{one_line(text)}"


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` to its end on an event loop of its own."""
    import uvloop

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main)
    finally:
        _ignore_echoes()


def run_command(command: Coroutine[Any, Any, int], *, interrupted: Callable[[signal.Signals], int]) -> int:
    """Run a command to its end, or until a signal cancels it. Returns the exit code.

    ``interrupted`` is called after the command was cancelled, and gives the exit code of that. What goes wrong is said
    on stderr in a line.
    """
    try:
        return run(_cancelled_by_signal(command, interrupted))
    except CommandError as error:
        return fail(str(error), error.code)
    except ConnectionConfigError as error:
        return fail(str(error), EXIT_USAGE)
    except KubeError as error:
        return fail(str(error), EXIT_FAILED)
    except BrokenPipeError:
        return nobody_reads()
    except Exception:  # noqa: BLE001 - whatever it is, it belongs into the log, in one line
        _log.exception("Cannot go on")
        return EXIT_FAILED


def nobody_reads() -> int:
    """Let go of stdout, whose reader is gone: Python would complain of it while it ends. Returns the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return EXIT_NOBODY_READS


async def _cancelled_by_signal(command: Coroutine[Any, Any, int], interrupted: Callable[[signal.Signals], int]) -> int:
    received: list[signal.Signals] = []
    task = asyncio.create_task(command, name="command")

    def stop(number: signal.Signals) -> None:
        received.append(number)
        task.cancel()

    stop_on_signals(stop)
    try:
        return await task
    except asyncio.CancelledError:
        if not received:
            raise
        return interrupted(received[0])


def stop_on_signals(stop: Callable[[signal.Signals], None]) -> None:
    """From now on the first SIGTERM, SIGINT or SIGHUP calls ``stop``; another one, later, ends the process at once.

    To be called on the running event loop, in the main thread; ``stop`` is called on that loop. A signal that is
    ignored (nohup) stays so. It is for good: were the handlers taken away while the process ends, a signal that
    arrives twice would kill it in the middle of that.
    """
    loop = asyncio.get_running_loop()
    first: tuple[signal.Signals, float] | None = None

    def on_first(number: signal.Signals) -> None:
        _log.info("Received %s: stopping; another one exits at once", number.name)
        stop(number)

    def on_signal(received: int, _frame: FrameType | None) -> None:
        nonlocal first
        number = signal.Signals(received)
        if first is None:
            first = (number, time.monotonic())
            with suppress(RuntimeError):  # the loop is closed: it is ending anyway
                loop.call_soon_threadsafe(on_first, number)
        elif time.monotonic() - first[1] >= _ECHO_SEC:
            # Between any two instructions of Python: neither logs nor clean-up can be relied on here, and to wait for
            # them is what whoever sends a second signal does not want.
            os.write(2, f"{_said.error}{number.name} after {first[0].name}: exiting at once\n".encode())
            os._exit(128 + number)

    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, on_signal)


def _ignore_echoes() -> None:
    """Python gives signals their deadly effect back while it ends: the echo of one that was obeyed must not have it."""
    for number in _SIGNALS:
        handler = signal.getsignal(number)
        if callable(handler) and handler is not signal.default_int_handler:
            signal.signal(number, signal.SIG_IGN)


def settle_garbage_collector() -> None:
    """Take what is there now for long-lived, and collect less often.

    Caches of many thousand objects are walked by every full collection and are never garbage; what a sync makes is
    freed by reference counts, and cycles are rare.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
