"""Histories of Frameworks without the later fields of the API, and the requests that the controller sends in them.

They are recorded with the code of the commit before these fields, and played with today's (test_traces.py). Nothing
else of the tests is imported, as it may change:

    git worktree add --detach /tmp/before COMMIT
    PYTHONPATH=/tmp/before python tests/golden/traces.py > tests/golden/traces.xz

The cluster is a model of one Framework and one controller, with caches that follow and requests that fail at random.
"""

from __future__ import annotations

import lzma
import random
import re
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import PodRecord, configmap_record, framework_record, pod_record
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.config.config import shipped_config
from frameworkcontroller.controller.requestsender import send
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import TransportError, error_from_status
from frameworkcontroller.machine.kernel.model import Env, Observed
from frameworkcontroller.machine.kernel.protocol import Done, Emit, Wait
from frameworkcontroller.machine.reconciler import Reconciler

HISTORIES: Final = 40
_EARLY_SEC: Final = 60
STEPS: Final = 45
_LIMITS: Final = shipped_config().plan_limits()
_NOW: Final = 1_700_000_000
_ATTEMPT: Final = names.configmap_name("f")
_REFUSALS: Final = (
    (403, "Forbidden", "exceeded quota: q"),
    (422, "Invalid", "the object is invalid"),
    (429, "TooManyRequests", "later"),
    (500, "InternalError", "it fails"),
)
_WAITS: Final = re.compile(r'("message":"FrameworkAttempt \d+) waits: [^"]*')
_HEADLINE: Final = re.compile(r',"phase":"\w+"(?:,"reason":"\w+")?(?:,"message":"(?:[^"\\]|\\.)*")?')
_CAUSE: Final = re.compile(
    r"((?:TaskFailed|Framework(?:Failed|AttemptComplet\w+))!?: .* with -?\d+ [^:]*).*", re.DOTALL
)
_STOPPED: Final = re.compile(r'(?<="failed":)(\d+)(?:,"stopped":(\d+))?')
_CODES: Final = (0, 0, 0, 1, 137, 139, 200, 201, 210)

Json = dict[str, Any]


def trace(seed: int) -> list[str]:
    """The requests, records and waits of one history, as lines."""
    return _History(seed).play()


def _without_words(line: str) -> str:
    line = _HEADLINE.sub("", _WAITS.sub(r"\1", line)).replace("FrameworkStopped:", "FrameworkFailed:")
    return _STOPPED.sub(lambda found: str(int(found[1]) + int(found[2] or 0)), _CAUSE.sub(r"\1", line))


def diff(before: list[str], after: list[str]) -> str:
    """The first difference of two traces in words; empty if there is none.

    Left out are later additions that change no request: the reason to wait in the message of the condition Running,
    phase, reason and message of the status, the causes in records of ends, and records of likely mistakes. Stopped
    Tasks counted as failed before, and so did a stopped Framework.
    """
    after = [line for line in after if not line.startswith("LikelyMistake")]
    before, after = ([_without_words(line) for line in trace] for trace in (before, after))
    for number, (one, other) in enumerate(zip(before, after, strict=False)):
        if one != other:
            return f"line {number}:\nbefore: {one}\nnow:    {other}"
    if len(before) == len(after):
        return ""
    number = min(len(before), len(after))
    return f"line {number}: {len(before)} lines before, {len(after)} now: {(before + after)[number]}"


class _History(KubeClient):
    """The API server, the caches and the driver of one history."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._of_machine = random.Random(~seed)
        self._lines: list[str] = []
        self._clock = 1000.0
        self._versions = 0
        self._objects: dict[str, Json] = {}
        """ConfigMap and Pods by name."""
        self._fails = 0.0
        """Probability that a request fails."""
        self._framework: Json = {
            "metadata": {"name": "f", "namespace": "ns", "uid": "u-f", "generation": 1},
            "spec": self._draw_spec(),
            "status": None,
        }
        self._touch(self._framework)
        self._record: Any = framework_record(self._framework)
        self._seen: dict[str, Any] = {}
        """The cached records by name."""
        self._machine: Reconciler | None = Reconciler(self._record)

    # --- the view of the machine ---

    @property
    def record(self) -> Any:
        return self._record

    @property
    def env(self) -> Env:
        return Env(_NOW + self._clock, self._clock, self._of_machine, _LIMITS)

    def observe(self, *, creating: bool) -> Observed:
        pods = {name: record for name, record in self._seen.items() if isinstance(record, PodRecord)}
        configmap = self._seen.get(_ATTEMPT)
        return Observed(
            configmap,
            pods.get,
            lambda: list(pods.values()),
            configmaps_listed=self._clock - 1,
            pods_listed=self._clock - 1,
            creating=creating,
        )

    # --- what happens ---

    def play(self) -> list[str]:
        """The whole history."""
        happenings: list[Callable[[], None]] = [
            *[self._see] * 6,
            *[self._run_pod] * 4,
            *[self._end_pod] * 4,
            *[self._collect] * 3,
            self._delete_pod,
            self._disrupt_pod,
            self._delete_configmap,
            self._unlabel,
            self._wait,
            self._wait,
            self._edit,
            self._edit,
            self._crash,
            self._fail,
            self._resync,
        ]
        self._work()
        for _ in range(STEPS):
            self._rng.choice(happenings)()
            self._work()
        self._fails = 0.0
        for _ in range(12):
            self._run_pod(every=True)
            self._see()
            self._work()
            self._end_pod(every=True)
            for _ in range(3):
                self._see()
                self._work()
                self._collect()
            self._wait()
        return self._lines

    def _draw_spec(self) -> Json:
        rng = self._rng
        return {
            "executionType": "Start",
            "retryPolicy": self._draw_retry(),
            "taskRoles": [self._draw_role(name) for name in "ab"[: rng.randint(1, 2)]],
        }

    def _draw_retry(self) -> Json:
        return {"fancyRetryPolicy": self._rng.random() < 0.5, "maxRetryCount": self._rng.choice((0, 1, 2, -1, -2))}

    def _draw_role(self, name: str) -> Json:
        rng = self._rng
        pod = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "{{FC_TASK_INDEX}}"}]}}
        task: Json = {"retryPolicy": self._draw_retry(), "pod": pod}
        if rng.random() < 0.3:
            task["podGracefulDeletionTimeoutSec"] = rng.choice((0, 60))
        counts = {"minFailedTaskCount": rng.choice((1, -1, 2)), "minSucceededTaskCount": rng.choice((-1, 1))}
        return {"name": name, "taskNumber": rng.randint(1, 3), "frameworkAttemptCompletionPolicy": counts, "task": task}

    def _see(self) -> None:
        """The caches catch up."""
        self._record = framework_record(self._framework)
        if self._machine is not None:
            self._machine.on_framework_event(self._record)
        for name, body in self._objects.items():
            if names.FRAMEWORK_NAME not in (body["metadata"].get("labels") or {}):
                continue
            before, now = self._seen.get(name), _record_of(body)
            self._seen[name] = now
            if self._machine is not None and (before is None or before != now) and name != _ATTEMPT:
                self._machine.on_pod_event(name)
        for name in list(self._seen):
            found = self._objects.get(name)
            if found is not None and names.FRAMEWORK_NAME in (found["metadata"].get("labels") or {}):
                continue
            last = self._seen.pop(name)
            if self._machine is None:
                continue
            if name == _ATTEMPT:
                self._machine.on_configmap_dropped(last)
            else:
                self._machine.on_pod_dropped(last, removed=found is None and last.is_removed)
                self._machine.on_pod_event(name)

    def _pods(self) -> list[Json]:
        return [body for name, body in sorted(self._objects.items()) if name != _ATTEMPT]

    def _some_pod(self) -> list[Json]:
        pods = self._pods()
        return [self._rng.choice(pods)] if pods else []

    def _run_pod(self, *, every: bool = False) -> None:
        for pod in self._pods() if every else self._some_pod():
            if pod["status"]["phase"] == "Pending":
                pod["spec"]["nodeName"] = "node-1"
                pod["status"] = {"phase": "Running", "podIP": "10.0.0.1", "hostIP": "10.0.1.1"}
                self._touch(pod)

    def _end_pod(self, *, every: bool = False) -> None:
        for pod in self._pods() if every else self._some_pod():
            if pod["status"]["phase"] == "Running":
                code = self._rng.choice(_CODES)
                ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}
                container = {"name": "main", "state": {"terminated": ended}}
                phase = "Failed" if code else "Succeeded"
                pod["status"] = {**pod["status"], "phase": phase, "containerStatuses": [container]}
                self._touch(pod)

    def _delete_pod(self) -> None:
        for pod in self._some_pod():
            self._delete(pod["metadata"]["name"], force=self._rng.random() < 0.2)

    def _disrupt_pod(self) -> None:
        for pod in self._some_pod():
            reason = self._rng.choice(("DeletionByTaintManager", "PreemptionByScheduler", "Unheard"))
            if pod["metadata"]["creationTimestamp"] > format_time(int(_NOW + self._clock) - _EARLY_SEC):
                # Counts in the row of retries since.
                continue
            condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "why"}
            pod["status"] = {**pod["status"], "conditions": [condition]}
            self._delete(pod["metadata"]["name"])

    def _delete_configmap(self) -> None:
        if self._rng.random() < 0.4 and _ATTEMPT in self._objects:
            self._delete(_ATTEMPT)

    def _unlabel(self) -> None:
        for pod in self._some_pod():
            pod["metadata"]["labels"] = {}
            self._touch(pod)

    def _collect(self) -> None:
        """Nodes end terminating Pods, and the garbage collector follows."""
        attempt = self._objects.get(_ATTEMPT)
        uid = None if attempt is None else attempt["metadata"]["uid"]
        for pod in self._pods():
            owner = next((one["uid"] for one in pod["metadata"].get("ownerReferences") or ()), None)
            deleting = "deletionTimestamp" in pod["metadata"]
            if deleting:
                pod["metadata"]["deletionGracePeriodSeconds"] = 0
                self._touch(pod)
                self._seen.update({pod["metadata"]["name"]: _record_of(pod)} if self._rng.random() < 0.8 else {})
                del self._objects[pod["metadata"]["name"]]
            elif owner != uid or (attempt is not None and "deletionTimestamp" in attempt["metadata"]):
                self._delete(pod["metadata"]["name"])
        if attempt is not None and "deletionTimestamp" in attempt["metadata"] and not self._pods():
            del self._objects[_ATTEMPT]

    def _wait(self) -> None:
        self._clock += self._rng.choice((1, 5, 30, 400, 1000))

    def _edit(self) -> None:
        rng, spec = self._rng, self._framework["spec"]
        kind = rng.randrange(6)
        if kind == 0 and rng.random() < 0.3:
            spec["executionType"] = "Stop"
        elif kind == 1:
            spec["retryPolicy"] = self._draw_retry()
        elif kind == 2 and len(spec["taskRoles"]) == 2:
            del spec["taskRoles"][rng.randrange(2)]
        elif kind == 3 and len(spec["taskRoles"]) == 1 and spec["taskRoles"][0]["name"] == "a":
            spec["taskRoles"].append(self._draw_role("b"))
        else:
            spec["taskRoles"][0]["taskNumber"] = rng.randint(0, 4)
        self._framework["metadata"]["generation"] += 1
        self._touch(self._framework)
        self._see()

    def _crash(self) -> None:
        self._record = framework_record(self._framework)
        self._seen.clear()
        self._see()
        self._machine = Reconciler(self._record)

    def _fail(self) -> None:
        self._fails = self._rng.choice((0.0, 0.1, 0.4))

    def _resync(self) -> None:
        if self._machine is not None:
            self._machine.resync()

    # --- the controller ---

    def _work(self) -> None:
        """Passes, until nothing is due within a few seconds."""
        for _ in range(20):
            done = self._pass()
            if done is None or done.error is not None:
                self._clock += 1.0
                return
            if done.requeue_after is None or done.requeue_after > 3.0:
                return
            self._clock += done.requeue_after

    def _pass(self) -> Done | None:
        machine = self._machine
        if machine is None:
            return None
        try:
            for _ in range(200):
                instruction = machine.next(self)
                self._tell_effects()
                if isinstance(instruction, Done):
                    error = "" if instruction.error is None else f": {instruction.error}"
                    wait = instruction.requeue_after
                    self._lines.append(f"done, {None if wait is None else round(wait, 3)}{error}")
                    return instruction
                if isinstance(instruction, Wait):
                    raise TypeError("a wait, with no call in flight")
                request = machine.begin(instruction, self)
                self._tell_effects()
                while request is not None:
                    request = machine.on_answer(instruction, _run(send(self, request, "ns", "ns/f")))
                    self._tell_effects()
        except Exception as error:  # noqa: BLE001 - a part of the trace
            self._lines.append(f"raised {type(error).__name__}: {error}")
        # As after a quarantine.
        self._machine = None
        return None

    def _tell_effects(self) -> None:
        assert self._machine is not None
        for effect in self._machine.effects():
            if isinstance(effect, Emit):
                for record in effect.records:
                    where = "" if record.role is None else f"{record.role}[{record.index}] "
                    self._lines.append(f"{where}{record.reason.value}{'!' * record.warning}: {record.message}")

    # --- the API server ---

    async def exchange(self, request: Any) -> bytes:
        """Answer a request, and write it down."""
        body = (request.body or b"").decode()
        accept = request.headers.get("Accept", "")
        self._lines.append(f"{request.method} {request.path} {_query_of(request)} {accept} {body}".replace("  ", " "))
        if self._rng.random() < self._fails:
            if self._rng.random() < 0.5:
                code, reason, message = self._rng.choice(_REFUSALS)
                raise error_from_status({"reason": reason, "message": message, "code": code}, code=code)
            if self._rng.random() < 0.5:
                self._execute(request, body)
            raise TransportError("no answer")
        return orjson.dumps(self._execute(request, body))

    def _execute(self, request: Any, body: str) -> Json:
        name = request.path.removesuffix("/status").rpartition("/")[2]
        is_framework = "/frameworks/" in request.path
        if request.method == "POST":
            return self._create(orjson.loads(body))
        if is_framework and request.method == "PATCH":
            return self._patch_status(orjson.loads(body))
        if is_framework and request.method == "DELETE":
            self._framework["metadata"]["deletionTimestamp"] = format_time(int(_NOW + self._clock))
            self._touch(self._framework)
        if is_framework:
            return self._framework
        if (found := self._objects.get(name)) is None:
            kind = request.path.rpartition("/")[0].rpartition("/")[2]
            details = {"name": name, "kind": kind}
            raise error_from_status({"reason": "NotFound", "message": "gone", "details": details}, code=404)
        if request.method == "DELETE":
            options = orjson.loads(body)
            if options.get("preconditions", {}).get("uid") not in (None, found["metadata"]["uid"]):
                raise error_from_status({"reason": "Conflict", "message": "another UID"}, code=409)
            self._delete(name, force=options.get("gracePeriodSeconds") == 0)
        elif request.method == "PATCH":
            found["metadata"].update(labels=orjson.loads(body)["metadata"]["labels"])
            self._touch(found)
        return found

    def _create(self, body: Json) -> Json:
        name = body["metadata"]["name"]
        if name in self._objects:
            raise error_from_status({"reason": "AlreadyExists", "message": "it exists"}, code=409)
        self._touch(body)
        created = format_time(int(_NOW + self._clock))
        body["metadata"] |= {"uid": f"u-{self._versions}", "namespace": "ns", "creationTimestamp": created}
        if name != _ATTEMPT:
            body["status"] = {"phase": "Pending"}
        self._objects[name] = body
        return body

    def _patch_status(self, operations: list[Json]) -> Json:
        metadata = self._framework["metadata"]
        for operation in operations:
            if operation["op"] == "test" and metadata[operation["path"].rpartition("/")[2]] != operation["value"]:
                raise error_from_status({"reason": "Invalid", "message": "a test failed"}, code=422)
        self._framework["status"] = operations[-1]["value"]
        self._touch(self._framework)
        return self._framework

    def _delete(self, name: str, *, force: bool = False) -> None:
        body = self._objects[name]
        ended = body.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if name != _ATTEMPT and (force or ended):
            del self._objects[name]
        elif "deletionTimestamp" not in body["metadata"]:
            grace = 30 if name != _ATTEMPT else 0
            when = format_time(int(_NOW + self._clock + grace))
            body["metadata"] |= {"deletionTimestamp": when, "deletionGracePeriodSeconds": grace}
            self._touch(body)

    def _touch(self, body: Json) -> None:
        self._versions += 1
        body["metadata"]["resourceVersion"] = str(self._versions)


def _record_of(body: Json) -> Any:
    return configmap_record(body) if body["metadata"]["name"] == _ATTEMPT else pod_record(body)


def _query_of(request: Any) -> str:
    return "&".join(f"{name}={value}" for name, value in sorted((request.query or {}).items()))


def _run(awaited: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that waits for nothing."""
    try:
        awaited.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


def packed() -> bytes:
    """All traces, compressed."""
    return lzma.compress(orjson.dumps([trace(seed) for seed in range(HISTORIES)]), preset=9 | lzma.PRESET_EXTREME)


def unpacked(data: bytes) -> list[list[str]]:
    """The traces in ``packed``."""
    traces: list[list[str]] = orjson.loads(lzma.decompress(data))
    return traces


if __name__ == "__main__":
    sys.stdout.buffer.write(packed())
