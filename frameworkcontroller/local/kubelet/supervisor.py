"""The kubelet's side of the spawner: starts it, sends commands, dispatches events."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import frameworkcontroller

_BOOT: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from frameworkcontroller.local.kubelet.spawner.mainloop import serve; "
    "serve(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], sys.argv[6], sys.argv[7] == 'mounts')"
)
_LOCK_SECONDS: Final = 15.0
_LOCK_POLL_SECONDS: Final = 0.05

log = logging.getLogger(__name__)


SPAWNER: Final = "spawner"


class Started(NamedTuple):
    """The process runs."""

    pid: int


class Exited(NamedTuple):
    """All processes have ended; ``status`` is the exit code of the first one, or minus its signal."""

    status: int


class Failed(NamedTuple):
    """It never ran. ``what`` failed: mount, join, directory, user or command; ``number`` is an errno or 0.

    With `SPAWNER` as ``what``, the spawner ended first; a retry may succeed.
    """

    what: str
    number: int
    message: str


Event = Started | Exited | Failed

_ENDED: Final = Failed(SPAWNER, 0, "the process that starts the containers has ended")


class ProcessSpec(NamedTuple):
    """The process to run. ``mounts`` are (source, target, read-only) and need `Supervisor.mounts_work`.

    ``join`` is the id of a running process whose file system view it shares. ``streams`` are the paths of stdin, stdout
    and stderr, by default /dev/null and the log; ``tty``: they are a terminal. Environment and argv contain no NUL.
    """

    argv: list[str]
    env: dict[str, str]
    directory: str
    log: Path
    log_limit: int
    hostname: str = ""
    mounts: tuple[tuple[str, str, bool], ...] = ()
    user: int | None = None
    group: int = 0
    groups: tuple[int, ...] = ()
    join: str | None = None
    streams: tuple[str, ...] = ()
    tty: bool = False


class SupervisorError(Exception):
    """The spawner cannot be started; the text says why."""


class Supervisor:
    """Runs processes that end when this one ends in any way.

    ``directory`` is exclusive: a supervisor starts only when every process of the previous one has ended. ``leftovers``
    is
    a directory of the processes that is removed with the last of them. ``mounts=False`` disables mounts.
    """

    def __init__(self, directory: Path, leftovers: Path, *, mounts: bool = True) -> None:
        self.mounts_work = False
        self.why_no_mounts = ""
        self._directory = directory
        self._leftovers = leftovers
        self._want_mounts = mounts
        self._ids = itertools.count(1)
        self._listeners: dict[str, Callable[[Event], None]] = {}
        self._started: set[str] = set()
        self._process: asyncio.subprocess.Process | None = None
        self._commands: asyncio.WriteTransport | None = None
        self._events: asyncio.ReadTransport | None = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start the spawner. Raises SupervisorError."""
        staging = self._directory / "view"
        staging.mkdir(parents=True, exist_ok=True)
        lock = await self._lock()
        # Not the loop's own pipes: writes of short lines to a plain pipe are atomic.
        command_reader, command_writer = os.pipe()
        event_reader, event_writer = os.pipe()
        loop = asyncio.get_running_loop()
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-I", "-S", "-c", _BOOT, str(Path(frameworkcontroller.__file__).parent.parent)),
                *(str(command_reader), str(event_writer), str(lock), str(staging), str(self._leftovers)),
                "mounts" if self._want_mounts else "plain",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=(command_reader, event_writer, lock),
                # Ignore the terminal's signals: Ctrl-C is for the controller, which ends the Pods in order.
                start_new_session=True,
                cwd="/",
                env={"PATH": os.defpath},
            )
        finally:
            for fd in (command_reader, event_writer, lock):
                os.close(fd)
        self._commands, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(command_writer, "wb", 0))
        events = asyncio.StreamReader()
        self._events, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(events), os.fdopen(event_reader, "rb", 0)
        )
        hello = await events.readline()
        if not hello:
            await self.close()
            raise SupervisorError("the spawner process ended at once")
        greeting = json.loads(hello)
        self.mounts_work, self.why_no_mounts = greeting["mounts"], greeting["why"]
        self._reading = asyncio.create_task(self._read(events), name="spawner events")

    async def close(self) -> None:
        """Kill all processes, and wait until none is left."""
        if self._commands is not None:
            self._commands.close()
            self._commands = None
        if self._process is not None:
            await self._process.wait()
            self._process = None
        if self._reading is not None:
            await self._reading
            self._reading = None
        if self._events is not None:
            self._events.close()
            self._events = None

    @property
    def alive(self) -> bool:
        """Whether processes can be started."""
        return self._reading is not None and not self._reading.done()

    @property
    def pid(self) -> int:
        """The spawner's process ID; 0 while there is none."""
        return 0 if self._process is None else self._process.pid

    def start(self, spec: ProcessSpec, listener: Callable[[Event], None]) -> str:
        """Start a process and return its id. ``listener`` later gets Started and then Exited, or only Failed."""
        name = str(next(self._ids))
        if not self.alive:
            asyncio.get_running_loop().call_soon(listener, _ENDED)
            return name
        self._listeners[name] = listener
        self._send(
            command="start",
            id=name,
            argv=spec.argv,
            env=spec.env,
            directory=spec.directory,
            log=str(spec.log),
            log_limit=spec.log_limit,
            hostname=spec.hostname,
            mounts=[
                {"source": source, "target": target, "read_only": read_only}
                for source, target, read_only in spec.mounts
            ],
            user=spec.user,
            group=spec.group,
            groups=spec.groups,
            join=spec.join,
            streams=spec.streams,
            tty=spec.tty,
        )
        return name

    def terminate(self, name: str) -> None:
        """Ask a process to end: SIGTERM to its group."""
        self._send(command="terminate", id=name)

    def kill(self, name: str) -> None:
        """Kill a process and all its descendants."""
        self._send(command="kill", id=name)

    def _send(self, **command: Any) -> None:
        if self._commands is not None:
            self._commands.write(json.dumps(command).encode() + b"\n")

    async def _read(self, events: asyncio.StreamReader) -> None:
        while line := await events.readline():
            event = json.loads(line)
            listener = self._listeners.get(event["id"])
            if listener is None:
                continue
            if event["event"] == "started":
                self._started.add(event["id"])
                listener(Started(event["pid"]))
                continue
            del self._listeners[event["id"]]
            self._started.discard(event["id"])
            if event["event"] == "exited":
                listener(Exited(event["status"]))
            else:
                listener(Failed(event["what"], event["errno"], event["message"]))
        # The pipe ends when the spawner and every monitor have ended.
        if self._listeners:
            log.warning("spawner ended, and %d containers with it", len(self._listeners))
        left, self._listeners = self._listeners, {}
        for name, listener in left.items():
            listener(Exited(-9) if name in self._started else _ENDED)
        self._started.clear()

    async def _lock(self) -> int:
        """Take the lock that every process of this supervisor holds until the last of them has ended."""
        lock = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = asyncio.get_running_loop().time() + _LOCK_SECONDS
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return lock
            if asyncio.get_running_loop().time() > deadline:
                os.close(lock)
                raise SupervisorError(f"another local cluster uses {self._directory}")
            await asyncio.sleep(_LOCK_POLL_SECONDS)
