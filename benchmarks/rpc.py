"""Child processes of a benchmark: commands as lines of JSON on their stdin, answers on their stdout."""

from __future__ import annotations

import asyncio
import itertools
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Self

import orjson

_LINE_BYTES = 64 * 2**20


async def serve(handlers: Mapping[str, Callable[..., Awaitable[Any]]]) -> None:
    """In the child: carry out commands, each in a task of its own, until stdin ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    running: set[asyncio.Task[None]] = set()

    async def carry_out(number: int, name: str, arguments: dict[str, Any]) -> None:
        try:
            answer = {"id": number, "result": await handlers[name](**arguments)}
        except Exception:  # noqa: BLE001 - whatever it is, the parent is to know
            answer = {"id": number, "error": traceback.format_exc()}
        sys.stdout.buffer.write(orjson.dumps(answer) + b"\n")
        sys.stdout.buffer.flush()

    while line := await reader.readline():
        command = orjson.loads(line)
        task = asyncio.create_task(carry_out(command["id"], command["do"], command["with"]))
        running.add(task)
        task.add_done_callback(running.discard)


class ChildFailed(Exception):
    """A command failed in the child, or the child ended."""


class Child:
    """In the parent: a child process that understands commands."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, module: str, *arguments: str) -> Self:
        """Run ``python -m module`` with these arguments."""
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_LINE_BYTES,
            )
        )

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    async def call(self, command: str, /, **arguments: Any) -> Any:
        """Have a command carried out; what it returns. Raises ChildFailed."""
        assert self._process.stdin is not None
        number = next(self._numbers)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._process.stdin.write(orjson.dumps({"id": number, "do": command, "with": arguments}) + b"\n")
        await self._process.stdin.drain()
        return await future

    async def close(self) -> None:
        """End it."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self._reading

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            answer = orjson.loads(line)
            future = self._waiting.pop(answer["id"])
            if future.cancelled():
                continue
            if "error" in answer:
                future.set_exception(ChildFailed(answer["error"]))
            else:
                future.set_result(answer["result"])
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ChildFailed("the process has ended"))
