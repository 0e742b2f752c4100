"""A real PostgreSQL for tests, in a temporary directory, on a socket there and without TCP."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

_USERS: Final = ("postgres", "nobody")
"""PostgreSQL does not run as root."""


def find_postgres() -> Path | None:
    """The directory with PostgreSQL's programs, the newest version where there are several."""
    # Debian has only clients in PATH.
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    found = shutil.which("initdb") or (str(installed[-1]) if installed else None)
    if found is None:
        return None
    return Path(found).resolve().parent


class Postgres:
    """A server with its data in ``folder``. `start`, `stop` and `kill` may be called again, also while it is paused."""

    def __init__(self, programs: Path, folder: Path, *, durable: bool = False) -> None:
        """``durable``: it syncs. Tests kill the server, and not the machine, so they need not wait for the disk."""
        self._durable = durable
        self._programs = programs
        self._folder = folder
        self._data = folder / "data"
        self._identity: dict[str, Any] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._made = 0
        if os.getuid() == 0:
            user = next(found for name in _USERS if (found := _user(name)) is not None)
            self._identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chown(folder, user.pw_uid, user.pw_gid)
        self._run("initdb", "--pgdata", self._data, "--username=test", "--auth=trust", "--no-sync", "--encoding=UTF8")

    def _run(self, program: str, *arguments: str | Path) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments],
            cwd=self._folder,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
            capture_output=True,
            text=True,
            check=False,
            **self._identity,
        )
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        log = self._folder / "log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [
                    self._programs / "postgres", "-D", self._data, "-k", self._folder, "-c", "listen_addresses=",
                    "-c", "max_connections=200", "-c", "shared_buffers=128MB",
                    "-c", f"fsync={'on' if self._durable else 'off'}",
                ],
                cwd=self._folder,
                stdout=output,
                stderr=output,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
                **self._identity,
            )  # fmt: skip
        # The server writes "ready" into this file once it answers.
        status = self._data / "postmaster.pid"
        for _ in range(6000):
            if status.exists() and status.read_text().rstrip().endswith("ready"):
                return
            assert self._process.poll() is None, log.read_text()
            time.sleep(0.01)
        raise AssertionError(f"PostgreSQL does not start: {log.read_text()}")

    def stop(self) -> None:
        """Stop the server; its clients lose their connections."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Stop the server as a crash does, without a checkpoint."""
        self._end(signal.SIGQUIT)

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self.resume()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Let nothing be answered until `resume`."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue after `pause`."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: int) -> None:
        assert self._process is not None
        for pid in (self._process.pid, *self._children()):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def cpu_seconds(self) -> float:
        """CPU time of the server and its processes, including ended ones."""
        assert self._process is not None
        total = 0
        for pid in (self._process.pid, *self._children()):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15] if pid == self._process.pid else fields[11:13]))
        return total / os.sysconf("SC_CLK_TCK")

    def _children(self) -> list[int]:
        assert self._process is not None
        return [
            int(pid) for pid in Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        ]

    def url(self, database: str = "postgres") -> str:
        """The URL of a database."""
        return f"postgresql://test@/{database}?host={self._folder}"

    def new_database(self) -> str:
        """Create an empty database, and return its URL."""
        self._made += 1
        name = f"test{self._made}"
        self._run("createdb", "--host", self._folder, "--username=test", name)
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drop a database that `new_database` made, even one in use."""
        name = url.partition("@/")[2].partition("?")[0]
        self._run("dropdb", "--force", "--host", self._folder, "--username=test", name)


def _user(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


@contextmanager
def running_postgres() -> Iterator[Postgres | None]:
    """A running server; None where PostgreSQL is not installed."""
    programs = find_postgres()
    if programs is None:
        yield None
        return
    # The path of a socket has 107 characters at most, which pytest's directories exceed.
    # A disk that others use takes long to write and to clean.
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir=memory if os.access(memory, os.W_OK) else None))
    server = Postgres(programs, folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)
