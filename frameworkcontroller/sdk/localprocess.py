"""A local cluster in a child process, which ends with this one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.connection import connect as connection_of
from frameworkcontroller.sdk.exceptions import Unreachable

_KUBECONFIG: Final = b"    export KUBECONFIG="
"""The line of ``local up`` that names the kubeconfig, once it runs Frameworks."""

_START_SEC: Final = 60.0
_POLL_SEC: Final = 0.02
_MOST_WORDS: Final = 2000


class LocalProcess:
    """``frameworkcontroller local up`` as a child process, which removes its own files."""

    def __init__(self, *, nodes: int, capacity: Mapping[str, str | int] | None, keep: bool) -> None:
        """See `local`."""
        self._nodes = nodes
        self._capacity = capacity
        self._keep = keep
        self._process: subprocess.Popen[bytes] | None = None

    async def connect(self) -> Connection:
        """Start it, and return a connection to it once it runs Frameworks.

        Raises:
            Unreachable: it cannot start; the text has its output.
        """
        words = [sys.executable, "-m", "frameworkcontroller", "local", "up"]
        if self._nodes != 1:
            words += ["--nodes", str(self._nodes)]
        if self._capacity:
            words += ["--capacity", ",".join(f"{key}={value}" for key, value in self._capacity.items())]
        if not self._keep:
            words += ["--until-stdin-closes"]
        # Its Tasks find the programs of this Python's environment.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        with tempfile.TemporaryFile() as errors:
            # Not asyncio's, whose transport kills the process when it is collected.
            self._process = subprocess.Popen(  # noqa: S603, ASYNC220 - it only starts
                words,
                stdin=subprocess.DEVNULL if self._keep else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PATH": path},
                start_new_session=True,
            )
            try:
                async with asyncio.timeout(_START_SEC):
                    kubeconfig = await asyncio.to_thread(_kubeconfig, self._process.stdout)
                if kubeconfig:
                    return await connection_of(kubeconfig=kubeconfig)
            except BaseException as error:
                await self._end(self._process)
                if isinstance(error, TimeoutError):
                    raise Unreachable(f"the local cluster did not start within {_START_SEC:g} s") from None
                raise
            await self._end(self._process)
            errors.seek(0)
            output = errors.read().decode(errors="replace").strip()[-_MOST_WORDS:]
        raise Unreachable(f"the local cluster cannot start: {output}")

    async def stop(self) -> None:
        """Stop it, with its containers, unless it is to be kept."""
        if self._process is not None and not self._keep:
            await self._end(self._process)

    @staticmethod
    async def _end(process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.terminate()
        # At the end of this process, no thread can wait for it.
        while process.poll() is None:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(_POLL_SEC)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _kubeconfig(output: IO[bytes] | None) -> str:
    """Return the path that it prints; "" if it ends before."""
    for line in output or ():
        if line.startswith(_KUBECONFIG):
            return os.fsdecode(line.removeprefix(_KUBECONFIG).rstrip(b"\n"))
    return ""
