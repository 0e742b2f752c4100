"""The commands for people: their output about Frameworks, and their changes."""

import asyncio
import gzip
import io
import re
from argparse import Namespace
from base64 import b64encode
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock
from xml.etree import ElementTree as ET

import orjson
import pytest
import yaml
from rich.console import Console

from frameworkcontroller.api import names
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.commands import progress, showstatus
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.commands.program import background
from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.errors import Forbidden, NotFound
from frameworkcontroller.kube.resources import CRDS, EVENTS, PODS, Resource
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support.cli import Cli
from tests.support.clusters import Cluster
from tests.support.eventually import eventually, read_until
from tests.support.frameworks import Frameworks, Json, condition, policy, role, states
from tests.support.pods import pod_manifest

pytestmark = pytest.mark.newest


@pytest.fixture
async def frameworks(unattended: Frameworks, pods: SimulatedRuntime, controller: Controller) -> Frameworks:
    return unattended


FAILS = {"run-seconds": 0.2, "exit-code": 3, "message": "disk is full"}


# --- list, status ---


async def test_list(cluster: Cluster, frameworks: Frameworks, cli: Cli) -> None:
    empty = await cli("list")
    assert (empty.code, empty.out) == (0, "")
    assert f'there are no Frameworks in namespace "{cluster.namespace}"' in empty.err
    await frameworks.create("f", role("a", 2), role("b", 1), metadata={"labels": {"team": "x"}})
    await frameworks.create("g", role("a", 1, simulate=FAILS, frameworkAttemptCompletionPolicy=policy(1)))
    await frameworks.until_running("f", 3)
    await frameworks.until_state("g", "Completed")
    none = f'there are no Frameworks in namespace "{cluster.namespace}" with the labels team=y'
    assert none in (await cli("list", "-l", "team=y")).err
    header, *rows = [line.split() for line in await cli.ok("list")]
    assert header == ["NAME", "PHASE", "TASKS", "RETRIES", "AGE"]
    assert [row[:4] for row in rows] == [["f", "Running", "3/3", "0"], ["g", "Failed", "0/1", "0"]]
    assert max(map(len, await cli.ok("list"))) <= 80
    assert [line.split()[0] for line in await cli.ok("list", "-l", "team=x")] == ["NAME", "f"]
    titles, wide, failed = await cli.ok("list", "-o", "wide")
    assert titles.split()[4:] == ["AGE", "WHY", "QUEUE", "STATE", "RESULT", "RAN", "ROLES", "EXECUTION"]
    assert wide.split()[5:9] + wide.split()[-2:] == ["-", "-", "AttemptRunning", "-", "a=2,b=1", "Start"]
    assert re.search(r" a\[0\] on \S+: main exited with 3: disk is full +- +Completed +3 Container", failed)
    everywhere = await cli.ok("list", "-A")
    assert [cluster.namespace, "f"] in [line.split()[:2] for line in everywhere]
    named = await cli.ok("list", "-o", "name")
    assert named == [f"framework.frameworkcontroller.microsoft.com/{n}" for n in "fg"]
    for name in (named[0], "framework/f", "fw/f", "frameworks.frameworkcontroller.microsoft.com/f"):
        assert (await cli.ok("status", name))[0].startswith(f"{cluster.namespace}/f  Running")
    assert (await cli("status", "pod/f")).code == 2
    assert await cli.ok("stop", *named[:1]) == ["f: stopped"]
    listed = orjson.loads((await cli("list", "-o", "json")).out)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["f", "g"]


async def test_list_of_many_pages(unattended: Frameworks, cli: Cli) -> None:
    names = [f"f{number:03}" for number in range(130)]
    await asyncio.gather(*(unattended.create(name, role()) for name in names))
    lines = await cli.ok("list")
    assert [line.split()[0] for line in lines[1:]] == names
    assert lines[1].split()[1] == "Pending"
    assert "not seen by a controller yet" in (await cli.ok("list", "-o", "wide"))[1]


async def test_status_says_why(frameworks: Frameworks, cli: Cli) -> None:
    await frameworks.create(
        "f",
        role("good", 2),
        role("bad", 1, simulate=FAILS, task={"retryPolicy": {"maxRetryCount": 1}}),
        retryPolicy={"maxRetryCount": 3},
    )
    await frameworks.until("f", lambda status: states(status) == ["AttemptRunning"] * 2 + ["Completed"])
    lines = await cli.ok("status", "f")
    assert re.match(r"\S+/f  Running  attempt 0  running for \d+s", lines[0])
    assert [re.sub(r"[ │├└─]*(\S+)  .*", r"\1", line) for line in lines[2:-1]] == ["good", "[0]", "[1]", "bad", "[0]"]
    assert re.fullmatch(r"├── 1 of 3 Tasks failed; first: bad\[0\] on \S+: main exited with 3: disk is full", lines[1])
    assert lines[-1].strip().startswith("main exited with 3: disk is full (3 ContainerUnrecognizedFailed)")
    assert lines[-1].endswith("; not retried: all of its 1 retries were used")
    body = yaml.safe_load((await cli("status", "f", "-o", "yaml")).out)
    assert body["status"]["attemptStatus"]["taskRoleStatuses"][1]["taskStatuses"][0]["state"] == "Completed"
    assert "managedFields" not in body["metadata"]


async def test_status_names_the_condition_waited_for(frameworks: Frameworks, cli: Cli) -> None:
    other = pod_manifest(name="f-a-0", namespace=frameworks.namespace)
    await frameworks.client.create(PODS, orjson.dumps(other), frameworks.namespace)
    waiting = role("b", 30)
    waiting["task"]["pod"]["spec"]["schedulerName"] = "hived"
    await frameworks.create("f", role("a"), waiting, executionType="Create")
    await frameworks.until_state("f", "AttemptCreationPending")
    assert "spec.executionType is Create" in (await cli.ok("status", "f"))[1]
    assert (await cli.ok("list"))[1].split()[1:3] == ["Pending", "0/31"]
    assert "spec.executionType is Create" in (await cli.ok("list", "-o", "wide"))[1]
    top = await cli.ok("top")
    assert "  waiting: 1" in top
    assert top[top.index(next(line for line in top if line.startswith("WAITING"))) + 1].endswith(
        "spec.executionType is Create"
    )
    await cli.ok("start", "f")

    async def stalled() -> list[str]:
        lines = await cli.ok("status", "f")
        assert any("waits for the scheduler hived" in line for line in lines), lines
        assert "stalled for" in lines[2], lines
        return lines

    lines = await eventually(stalled)
    assert "Pod f-a-0" in lines[1]
    assert lines[2].endswith(": NamingConflict")
    assert [line.strip(" │├└─") for line in lines[-2:]] == [
        "[0-29]  Pending  30 Tasks",
        "waits for the scheduler hived",
    ]


@pytest.mark.parametrize("readable", [True, False])
async def test_status_quotes_the_last_warning_of_a_pod_that_waits(
    frameworks: Frameworks, cli: Cli, monkeypatch: pytest.MonkeyPatch, readable: bool
) -> None:
    await frameworks.create("f", role("a", 2, simulate={"prepare-seconds": 1000}))
    await frameworks.until("f", lambda status: states(status) == ["AttemptPreparing"] * 2)
    pod = orjson.loads(await frameworks.client.get(PODS, "f-a-1", frameworks.namespace))
    told = [
        ("FailedScheduling", "no room", "Warning", "2020-01-01T00:00:00Z", "f-a-1", pod["metadata"]["uid"]),
        ("FailedMount", 'no volume "v" for f-a-1', "Warning", "2099-01-01T00:00:02Z", "f-a-1", pod["metadata"]["uid"]),
        ("FailedSync", "earlier", "Warning", "2099-01-01T00:00:01Z", "f-a-1", pod["metadata"]["uid"]),
        ("Pulling", "later", "Normal", "2099-01-01T00:00:03Z", "f-a-1", pod["metadata"]["uid"]),
        ("FailedMount", "of a Pod before", "Warning", "2099-01-01T00:00:04Z", "f-a-1", "another"),
    ]
    for number, (reason, message, kind, seen, name, uid) in enumerate(told):
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"e{number}", "namespace": frameworks.namespace},
            "involvedObject": {"kind": "Pod", "name": name, "namespace": frameworks.namespace, "uid": uid},
            "reason": reason,
            "message": message,
            "type": kind,
            "firstTimestamp": seen,
            "lastTimestamp": seen,
        }
        await frameworks.client.create(EVENTS, orjson.dumps(event), frameworks.namespace)
    if not readable:
        read = KubeClient.list

        async def refused(client: KubeClient, resource: Resource, *place: Any, **options: Any) -> bytes:
            if resource is EVENTS:
                raise Forbidden("events is forbidden", code=403, reason="Forbidden")
            return await read(client, resource, *place, **options)

        monkeypatch.setattr(KubeClient, "list", refused)
    quoted = 'ContainerCreating; FailedMount: no volume "v" for f-a-1'

    async def is_quoted() -> None:
        lines = [line.strip(" │├└─") for line in await cli.ok("status", "f")]
        assert [line for line in lines if "Creating" in line] == (
            ["ContainerCreating", quoted] if readable else ["ContainerCreating"]
        )

    # Not before the node has taken the Pods.
    await eventually(is_quoted)


async def test_status_watch_diagnoses_pods_of_a_framework_without_status_at_first(
    frameworks: Frameworks, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = role("a")
    waiting["task"]["pod"]["spec"]["schedulerName"] = "hived"
    created = await frameworks.create("f", waiting)
    assert "status" not in created
    monkeypatch.setattr(Invocation, "framework", AsyncMock(return_value=created))
    monkeypatch.setattr(progress, "_POD_INTERVAL_SEC", 0.1)
    screen = Console(file=io.StringIO(), force_terminal=True, width=100, height=20)
    invocation = Invocation(frameworks.client, frameworks.namespace, out=screen)

    async def shown() -> bool:
        assert isinstance(screen.file, io.StringIO)
        return "waits for the scheduler hived" in screen.file.getvalue()

    async with background(showstatus.run(invocation, Namespace(name="f", output=None, watch=True))):
        await eventually(shown)


async def test_status_watch_ends_with_the_framework(frameworks: Frameworks, pods: SimulatedRuntime, cli: Cli) -> None:
    await frameworks.create("f", role("a", 1), executionType="Create")
    watching = asyncio.create_task(cli("status", "f", "--watch"))

    async def says(text: str) -> None:
        assert text in cli.out.getvalue()

    await eventually(lambda: says("Pending"))
    await frameworks.set("f", executionType="Start")
    await eventually(lambda: says("a[0]: Running (attempt 0)"))
    pods.finish(f"{frameworks.namespace}/f-a-0")
    ended = await watching
    assert ended.code == 0
    assert re.search(rf"^{frameworks.namespace}/f: Succeeded after \d+s$", ended.out, re.MULTILINE)


@pytest.mark.parametrize(
    "command", ["status", "wait", "start", "stop", "suspend", "resume", "logs", "timeline", "decompress"]
)
async def test_a_framework_that_is_not_there(cluster: Cluster, cli: Cli, command: str) -> None:
    more = ["-o", "-"] if command == "timeline" else []
    ended = await cli(command, "nobody", *more)
    if command in ("start", "stop", "suspend", "resume"):
        assert ended.code == 1  # said on the way, since others may be named, too
    else:
        said = f'there is no Framework "nobody" in namespace "{cluster.namespace}"'
        if command in ("status", "timeline"):
            said += f"; if it was deleted: kubectl framework history nobody -n {cluster.namespace}"
        assert (ended.code, ended.out, ended.err) == (1, "", said)
    odd = await cli("status", "no/body")
    assert (odd.code, odd.err.split(" (")[0]) == (2, '"no/body" is not the name of a Framework')


# --- wait, start, stop, scale ---


async def test_wait(frameworks: Frameworks, pods: SimulatedRuntime, cli: Cli) -> None:
    await frameworks.create("f", role("a", 1))
    await frameworks.create("g", role("a", 1, frameworkAttemptCompletionPolicy=policy(1)))
    assert await cli.ok("wait", "f", "g", "--for", "running") == ["f: running", "g: running"]
    late = await cli("wait", "f", "g", "--timeout", "1s")
    assert (late.code, late.err) == (1, "not completed within 1s: f (Running), g (Running)")
    assert await cli.ok("wait", "f", "--for", "phase=Running") == ["f: Running"]
    waiting = asyncio.create_task(cli("wait", "f", "g"))
    failing = asyncio.create_task(cli("wait", "g", "--for", "phase=Failed"))
    pods.finish(f"{frameworks.namespace}/f-a-0")
    pods.fail(f"{frameworks.namespace}/g-a-0", 3)
    done = await waiting
    assert done.code == 0
    assert [line.split(" after")[0].split("/")[1] for line in done.lines if "after" in line] == [
        "f: Succeeded",
        "g: Failed",
    ]
    assert (await failing).code == 0
    assert (await cli("wait", "f", "--for", "phase=Succeeded")).code == 0
    assert (await cli("wait", "g", "--for", "phase=Stopped")).code == 1
    assert (await cli("wait", "f", "--for", "succeeded")).code == 0
    assert (await cli("wait", "f", "g", "--for", "succeeded")).code == 1
    assert (await cli("wait", "f", "--for", "running")).code == 1


async def test_wait_for_a_deletion(unattended: Frameworks, cli: Cli) -> None:
    await unattended.create("f", role())
    waiting = asyncio.create_task(cli("wait", "f"))
    await unattended.delete("f", propagation="Background")
    ended = await asyncio.wait_for(waiting, 300)
    # Depending on who is quicker.
    gone = f"{unattended.namespace}/f: was deleted before it completed\n"
    assert ended.code == 1
    assert ended.out == gone or "there is no Framework" in ended.err


async def test_start_and_stop(frameworks: Frameworks, cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    await frameworks.create("f", role(), executionType="Create")
    assert await cli.ok("start", "f") == ["f: started"]
    await frameworks.until_running("f", 1)
    assert await cli.ok("start", "f") == ["f: already started"]
    assert await cli.ok("stop", "f") == ["f: stopped"]
    assert await cli.ok("stop", "f") == ["f: already stopped"]
    again = await cli("start", "f")
    assert again.code == 1
    assert capsys.readouterr().err.startswith("error: f: ")
    status = await frameworks.until_state("f", "Completed")
    assert status["attemptStatus"]["completionStatus"]["code"] == -210
    await frameworks.create("g", role(), executionType="Create")
    both = await cli("start", "f", "g")
    assert (both.code, both.out) == (1, "g: started\n")


async def test_suspend_and_resume(frameworks: Frameworks, cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("f", "g"):
        await frameworks.create(name, role(), executionType="Create")
    await frameworks.until_state("f", "AttemptCreationPending")
    waits = "; it also waits to be started"
    assert await cli.ok("suspend", "f", "g") == [f"f: suspended{waits}", f"g: suspended{waits}"]
    assert await cli.ok("suspend", "f") == ["f: already suspended"]
    assert (await frameworks.get("f"))["spec"]["suspend"] is True
    assert await cli.ok("start", "f") == ["f: started; it waits to be resumed"]

    async def waits_to_be_resumed() -> None:
        assert "spec.suspend is true" in (await cli.ok("list", "-o", "wide"))[1]

    await eventually(waits_to_be_resumed)
    assert await cli.ok("wait", "f", "--for", "suspended", "--timeout", "300s") == ["f: suspended"]
    assert (await cli.ok("list"))[1].split()[1:3] == ["Suspended", "0/1"]

    async def both_are_suspended() -> None:
        top = await cli.ok("top")
        assert top[:2] == ["2 Frameworks: 2 Suspended", "  waiting: 2"]
        assert not any(line.startswith("SLOWEST") for line in top)

    await eventually(both_are_suspended)
    assert any("spec.suspend is true" in line for line in await cli.ok("status", "f"))
    assert await cli.ok("resume", "f") == ["f: resumed"]
    await frameworks.until_running("f", 1)
    assert await cli.ok("resume", "f") == ["f: is not suspended"]
    assert await cli.ok("suspend", "f") == ["f: suspended"]
    late = await cli("wait", "f", "--for", "suspended", "--timeout", "300s")
    assert (late.code, late.out) == (0, "f: suspended\n")
    assert (await frameworks.status("f"))["attemptStatus"]["id"] == 1
    assert orjson.loads(await frameworks.client.list(PODS, frameworks.namespace))["items"] == []
    await cli.ok("resume", "f")
    await frameworks.until_running("f", 1)
    await cli.ok("stop", "f")
    for command in ("suspend", "resume"):
        assert (await cli(command, "f")).code == 1
        assert re.fullmatch(r"error: f: (is stopped, and completes|has already completed)\n", capsys.readouterr().err)
    await frameworks.until_state("f", "Completed")
    both = await cli("suspend", "f", "g")
    assert (both.code, both.out) == (1, "g: already suspended\n")
    assert capsys.readouterr().err == "error: f: has already completed\n"


async def test_resuming_an_invalid_framework_says_that_it_counts_later(frameworks: Frameworks, cli: Cli) -> None:
    await frameworks.create("f", {**role(), "dependsOn": [{"name": "none", "status": "Ready"}]})
    await read_until(lambda: cli.ok("status", "f"), lambda found: any("InvalidSpec" in line for line in found))
    assert await cli.ok("suspend", "f") == ["f: suspended"]
    await frameworks.until("f", lambda status: condition(status, "Suspended").get("status") == "True")
    later = "f: resumed; this counts once its spec is valid: see 'kubectl framework status'"
    assert await cli.ok("resume", "f") == [later]


async def test_a_crd_without_suspend_is_noticed(
    cluster: Cluster, unattended: Frameworks, cli: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    if not cluster.embedded:
        pytest.skip("the CRD of a cluster that others use stays")
    path = orjson.loads(await unattended.client.get(CRDS, names.CRD_NAME))
    del path["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["suspend"]
    await unattended.client.replace(CRDS, names.CRD_NAME, orjson.dumps(path))
    await unattended.create("f", role())
    assert (await cli("suspend", "f")).code == 1
    assert "the CRD of this cluster has no spec.suspend" in capsys.readouterr().err


async def test_scale(frameworks: Frameworks, cli: Cli) -> None:
    await frameworks.create(
        "f",
        role("a", 2, frameworkAttemptCompletionPolicy=policy(1, 2)),
        role("b", 4, frameworkAttemptCompletionPolicy=policy(3, -1)),
    )
    await frameworks.until_running("f", 6)
    scaled = await cli("scale", "f", "a=4", "b=2")
    assert (scaled.code, scaled.lines) == (0, ["f: a: 2 -> 4 Tasks", "f: b: 4 -> 2 Tasks"])
    assert scaled.err == (
        "warning: f: a: minSucceededTaskCount 2 was all Tasks: the attempt now ends when 2 of 4 have succeeded; use "
        "--adjust-policy to adjust it\n"
        "warning: f: b: minFailedTaskCount 3 can never be reached by 2 Tasks; use --adjust-policy to adjust it\n"
    )

    def are_scaled(status: Json) -> bool:
        numbers = [len(item["taskStatuses"]) for item in status["attemptStatus"]["taskRoleStatuses"]]
        return numbers == [4, 2] and set(states(status)) == {"AttemptRunning"}

    await frameworks.until("f", are_scaled)
    await frameworks.set("f", taskRoles__0__frameworkAttemptCompletionPolicy=policy(1, 4))
    assert await cli.ok("scale", "f", "a=8", "--adjust-policy") == [
        "f: a: 4 -> 8 Tasks",
        "f: a: minSucceededTaskCount 4 -> 8, since it was all",
    ]
    assert (await cli("scale", "f", "b=2")).out == "f: b: already has 2 Tasks\n"
    spec = (await frameworks.get("f"))["spec"]["taskRoles"]
    assert [(item["taskNumber"], item["frameworkAttemptCompletionPolicy"]) for item in spec] == [
        (8, policy(1, 8)),
        (2, policy(3, -1)),
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["c=1"], 2, "f: has no role 'c', only a, b"),
        (["a=1", "a=2"], 2, "a is given twice, with different numbers"),
        ([], 2, "scale: no role is given: ROLE=N"),
        (["a=10001"], 1, "f: "),
    ],
)
async def test_scale_refuses(unattended: Frameworks, cli: Cli, arguments: list[str], code: int, said: str) -> None:
    before = await unattended.create("f", role("a", 1), role("b", 1))
    ended = await cli("scale", "f", *arguments)
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith(said)
    assert "10000" in ended.err or not arguments or arguments[0] != "a=10001"
    assert (await unattended.get("f"))["spec"] == before["spec"]


class Overtaken(KubeClient):
    """A client whose first patch comes after another client's, which swaps the roles."""

    by: Frameworks | None = None

    async def patch(self, *args: Any, **more: Any) -> bytes:
        other, self.by = self.by, None
        if other is not None:
            await other.set("f", taskRoles=[role("b", 3), role("a", 2)])
        return await super().patch(*args, **more)


async def test_scale_changes_only_the_role_that_it_read(cluster: Cluster, unattended: Frameworks) -> None:
    await unattended.create("f", role("a", 1), role("b", 1))
    async with Overtaken(await cluster.connection()) as client:
        client.by = unattended
        assert await Cli(cluster, client).ok("scale", "f", "a=5") == ["f: a: 2 -> 5 Tasks"]
    spec = (await unattended.get("f"))["spec"]["taskRoles"]
    assert [(item["name"], item["taskNumber"]) for item in spec] == [("b", 3), ("a", 5)]


# --- events, logs, top, timeline, decompress ---


def event(name: str, kind: str, about: str, namespace: str, **more: Any) -> bytes:
    reference = {"kind": kind, "name": about, "namespace": namespace, "apiVersion": "v1"}
    return orjson.dumps(
        {"metadata": {"name": name}, "involvedObject": reference, "reason": "R", "message": f"about {about}", **more}
    )


async def test_events_of_a_framework(cluster: Cluster, unattended: Frameworks, cli: Cli) -> None:
    client, space = unattended.client, cluster.namespace
    for name, kind, about, more in (
        ("e1", "Pod", "f-a-0", {"type": "Warning", "count": 3, "lastTimestamp": "2026-01-01T00:00:05Z"}),
        ("e2", "Framework", "f", {"type": "Normal", "lastTimestamp": "2026-01-01T00:00:01Z"}),
        ("e3", "ConfigMap", "f-attempt", {"type": "Normal", "lastTimestamp": "2026-01-01T00:00:03Z"}),
        ("e4", "Pod", "f2-a-0", {"type": "Normal"}),
        ("e5", "Framework", "g", {"type": "Normal", "lastTimestamp": "2026-01-01T00:00:02Z"}),
        ("e6", "Pod", "f-a-x", {"type": "Normal"}),
    ):
        await client.create(EVENTS, event(name, kind, about, space, **more), space)
    lines = await cli.ok("events", "f")
    assert [line.split()[2:5] for line in lines[1:]] == [
        ["Normal", "R", "Framework/f"],
        ["Normal", "R", "ConfigMap/f-attempt"],
        ["Warning", "R", "Pod/f-a-0"],
    ]
    assert lines[3].endswith("about f-a-0 (3 times)")
    assert [line.split()[4] for line in (await cli.ok("events"))[1:]] == ["Framework/f", "Framework/g"]
    none = await cli("events", "h")
    assert (none.code, none.out) == (0, "")
    assert "there are no Events of Framework h" in none.err


async def test_logs(cluster: Cluster, frameworks: Frameworks, cli: Cli) -> None:
    await frameworks.create("f", role("a", 2), role("b", 1))
    await frameworks.until_running("f", 3)
    ended = await cli("logs", "f")
    if cluster.embedded:
        text = "container main is simulated and prints nothing"
        assert (ended.code, sorted(ended.lines)) == (0, [f"a[0] | {text}", f"a[1] | {text}", f"b[0] | {text}"])
        assert await cli.ok("logs", "f", "b/0") == [text]
    else:
        # Its nodes are the test's own, which no API server can ask.
        assert (ended.code, ended.out) == (1, "")
        assert "a[0]: " in ended.err
    unknown = await cli("logs", "f", "c")
    assert (unknown.code, unknown.err) == (1, "f: has no role 'c', only a, b")
    nothing = await cli("logs", "f", "b/9")
    assert (nothing.code, nothing.err) == (1, "f: has no Task b[9]: role b has 1 Task")
    assert (await cli("logs", "f", "-c", "sidecar")).err == "f: no container 'sidecar' has started in its 3 Pods"
    await cli.ok("stop", "f")
    await frameworks.until_state("f", "Completed")
    gone = "f: has completed; its Pods are gone, and with them their logs. An archive may have them: --archive URL, "
    assert (await cli("logs", "f")).err.startswith(gone)


async def test_top(cluster: Cluster, frameworks: Frameworks, cli: Cli) -> None:
    retried = role("a", 1, simulate=FAILS, task={"retryPolicy": {"maxRetryCount": 2}})
    waiting = role("b", 2)
    waiting["task"]["pod"]["spec"]["schedulerName"] = "hived"
    await frameworks.create("f", retried, waiting)
    await frameworks.until(
        "f", lambda status: states(status)[0] == "Completed" and "AttemptPreparing" in states(status)[1:]
    )
    lines = await cli.ok("top")
    assert lines[0] == "1 Framework: 1 Running"
    assert lines[1] == "  waiting: 1"
    assert "1 failed" in lines[2]
    assert "0 retries of Frameworks, 2 of Tasks in their last attempts" in lines
    assert next(line for line in lines if line.startswith("RETRIED MOST")).split()[2:] == [
        "RETRIES",
        "TASK",
        "RETRIES",
        "AN",
        "HOUR",
        "PHASE",
    ]
    waits = lines[lines.index(next(line for line in lines if line.startswith("WAITING"))) + 1]
    assert (waits.split()[0], "1 of 3 Tasks failed; first: a[0]" in waits) == (f"{cluster.namespace}/f", True)
    slow = lines[lines.index(next(line for line in lines if line.startswith("SLOWEST"))) + 1]
    assert slow.split()[0] == f"{cluster.namespace}/f"
    assert slow.endswith(", and still waits")
    assert lines[-1] == "CPU and memory: unknown: this cluster has no metrics API (metrics-server)"


async def test_top_shows_the_metrics_api(cluster: Cluster, unattended: Frameworks, cli: Cli) -> None:
    if not cluster.embedded:
        pytest.skip("a group of Kubernetes' own, which is not for a test to put into a cluster that others use")
    await unattended.client.create(CRDS, orjson.dumps(METRICS))
    await unattended.create("f", role())
    for index, (cpu, memory) in enumerate((("250m", "1Gi"), ("1500000000n", "512Mi"))):
        pod = {
            "apiVersion": "metrics.k8s.io/v1beta1",
            "kind": "PodMetrics",
            "metadata": {"name": f"f-a-{index}", "labels": {"FC_FRAMEWORK_NAME": "f"}},
            "containers": [{"name": "main", "usage": {"cpu": cpu, "memory": memory}}],
        }
        path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{cluster.namespace}/pods"
        await eventually(partial(created, unattended.client, path, pod))
    lines = await cli.ok("top")
    assert lines[-1].split() == [f"{cluster.namespace}/f", "2", "1.75", "1,536", "MiB"]


async def created(client: KubeClient, path: str, body: Json) -> bool:
    """Whether the API server has made it: serving the kind of a CRD takes a moment."""
    try:
        await client.raw("POST", path, body=orjson.dumps(body))
    except NotFound:
        return False
    return True


METRICS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "pods.metrics.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
    },
    "spec": {
        "group": "metrics.k8s.io",
        "scope": "Namespaced",
        "names": {"kind": "PodMetrics", "plural": "pods", "singular": "pod"},
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        ],
    },
}


async def test_timeline(frameworks: Frameworks, pods: SimulatedRuntime, cli: Cli, tmp_path: Path) -> None:
    await frameworks.create("f", role("a", 2), role("b", 1, simulate=FAILS))
    await frameworks.until("f", lambda status: states(status) == ["AttemptRunning"] * 2 + ["Completed"])
    for index in range(2):
        pods.finish(f"{frameworks.namespace}/f-a-{index}")
    await frameworks.until_state("f", "Completed")
    picture = tmp_path / "f.svg"
    assert await cli.ok("timeline", "f", "-o", str(picture)) == [f"f: {picture}"]
    root = ET.parse(picture).getroot()
    titles = [title.text or "" for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert any(re.fullmatch(r"a\[1\] attempt 0: ran for \d+s on \S+, then 0 Succeeded", title) for title in titles), (
        titles
    )
    assert any("b[0] attempt 0: " in title and title.endswith("3 ContainerUnrecognizedFailed") for title in titles), (
        titles
    )
    page = tmp_path / "f.html"
    await cli.ok("timeline", "f", "-o", str(page))
    assert page.read_text().startswith("<!doctype html>")
    odd = await cli("timeline", "f", "-o", "f.png")
    assert (odd.code, odd.err) == (2, "-o f.png: must end in .svg or .html, or be - for stdout")


async def test_decompress(unattended: Frameworks, cli: Cli, tmp_path: Path) -> None:
    created = await unattended.create("f", role())
    roles: list[Json] = [{"name": "a", "instanceUID": "u", "podGracefulDeletionTimeoutSec": None, "taskStatuses": []}]
    status = {"attemptStatus": {"taskRoleStatusesCompressed": b64encode(gzip.compress(orjson.dumps(roles))).decode()}}
    await unattended.client.patch(
        FRAMEWORKS,
        "f",
        orjson.dumps({"status": status}),
        unattended.namespace,
        subresource="status",
        content_type=MERGE_PATCH,
    )
    for arguments in (["decompress", "f"], ["status", "f", "-o", "json"]):
        attempt = orjson.loads((await cli(*arguments)).out)["status"]["attemptStatus"]
        assert attempt == {"taskRoleStatuses": roles}
    assert created["metadata"]["name"] == "f"
    await unattended.client.patch(
        FRAMEWORKS,
        "f",
        orjson.dumps({"status": {"attemptStatus": {"taskRoleStatusesCompressed": "AAAA"}}}),
        unattended.namespace,
        subresource="status",
        content_type=MERGE_PATCH,
    )
    broken = await cli("decompress", "f")
    assert (broken.code, broken.out) == (1, "")
    assert broken.err.startswith("status.attemptStatus.taskRoleStatusesCompressed: ")
