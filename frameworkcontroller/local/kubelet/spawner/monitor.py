"""Runs one container: sets up its namespaces, starts its process, logs its output, and ends all processes together.

Reports to the kubelet, one JSON object per line: ``started``; ``exited`` with the exit code, or minus the signal, once
no process of the container is left and its output is logged; or only ``failed`` if it could not be started.

SIGUSR1 asks the container to end (SIGTERM to its process group); SIGTERM kills it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import selectors
import signal
import termios
from typing import Any, Final, NoReturn

from frameworkcontroller.local.kubelet.spawner import linux
from frameworkcontroller.local.kubelet.spawner.logfile import LogFile
from frameworkcontroller.local.kubelet.spawner.mounts import MountError, MountView

Request = dict[str, Any]

_CHUNK: Final = 65536
_KILL_AGAIN_SECONDS: Final = 0.05


class StartError(Exception):
    """The container's process could not be started. ``what`` failed: mount, join, directory, user or command."""

    def __init__(self, what: str, number: int, text: str) -> None:
        super().__init__(text)
        self.what = what
        self.number = number


class Monitor:
    """The monitor of one container, in its own process forked from the spawner."""

    def __init__(self, request: Request, events: int, view: MountView | None, joined: int | None) -> None:
        self._request = request
        self._events = events
        self._view = view
        self._joined = joined
        self._log = LogFile(request["log"], request["log_limit"])
        self._main = 0
        self._status: int | None = None
        self._killing = False
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Run the container to its end. The caller has blocked SIGUSR1 and SIGTERM."""
        linux.reap_descendants()
        waker, wakeup = os.pipe()
        for end in (waker, wakeup):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGUSR1, self._terminate)
        signal.signal(signal.SIGTERM, self._kill)
        self._selector.register(waker, selectors.EVENT_READ)
        try:
            self._start()
        except StartError as error:
            self._report(event="failed", what=error.what, errno=error.number, message=str(error)[:1000])
            return
        self._report(event="started", pid=self._main)
        # Not before there is a process to signal; pending signals arrive now.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self._forward_output(waker)
        self._log.close()
        self._report(event="exited", status=-signal.SIGKILL if self._status is None else self._status)

    # --- start --------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        # Before a volume of the container hides them.
        given = self._open_streams()
        self._set_up()
        out, err, trouble = os.pipe(), os.pipe(), os.pipe()
        streams = given or [os.open(os.devnull, os.O_RDONLY), out[1], err[1]]
        parent = os.getpid()
        self._main = os.fork()
        if self._main == 0:
            _become_container(self._request, parent, streams, trouble[1])
        for writer in {*streams, out[1], err[1], trouble[1]}:
            os.close(writer)
        with open(trouble[0], "rb") as pipe:
            story = pipe.read()
        if story:
            os.waitpid(self._main, 0)
            raise StartError(**json.loads(story))
        for reader, stream in ((out[0], b"stdout"), (err[0], b"stderr")):
            os.set_blocking(reader, False)
            self._selector.register(reader, selectors.EVENT_READ, stream)

    def _open_streams(self) -> list[int]:
        try:
            if self._request["tty"]:
                return [os.open(self._request["streams"][0], os.O_RDWR | os.O_NOCTTY)] * 3
            flags = (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)
            # Without waiting: the other end may be gone.
            found = [
                os.open(path, flag | os.O_NONBLOCK) for path, flag in zip(self._request["streams"], flags, strict=False)
            ]
        except OSError as error:
            raise StartError("streams", error.errno or 0, str(error)) from None
        for stream in found:
            os.set_blocking(stream, True)
        return found

    def _set_up(self) -> None:
        request = self._request
        if self._joined is not None:
            try:
                linux.join_namespaces(self._joined, ("mnt", "uts"))
            except OSError as error:
                raise StartError("join", error.errno or 0, str(error)) from None
        elif self._view is not None:
            try:
                self._view.isolate(request["hostname"])
                self._view.mount(request["mounts"])
                self._view.materialise(request["directory"], directory=True)
            except (OSError, MountError) as error:
                raise StartError("mount", getattr(error, "errno", 0) or 0, str(error)) from None

    # --- the container runs -------------------------------------------------------------------------------------------

    def _forward_output(self, waker: int) -> None:
        """Log the output until every process of the container has ended and the pipes are empty."""
        alive = True
        while alive or len(self._selector.get_map()) > 1:
            # Once no writer is left, a pipe has its last bytes or its end ready.
            timeout = (_KILL_AGAIN_SECONDS if self._killing else None) if alive else 0
            ready = self._selector.select(timeout)
            if not alive and not ready:
                break
            for key, _ in ready:
                if key.data is None:
                    with contextlib.suppress(BlockingIOError):
                        os.read(waker, 4096)
                else:
                    self._read(key.fd, key.data)
            if alive:
                alive = self._reap()
                if alive and self._killing:
                    kill_below(os.getpid())

    def _read(self, fd: int, stream: bytes) -> None:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return
        if data:
            self._log.write(stream, data)
        else:
            self._selector.unregister(fd)
            os.close(fd)

    def _reap(self) -> bool:
        """Reap ended processes; False once none is left. The end of the main process ends all."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._main:
                self._status = os.waitstatus_to_exitcode(status)
                self._killing = True
                kill_below(os.getpid())

    def _terminate(self, *_: object) -> None:
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._main, signal.SIGTERM)

    def _kill(self, *_: object) -> None:
        self._killing = True
        kill_below(os.getpid())

    def _report(self, **event: object) -> None:
        line = json.dumps({"id": self._request["id"], **event}).encode() + b"\n"
        # A single write shorter than PIPE_BUF is atomic: every monitor writes to this pipe.
        with contextlib.suppress(OSError):
            os.write(self._events, line)


def kill_below(pid: int) -> None:
    """SIGKILL all descendants of this process. Concurrent forks need another call."""
    for child in children(pid):
        kill_below(child)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def children(pid: int) -> list[int]:
    """The child processes of this process."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
        return found
    return [child for child in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _parent(child) == pid]


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name, in parentheses, may contain anything; the parent is the second field after it.
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return -1


# --- in the container's process ---------------------------------------------------------------------------------------


def _become_container(request: Request, parent: int, streams: list[int], trouble: int) -> NoReturn:
    try:
        os.setsid()
        for target, source in enumerate(streams):
            os.dup2(source, target)
        if request["tty"]:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.umask(0o022)
        _change_directory(request["directory"])
        _change_user(request)
        # Not earlier: the kernel resets it when the user changes.
        linux.die_with_parent(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(137)
        _reset_signals()
        _execute(request["argv"], request["env"])
    except StartError as error:
        os.write(trouble, json.dumps({"what": error.what, "number": error.number, "text": str(error)}).encode())
    except Exception as error:  # noqa: BLE001 - reported to the parent
        os.write(trouble, json.dumps({"what": "command", "number": 0, "text": repr(error)}).encode())
    finally:
        os._exit(128)


def _change_directory(path: str) -> None:
    try:
        os.chdir(path)
    except OSError as error:
        raise StartError("directory", error.errno or 0, f"{path}: {error.strerror}") from None


def _change_user(request: Request) -> None:
    if request["user"] is None:
        return
    try:
        os.setgroups(request["groups"])
        os.setgid(request["group"])
        os.setuid(request["user"])
    except OSError as error:
        raise StartError("user", error.errno or 0, str(error.strerror)) from None


def _reset_signals() -> None:
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _execute(argv: list[str], env: dict[str, str]) -> NoReturn:
    """Execute like a container runtime: a name without a slash is searched in the container's own PATH."""
    name = argv[0]
    if "/" in name:
        candidates = [name]
    else:
        candidates = [os.path.join(part, name) for part in env.get("PATH", os.defpath).split(":") if part]
    number = errno.ENOENT
    for candidate in candidates:
        try:
            os.execve(candidate, argv, env)  # noqa: S606 - its purpose
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                continue
            if error.errno != errno.EACCES:
                number = error.errno or 0
                break
            # A directory of PATH that this user may not search is skipped.
            if os.path.lexists(candidate) or "/" in name:
                number = errno.EACCES
    raise StartError("command", number, os.strerror(number))
