"""The kubectl of this machine, if it is one that the embedded cluster promises to serve."""

import asyncio
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

OLDEST: Final = (1, 30)


@cache
def find_kubectl() -> Path | str:
    """The kubectl to test with (KUBECTL, or the one on PATH), or why there is none."""
    found = os.environ.get("KUBECTL") or shutil.which("kubectl")
    oldest = ".".join(map(str, OLDEST))
    if not found:
        return f"no kubectl on PATH (wanted: {oldest} or newer)"
    said = subprocess.run([found, "version", "--client", "--output=json"], capture_output=True, text=True, check=False)
    version = re.search(r'"gitVersion": *"v(\d+)\.(\d+)[^"]*"', said.stdout)
    if not version:
        return f"{found} does not say which version it is"
    if (int(version[1]), int(version[2])) < OLDEST:
        return f"{found} is {version[1]}.{version[2]}, older than {oldest}"
    return Path(found)


class Answer(NamedTuple):
    """The result of one kubectl command."""

    code: int
    out: str
    err: str


class Kubectl:
    """Runs kubectl against one cluster and namespace, with a home of its own."""

    def __init__(self, program: Path, kubeconfig: Path, namespace: str, home: Path) -> None:
        self._program = program
        self._options = ["--kubeconfig", str(kubeconfig), "--namespace", namespace]
        self._environment: Mapping[str, str] = {"HOME": str(home), "PATH": os.environ["PATH"]}

    async def __call__(self, *args: str, stdin: str = "") -> Answer:
        """Run `kubectl ARGS` to its end."""
        process = await self.start(*args)
        out, err = await process.communicate(stdin.encode())
        assert process.returncode is not None
        return Answer(process.returncode, out.decode(), err.decode())

    async def ok(self, *args: str, stdin: str = "") -> str:
        """Run `kubectl ARGS`, which must succeed, and return its output."""
        answer = await self(*args, stdin=stdin)
        assert answer.code == 0, f"kubectl {' '.join(args)} ended with {answer.code}: {answer.err}"
        return answer.out

    async def json(self, *args: str, stdin: str = "") -> Any:
        """Run `kubectl ARGS -o json`, which must succeed, and return its output, decoded."""
        return json.loads(await self.ok(*args, "--output=json", stdin=stdin))

    async def start(self, *args: str) -> asyncio.subprocess.Process:
        """Start `kubectl ARGS` with pipes, for commands that run on, such as `get --watch`; the caller ends it."""
        return await asyncio.create_subprocess_exec(
            self._program,
            *self._options,
            *args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
        )
