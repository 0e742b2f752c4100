"""The spawner's main loop: reads commands, forks a monitor per container.

Commands: ``start`` (see `monitor.Request`), and ``terminate`` and ``kill`` for a container by id. The first event,
``hello``, says whether mounts work and if not, why. A monitor that is killed before it reports is reported as
``exited`` by signal 9 once no process of its container is left.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import selectors
import shutil
import signal
from typing import Any, Final, NoReturn

from frameworkcontroller.local.kubelet.spawner import linux
from frameworkcontroller.local.kubelet.spawner.monitor import Monitor, Request, children, kill_below
from frameworkcontroller.local.kubelet.spawner.mounts import MountError, MountView, supported

_HELD_BACK: Final = (signal.SIGUSR1, signal.SIGTERM)


def serve(commands: int, events: int, lock: int, staging: str, leftovers: str, mounts: bool) -> None:
    """Serve the commands on this file descriptor until it ends, then kill everything and remove ``leftovers``.

    ``mounts=False`` disables mounts. ``staging`` is an empty directory. This process and all containers hold ``lock``.
    """
    _close_all_but({0, 1, 2, commands, events, lock})
    os.set_inheritable(commands, False)
    os.set_inheritable(events, False)
    view, why = None, "not wanted"
    if mounts:
        works, why = supported(staging)
        if works:
            try:
                view = MountView(staging)
            except (OSError, MountError) as error:
                why = str(error)
    server = _Server(commands, events, view)
    server.run({"event": "hello", "mounts": view is not None, "why": why})
    if server.alone:
        # A killed kubelet cannot do it. This process still holds the lock, so no other cluster uses them yet.
        shutil.rmtree(leftovers, ignore_errors=True)


def _close_all_but(kept: set[int]) -> None:
    """Close inherited file descriptors (uvloop passes them on), so that no container gets them."""
    for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
        if fd not in kept:
            # The descriptor of the directory listing is closed by now.
            with contextlib.suppress(OSError):
                os.close(fd)


class _Server:
    def __init__(self, commands: int, events: int, view: MountView | None) -> None:
        self._commands = commands
        self._events = events
        self._view = view
        self._monitors: dict[str, int] = {}
        self._buffer = b""
        self._open = True
        self.alone = False
        """Whether the kubelet has ended or has released this process."""

    def run(self, hello: dict[str, Any]) -> None:
        linux.reap_descendants()
        waker, wakeup = os.pipe()
        for end in (waker, wakeup, self._commands):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._close)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        # Freeze the loaded objects, so that forks share their memory.
        gc.collect()
        gc.freeze()
        self._report(hello)
        selector = selectors.DefaultSelector()
        selector.register(waker, selectors.EVENT_READ)
        selector.register(self._commands, selectors.EVENT_READ)
        while self._open or self._monitors:
            for key, _ in selector.select():
                if key.fd == waker:
                    with contextlib.suppress(BlockingIOError):
                        os.read(waker, 4096)
                elif not self._receive():
                    selector.unregister(self._commands)
                    self.alone = True
                    self._close()
            self._reap()

    def _close(self, *_: object) -> None:
        self._open = False
        for monitor in self._monitors.values():
            os.kill(monitor, signal.SIGTERM)

    def _receive(self) -> bool:
        try:
            data = os.read(self._commands, 1 << 20)
        except BlockingIOError:
            return True
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._execute(json.loads(line))
        return bool(data)

    def _execute(self, command: dict[str, Any]) -> None:
        monitor = self._monitors.get(command["id"])
        if command["command"] == "start":
            self._start(command)
        elif monitor is not None:
            os.kill(monitor, signal.SIGUSR1 if command["command"] == "terminate" else signal.SIGTERM)

    def _start(self, request: Request) -> None:
        joined = None
        if request["join"] is not None:
            joined = self._monitors.get(request["join"])
            if joined is None:
                self._report({"event": "failed", "id": request["id"], "what": "join", "errno": 0, "message": "gone"})
                return
        parent = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
        pid = os.fork()
        if pid == 0:
            self._become_monitor(request, parent, joined)
        self._monitors[request["id"]] = pid
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD_BACK)

    def _become_monitor(self, request: Request, parent: int, joined: int | None) -> NoReturn:
        code = 1
        try:
            linux.die_with_parent(signal.SIGTERM)
            if os.getppid() == parent:
                os.close(self._commands)
                joins = self._view is not None and joined is not None
                Monitor(request, self._events, self._view, joined if joins else None).run()
                code = 0
        finally:
            os._exit(code)

    def _reap(self) -> None:
        ids = {pid: name for name, pid in self._monitors.items()}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            name = ids.get(pid)
            if name is None:
                # An orphan has ended, perhaps while its children were looked for: they are this process's now.
                self._kill_strays(set(self._monitors.values()))
                continue
            if status != 0:
                self._kill_strays(set(self._monitors.values()) - {pid})
                self._report({"event": "exited", "id": name, "status": -signal.SIGKILL})
            del self._monitors[name]

    def _kill_strays(self, monitors: set[int]) -> None:
        """Kill orphans of a dead monitor, which became the spawner's: every child that is not a monitor."""
        for child in children(os.getpid()):
            if child not in monitors:
                kill_below(child)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

    def _report(self, event: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            os.write(self._events, json.dumps(event).encode() + b"\n")
