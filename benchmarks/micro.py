"""Micro-benchmarks of the hot paths, without an API server.

    python -m benchmarks.micro [NAME ...]

Prints microseconds for each call (the best of several runs, as the rest is other people's noise), and the memory that
a watched Pod and a Task take. Nothing asserts on these figures.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import logging
import os
import random
import time
import timeit
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson

from benchmarks.jobs import framework
from benchmarks.node import pod_status
from frameworkcontroller.api.codec import EncodedStatus, decode_status, encode_status, encode_task
from frameworkcontroller.api.completion import POD_SUCCEEDED, CompletionStatus
from frameworkcontroller.api.names import pod_name
from frameworkcontroller.api.objects import Framework, PodRecord, configmap_record, pod_record
from frameworkcontroller.api.spec import parse_spec
from frameworkcontroller.api.status import FrameworkStatus, State
from frameworkcontroller.config.config import shipped_config
from frameworkcontroller.controller.eventhandlers import framework_key
from frameworkcontroller.kube.indexer import Indexer
from frameworkcontroller.kube.parsing import loads_without_managed_fields
from frameworkcontroller.kube.workqueue import WorkQueue
from frameworkcontroller.logs import configure_logging
from frameworkcontroller.machine.kernel.manifests import PodTemplate, configmap_body
from frameworkcontroller.machine.kernel.model import Env, Observed
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.nextattempt import new_status
from frameworkcontroller.machine.plan import plan

_RUNS: Final = 5
_RUN_SEC: Final = 0.2
_UID: Final = "6f9619ff-8b86-d011-b42d-00c04fc964ff"


class _Job:
    """A Framework of so many Tasks, all of them running, with what the caches would hold."""

    def __init__(self, tasks: int) -> None:
        self.env = Env(1_700_000_000.0, 0.0, random.Random(1), shipped_config().plan_limits())
        self.subject = Framework("default", "f", _UID, 1, False, parse_spec(framework("f", tasks)["spec"]))
        self.status: FrameworkStatus = new_status(self.subject, self.env)
        attempt = self.status.attempt
        attempt.configmap_uid = _UID
        self.status.state = State.RUNNING
        role = attempt.roles[0]
        self.template = PodTemplate(self.subject, attempt, self.subject.spec.task_roles[0], role.instance_uid)
        for task in role.tasks:
            task.attempt.pod_uid = self.env.new_uid()
            task.attempt.pod_node_name, task.attempt.pod_ip, task.attempt.pod_host_ip = "bench", "10.1.2.3", "10.0.0.1"
            task.state = State.RUNNING
            task.run_time = task.attempt.run_time = self.env.second
        configmap = orjson.loads(configmap_body(self.subject, 0, {}))
        configmap["metadata"] |= {"uid": _UID, "resourceVersion": "1"}
        self.configmap = configmap_record(configmap)

    def pod(self, index: int) -> bytes:
        """The Pod of a Task as the API server would send it, managedFields and all."""
        task = self.status.attempt.roles[0].tasks[index]
        body: dict[str, Any] = orjson.loads(self.template.render(task))
        uid = task.attempt.pod_uid or ""
        managers: list[dict[str, Any]] = [
            {
                "manager": manager,
                "operation": "Update",
                "apiVersion": "v1",
                "time": "2026-01-01T00:00:00Z",
                "fieldsType": "FieldsV1",
                "fieldsV1": {f"f:{part}": {f"f:{number}": {} for number in range(30)} for part in ("metadata", "spec")},
            }
            for manager in ("frameworkcontroller", "kubelet")
        ]
        body["metadata"] |= {
            "uid": uid,
            "resourceVersion": str(1000 + index),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": managers,
        }
        body["status"] = pod_status(uid, "Running")
        return orjson.dumps(body)


def _planning(tasks: int) -> Callable[[], object]:
    """One plan after the Pod of one Task has changed; everything is persisted."""
    job = _Job(tasks)
    records = {pod_name("f", "a", index): pod_record(orjson.loads(job.pod(index))) for index in range(tasks)}
    tracker = Tracker(job.status)
    observed = Observed(job.configmap, records.get)
    while tracker.is_busy:
        plan(job.subject, tracker, observed, job.env)
    tracker.on_persisted()
    addresses = itertools.cycle(("10.9.9.8", "10.9.9.9"))
    name = pod_name("f", "a", tasks // 2)

    def run() -> None:
        records[name] = replace(records[name], pod_ip=next(addresses))
        tracker.agenda.look(("a", tasks // 2))
        plan(job.subject, tracker, observed, job.env)
        tracker.on_persisted()

    return run


def _encoding(tasks: int, *, changed: int) -> Callable[[], object]:
    """The whole status after some Tasks have changed, compressed where it is large."""
    job = _Job(tasks)
    encode_status("f", job.status)

    def run() -> bytes:
        for task in job.status.attempt.roles[0].tasks[:changed]:
            task.encoded = None
        return EncodedStatus("f", job.status, compress=True).body

    return run


def _queueing() -> Callable[[], object]:
    queue: WorkQueue[str] = WorkQueue(time.monotonic)
    keys = [f"default/f{number}" for number in range(100)]

    def run() -> None:
        for key in keys:
            queue.add(key)
        while (taken := queue.get_nowait()) is not None:
            queue.done(taken)

    return run


def _storing() -> Callable[[], object]:
    store: Indexer[PodRecord] = Indexer(framework_key)
    job = _Job(100)
    records = [pod_record(orjson.loads(job.pod(index))) for index in range(100)]

    def run() -> None:
        for record in records:
            store.put(record)

    return run


def _logging() -> Callable[[], object]:
    nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for as long as the process
    configure_logging(stream=nowhere)
    return partial(logging.getLogger("frameworkcontroller.x").info, "[%s]: %s: %s", "default/f", "R", "m")


def benchmarks() -> dict[str, tuple[Callable[[], Callable[[], object]], int]]:
    """By name: what makes the thing to be measured, and how many operations one call of it is."""
    one = _Job(1)
    line = orjson.dumps({"type": "MODIFIED", "object": orjson.Fragment(one.pod(0))})
    parsed = loads_without_managed_fields(line)["object"]
    task = one.status.attempt.roles[0].tasks[0]
    over = CompletionStatus.of(POD_SUCCEEDED, "Pod succeeded")

    def encode_one() -> bytes:
        task.encoded = None
        task.attempt.completion_status = over
        return encode_task("f", "a", task)

    def decode(tasks: int) -> Callable[[], object]:
        return partial(decode_status, orjson.loads(encode_status("f", _Job(tasks).status)))

    return {
        "Pod event: parse, managedFields cut": (lambda: partial(loads_without_managed_fields, line), 1),
        "Pod event: record": (lambda: partial(pod_record, parsed), 1),
        "store: put": (_storing, 100),
        "queue: add, take, done": (_queueing, 100),
        "Pod body": (lambda: partial(one.template.render, task), 1),
        "Task status: encode": (lambda: encode_one, 1),
        **{f"plan: one Pod of {size:,}": (partial(_planning, size), 1) for size in (100, 1000, 10_000)},
        **{
            f"status: encode, one Task of {size:,} changed": (partial(_encoding, size, changed=1), 1)
            for size in (100, 1000, 10_000)
        },
        "status: encode, all 1,000 Tasks changed": (partial(_encoding, 1000, changed=1000), 1),
        "status: decode, 1,000 Tasks": (partial(decode, 1000), 1),
        "log: a line": (_logging, 1),
    }


def memory(number: int = 2000) -> dict[str, float]:
    """Bytes that one watched Pod takes in the cache, and one Task in the tracker, encoded as after a write."""
    job = _Job(number)
    bodies = [job.pod(index) for index in range(number)]
    status = encode_status("f", job.status)
    gc.collect()
    tracemalloc.start()
    store: Indexer[PodRecord] = Indexer(framework_key)
    before = tracemalloc.get_traced_memory()[0]
    for body in bodies:
        store.put(pod_record(loads_without_managed_fields(body)))
    gc.collect()
    pods = tracemalloc.get_traced_memory()[0] - before
    before = tracemalloc.get_traced_memory()[0]
    tracker = Tracker(decode_status(orjson.loads(status)))
    for _ in tracker.tasks():
        pass
    gc.collect()
    plain = tracemalloc.get_traced_memory()[0] - before
    assert tracker.status is not None
    encode_status("f", tracker.status)
    gc.collect()
    encoded = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return {
        "bytes per watched Pod": pods / number,
        "bytes per Task": plain / number,
        "bytes per Task, with its JSON": encoded / number,
    }


def main() -> None:
    """Run as asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only those whose name contains this")
    wanted = parser.parse_args().names
    for name, (make, operations) in benchmarks().items():
        if wanted and not any(part in name for part in wanted):
            continue
        timer = timeit.Timer(make())
        once = timer.timeit(1)
        number = max(1, int(_RUN_SEC / max(once, 1e-7)))
        best = min(timer.repeat(_RUNS, number)) / number / operations
        print(f"{name:45} {best * 1e6:12,.2f} µs")
    if not wanted:
        for name, value in memory().items():
            print(f"{name:45} {value:12,.0f}")


if __name__ == "__main__":
    main()
