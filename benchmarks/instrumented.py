"""The controller with a look inside: the longest steps of its event loop, and resyncs and lists when asked for them.

    python -m benchmarks.instrumented CONFIG-FILE LOG-FILE RESYNC-SECONDS

It understands commands on its stdin (``benchmarks.rpc``). The rest is the controller's own program.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import traceback
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final, get_args
from unittest.mock import patch

from benchmarks.rpc import serve
from frameworkcontroller.cli import runcontroller as program
from frameworkcontroller.cli.main import main
from frameworkcontroller.machine.kernel.protocol import WriteResult
from frameworkcontroller.manager.app import Controller
from frameworkcontroller.manager.exposition import registry_of

_TICK_SEC: Final = 0.005


class _Steps:
    """The longest time for which the event loop ran nothing else, by the CPU time of its thread and by the clock.

    CPU time leaves out the other processes of a busy machine. A timer that fires every 5 ms measures both, so a figure
    may include several short steps, and is too large by 5 ms at most.
    """

    def __init__(self) -> None:
        self.cpu = 0.0
        self.late = 0.0
        self.since = 0.0

    async def run(self) -> None:
        while True:
            began, cpu = time.monotonic(), time.thread_time()
            self.since = cpu
            await asyncio.sleep(_TICK_SEC)
            self.cpu = max(self.cpu, time.thread_time() - cpu)
            self.late = max(self.late, time.monotonic() - began - _TICK_SEC)

    def look(self, thread: int, longest: float) -> None:
        """Run in another thread: write the stack of each step that has taken this long to stderr."""
        told = 0.0
        clock = time.pthread_getcpuclockid(thread)
        while True:
            time.sleep(longest / 4)
            since = self.since
            if (used := time.clock_gettime(clock) - since) > longest and since != told:
                told = since
                print(f"--- {used:.3f} s of CPU time so far", file=sys.stderr)
                traceback.print_stack(sys._current_frames().get(thread), file=sys.stderr)


class _Instrumented(Controller):
    async def run(self) -> None:
        self._steps = _Steps()
        if longest := os.environ.get("BENCH_STEPS"):
            watching = (threading.get_ident(), float(longest))
            threading.Thread(target=self._steps.look, args=watching, daemon=True).start()
        others: list[Coroutine[Any, Any, None]] = [self._steps.run(), self._serve()]
        running = [asyncio.create_task(other) for other in others]
        try:
            await super().run()
        finally:
            for task in running:
                task.cancel()

    async def _serve(self) -> None:
        commands = {
            "figures": self._figures,
            "relist": self._relist,
            "compare": self._compare,
            "resync": self._begin_resync,
        }
        await serve(commands)
        # The benchmark is gone.
        self.stop()

    async def _figures(self) -> dict[str, float]:
        """What it did, and the longest steps since the last call."""
        steps = {"longest turn, CPU": self._steps.cpu, "longest turn": self._steps.late}
        self._steps.cpu = self._steps.late = 0.0
        figure = registry_of(self).get_sample_value
        informers = {
            f"{what} {one.resource.plural}": value
            for one in self.informers
            for what, value in (("lists of", one.counters.lists), ("cached", len(one.lister)))
        }
        return {
            **steps,
            **informers,
            "ready": float(self.ready),
            "status writes": sum(
                figure("frameworkcontroller_status_writes_total", {"result": result}) or 0.0
                for result in get_args(WriteResult)
            ),
            "queue": len(self.queue) + self.workers.busy,
            "delayed": self.queue.delayed,
            "events": sum(one.counters.events for one in self.informers),
        }

    async def _relist(self) -> None:
        for informer in self.informers:
            informer.relist()

    async def _compare(self) -> None:
        for informer in self.informers:
            informer.compare()

    async def _begin_resync(self) -> None:
        await self.resync()


if __name__ == "__main__":
    _config_file, _log_file, _resync = sys.argv[1:]
    with open(_log_file, "ab") as log:  # noqa: PTH123
        os.dup2(log.fileno(), 2)
    with patch.object(program, "Controller", partial(_Instrumented, resync_sec=float(_resync))):
        sys.exit(main(["--config", _config_file]))
