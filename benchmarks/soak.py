"""An hour of churn: thousands of Frameworks come and go, and the controller's memory must stay flat.

    python -m benchmarks.soak --minutes 60 --rate 2.5 --csv soak.csv

The embedded cluster, its simulated node and the users live in this process, the controller in one of its own, which
says every few seconds how much it holds. A row of the CSV is one such sample. `benchmarks.soak_graph` draws it.

Exit code 1: the controller ended, something was left over, or it grew after its warm-up.
"""

import argparse
import asyncio
import csv
import gc
import os
import random
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import median

import orjson
import uvloop
import yaml

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.cli.runcontroller import tune_garbage_collector
from frameworkcontroller.config.config import Config
from frameworkcontroller.controller.eventcorrelator import CACHE_CAPACITY
from frameworkcontroller.controller.recorder import EventRecorder
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.errors import KubeError, NotFound
from frameworkcontroller.kube.resources import CONFIGMAPS, CRDS, PODS
from frameworkcontroller.local.apiserver.restserver import ApiServer
from frameworkcontroller.local.kubelet.agent import NodeAgent
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.logs import configure_logging
from frameworkcontroller.manager.app import Controller
from tests.support.frameworks import Frameworks, policy, role
from tests.support.realcluster import CRD

_NAMESPACE = "default"
_RETAIN_SEC = 60
_WARM_UP = 0.2
"""Part of the run after which nothing may grow any more, if by then the controller remembers as many Events as it ever
will: that takes some 4,100 Frameworks."""
_GROWTH = 1.10
"""How much more the last fifth of a run may hold than the fifth after the warm-up; churn alone makes some."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Sample:
    """What the controller holds at one moment. ``seconds`` since its start, memory in MiB."""

    seconds: float
    rss_mib: float
    tasks: int
    fds: int
    queued: int
    reconcilers: int
    frameworks: int
    configmaps: int
    pods: int
    garbage: int
    """Objects that the garbage collector has found unreachable so far."""
    full: bool
    """Whether it remembers as many Events as it ever will."""


# --- the controller's process -----------------------------------------------------------------------------------


def _remembers_all(recorder: EventRecorder) -> bool:
    correlator = recorder._correlator
    caches = (correlator._events, correlator._similar, correlator._buckets)
    return all(len(cache) == CACHE_CAPACITY for cache in caches)


async def _control(url: str, every: float) -> None:
    """Run a controller, and write a sample to standard output every so many seconds, until that is closed."""
    configure_logging()
    config = Config(framework_completed_retain_sec=_RETAIN_SEC, kube_client_qps=1000, kube_client_burst=1000)
    began = time.monotonic()
    token = os.environ["SOAK_TOKEN"]
    async with Controller(config, Connection.to_address(url, token=token)) as controller:
        tune_garbage_collector()
        while True:
            sample = Sample(
                seconds=round(time.monotonic() - began, 1),
                rss_mib=round(int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / 2**20, 2),
                tasks=len(asyncio.all_tasks()),
                fds=sum(1 for _ in Path("/proc/self/fd").iterdir()),
                queued=len(controller.queue),
                reconcilers=len(controller.reconcilers),
                frameworks=len(controller.informers.frameworks.lister),
                configmaps=len(controller.informers.configmaps.lister),
                pods=len(controller.informers.pods.lister),
                garbage=sum(generation["collected"] for generation in gc.get_stats()),
                full=_remembers_all(controller.recorder),
            )
            try:
                sys.stdout.buffer.write(orjson.dumps(asdict(sample)) + b"\n")
                sys.stdout.buffer.flush()
            except BrokenPipeError:
                return
            await asyncio.sleep(every)


# --- the users --------------------------------------------------------------------------------------------------


def _some_roles(rng: random.Random) -> list[dict[str, object]]:
    """One to three small roles whose Pods end within some seconds, in all the ways that Pods end."""
    roles = []
    for name in "abc"[: rng.choice([1, 1, 2, 3])]:
        simulate = {
            "run-seconds": rng.choice(["0", "1", "5", "20", "2, 8"]),
            "exit-code": rng.choice(["0", "0", "0", "1, 0", "200, 0", "1"]),
            "stop-seconds": rng.choice(["0", "0", "2"]),
        }
        retry = {"fancyRetryPolicy": rng.random() < 0.5, "maxRetryCount": rng.choice([0, 1, 2])}
        ends = rng.choice([policy(), policy(1), policy(-1, 1)])
        roles.append(
            role(
                name,
                rng.randint(1, 4),
                simulate=simulate,
                task={"retryPolicy": retry},
                frameworkAttemptCompletionPolicy=ends,
            )
        )
    return roles


async def _live(frameworks: Frameworks, name: str, rng: random.Random) -> None:
    """What a user does with one Framework; its end is the controller's business."""
    await frameworks.create(name, *_some_roles(rng), retryPolicy={"maxRetryCount": rng.choice([0, 0, 1])})
    fate = rng.random()
    if fate > 0.4:
        return
    await asyncio.sleep(rng.uniform(0.0, 10.0))
    with suppress(NotFound):
        if fate < 0.1:
            # Not to 0: a Framework without Tasks never completes by itself.
            await frameworks.set(name, taskRoles__0__taskNumber=rng.randint(1, 5))
        elif fate < 0.2:
            await frameworks.set(name, executionType="Stop")
        elif fate < 0.3:
            await frameworks.delete(name)
        else:
            await frameworks.delete_pod(f"{name}-a-0")


async def _churn(frameworks: Frameworks, rate: float, end: float, seed: int) -> int:
    """Users come at ``rate`` per second until ``end``; how many there were."""
    rng = random.Random(seed)
    clock = asyncio.get_running_loop().time
    number = 0
    failures: list[BaseException] = []

    def over(task: asyncio.Task[None]) -> None:
        living.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            failures.append(error)

    living: set[asyncio.Task[None]] = set()
    while clock() < end and not failures:
        number += 1
        task = asyncio.create_task(_live(frameworks, f"f{number}", random.Random(rng.getrandbits(64))))
        living.add(task)
        task.add_done_callback(over)
        await asyncio.sleep(rng.expovariate(rate))
    if living:
        await asyncio.wait(living)
    if failures:
        raise failures[0]
    return number


# --- the whole --------------------------------------------------------------------------------------------------


async def _read(process: asyncio.subprocess.Process, samples: list[Sample], file: Path, told: float) -> None:
    assert process.stdout is not None
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, [field.name for field in fields(Sample)])
        writer.writeheader()
        last = -told
        async for line in process.stdout:
            sample = Sample(**orjson.loads(line))
            samples.append(sample)
            writer.writerow(asdict(sample))
            out.flush()
            if sample.seconds - last >= told:
                last = sample.seconds
                print(sample, flush=True)


async def _nothing_left(client: KubeClient, within: float) -> bool:
    """Whether all Frameworks, and all that was made for them, go by themselves."""
    clock = asyncio.get_running_loop().time
    end = clock() + within
    while clock() < end:
        counts = [
            len(orjson.loads(await client.list(resource, _NAMESPACE))["items"])
            for resource in (FRAMEWORKS, CONFIGMAPS, PODS)
        ]
        if not any(counts):
            return True
        await asyncio.sleep(2)
    return False


async def _soak(minutes: float, rate: float, every: float, seed: int, file: Path) -> int:
    samples: list[Sample] = []
    async with (
        ApiServer() as server,
        KubeClient(Connection.to_address(server.url, token=server.authenticator.token)) as client,
    ):
        await client.create(CRDS, orjson.dumps(yaml.safe_load(CRD.read_text())))
        node = asyncio.create_task(NodeAgent(client, SimulatedRuntime()).run())
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.soak", "--control", server.url, "--every", str(every),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "SOAK_TOKEN": server.authenticator.token},
        )  # fmt: skip
        reading = asyncio.create_task(_read(process, samples, file, 60.0))
        end = asyncio.get_running_loop().time() + minutes * 60
        ended = asyncio.create_task(process.wait())
        churning = asyncio.create_task(_churn(Frameworks(client, _NAMESPACE), rate, end, seed))
        try:
            await asyncio.wait([ended, churning], return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                print(f"the controller ended with {process.returncode}")
                return 1
            number = churning.result()
            print(f"{number} Frameworks came; waiting for them to go")
            # Six attempts at a Task of 20 s take two minutes.
            left = not await _nothing_left(client, _RETAIN_SEC + 240)
            # Some more samples of the controller that has nothing to do.
            await asyncio.sleep(3 * every)
        except KubeError as error:
            print(f"a user was refused: {error}")
            return 1
        finally:
            churning.cancel()
            ended.cancel()
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            await reading
            node.cancel()
            with suppress(asyncio.CancelledError):
                await node
    if left:
        print("something is left over")
        return 1
    return _judge([sample for sample in samples if sample.seconds <= minutes * 60], samples[-1])


def _judge(samples: list[Sample], last: Sample) -> int:
    """Compare the fifth after the warm-up with the last one."""
    fifth = max(1, len(samples) // 5)
    filled = next((index for index, sample in enumerate(samples) if sample.full), len(samples))
    start = min(max(int(len(samples) * _WARM_UP), filled), max(0, len(samples) - 2 * fifth))
    if filled > start:
        print("too short to tell growth from warming up: the memory of Events was not full in time")
    early, late = samples[start:][:fifth], samples[-fifth:]
    print(f"from {early[0].seconds / 60:.0f} to {early[-1].seconds / 60:.0f} min -> the last fifth")
    bad = 0
    for field in fields(Sample):
        if field.name in ("seconds", "garbage", "full"):
            continue
        before, after = (median(getattr(one, field.name) for one in part) for part in (early, late))
        # Small counts go up and down by themselves.
        grew = after > before * _GROWTH + (0 if field.name == "rss_mib" else 20)
        bad += grew
        print(f"{field.name:12} {before:10.1f} -> {after:10.1f}, idle {getattr(last, field.name)}{' GREW' * grew}")
    return int(bad > 0)


def main() -> None:
    """Run as asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="how long Frameworks come (default: 60)")
    parser.add_argument("--rate", type=float, default=2.5, help="Frameworks a second (default: 2.5)")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between samples (default: 5)")
    parser.add_argument("--seed", type=int, default=1, help="what users do (default: 1)")
    parser.add_argument("--csv", type=Path, default=Path("soak.csv"), help="where the samples go (default: soak.csv)")
    parser.add_argument("--control", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.control is not None:
        uvloop.run(_control(options.control, options.every))
    else:
        sys.exit(uvloop.run(_soak(options.minutes, options.rate, options.every, options.seed, options.csv)))


if __name__ == "__main__":
    main()
