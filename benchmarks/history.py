"""Records per second of the history's sinks: Tasks of one Framework that retry at once, to a local server that keeps
nothing (a process of its own), or to files.

    python -m benchmarks.history [--sink http|file] [--tasks 10000] [--bytes 2400] [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
from aiohttp import web

from frameworkcontroller.api.historyrecords import Trigger
from frameworkcontroller.api.objects import FrameworkRecord
from frameworkcontroller.controller.filesink import FileDestination
from frameworkcontroller.controller.historysink import Destination, HistorySink
from frameworkcontroller.controller.httpsink import HttpDestination
from frameworkcontroller.machine.kernel.model import Snapshot
from frameworkcontroller.machine.kernel.requests import Answered

LAG_SEC = 0.001


def framework() -> FrameworkRecord:
    """A Framework with a Pod template of usual size."""
    spec = {"taskRoles": [{"name": "worker", "task": {"pod": {"spec": {"containers": [{"image": "x" * 800}]}}}}]}
    return FrameworkRecord("ns/f", "ns", "f", "f-1", "7", 3, None, b'{"uid":"f-1"}', orjson.dumps(spec), None)


def snapshots(tasks: int, size: int) -> list[Snapshot]:
    """Ended attempts of Tasks, whose records take some ``size`` bytes."""
    made = []
    rng = random.Random(1)
    for index in range(tasks):
        attempt = {
            "id": 0,
            "podName": f"f-worker-{index}",
            "diagnostics": rng.randbytes(max(0, size - 1600) // 2).hex(),
        }
        status = {
            "index": index,
            "instanceUID": f"t-{index}",
            "startTime": "2026-01-01T00:00:00Z",
            "attemptStatus": attempt,
        }
        annotations = {
            "FC_FRAMEWORK_NAME": "f",
            "FC_FRAMEWORK_UID": "f-1",
            "FC_FRAMEWORK_ATTEMPT_ID": "0",
            "FC_TASKROLE_NAME": "worker",
            "FC_TASK_INDEX": str(index),
        }
        made.append(Snapshot(Trigger.TASK_RETRY, orjson.dumps(status), "worker", index, annotations))
    return made


async def serve_null() -> None:
    """Read requests, decompress them, and acknowledge; print the port."""

    async def handle(request: web.BaseRequest) -> web.Response:
        await request.content.read()
        return web.Response()

    server = await asyncio.get_running_loop().create_server(web.Server(handle), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@asynccontextmanager
async def destination(kind: str) -> AsyncIterator[Destination]:
    """A destination of that kind."""
    if kind == "file":
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            yield FileDestination(Path(folder))
        return
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.history", "--serve"), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    port = int(await process.stdout.readline())
    try:
        yield HttpDestination(f"http://127.0.0.1:{port}/", token_file=None, ca_file=None)
    finally:
        process.terminate()
        await process.wait()


async def measure(kind: str, tasks: int, size: int, rounds: int) -> None:
    """Print records per second, requests, and the longest time for which the event loop did nothing else."""
    record, given = framework(), snapshots(tasks, size)
    async with destination(kind) as where:
        sink = HistorySink(
            where,
            triggers=frozenset(Trigger),
            blocks=True,
            max_pending_bytes=2**28,
            wall=time.time,
            rng=random.Random(1),
        )
        requests: list[float] = []
        sink.requested = lambda _, seconds: requests.append(seconds)
        running = asyncio.create_task(sink.run())
        longest = 0.0

        async def watch() -> None:
            nonlocal longest
            while True:
                before = time.perf_counter()
                await asyncio.sleep(LAG_SEC)
                longest = max(longest, time.perf_counter() - before - LAG_SEC)

        for _ in range(rounds):
            requests.clear()
            longest = 0.0
            watching = asyncio.create_task(watch())
            began = time.perf_counter()
            # As the machine asks for them: 500 at once.
            parts = [given[start : start + 500] for start in range(0, tasks, 500)]
            answers = await asyncio.gather(*(sink.store(record, "6", part) for part in parts))
            seconds = time.perf_counter() - began
            watching.cancel()
            assert all(isinstance(answer, Answered) for answer in answers)
            print(
                f"{kind}: {tasks} records in {seconds:.2f} s, {tasks / seconds:.0f}/s, {len(requests)} requests, "
                f"longest step of the event loop {longest * 1000:.0f} ms"
            )
        running.cancel()
        await asyncio.wait([running])


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sink", choices=["http", "file"], default="http")
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=2400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    asyncio.run(serve_null() if options.serve else measure(options.sink, options.tasks, options.bytes, options.rounds))


if __name__ == "__main__":
    main()
