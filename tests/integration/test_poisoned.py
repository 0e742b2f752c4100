"""Frameworks poisoned in every way that an API server lets pass, among healthy ones: those notice nothing."""

import asyncio
import base64
import gzip
import io
import json
import logging
from typing import Any, Final

import orjson
import pytest
from rich.text import Text

from frameworkcontroller.api.names import API_VERSION, KIND
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.commands.output import console
from frameworkcontroller.commands.progress import LineProgress, ending
from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import JSON_PATCH
from frameworkcontroller.kube.errors import ApiError, Invalid
from frameworkcontroller.kube.resources import EVENTS
from frameworkcontroller.manager.app import Controller
from tests.support.cli import Cli
from tests.support.clusters import Cluster
from tests.support.frameworks import Frameworks, Json, codes, condition, role, tasks

pytestmark = pytest.mark.newest

HEALTHY: Final = 6
TIME: Final = "2026-01-01T00:00:00Z"
RETRY: Final = {"totalRetriedCount": 0, "accountableRetriedCount": 0, "retryDelaySec": None}


def status(state: str = "AttemptCreationPending", *, attempt: Json | None = None, **fields: Any) -> Json:
    """A status as far as the CRD asks for one."""
    return {
        "startTime": TIME,
        "transitionTime": TIME,
        "state": state,
        "retryPolicyStatus": RETRY,
        "attemptStatus": {
            "id": 0,
            "startTime": TIME,
            "instanceUID": None,
            "configMapName": "f-attempt",
            "taskRoleStatuses": None,
            **(attempt or {}),
        },
        **fields,
    }


def task(index: int, state: str, **fields: Any) -> Json:
    attempt = {"id": 0, "startTime": TIME, "podName": f"f-a-{index}", **fields}
    return {
        "index": index,
        "instanceUID": "t",
        "startTime": TIME,
        "transitionTime": TIME,
        "state": state,
        "deletionPending": False,
        "retryPolicyStatus": RETRY,
        "attemptStatus": attempt,
    }


def packed(raw: bytes) -> Json:
    return {"taskRoleStatusesCompressed": base64.b64encode(gzip.compress(raw)).decode()}


def roles(*statuses: Json, name: str = "a") -> Json:
    return {"name": name, "instanceUID": "r", "podGracefulDeletionTimeoutSec": None, "taskStatuses": list(statuses)}


POISONED_STATUSES: Final[dict[str, Json]] = {
    "notpacked": status(attempt={"taskRoleStatusesCompressed": "Zm9v"}),
    "notbase64": status(attempt={"taskRoleStatusesCompressed": "*"}),
    "bomb": status(attempt=packed(bytes(100_000_000))),
    "listbomb": status(attempt=packed(b"[" + b"[]," * 10_000_000 + b"[]]")),
    "deep": status(attempt=packed(b"[" * 100_000 + b"]" * 100_000)),
    "notjson": status(attempt=packed(b"{")),
    "notroles": status(attempt=packed(b'{"a": 1}')),
    "running": status("AttemptRunning", attempt={"taskRoleStatuses": []}),
    "order": status(attempt={"taskRoleStatuses": [roles(task(1, "AttemptCreationPending"))]}),
    "tworoles": status(attempt={"taskRoleStatuses": [roles(), roles()]}),
    "nouid": status(
        "AttemptPreparing",
        attempt={"configMapUID": None, "taskRoleStatuses": [roles(task(0, "AttemptRunning"))]},
    ),
    "completed": status("Completed", attempt={"taskRoleStatuses": [roles(task(0, "Completed"))]}),
}
"""By the name of their Framework."""

ACTING: Final = "x\x1b[2J\x9b31m\u202e\x07[/y][link=https://elsewhere]z[/]\nerror: forged"
"""What terminals, and what makes texts for them, might act upon."""


def completion(code: int, **more: Any) -> Json:
    kind = {"name": "Failed", "attributes": []}
    return {"code": code, "phrase": ACTING, "type": kind, "diagnostics": ACTING, **more}


def said(name: str) -> Json:
    """A status whose every text acts."""
    container = {"name": ACTING, "reason": ACTING, "message": ACTING, "signal": None, "code": 3}
    pod = {"reason": ACTING, "message": ACTING, "containers": [container]}
    ended = {**task(0, "Completed", podNodeName=ACTING, podIP=ACTING, completionTime=TIME), "completionTime": TIME}
    ended["attemptStatus"]["completionStatus"] = completion(3, pod=pod)
    trigger = {"message": ACTING, "taskRoleName": ACTING, "taskIndex": 0}
    stall = {"type": "Stalled", "status": "True", "lastTransitionTime": TIME, "reason": ACTING, "message": ACTING}
    return status(
        "AttemptDeletionPending",
        attempt={
            "configMapUID": "u",
            "completionTime": TIME,
            "completionStatus": completion(3, trigger=trigger),
            "taskRoleStatuses": [roles(ended, name=name)],
        },
        conditions=[stall],
    )


ODD_STATUSES: Final[dict[str, Json]] = {
    "state": status(ACTING),
    "taskstate": status(attempt={"taskRoleStatuses": [roles(task(0, ACTING))]}),
    "notask": status(attempt={"taskRoleStatuses": [roles({"index": 0, "state": "AttemptPreparing"})]}),
    "notime": status(
        attempt={"taskRoleStatuses": [roles({**task(0, "AttemptPreparing"), "attemptStatus": {"id": 0}})]}
    ),
    "badtime": status(attempt={"taskRoleStatuses": [roles(task(0, "AttemptRunning", runTime=ACTING))]}),
    "retries": status(
        attempt={"taskRoleStatuses": [roles({**task(0, "Completed"), "retryPolicyStatus": {"totalRetriedCount": "x"}})]}
    ),
    "late": status(startTime="9999-12-31T23:59:00Z", attempt={"startTime": "9999-12-31T23:59:00Z"}),
    "early": status(startTime="0001-01-01T00:00:00Z", attempt={"startTime": "0001-01-01T00:00:00Z"}),
    "delay": status(
        "AttemptCompleted",
        retryPolicyStatus={"totalRetriedCount": 2**31 - 1, "accountableRetriedCount": 0, "retryDelaySec": 10**18},
        attempt={"completionTime": TIME, "completionStatus": completion(-1)},
    ),
    "said": said("a"),
    "saidrole": said(ACTING),
}
"""What the commands for people have to live with, too."""

FORGED: Final = "\nI0101 x] y: ObjectSnapshot: {}\x1b[2J"
NESTED: Final[Any] = orjson.loads(b'{"a":' * 500 + b"1" + b"}" * 500)

POISONED_SPECS: Final[dict[str, list[Json]]] = {
    "nested": [{**role(), "task": {"pod": {"spec": NESTED}}}],
    "wrongtypes": [role("a", 30, task={"pod": {"metadata": 1, "spec": [True, "{{FC_POD_NAME}}"]}})],
    "wrongcontainers": [role("a", 3, task={"pod": {"metadata": {"labels": [1]}, "spec": {"containers": "x"}}})],
    "crowd": [role(f"r{number}", 10_000) for number in range(40)],
    "forger": [role("a", 1, simulate={"exit-code": 1, "run-seconds": 0.1, "message": FORGED})],
}


async def poison(frameworks: Frameworks) -> list[str]:
    """Create them all. Return the names that the API server accepted."""
    names = []
    for name, spec in POISONED_SPECS.items():
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": {"taskRoles": spec}}
        # The controller's own encoder does not go as deep.
        try:
            await frameworks.client.create(FRAMEWORKS, json.dumps(body).encode(), frameworks.namespace)
        except ApiError:
            # Nor does the embedded API server.
            assert name == "nested"
        else:
            names.append(name)
    for name, bad in POISONED_STATUSES.items():
        await frameworks.create(name, role("a", 2, simulate={"run-seconds": 0.2}))
        patch = orjson.dumps([{"op": "add", "path": "/status", "value": bad}])
        try:
            await frameworks.client.patch(
                FRAMEWORKS, name, patch, frameworks.namespace, content_type=JSON_PATCH, subresource="status"
            )
        except Invalid:
            await frameworks.delete(name)
        else:
            names.append(name)
    return names


async def test_healthy_frameworks_notice_nothing(
    cluster: Cluster, frameworks: Frameworks, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    poisoned = await poison(frameworks)
    assert len(poisoned) >= 14
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall) as controller:
        simulate = {"run-seconds": "0.2, 0.2", "exit-code": "200, 0"}
        retry = {"retryPolicy": {"fancyRetryPolicy": True}}
        for number in range(HEALTHY):
            await frameworks.create(f"healthy{number}", role("a", 2, simulate=simulate, task=retry))
        for number in range(HEALTHY):
            done = await frameworks.until_state(f"healthy{number}", "Completed", within=30)
            assert codes(tasks(done)) == [0, 0]
        for name in poisoned:
            await says_why(frameworks, name)
        # Nothing has come to an end but they, and nothing is worked at all the time.
        assert controller.ready
        await asyncio.sleep(5)
        before = controller.queue.adds
        await asyncio.sleep(60 if cluster.embedded else 5)
        assert controller.queue.adds - before < 5 * len(poisoned)
    lines = [line for line in caplog.messages if ": Quarantined: " in line]
    assert len(lines) == len({line.split("]")[0] for line in lines})


async def says_why(frameworks: Frameworks, name: str) -> None:
    """It has come to an end that its status tells, or says that it is stalled, or an Event says so for it."""

    def holds(found: Json) -> bool:
        return found["state"] == "Completed" or condition(found, "Stalled").get("status") == "True"

    if name == "completed":
        # So it says of itself, for longer than it is retained where time is real.
        return
    found = await frameworks.until(name, holds, within=60)
    if name == "nested":
        assert "nested more than 254 levels" in condition(found, "Stalled")["message"]
    elif name == "crowd":
        message = condition(found, "Stalled")["message"]
        assert message == "spec.taskRoles: 400000 Tasks in all, where no status has room for more than 50000"
    elif name in ("wrongtypes", "wrongcontainers"):
        assert set(codes(tasks(found))) <= {-200, -310}


def acting(text: str) -> list[str]:
    return [char for char in text if not char.isprintable() and char != "\n"]


@pytest.mark.virtual_clock
async def test_commands_show_as_much_as_possible(cluster: Cluster) -> None:
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    names = await poison(frameworks)
    for name, odd in ODD_STATUSES.items():
        await frameworks.create(name, role("a", 2))
        patch = orjson.dumps([{"op": "add", "path": "/status", "value": odd}])
        await frameworks.client.patch(
            FRAMEWORKS, name, patch, frameworks.namespace, content_type=JSON_PATCH, subresource="status"
        )
        names.append(name)
    for name, about in (("e1", "said"), ("e2", f"odd{ACTING}")):
        reference = {"kind": KIND, "name": about, "namespace": cluster.namespace, "apiVersion": API_VERSION}
        event = {"metadata": {"name": name}, "involvedObject": reference, "reason": ACTING, "message": ACTING}
        await frameworks.client.create(EVENTS, orjson.dumps(event), cluster.namespace)
    cli = Cli(cluster, frameworks.client)
    for_all = [["list"], ["list", "-o", "wide"], ["list", "-o", "json"], ["list", "-o", "yaml"], ["top"], ["events"]]
    for_each = [
        ["status"], ["status", "-o", "json"], ["status", "-o", "yaml"], ["events"], ["timeline", "-o", "-"], ["logs"],
    ]  # fmt: skip
    for arguments in [*for_all, *([*command, name] for name in names for command in for_each)]:
        ended = await cli(*arguments)
        assert ended.code in (0, 1), (arguments, ended)
        assert acting(ended.out) == [], (arguments, ended.out)
    # The output of commands that wait for them, or follow them.
    file = io.StringIO()
    progress = LineProgress(console(file), cluster.wall)
    for name in names:
        body = await frameworks.get(name)
        progress.show(f"{cluster.namespace}/{name}", body)
        progress.print(Text(ending(f"{cluster.namespace}/{name}", body).text))
    assert acting(file.getvalue()) == []
    assert (await cli("list")).out.count("\n") == 1 + len(names)
