"""The standard streams of a command that is executed in a container: pipes, or a terminal.

The monitor of the command opens them by their paths. Until it has, this side holds both ends open, so that none of them
looks closed.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import tempfile
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_CHUNK: Final = 32 << 10


class ExecStreams:
    """Implements `RunningCommand`. Create it on its loop. Raises OSError."""

    def __init__(self, directory: Path, *, stdin: bool, tty: bool) -> None:
        """``directory``: where pipes are made, until the command has started."""
        self._loop = asyncio.get_running_loop()
        self._result: asyncio.Future[int | str] = self._loop.create_future()
        self._input: int | None = None
        self._outputs: dict[int, int] = {}
        self._others: list[int] = []
        """The command's ends."""
        self._directory: Path | None = None
        self._tty = tty
        self.paths: list[str] = [os.devnull] * 3
        """Of stdin, stdout and stderr."""
        try:
            if tty:
                self._open_terminal()
            else:
                self._directory = Path(tempfile.mkdtemp(prefix="exec-", dir=directory))
                self._open_pipes(self._directory, stdin=stdin)
        except BaseException:
            self.close()
            raise

    def _open_terminal(self) -> None:
        master, slave = os.openpty()
        self._input, self._outputs[1] = master, master
        self._others.append(slave)
        os.set_blocking(master, False)
        self.paths = [os.ttyname(slave)] * 3

    def _open_pipes(self, directory: Path, *, stdin: bool) -> None:
        for number in range(0 if stdin else 1, 3):
            path = self.paths[number] = str(directory / str(number))
            os.mkfifo(path, 0o600)
            reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            self._others.append(reader)
            writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            if number == 0:
                self._input = writer
            else:
                self._others[-1] = writer
                self._outputs[number] = reader

    # --- the kubelet's side -------------------------------------------------------------------------------------------

    def started(self) -> None:
        """Release the command's ends: it has opened them, or never will."""
        for end in self._others:
            os.close(end)
        self._others.clear()
        if self._directory is not None:
            for path in self._directory.iterdir():
                path.unlink()
            self._directory.rmdir()
            self._directory = None

    def end(self, result: int | str) -> None:
        """Set the result: the command's exit code, or why it was not started."""
        self.started()
        if not self._result.done():
            self._result.set_result(result)

    def close(self) -> None:
        """Close all streams."""
        for end in {*self._outputs.values(), *(() if self._input is None else (self._input,))}:
            os.close(end)
        self._outputs.clear()
        self._input = None

    # --- the client's side --------------------------------------------------------------------------------------------

    async def result(self) -> int | str:
        return await asyncio.shield(self._result)

    async def read(self, stream: int) -> bytes:
        while (end := self._outputs.get(stream)) is not None:
            try:
                return os.read(end, _CHUNK)
            except BlockingIOError:
                await self._ready(self._loop.add_reader, self._loop.remove_reader, end)
            except OSError:
                # A terminal without a process.
                break
        return b""

    async def write(self, data: bytes) -> None:
        while data and self._input is not None:
            try:
                data = data[os.write(self._input, data) :]
            except BlockingIOError:
                await self._ready(self._loop.add_writer, self._loop.remove_writer, self._input)
            except OSError:
                # The command reads no more.
                break

    def close_input(self) -> None:
        if self._input is not None and not self._tty:
            os.close(self._input)
            self._input = None

    def resize(self, width: int, height: int) -> None:
        if self._tty and self._input is not None:
            fcntl.ioctl(self._input, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    async def _ready(self, add: Callable[..., Any], remove: Callable[[int], Any], end: int) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()

        def wake() -> None:
            if not ready.done():
                ready.set_result(None)

        add(end, wake)
        try:
            await ready
        finally:
            remove(end)
