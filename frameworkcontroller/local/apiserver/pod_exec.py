"""``kubectl exec``: commands in containers, over WebSockets. The Pod runtime executes them.

A message is a channel and its data: 0 to 2 are the standard streams, 3 the result, 4 the size of the terminal. With 255
and a channel, version 5 of the protocol closes that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final, Protocol, runtime_checkable

import orjson
from aiohttp import WSMsgType, web

from frameworkcontroller.local.apiserver import api_errors
from frameworkcontroller.local.apiserver.http_bodies import ServedRequest
from frameworkcontroller.local.apiserver.options import boolean

_PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _RESULT, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_MAX_MESSAGE_BYTES: Final = 4 << 20
_MAX_SIZE: Final = 65535


class RunningCommand(Protocol):
    """A command in a container, which ends with its context at the latest."""

    async def read(self, stream: int) -> bytes:
        """The next output of stdout (1) or stderr (2); empty at its end."""

    async def write(self, data: bytes) -> None:
        """Write to stdin, as far as the command reads it."""

    def close_input(self) -> None:
        """End stdin."""

    def resize(self, width: int, height: int) -> None:
        """Set the size of the terminal."""

    async def result(self) -> int | str:
        """The exit code, or why the command could not be started."""


@runtime_checkable
class PodCommands(Protocol):
    """Executes commands in containers."""

    def execute(
        self, namespace: str, name: str, container: str, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> AbstractAsyncContextManager[RunningCommand]:
        """Execute a command. ``tty``: on a terminal, whose output is stdout. Raises LookupError or OSError."""


async def serve_exec(commands: object, request: ServedRequest, container: str) -> web.StreamResponse:
    """GET or POST of ``pods/NAME/exec``. ``commands``: the Pod runtime."""
    path, query, http = request.path, request.query, request.http
    if not isinstance(commands, PodCommands):
        raise api_errors.bad_request("exec: the containers of this cluster have no processes")
    if not query.get("command"):
        raise api_errors.bad_request("exec: you must specify a command")
    socket = web.WebSocketResponse(protocols=_PROTOCOLS, max_msg_size=_MAX_MESSAGE_BYTES, compress=False)
    offer = socket.can_prepare(http)
    if not offer.ok or offer.protocol is None:
        raise api_errors.bad_request(
            "exec: the local cluster speaks WebSockets only, as kubectl does since 1.31 (1.30 with the environment "
            "variable KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true)"
        )
    stdin, tty = boolean(query, "stdin"), boolean(query, "tty")
    try:
        async with commands.execute(
            path.namespace, path.name, container, query["command"], stdin=stdin, tty=tty
        ) as command:
            await socket.prepare(http)
            await _connect(socket, command)
    except (LookupError, OSError) as error:
        if socket.prepared:
            raise
        raise api_errors.bad_request(f"exec: {error}") from None
    return socket


async def _connect(socket: web.WebSocketResponse, command: RunningCommand) -> None:
    """Pass data on until the command ends, or the client leaves."""
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(_send(socket, command))
        receiving = group.create_task(_receive(socket, command))
        await asyncio.wait([sending, receiving], return_when=asyncio.FIRST_COMPLETED)
        sending.cancel()
        receiving.cancel()
    await socket.close()


async def _send(socket: web.WebSocketResponse, command: RunningCommand) -> None:
    async def forward(stream: int) -> None:
        while data := await command.read(stream):
            await socket.send_bytes(bytes([stream]) + data)

    # The client may leave at any time.
    with suppress(ConnectionError):
        await asyncio.gather(forward(_STDOUT), forward(_STDERR))
        await socket.send_bytes(bytes([_RESULT]) + orjson.dumps(_status(await command.result())))


async def _receive(socket: web.WebSocketResponse, command: RunningCommand) -> None:
    async for message in socket:
        data = message.data.encode() if message.type is WSMsgType.TEXT else message.data
        if data[:1] == bytes([_STDIN]):
            await command.write(data[1:])
        elif data == bytes([_CLOSE, _STDIN]):
            command.close_input()
        elif data[:1] == bytes([_RESIZE]):
            width, height = _size(data[1:])
            command.resize(width, height)


def _size(data: bytes) -> tuple[int, int]:
    try:
        size = orjson.loads(data)
        width, height = int(size["Width"]), int(size["Height"])
    except (ValueError, TypeError, KeyError):
        return 80, 24
    return min(max(width, 0), _MAX_SIZE), min(max(height, 0), _MAX_SIZE)


def _status(result: int | str) -> dict[str, Any]:
    if result == 0:
        return {"metadata": {}, "status": "Success"}
    if isinstance(result, str):
        message = f"error executing command in container: {result}"
        return {"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {result}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(result)}]},
    }
