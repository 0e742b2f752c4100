"""One Framework of very many Tasks on a real API server, from its creation to Completed.

    python -m benchmarks.large_framework 10000 --cluster 1.20

Says how long each part took, how large the status became, and for how long the controller's event loop was blocked at
most. The controller, the simulated node and the reader share one process: its figures are an upper bound.
"""

import argparse
import asyncio
import contextlib
import time
from collections import Counter

import orjson
import uvloop

from frameworkcontroller.app import Controller
from frameworkcontroller.config import Config
from tests.support.clusters import real_cluster, simulated_node
from tests.support.frameworks import Frameworks, Json, policy, role
from tests.support.realcluster import ControlPlane, find_assets

_TELL_SEC = 10.0

_CONFIG = Config(kube_client_qps=10000, kube_client_burst=10000, large_framework_compression=True)


async def _watch_loop(worst: list[float]) -> None:
    """Note the longest time for which the loop did not come round."""
    while True:
        began = time.perf_counter()
        await asyncio.sleep(0.005)
        worst.append(time.perf_counter() - began - 0.005)


async def _measure(cluster_name: str, plane: ControlPlane, number: int, run_seconds: float) -> None:
    async with real_cluster(cluster_name, plane) as cluster, simulated_node(cluster):
        frameworks = Frameworks(await cluster.client(), cluster.namespace)
        late: list[float] = []
        async with Controller(_CONFIG, await cluster.connection()) as controller:
            watching = asyncio.create_task(_watch_loop(late))
            began = time.perf_counter()
            worker = role(
                "a", number, simulate={"run-seconds": run_seconds}, frameworkAttemptCompletionPolicy=policy(1)
            )
            await frameworks.create("f", worker)
            largest, seen, told = 0, "", began
            status: Json = {}
            while seen != "Completed":
                await asyncio.sleep(1)
                status = await frameworks.status("f")
                entry = controller.ledger.get(f"{cluster.namespace}/f")
                size = len(orjson.dumps(status))
                largest = max(largest, size)
                if status and (status["state"] != seen or time.perf_counter() - told > _TELL_SEC):
                    seen, told = status["state"], time.perf_counter()
                    states = Counter(str(task.state) for _, task in entry.tracker.tasks()) if entry else {}
                    print(f"{told - began:7.1f} s  {seen}, status {size:,} bytes, {dict(states)}", flush=True)
            completion = status["attemptStatus"]["completionStatus"]
            print(f"{completion['phrase']}: {completion['diagnostics']}")
            print(f"largest status: {largest:,} bytes of 1,572,864")
            late.sort()
            print(
                f"event loop late by at most {late[-1] * 1000:.0f} ms, 99% {late[int(len(late) * 0.99)] * 1000:.0f} ms"
            )
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching


def main() -> None:
    """Run as asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("number", type=int, nargs="?", default=10_000, help="Tasks (default: 10000)")
    parser.add_argument("--cluster", default="1.20", help="control plane (default: 1.20)")
    parser.add_argument("--run-seconds", type=float, default=10.0, help="how long each Task runs (default: 10)")
    options = parser.parse_args()
    assets = find_assets(options.cluster)
    if assets is None:
        parser.exit(2, f"no control plane {options.cluster} on this machine\n")
    with ControlPlane(assets) as plane:
        uvloop.run(_measure(options.cluster, plane, options.number, options.run_seconds))


if __name__ == "__main__":
    main()
