"""The small parts that kubelets are made of: timers, workers, addresses, and the Pods' access to the API server."""

import asyncio
import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from subprocess import PIPE

import orjson
import pytest

from frameworkcontroller.kube.errors import ApiServerError, TooManyRequests
from frameworkcontroller.local.addresses import AddressPool
from frameworkcontroller.local.kubelet.node import decode_node
from frameworkcontroller.local.kubelet.podaccess import ApiAccess
from frameworkcontroller.local.kubelet.queueworkers import QueueWorkers
from frameworkcontroller.local.taints import NOT_READY
from frameworkcontroller.local.timers import Timers
from tests.support.virtual_clock import VirtualClockLoop


async def test_timers_fire_in_order_and_only_as_last_set(clock: VirtualClockLoop) -> None:
    fired: list[tuple[str, float]] = []
    began = clock.time()
    timers: Timers[str] = Timers(lambda key: fired.append((key, clock.time() - began)))
    for key, due in [("c", 3.0), ("a", 9.0), ("b", 2.0), ("a", 1.0), ("d", 2.5), ("e", 4.0), ("e", 6.0)]:
        timers.set(key, began + due)
    timers.set("d", None)
    assert sum(not timer.cancelled() for timer in clock._timers) == 1
    await asyncio.sleep(10)
    assert fired == [("a", 1.0), ("b", 2.0), ("c", 3.0), ("e", 6.0)]
    assert len(timers) == 0


async def test_timers_that_are_deferred_forever_take_no_room(clock: VirtualClockLoop) -> None:
    fired: list[str] = []
    timers: Timers[str] = Timers(fired.append)
    timers.set("b", clock.time() + 5)
    for number in range(10_000):
        timers.set("a", clock.time() + 1 + number / 1_000_000)
    assert len(timers._deadlines._heap) < 100
    await asyncio.sleep(10)
    assert fired == ["a", "b"]


async def test_a_timer_may_set_another_when_it_fires(clock: VirtualClockLoop) -> None:
    fired: list[float] = []

    def fire(key: str) -> None:
        fired.append(clock.time())
        if len(fired) < 3:
            timers.set(key, clock.time() + 1)

    timers: Timers[str] = Timers(fire)
    timers.set("a", clock.time() + 1)
    await asyncio.sleep(10)
    assert [time - fired[0] for time in fired] == [0, 1, 2]


class Work:
    """Records which keys are processed at the same time."""

    def __init__(self) -> None:
        self.busy: list[str] = []
        self.most = 0
        self.done: list[str] = []

    async def __call__(self, key: str) -> None:
        assert key not in self.busy
        self.busy.append(key)
        self.most = max(self.most, len(self.busy))
        await asyncio.sleep(1)
        self.busy.remove(key)
        self.done.append(key)


async def test_workers_bound_the_keys_at_once_and_process_no_key_twice_at_once(clock: VirtualClockLoop) -> None:
    work = Work()
    workers = QueueWorkers("test", work, concurrency=3)
    task = asyncio.create_task(workers.run())
    for key in "abcdefgh":
        workers.add(key)
        workers.add(key)
    await asyncio.sleep(0.5)
    workers.add("a")
    workers.add("a")
    await asyncio.sleep(10)
    assert work.most == 3
    assert sorted(work.done) == sorted("abcdefgha")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_workers_retry_a_failed_key_after_a_growing_delay(clock: VirtualClockLoop) -> None:
    tries: list[float] = []

    async def work(_key: str) -> None:
        tries.append(clock.time())
        if len(tries) < 5:
            raise ApiServerError("busy", code=500)
        if len(tries) == 5:
            raise TooManyRequests("later", code=429, retry_after=60.0)
        if len(tries) == 6:
            raise ZeroDivisionError

    workers = QueueWorkers("test", work, concurrency=1)
    task = asyncio.create_task(workers.run())
    workers.add("a")
    await asyncio.sleep(1000)
    assert [round(b - a, 3) for a, b in pairwise(tries)] == [0.2, 0.4, 0.8, 1.6, 60, 6.4]
    task.cancel()


def test_addresses_are_one_pods_own() -> None:
    pool, other = AddressPool(random.Random(1)), AddressPool(random.Random(1))
    try:
        first = pool.allocate("a")
        assert pool.allocate("a") == first
        second = pool.allocate("b")
        pool.release("a")
        pool.release("nobody")
        third = pool.allocate("c")
        assert len({first, second, third}) == 3
        assert first.startswith("127.")
        assert not first.startswith(("127.0.", "127.255."))
        assert other.allocate("a").split(".")[1] != first.split(".")[1]
    finally:
        pool.close()
        other.close()


def test_a_block_of_addresses_is_free_again_when_closed() -> None:
    blocks = []
    for _ in range(2):
        pool = AddressPool(random.Random(7))
        blocks.append(pool.allocate("a"))
        pool.close()
    assert blocks[0] == blocks[1]


def test_how_pods_reach_the_api_server() -> None:
    plain = ApiAccess("http://127.0.0.1:8123")
    assert plain.service_variables()["KUBERNETES_SERVICE_PORT"] == "8123"
    assert plain.service_account("ns") == {"token": b"none", "namespace": b"ns"}
    secure = ApiAccess("https://127.0.0.1:6443", token="t", ca="PEM")
    assert secure.service_account("ns") == {"token": b"t", "namespace": b"ns", "ca.crt": b"PEM"}
    directory = Path("/pod")
    assert plain.local_variables(directory / "kubeconfig") == {
        "KUBECONFIG": "/pod/kubeconfig",
        "KUBE_APISERVER_ADDRESS": "http://127.0.0.1:8123",
    }
    assert "KUBE_APISERVER_ADDRESS" not in secure.local_variables(directory / "kubeconfig")
    config = orjson.loads(secure.kubeconfig("ns", directory / "ca.crt"))
    assert config["clusters"][0]["cluster"] == {
        "server": "https://127.0.0.1:6443",
        "certificate-authority": "/pod/ca.crt",
    }
    assert config["users"][0]["user"] == {"token": "t"}
    assert config["contexts"][0]["context"]["namespace"] == "ns"


@pytest.mark.parametrize(("ready", "keys"), [("True", ["other"]), ("Unknown", [NOT_READY, "other"])])
def test_a_node_that_is_ready_does_not_heed_the_taint_of_new_nodes(ready: str, keys: list[str]) -> None:
    """The API server adds it; only a node controller takes it away, and there may be none."""
    body = {
        "metadata": {"name": "local", "uid": "u"},
        "spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in (NOT_READY, "other")]},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }
    assert [taint["key"] for taint in decode_node(body).taints] == keys


def test_clusters_of_two_processes_have_addresses_of_services_of_their_own() -> None:
    code = (
        "from frameworkcontroller.local.addresses import service_network; print(service_network(), flush=True); input()"
    )
    with (
        subprocess.Popen([sys.executable, "-c", code], stdin=PIPE, stdout=PIPE, text=True) as one,
        subprocess.Popen([sys.executable, "-c", code], stdin=PIPE, stdout=PIPE, text=True) as other,
    ):
        assert one.stdout is not None
        assert other.stdout is not None
        networks = {one.stdout.readline(), other.stdout.readline()}
        one.communicate("\n")
        other.communicate("\n")
    assert len(networks) == 2
    assert "" not in networks
