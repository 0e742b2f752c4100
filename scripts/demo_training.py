"""Play examples/training/long on a cluster in one process: `make demo-training`. It downloads nothing.

An argument names another folder with the manifests. Exit code 0: all faults happened, and the training ended well.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import connect
from frameworkcontroller.local.manifest_files import create_all, read_manifests

EXAMPLE = Path(__file__).resolve().parents[1] / "examples/training/long"
PROGRAM = str(Path(sys.executable).with_name("frameworkcontroller"))
PATIENCE_SEC = 300
ENDS = [1, -252, -241, 0]
"""The failure, the hang, the preemption and the end."""


async def wait_for(client: KubeClient, state: str, holds: Callable[[dict[str, Any]], bool]) -> None:
    """Wait for a state of the training, and print its progress meanwhile."""
    shown, until = "", time.monotonic() + PATIENCE_SEC
    while time.monotonic() < until:
        status = orjson.loads(await client.get(FRAMEWORKS, "long", "default")).get("status") or {}
        if status:
            attempt, progress = status["attemptStatus"]["id"], status.get("progress") or {}
            step = progress.get("step", "-") if progress.get("frameworkAttemptID") == attempt else "-"
            line = f"attempt {attempt}  {status['state']:25}  step {step}"
            if line != shown:
                print(f"  {line}", flush=True)
                shown = line
            if holds(status):
                return
            if status["state"] == "Completed":
                break
        await asyncio.sleep(0.3)
    sys.exit(f"demo_training.py: never: {state}")


def reports(attempt: int, step: int) -> Callable[[dict[str, Any]], bool]:
    """Whether that attempt has reported the step."""

    def holds(status: dict[str, Any]) -> bool:
        progress = status.get("progress") or {}
        return progress.get("frameworkAttemptID") == attempt and progress.get("step", 0) >= step

    return holds


async def play(kubeconfig: str, folder: Path) -> None:
    """Play it."""
    async with KubeClient(await connect(kubeconfig=kubeconfig)) as client:
        print(
            "\n# Three workers train on three nodes. The third node breaks an attempt; the next one hangs.",
            flush=True,
        )
        await create_all(client, read_manifests([folder / "long.yaml"]))
        await wait_for(client, "a step of attempt 2", reports(2, 21))
        print("\n# Work of higher priority needs its quota: the training has time for a checkpoint.", flush=True)
        await create_all(client, read_manifests([folder / "preempting.yaml"]))
        await wait_for(client, "the end", lambda status: status["state"] == "Completed")


def history(kubeconfig: str, *arguments: str) -> list[str]:
    """A command about the history."""
    return [PROGRAM, "history", *arguments, "--kubeconfig", kubeconfig]


def wait_for_archive(kubeconfig: str) -> str:
    """Wait until the archive has the last attempt. Return the unexpected ends, "" if there are none."""
    shown = subprocess.run(
        history(kubeconfig, "show", "long", "-o", "json"), check=True, stdout=subprocess.PIPE, text=True
    )
    attempts = orjson.loads(shown.stdout)["attempts"]
    many = sum(one["tasks"] for one in attempts)
    until = time.monotonic() + PATIENCE_SEC
    while True:
        cost = subprocess.run(history(kubeconfig, "cost", "-o", "json"), check=True, stdout=subprocess.PIPE, text=True)
        items = orjson.loads(cost.stdout)["items"]
        if any(one["label"] == "default/long" and one["attempts"] >= many for one in items):
            break
        if time.monotonic() > until:
            return "the archive lacks attempts of Tasks"
        time.sleep(0.5)
    codes = [one["code"] for one in attempts]
    return "" if codes == ENDS else f"the attempts ended with {codes}, not with {ENDS}"


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else EXAMPLE
    with tempfile.TemporaryDirectory() as scratch:
        kubeconfig = f"{scratch}/kubeconfig"
        up = [PROGRAM, "local", "up", "--nodes", "3", "--capacity", "cpu=2", "--queue", "cpu=3"]
        up += ["--kubeconfig", kubeconfig, "--log-level", "error"]
        with subprocess.Popen(up, stdout=subprocess.PIPE, text=True) as cluster:
            try:
                assert cluster.stdout is not None
                if not any("export KUBECONFIG" in line for line in cluster.stdout):
                    return 1
                asyncio.run(play(kubeconfig, folder))
                print("\n# The history of its attempts, and their cost: kubectl framework history long\n", flush=True)
                problem = wait_for_archive(kubeconfig)
                shown = subprocess.run(history(kubeconfig, "show", "long"), check=False).returncode
                if problem:
                    print(f"demo_training.py: {problem}", file=sys.stderr)
                return 1 if problem else shown
            finally:
                cluster.terminate()


if __name__ == "__main__":
    sys.exit(main())
