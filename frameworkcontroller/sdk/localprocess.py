"""A local cluster in a child process, which ends with this one."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.connection import connect as connection_of
from frameworkcontroller.sdk.exceptions import Unreachable

_READY: Final = b"A cluster runs at "
_START_SEC: Final = 60.0
_SAID: Final = 2000


class LocalProcess:
    """``frameworkcontroller local up`` as a child process."""

    def __init__(self, *, nodes: int, capacity: Mapping[str, str | int] | None, keep: bool) -> None:
        """See `local`."""
        self._nodes = nodes
        self._capacity = capacity
        self._keep = keep
        self._folder: Path | None = None
        self._process: asyncio.subprocess.Process | None = None

    async def connect(self) -> Connection:
        """Start it, and return a connection to it once it runs Frameworks.

        Raises:
            Unreachable: it cannot start; the text has what it said.
        """
        self._folder = Path(tempfile.mkdtemp(prefix="framework-local-"))
        kubeconfig, log = self._folder / "kubeconfig", self._folder / "stderr"
        words = [sys.executable, "-m", "frameworkcontroller", "local", "up", "--kubeconfig", str(kubeconfig)]
        if self._nodes != 1:
            words += ["--nodes", str(self._nodes)]
        if self._capacity:
            words += ["--capacity", ",".join(f"{key}={value}" for key, value in self._capacity.items())]
        if not self._keep:
            words += ["--until-stdin-closes"]
        # The programs of this Python's environment are those of its Tasks.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        with log.open("wb") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PATH": path},
                start_new_session=True,
            )
        try:
            async with asyncio.timeout(_START_SEC):
                await self._ready(self._process)
        except TimeoutError:
            await self.stop()
            raise Unreachable(f"the local cluster did not start within {_START_SEC:g} s") from None
        except EOFError:
            said = log.read_text(errors="replace")[-_SAID:].strip()
            await self.stop()
            raise Unreachable(f"the local cluster cannot start: {said}") from None
        return await connection_of(kubeconfig=str(kubeconfig))

    @staticmethod
    async def _ready(process: asyncio.subprocess.Process) -> None:
        """Wait for the line that says that it runs. Raises EOFError if it ends before."""
        assert process.stdout is not None  # noqa: S101 - a pipe
        while True:
            line = await process.stdout.readline()
            if line.startswith(_READY):
                return
            if not line:
                raise EOFError

    async def stop(self) -> None:
        """Stop it, with its containers, and remove its files."""
        if self._keep and self._process is not None and self._process.returncode is None:
            return
        if self._process is not None:
            if self._process.stdin is not None:
                self._process.stdin.close()
            with suppress(ProcessLookupError):
                self._process.terminate()
            await self._process.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
