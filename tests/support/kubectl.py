"""kubectl and helm: of this machine, or of scripts/kube_tools.py. kubectl is one that the embedded cluster serves."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
OLDEST: Final = (1, 30)


@cache
def find_kubectl() -> Path | str:
    """The kubectl to test with (KUBECTL, the one on PATH, or a downloaded one), or why there is none."""
    found = os.environ.get("KUBECTL") or shutil.which("kubectl")
    oldest = ".".join(map(str, OLDEST))
    if not found:
        downloaded = _downloaded("kubectl")
        return downloaded if isinstance(downloaded, Path) else f"no kubectl on PATH, and {downloaded}"
    said = subprocess.run([found, "version", "--client", "--output=json"], capture_output=True, text=True, check=False)
    version = re.search(r'"gitVersion": *"v(\d+)\.(\d+)[^"]*"', said.stdout)
    if not version:
        return f"{found} does not say which version it is"
    if (int(version[1]), int(version[2])) < OLDEST:
        return f"{found} is {version[1]}.{version[2]}, older than {oldest}"
    return Path(found)


@cache
def find_helm() -> Path | str:
    """The helm to test with (HELM, or a downloaded one), or why there is none."""
    found = os.environ.get("HELM")
    return Path(found) if found else _downloaded("helm")


@cache
def _downloaded(name: str) -> Path | str:
    command = [sys.executable, str(ROOT / "scripts/kube_tools.py")]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return Path(ran.stdout.strip()) / name if ran.returncode == 0 else ran.stderr.strip()


class Answer(NamedTuple):
    """The result of one kubectl command."""

    code: int
    out: str
    err: str


class Kubectl:
    """Runs kubectl against one cluster and namespace, with a home of its own. Or helm, with the same options."""

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
