"""Views of every page, made from Frameworks as a cluster and an archive have them, for tests without either."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.causes import cause
from frameworkcontroller.api.codec import encode_status, pod_completion_body
from frameworkcontroller.api.completion import (
    CONTAINER_PERMANENT_FAILED,
    CONTAINER_TRANSIENT_FAILED,
    FAILED,
    POD_SUCCEEDED,
    CompletionStatus,
    ContainerCompletion,
    PodCompletion,
    Trigger,
)
from frameworkcontroller.api.phases import phase_of_framework
from frameworkcontroller.api.status import (
    AvoidedNode,
    Condition,
    FrameworkAttemptStatus,
    FrameworkStatus,
    ProgressMetric,
    ProgressStatus,
    RetryPolicyStatus,
    State,
    TaskAttemptStatus,
    TaskRoleStatus,
    TaskStatus,
)
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.dashboard.costpage import CostPage, CostQuery
from frameworkcontroller.dashboard.failurepage import FailurePage, FailureQuery
from frameworkcontroller.dashboard.frameworkpage import FrameworkPage, FrameworkSource
from frameworkcontroller.dashboard.listing import FrameworkList, ListQuery, PastRows
from frameworkcontroller.dashboard.live import PodsAndEvents
from frameworkcontroller.dashboard.logpage import LastWords, LogLink, LogPage
from frameworkcontroller.dashboard.rows import live_framework, past_row
from frameworkcontroller.dashboard.taskpage import TaskPage, TaskSource
from frameworkcontroller.dashboard.views import ErrorPage, Note, NoteLevel, Page, Shell
from frameworkcontroller.machine.headline import set_headline
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.views.containerlogs import ArchivedLog
from frameworkcontroller.views.diagnosis import message_of
from frameworkcontroller.views.kubeevents import KubeEvent

Json = dict[str, Any]

NOW: Final = 1_795_000_000
"""2026-11-18T12:26:40Z."""

SUCCEEDED: Final = CompletionStatus.of(POD_SUCCEEDED, "Pod succeeded")


def container_failed(
    code: int, phrase: str, message: str, *, signal: int = 0, reason: str = "Error"
) -> CompletionStatus:
    """The end of a Task whose container failed."""
    containers = (ContainerCompletion("main", code, reason, message, signal),)
    pod = PodCompletion("", "", containers)
    text = f"Pod failed: PodPattern unmatched: {orjson.dumps(pod_completion_body(pod)).decode()}"
    return CompletionStatus(code, phrase, FAILED, (), text, pod=pod)


NO_DATA: Final = container_failed(
    7,
    "ContainerUnrecognizedFailed",
    'Traceback (most recent call last):\n  File "train.py", line 71, in <module>\n'
    "    batches = load(args.data)\nFileNotFoundError: no such file: /data/<script>alert(1)</script>.bin\n",
)
KILLED: Final = container_failed(
    137, "ContainerSigKillReceived", "Memory cgroup out of memory", signal=9, reason="OOMKilled"
)
TRANSIENT: Final = CompletionStatus.of(
    CONTAINER_TRANSIENT_FAILED, "Pod failed", pod=PodCompletion("", "", (ContainerCompletion("main", 200, "Error"),))
)


def task(
    index: int, state: State, end: CompletionStatus | None = None, *, retries: int = 0, began: int = 3000
) -> TaskStatus:
    """A Task whose last attempt began ``began`` seconds ago."""
    start = NOW - began
    ran = start + 4 if state not in (State.CREATION_PENDING, State.CREATION_REQUESTED, State.PREPARING) else None
    over = start + 60 + 7 * (index % 40) if end is not None else None
    has_pod = state is not State.CREATION_PENDING
    attempt = TaskAttemptStatus(
        id=retries,
        start_time=start,
        run_time=ran,
        completion_time=over,
        pod_uid=f"pod-{index}-{retries}" if has_pod else None,
        pod_node_name=f"node-{index % 7}" if ran else "",
        pod_ip=f"10.1.{index // 250}.{index % 250 + 1}" if ran else "",
        pod_host_ip=f"192.168.0.{index % 7 + 1}" if ran else "",
        completion_status=end,
        scheduled_time=start + 1 if ran else None,
    )
    return TaskStatus(
        index=index,
        instance_uid=f"task-{index}",
        start_time=start - 100 * retries,
        transition_time=over or ran or start,
        attempt=attempt,
        state=state,
        run_time=ran,
        completion_time=over if state is State.COMPLETED else None,
        retry=RetryPolicyStatus(retries, retries, 30 if state is State.ATTEMPT_COMPLETED else None),
    )


def framework(
    name: str,
    roles: Mapping[str, Sequence[TaskStatus]],
    state: State = State.RUNNING,
    *,
    namespace: str = "default",
    end: CompletionStatus | None = None,
    retries: int = 0,
    began: int = 3600,
    conditions: Sequence[Condition] = (),
    progress: ProgressStatus | None = None,
    **spec: Any,
) -> Json:
    """A Framework as the API server has it."""
    for role, tasks in roles.items():
        for one in tasks:
            one.role = role
    start = NOW - began
    over = NOW - 120 if end is not None else None
    attempt = FrameworkAttemptStatus(
        id=retries,
        start_time=start,
        run_time=start + 5 if state not in (State.CREATION_PENDING, State.PREPARING) else None,
        completion_time=over,
        configmap_uid="configmap" if state is not State.CREATION_PENDING else None,
        completion_status=end,
        roles=[TaskRoleStatus(role, f"role-{role}", tasks=[*tasks]) for role, tasks in roles.items()],
    )
    status = FrameworkStatus(
        start_time=start - 700 * retries,
        transition_time=over or start + 5,
        attempt=attempt,
        state=state,
        run_time=attempt.run_time,
        completion_time=over if state is State.COMPLETED else None,
        retry=RetryPolicyStatus(retries, retries),
        observed_generation=1,
        conditions=[*conditions],
        progress=progress,
    )
    status.message, status.phase = message_of(status), phase_of_framework(status)
    if state is State.RUNNING and not status.message:
        set_headline(Tracker(status), status, None)
    container = {
        "name": "main",
        "image": "registry.example/train:1.4",
        "command": ["python3", "train.py"],
        "resources": {"limits": {"cpu": "16", "memory": "128Gi", names.GPU: "8"}},
    }
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"0f1e2d3c-{name}",
            "resourceVersion": "4711",
            "generation": 1,
            "creationTimestamp": format_time(status.start_time),
            "labels": {"team": "vision", "run": "<b>bold</b>"},
        },
        "spec": {
            "executionType": "Start",
            "retryPolicy": {"fancyRetryPolicy": False, "maxRetryCount": 2},
            "taskRoles": [
                {"name": role, "taskNumber": len(tasks), "task": {"pod": pod}} for role, tasks in roles.items()
            ],
            **spec,
        },
        "status": orjson.loads(encode_status(name, status)),
    }


def condition(kind: str, status: str, reason: str, message: str) -> Condition:
    """A condition since ten minutes ago."""
    return Condition(kind, status, reason, message, NOW - 600, 1)


def reported(attempt: int, *, age: int = 20, step: int = 8400) -> ProgressStatus:
    """Progress in 20,000 steps, ``age`` seconds ago."""
    figures = {"learning_rate": 2.517e-05, "total_steps": 20_000.0, "loss": 0.2513}
    return ProgressStatus(
        framework_attempt_id=attempt,
        percentage=step // 200,
        remaining_seconds=4200,
        step=step,
        metrics=[ProgressMetric(name, value) for name, value in figures.items()],
        last_report_time=NOW - age,
        last_change_time=NOW - age,
        last_checkpoint_time=NOW - age - 300,
    )


def running(name: str, progress: ProgressStatus | None, state: State = State.RUNNING, **fields: Any) -> Json:
    """A Framework of one Task with that progress."""
    return framework(name, {"worker": [task(0, State.RUNNING)]}, state, progress=progress, **fields)


def training() -> Json:
    """One that runs and reports progress: Tasks of every phase, two of them retried."""
    workers = [
        task(0, State.COMPLETED, SUCCEEDED),
        task(1, State.COMPLETED, SUCCEEDED),
        task(2, State.COMPLETED, NO_DATA, retries=2),
        task(3, State.COMPLETED, KILLED),
        task(4, State.RUNNING, retries=1, began=900),
        task(5, State.PREPARING, began=40),
        task(6, State.ATTEMPT_COMPLETED, TRANSIENT, retries=1, began=300),
        task(7, State.DELETING, KILLED, began=200),
        task(8, State.CREATION_PENDING, began=30),
    ]
    workers[2].avoided_nodes = (AvoidedNode("node-0"), AvoidedNode("node-1"))
    running = condition("Running", "True", "AttemptRunning", "Attempt 1 runs")
    return framework(
        "mnist", {"ps": [task(0, State.RUNNING), task(1, State.RUNNING)], "worker": workers}, retries=1,
        conditions=[running], progress=reported(1),
    )  # fmt: skip


def many(number: int = 10_000) -> Json:
    """One with this number of Tasks."""
    states = [(State.RUNNING, None)] * 12 + [(State.COMPLETED, SUCCEEDED)] * 6
    states += [(State.COMPLETED, NO_DATA), (State.PREPARING, None)]
    tasks = [task(index, *states[(index * 7 + index // 40) % len(states)]) for index in range(number)]
    return framework("sweep", {"worker": tasks}, namespace="research")


def frameworks() -> list[Json]:
    """Live Frameworks in every state, in three namespaces."""
    waiting = [task(index, State.CREATION_PENDING) for index in range(4)]
    idle = "Nothing runs. The FrameworkAttempt waits: "
    policy = Trigger("1 has reached minFailedTaskCount 1", "worker", 1)
    failed = CompletionStatus.of(CONTAINER_PERMANENT_FAILED, "Pod failed", trigger=policy)
    done = {"worker": [task(0, State.COMPLETED, SUCCEEDED), task(1, State.COMPLETED, SUCCEEDED)]}
    broken = {"worker": [task(0, State.COMPLETED, SUCCEEDED), task(1, State.COMPLETED, NO_DATA)]}
    unseen = framework("fresh", {"worker": waiting}, namespace="research")
    del unseen["status"]
    queued = framework(
        "queued", {"worker": waiting}, State.CREATION_PENDING, namespace="research",
        conditions=[
            condition("Running", "False", "QuotaPending", f"{idle}queue gpus has not admitted it"),
            condition("QuotaReserved", "False", "Pending", "insufficient quota for nvidia.com/gpu, 8 more needed"),
            condition("Admitted", "False", "Pending", "not admitted"),
        ],
    )  # fmt: skip
    queued["metadata"]["labels"][names.QUEUE_NAME] = "gpus"
    return [
        training(),
        many(),
        unseen,
        queued,
        framework("good", done, State.COMPLETED, end=SUCCEEDED, began=90_000),
        framework("bad", broken, State.COMPLETED, end=failed, retries=2, began=20_000),
        framework(
            "paused", {"worker": waiting}, State.CREATION_PENDING, namespace="serving", suspend=True,
            conditions=[
                condition("Running", "False", "Suspended", f"{idle}suspend is true"),
                condition("Suspended", "True", "Suspended", "nothing runs"),
            ],
        ),
        framework(
            "stuck", {"web": [task(0, State.RUNNING), task(1, State.CREATION_PENDING)]}, namespace="serving",
            conditions=[
                condition("Stalled", "True", "PodCreationForbidden", 'pods "stuck-web-1" is forbidden: exceeded quota'),
            ],
        ),
    ]  # fmt: skip


def past_items() -> list[Json]:
    """Entries of the archive's list."""
    return [
        {
            "uid": f"past-{number}",
            "namespace": "default",
            "name": "mnist" if number < 3 else f"old{number}",
            "cluster": "",
            "state": "Completed",
            "phase": ("succeeded", "failed", "stopped")[number % 3],
            "diagnostics": "" if number % 3 == 0 else f"ended with {(0, 210, -210)[number % 3]}",
            "code": (0, 210, -210)[number % 3],
            "phrase": ("Succeeded", "ContainerPermanentFailed", "StopFrameworkRequested")[number % 3],
            "type": ("Succeeded", "Failed", "Failed")[number % 3],
            "attempts": 1 + number % 4,
            "taskRetries": number,
            "tasks": 8,
            "failedTasks": int(number % 3 == 1),
            "succeededTasks": 8 if number % 3 == 0 else 1,
            "stoppedTasks": 0 if number % 3 == 0 else 7 - number % 3 % 2,
            "created": format_time(NOW - 86400 * (number + 1)),
            "started": format_time(NOW - 86400 * (number + 1)),
            "completed": format_time(NOW - 86400 * (number + 1) + 3000),
            "archived": format_time(NOW - 86400 * number),
            "deleted": None,
        }
        for number in range(12)
    ]


NO_NODE: Final = "0/7 nodes are available: 7 Insufficient nvidia.com/gpu."

EVENTS: Final = (
    KubeEvent("default", True, NOW - 20, 3, "FailedScheduling", "Pod/mnist-worker-5", NO_NODE),
    KubeEvent("default", False, NOW - 3000, 1, "AttemptRunning", "Framework/mnist", "The attempt 1 runs"),
    KubeEvent("default", True, NOW - 400, 1, "TaskFailed", "Framework/mnist", "worker[2] has failed with code 7"),
)  # fmt: skip

PODS: Final = {"mnist-worker-5": f"Unschedulable: {NO_NODE}"}


def shell(page: str, root: str = "./", *, past: bool = True, live: bool = True, notes: tuple[Note, ...] = ()) -> Shell:
    """The frame of a page."""
    titles = {
        "frameworks": "Frameworks",
        "failures": "Failures",
        "cost": "Cost",
        "framework": "default/mnist",
        "task": "worker[2]",
    }
    title = titles.get(page, "Not found")
    events = f"events?seen={page}" if live and page != "error" else ""
    return Shell(root, page, title, float(NOW), live, past, events, "all namespaces", "", "1.0", notes)


STALE: Final = Note(NoteLevel.WARNING, "Not current for 2m3s: connection to 10.0.0.1:6443 refused", NOW - 123)


def list_page(
    query: Mapping[str, str] | None = None, *, past: bool = True, empty: bool = False, stale: bool = False
) -> FrameworkList:
    """``frameworks.html``."""
    asked = ListQuery.of(query or {})
    found = [] if empty else [live_framework(body) for body in frameworks()]
    matched = asked.ordered(one for one in found if asked.matches(one))
    rows = [past_row(item) for item in past_items()] if past and not empty and asked.which != "live" else []
    frame = shell("frameworks", past=past, notes=(STALE,) if stale else ())
    return FrameworkList(frame, asked, found, matched, PastRows(rows), sorted({one.namespace for one in found}))


def archived_attempts() -> list[Json]:
    """The archive's entry of the first attempt of ``mnist``."""
    return [
        {
            "id": 0,
            "trigger": "OnFrameworkRetry",
            "code": 200,
            "phrase": "ContainerTransientFailed",
            "type": "Failed",
            "diagnostics": "Pod failed",
            "started": format_time(NOW - 4300),
            "completed": format_time(NOW - 3700),
            "tasks": 11,
            "failedTasks": 3,
        }
    ]


def archived_task(index: int, attempt: int) -> Json:
    """The archive's entry of an attempt of a Task of ``worker``."""
    began = NOW - 3000 - 100 * (3 - attempt)
    return {
        "role": "worker",
        "index": index,
        "taskUid": f"task-{index}",
        "attempt": attempt,
        "frameworkAttempt": 1,
        "code": 7,
        "phrase": "ContainerUnrecognizedFailed",
        "type": "Failed",
        "diagnostics": "Pod failed: PodPattern unmatched",
        "node": f"node-{attempt}",
        "pod": f"mnist-worker-{index}",
        "podUid": f"pod-{index}-{attempt}",
        "podIP": "10.1.0.9",
        "hostIP": "192.168.0.3",
        "started": format_time(began),
        "ran": format_time(began + 5),
        "completed": format_time(began + 80),
        "trigger": "OnTaskRetry",
    }


def source(body: Json | None = None, *, past: bool = True) -> FrameworkSource:
    """The data of ``mnist``, or of another one."""
    if body is not None:
        return FrameworkSource(body, body, live=True)
    body = training()
    earlier = framework(
        "mnist",
        {"worker": [task(0, State.COMPLETED, KILLED, began=4300)]},
        State.ATTEMPT_COMPLETED,
        end=TRANSIENT,
        began=4300,
    )
    return FrameworkSource(
        body,
        body,
        live=True,
        attempts=archived_attempts() if past else (),
        earlier=[earlier] if past else (),
        task_attempts=[archived_task(2, 0), archived_task(2, 1)] if past else (),
        retried=[archived_task(2, 0), archived_task(2, 1)] if past else (),
        more=PodsAndEvents(PODS, events=EVENTS),
    )


def one_framework(body: Json | None = None, *, past: bool = True) -> FrameworkPage:
    """``framework.html``, of ``mnist`` unless another one is given."""
    return FrameworkPage(shell("framework", "../../", past=past), source(body, past=past))


def one_task(index: int = 2, *, past: bool = True) -> TaskPage:
    """``task.html``."""
    archived = [(1, archived_task(2, attempt), None) for attempt in (0, 1)] if past and index == 2 else []
    pod = {
        "metadata": {"name": f"mnist-worker-{index}", "uid": f"pod-{index}-0"},
        "spec": {"nodeName": "", "containers": [{"name": "main"}]},
        "status": {
            "phase": "Pending",
            "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": NO_NODE},
            ],
        },
    }  # fmt: skip
    more = PodsAndEvents(pod=pod, events=EVENTS[:1]) if index == 5 else PodsAndEvents()
    known = TaskSource("worker", index, archived, more)
    return TaskPage(shell("task", "../../../../../../", past=past), source(past=past), known)


SAID: Final = """epoch 3: loss 0.71
Traceback (most recent call last):
  File "/app/train.py", line 41, in <module>
    data = open(path)
FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'
"""


def log_item(container: str = "main", **more: Any) -> Json:
    """An archived log in a list."""
    item = {
        "id": 17,
        "frameworkAttempt": 1,
        "role": "worker",
        "index": 2,
        "taskUid": "task-2",
        "attempt": 0,
        "pod": "mnist-worker-2",
        "podUid": "pod-2-0",
        "node": "node-1",
        "container": container,
        "run": 0,
        "captured": format_time(NOW - 60),
        "size": len(SAID),
        "cutStart": False,
        "cutEnd": False,
        "why": "",
        "lastLine": SAID.splitlines()[-1],
    }
    return {**item, **more}


def one_log(*, lost: bool = False) -> LogPage:
    """``log.html``. ``lost``: the archive has only the reason."""
    place = "default", "mnist", "past-1"
    why = "node-1 does not answer" if lost else ""
    item = log_item(cutStart=not lost, size=0 if lost else 100_000, why=why, lastLine="")
    data = "" if lost else b64encode(SAID.encode()).decode()
    others = [LogLink.of(ArchivedLog(log_item("proxy", id=18, run=1)), *place)]
    framework = dict(zip(("namespace", "name", "uid"), place, strict=True))
    return LogPage(shell("log", "../../../../../"), framework, {**item, "text": None, "data": data}, others, lines=2000)


def with_last_words() -> FrameworkPage:
    """``framework.html`` with the end of a log."""
    link, other = (LogLink.of(ArchivedLog(log_item(name)), "default", "mnist", "past-1") for name in ("main", "proxy"))
    words = LastWords("worker", 2, SAID, link, [other])
    return FrameworkPage(shell("framework", "../../"), replace(source(), last_words=words))


def failures(query: Mapping[str, str] | None = None, *, past: bool = True, empty: bool = False) -> FailurePage:
    """``failures.html``."""
    asked = FailureQuery.of(query or {})
    words = cause(NO_DATA)
    ends = {
        "cause": [
            (f"7 {words}", f"7 ContainerUnrecognizedFailed: {words}", 411),
            ("137 main was ended by signal 0", "137 ContainerSigKillReceived: main was ended by signal 9", 58),
            ("-101 Pod was deleted by others", "-101 PodExternalDeleted: Pod was deleted by others", 3),
        ],
        "node": [("node-3", "node-3", 411), ("node-1", "node-1", 58), ("node-2", "node-2", 3)],
    }.get(asked.by, [("7", "ContainerUnrecognizedFailed", 411), ("137", "ContainerSigKillReceived", 58)])
    rates = {"ofAttempts": 1200, "expected": 30.5} if asked.by == "node" else {"ofAttempts": None, "expected": None}
    groups = [{**_group(*end), **rates} for end in ends]
    days = [_group(f"2026-11-{day:02}", f"2026-11-{day:02}", 10 + (day * 37) % 90) for day in range(5, 19)]
    items = None if not past else [] if empty else groups
    places = ["default", "research"]
    if asked.key:
        listed = [{**archived_task(2, n), "uid": "past-1", "namespace": "default", "name": "mnist"} for n in (1, 0)]
        return FailurePage(shell("failures", past=past), asked, (), namespaces=places, attempts=listed)
    return FailurePage(shell("failures", past=past), asked, items, days if items else (), places)


def costs(
    query: Mapping[str, str] | None = None, *, past: bool = True, empty: bool = False, unknown: int = 0
) -> CostPage:
    """``cost.html``."""
    asked = CostQuery.of(query or {})
    keys = {
        "framework": [("past-1", "default/mnist"), ("past-2", "research/llama"), ("past-3", "default/preprocess")],
        "code": [("0", "Succeeded"), ("137", "137"), ("-220", "FrameworkAttemptCompletion")],
        "user": [("ann", "ann"), ("", ""), ("=bob", "=bob")],
    }.get(asked.by, [(name, name) for name in ("default", "research", "other")])
    shares = [(2300.0, 40.5, 611.0), (811.0, 4.0, 22.0), (0.0, 0.25, 31.0)]
    items = [_cost(key, label, *share) for (key, label), share in zip(keys, shares, strict=True)]
    days = [
        _cost(f"2026-11-{day:02}", f"2026-11-{day:02}", 10 + (day * 37) % 90, day % 4, (day * 31) % 40)
        for day in range(18, 4, -1)
    ]
    total = _cost("", "", *map(sum, zip(*shares, strict=True)))
    found = {"items": [] if empty else items, "total": {**total, "unknownAttempts": unknown}, "resource": names.GPU}
    answer = {"items": days, "total": total, "resource": names.GPU}
    frame = shell("cost", past=past)
    return CostPage(frame, asked, found if past else None, answer, ["default", "research"])


def _cost(key: str, label: str, useful: float, waiting: float, lost: float) -> Json:
    """A group with these GPU hours."""
    spans = {"useful": useful * 3600, "waiting": waiting * 3600, "lost": lost * 3600}
    gpus = {names.GPU: spans, "cpu": {span: 8 * value for span, value in spans.items()}}
    return {"key": key, "label": label, "attempts": 411, "unknownAttempts": 0, "resources": gpus}


def _group(key: str, label: str, number: int) -> Json:
    return {
        "key": key,
        "label": label,
        "taskAttempts": number,
        "frameworkAttempts": 1 + number // 10,
        "frameworks": 1 + number // 20,
        "first": format_time(NOW - 600_000),
        "last": format_time(NOW - 60),
        "example": {
            "uid": "past-1",
            "namespace": "default",
            "name": "mnist",
            "attempt": 0,
            "role": "worker",
            "index": 2,
        },
    }


def not_found() -> ErrorPage:
    """``error.html``."""
    return ErrorPage(
        shell("error", "../../"), 404, "Not found", "There is no such page, or you may not read its content."
    )


@cache
def pages() -> dict[str, Page]:
    """Every page and state that is worth a look, by name."""
    return {
        "list": list_page(),
        "list-filtered": list_page({"q": "mnist", "sort": "name", "order": "desc"}),
        "list-nothing-matches": list_page({"q": "nosuch", "which": "live"}, past=False),
        "list-empty": list_page(past=False, empty=True),
        "list-stale": list_page(stale=True),
        "list-no-archive": list_page({"which": "past"}, past=False),
        "framework": one_framework(),
        "framework-10000": one_framework(many()),
        **{f"framework-{body['metadata']['name']}": one_framework(body) for body in frameworks()[2:]},
        "task": one_task(),
        "task-waiting": one_task(5),
        "task-no-archive": one_task(past=False),
        "framework-last-words": with_last_words(),
        "log": one_log(),
        "log-lost": one_log(lost=True),
        "failures": failures(),
        "failures-by-node": failures({"by": "node"}),
        "failures-of-one": failures({"by": "code", "key": "7"}),
        "failures-empty": failures(empty=True),
        "failures-no-archive": failures(past=False),
        "cost": costs(unknown=3),
        "cost-by-user": costs({"by": "user"}),
        "cost-by-day": costs({"by": "day"}),
        "cost-empty": costs(empty=True),
        "cost-no-archive": costs(past=False),
        "error": not_found(),
    }
