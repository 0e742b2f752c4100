"""Run the programs of examples/python as users do, and check their output and the Frameworks that they leave."""

import asyncio
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import orjson
import yaml

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.kube.client import KubeClient
from tests.support.examples import EXAMPLES

FOLDER: Final = EXAMPLES / "python"

_FITTED: Final = r"worker\[[0-3]\]: servers-ps-[01]\.servers:8000: y = 3\.0 x"

SAYS: Final[Mapping[str, Mapping[str, int]]] = {
    "script": {r"Succeeded after \d+ s, 0 retries": 1},
    "function": {r"pi is about 3\.14": 1},
    "servers": {"Succeeded": 1},
    "scale": {r"4 workers run": 1, "Stopped: User has requested to stop the Framework": 1},
    "why": {
        r"worker\[3\] on \S+, attempt 0: IndexError: list index out of range": 1,
        r".*FailedTaskCount 1 has reached MinFailedTaskCount 1.*": 1,
        r'  File "/mnt/code/why\.py", line \d+, in load': 1,
    },
    "trials": {r"\{'rate': 0\.0(18|19|2), 'weight': 2\.\d+, 'loss': \S+\}": 3},
}
"""Patterns of lines, and at least how often each is printed."""

LOGS: Final[Mapping[str, Mapping[str, int]]] = {"servers": {_FITTED: 8}}
"""Further lines, where the API server can read logs."""

LEAVES: Final = {"script": ["Succeeded"], "function": ["Succeeded"], "why": ["Failed"]}
"""The phases of the Frameworks that a program does not delete."""


def kubeconfig_for(kubeconfig: Path, namespace: str, copy: Path) -> Path:
    """Write a copy of the kubeconfig whose context has that namespace."""
    config = yaml.safe_load(kubeconfig.read_text())
    for context in config["contexts"]:
        context["context"]["namespace"] = namespace
    copy.write_text(yaml.safe_dump(config))
    return copy


async def run(program: Path, kubeconfig: Path, **environment: str) -> tuple[int, str]:
    """Run a program in its folder. Return its exit code and its output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, program.name),
        cwd=program.parent,
        env={"PATH": os.environ["PATH"], "KUBECONFIG": str(kubeconfig), **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await process.communicate()
    except BaseException:
        process.kill()
        raise
    assert process.returncode is not None
    return process.returncode, output.decode()


async def assert_they_work(kubeconfig: Path, client: KubeClient, namespace: str, *names: str, logs: bool) -> str:
    """Run the programs at once in an empty namespace. Return the output of all.

    ``kubeconfig``: its context has that namespace. ``logs``: whether the API server can read logs.
    """

    async def one(name: str) -> str:
        program = FOLDER / f"{name}.py"
        if name == "function":
            program = in_the_cluster(kubeconfig.parent)
        code, output = await run(program, kubeconfig)
        assert code == 0, f"{name}:\n{output}"
        for pattern, times in {**SAYS[name], **(LOGS.get(name, {}) if logs else {})}.items():
            found = [line for line in output.splitlines() if re.fullmatch(pattern, line)]
            assert len(found) >= times, f"{name}: {pattern}\n{output}"
        return output

    outputs = await asyncio.gather(*map(one, names))
    left = orjson.loads(await client.list(FRAMEWORKS, namespace))["items"]
    expected = [phase for name in names for phase in LEAVES.get(name, ())]
    assert sorted(body["status"]["phase"] for body in left) == sorted(expected)
    return "".join(outputs)


def in_the_cluster(folder: Path) -> Path:
    """Write a copy of function.py that runs in the cluster: it differs by one word."""
    text = (FOLDER / "function.py").read_text()
    before, word, after = text.rpartition("fc.local()")
    assert word
    copy = folder / "function.py"
    copy.write_text(f"{before}fc.connect(){after}")
    return copy
