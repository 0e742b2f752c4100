"""The program as a Unix process: exit codes, input files, errors on stderr, signals, and the event loop."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import select
import signal
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal, TypeVar

from frameworkcontroller.depths import TooDeepError
from frameworkcontroller.extras import EXTRA_OF, missing_library, needs
from frameworkcontroller.kube.errors import ConnectionConfigError, KubeError
from frameworkcontroller.logs import one_line

T = TypeVar("T")

PROGRAM: Final = "frameworkcontroller"

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
"""An option, the configuration or a named file cannot be used."""
EXIT_INTERRUPTED: Final = 130
EXIT_SIGPIPE: Final = 141
"""The code that a shell reports for a program that SIGPIPE ended: ``frameworkcontroller list | head -1``."""

_log: Final = logging.getLogger(__name__)

_REPEAT_SEC: Final = 0.5
"""A signal within this time repeats the first one: a terminal and a wrapper may both send it."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


_prefixes: Final = {"error": f"{PROGRAM}: ", "note": f"{PROGRAM}: "}
"""Of lines on stderr. A note is neither a result nor an error."""


class CommandError(Exception):
    """A command has failed. The text says why, ``code`` is its exit code."""

    def __init__(self, text: str, code: int = EXIT_FAILED) -> None:
        super().__init__(text)
        self.code = code


class UsageError(CommandError):
    """An option, an argument or a named file cannot be used."""

    def __init__(self, text: str) -> None:
        super().__init__(text, EXIT_USAGE)


def too_late(what: str, seconds: float, left: str = "") -> CommandError:
    """Return the error of a command whose ``--timeout`` has expired."""
    # A late import: the controller, which uses this module, needs no views.
    from frameworkcontroller.views.texts import duration

    return CommandError(f"{what} within {duration(math.ceil(seconds))}{left}")


def set_prefixes(*, as_plugin: bool) -> None:
    """Begin lines on stderr with the name of the program, or as kubectl, whose plugin it is."""
    _prefixes["error"], _prefixes["note"] = ("error: ", "") if as_plugin else (f"{PROGRAM}: ", f"{PROGRAM}: ")


def fail(text: str, code: int = EXIT_FAILED) -> int:
    """Print an error on stderr. Return the exit code."""
    for each in text.splitlines():
        print(line("error", each), file=sys.stderr)  # noqa: T201 - a command line speaks to its user
    return code


def line(kind: Literal["error", "note"], text: str) -> str:
    """Return an error or a note as a line for stderr."""
    return f"{_prefixes[kind]}{one_line(text)}"


def input_name(path: Path) -> str:
    """Return the name of an input file for messages; ``-`` is standard input."""
    return "standard input" if str(path) == "-" else str(path)


def read_input(path: Path) -> bytes:
    """Read an input file. Raise CommandError if it cannot be read."""
    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise UsageError(f"{input_name(path)}: cannot be read: {error.strerror}") from None


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` on an event loop of its own: uvloop's, if it is installed."""
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(main)
    finally:
        _ignore_signals()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ModuleNotFoundError as error:
        if missing_library(error) != "uvloop":
            raise
        return None
    return uvloop.new_event_loop


@asynccontextmanager
async def background(*coroutines: Coroutine[Any, Any, Any]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Run coroutines as tasks while inside; then cancel them, and those that were added to the list."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        yield tasks
    finally:
        if tasks:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


def run_command(command: Coroutine[Any, Any, int], *, interrupted: Callable[[signal.Signals], int]) -> int:
    """Run a command until it ends, a signal cancels it, or the reader of its output has gone. Return the exit code.

    ``interrupted`` is called after the cancellation by a signal and returns the exit code.
    """

    async def cancelled_by_signal() -> int:
        received: list[signal.Signals] = []
        task = asyncio.create_task(command, name="command")

        def stop(number: signal.Signals) -> None:
            received.append(number)
            task.cancel()

        stop_on_signals(stop)
        try:
            with _on_closed_pipe(lambda: stop(signal.SIGPIPE)):
                return await task
        except asyncio.CancelledError:
            if not received:
                raise
            if received[0] == signal.SIGPIPE:
                raise BrokenPipeError from None
            return interrupted(received[0])

    return run(cancelled_by_signal())


@contextmanager
def _on_closed_pipe(call: Callable[[], None]) -> Iterator[None]:
    """Call ``call`` once stdout, a pipe or a socket, has no reader. A write would show it late."""
    loop = asyncio.get_running_loop()
    try:
        output = sys.stdout.fileno()
        mode = os.fstat(output).st_mode
    except (AttributeError, OSError, ValueError):
        output = mode = 0
    if not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode):
        yield
        return
    # An event loop would watch for reading, too. Errors and hang-ups are reported in any case.
    with select.epoll() as watch:
        watch.register(output, 0)

        def closed() -> None:
            loop.remove_reader(watch.fileno())
            call()

        loop.add_reader(watch.fileno(), closed)
        try:
            yield
        finally:
            loop.remove_reader(watch.fileno())


def exit_code_of(error: Exception, extra: str | None = None) -> int:
    """Report an error that ends the program. Return the exit code. ``extra``: the command's, if it needs one."""
    if library := missing_library(error):
        return fail(f"this command {needs(extra or EXTRA_OF[library])}", EXIT_USAGE)
    if isinstance(error, CommandError):
        return fail(str(error), error.code)
    if isinstance(error, TooDeepError):
        return fail(str(error))
    if isinstance(error, KubeError):
        return fail(str(error), EXIT_USAGE if isinstance(error, ConnectionConfigError) else EXIT_FAILED)
    if isinstance(error, BrokenPipeError):
        # Replace a stdout whose reader has gone: Python would report it at exit.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
        return EXIT_SIGPIPE
    _log.error("Cannot continue", exc_info=error)
    return EXIT_FAILED


def stop_on_signals(stop: Callable[[signal.Signals], None]) -> None:
    """Call ``stop`` on the first SIGTERM, SIGINT or SIGHUP; exit at once on another, later one.

    Call it on the running event loop in the main thread; ``stop`` is called on that loop. An ignored signal (nohup)
    stays ignored. The handlers stay until the process exits: without them, a repeated signal would kill it meanwhile.
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
            with suppress(RuntimeError):  # the loop is closed: the process is exiting
                loop.call_soon_threadsafe(on_first, number)
        elif time.monotonic() - first[1] >= _REPEAT_SEC:
            # The interpreter may be in the middle of anything: neither logging nor cleaning up is safe.
            os.write(2, f"{_prefixes['error']}{number.name} after {first[0].name}: exiting at once\n".encode())
            os._exit(128 + number)

    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, on_signal)


def _ignore_signals() -> None:
    """Ignore repeated signals during exit, when Python restores their default actions."""
    for number in _SIGNALS:
        handler = signal.getsignal(number)
        if callable(handler) and handler is not signal.default_int_handler:
            signal.signal(number, signal.SIG_IGN)
