"""Bad values that no schema refuses: a completion status or a condition names field and value; others are unharmed."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, Final

import orjson
import pytest

from frameworkcontroller.api import names
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import JSON_PATCH
from frameworkcontroller.kube.errors import Invalid
from frameworkcontroller.kube.resources import CONFIGMAPS, EVENTS, PODS
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support import original
from tests.support.api import CRDS, Api, config_map, open_api, owner
from tests.support.api import pod as pod_of
from tests.support.clusters import Cluster
from tests.support.eventually import eventually, until
from tests.support.frameworks import Frameworks, Json, condition, role, states, tasks
from tests.support.requests import Requests, Send

MAIN: Final[Json] = {"name": "main", "image": "none"}
GOOD: Final[Json] = {"containers": [MAIN]}

UNKNOWN, PERMANENT = -310, -200
"""PodCreationUnknownError, of a template that is no Pod at all; PodCreationPermanentError, of one that is invalid."""


def container(**fields: Any) -> Json:
    """A template with one container that has these fields besides the needed ones."""
    return {"spec": {"containers": [{**MAIN, **fields}]}}


BAD_TEMPLATES: Final[dict[str, tuple[Json, int, tuple[str, ...]]]] = {
    # Wrong types; API servers differ in how they say so.
    "metadata": ({"metadata": 5, "spec": GOOD}, UNKNOWN, ("ObjectMeta",)),
    "labels": ({"metadata": {"labels": ["x"]}, "spec": GOOD}, UNKNOWN, ("abels",)),
    "annotation": ({"metadata": {"annotations": {"x": 1}}, "spec": GOOD}, UNKNOWN, ("nnotations",)),
    "spec": ({"spec": ["x"]}, UNKNOWN, ("Pod", "pec")),
    "containers": ({"spec": {"containers": "none"}}, UNKNOWN, ("ontainers",)),
    "container": ({"spec": {"containers": ["none"]}}, UNKNOWN, ("ontainers",)),
    "env": (container(env="none"), UNKNOWN, ("Container", "nv")),
    "fraction": ({"spec": {**GOOD, "terminationGracePeriodSeconds": 1.5}}, UNKNOWN, ("1.5",)),
    "number": ({"spec": {**GOOD, "terminationGracePeriodSeconds": 10**19}}, UNKNOWN, ("erminationGracePeriodSeconds",)),
    # A replaced placeholder is always text.
    "port": (container(ports=[{"containerPort": "{{FC_TASK_INDEX}}"}]), UNKNOWN, ("ontainerPort",)),
    # Wrong values, some of them only once placeholders are replaced.
    "nothing": ({}, PERMANENT, ("spec.containers", "Required value")),
    "policy": ({"spec": {**GOOD, "restartPolicy": "Sometimes"}}, PERMANENT, ("spec.restartPolicy", "Sometimes")),
    "twice": ({"spec": {"containers": [MAIN, MAIN]}}, PERMANENT, ("spec.containers[1].name", "main")),
    "placeholder": ({"spec": {**GOOD, "hostname": "{{FC_NO_SUCH}}"}}, PERMANENT, ("spec.hostname", "{{FC_NO_SUCH}}")),
    "hostname": (
        {"spec": {**GOOD, "hostname": "{{FC_POD_NAME}}." * 2}},
        PERMANENT,
        ("spec.hostname", "hostname-a-0.hostname-a-0."),
    ),
    "label": (
        {"metadata": {"labels": {"x": "{{FC_POD_NAME}}" * 8}}, "spec": GOOD},
        PERMANENT,
        ("metadata.labels", "label-a-0" * 8),
    ),
    "labelkey": (
        {"metadata": {"labels": {"{{FC_POD_NAME}}/": "x"}}, "spec": GOOD},
        PERMANENT,
        ("metadata.labels", "labelkey-a-0/"),
    ),
}


@pytest.fixture
async def frameworks(cluster: Cluster, pods: SimulatedRuntime, controller: Controller) -> Frameworks:
    return Frameworks(await cluster.client(), cluster.namespace)


def completion(status: Json) -> Json:
    """The completion status of the first Task of role a; empty while it has none."""
    return tasks(status)[0]["attemptStatus"]["completionStatus"] or {}


async def stalled(frameworks: Frameworks, name: str) -> Json:
    """The condition, once it reports that a user has to help."""
    status = await frameworks.until(name, lambda status: condition(status, "Stalled").get("status") == "True")
    return condition(status, "Stalled")


async def told(frameworks: Frameworks, name: str, reason: str) -> str:
    """The message of the Event of that reason about a Framework, once there is one."""
    selector = f"involvedObject.kind=Framework,involvedObject.name={name},reason={reason}"

    async def probe() -> str:
        answer = await frameworks.client.list(EVENTS, frameworks.namespace, field_selector=selector)
        events = orjson.loads(answer)["items"]
        assert len(events) == 1
        return str(events[0]["message"])

    return await eventually(probe)


# --- templates ----------------------------------------------------------------------------------------------------


async def test_a_bad_template_completes_its_task_with_its_error(frameworks: Frameworks) -> None:
    for name, (template, _, _) in BAD_TEMPLATES.items():
        await frameworks.create(name, {"name": "a", "task": {"pod": template}}, role("good"))
    for name, (_, code, words) in BAD_TEMPLATES.items():
        status = await frameworks.until(name, lambda status: states(status) == ["Completed", "AttemptRunning"])
        said = completion(status)
        assert said["code"] == code, (name, said)
        message = orjson.loads(said["diagnostics"].removeprefix("Failed to create Pod: "))["ErrStatus"]["message"]
        assert [word for word in words if word not in message] == [], (name, message)
        assert condition(status, "Stalled") == {}, name


@pytest.mark.virtual_clock
async def test_odd_but_valid_templates_run(frameworks: Frameworks) -> None:
    templates: dict[str, Json] = {
        # As long as names can be: 63 of the Framework, 63 of the role.
        "f" * 63: {"spec": GOOD},
        "unknown": {"spec": {**GOOD, "privileged": False, "neverheardof": {"{{FC_TASK_INDEX}}": None}}},
        # Two keys that are one once they are replaced.
        "keys": {"metadata": {"annotations": {"{{FC_TASK_INDEX}}": "x", "0": "x"}}, "spec": GOOD},
        "env": container(env=[{"name": "FC_TASK_INDEX", "value": "mine"}]),
        "marker": {"metadata": {"annotations": {"x": '@0-@1-index"\\{{FC_POD_NAME}}\u2028'}}, "spec": GOOD},
        "named": {"metadata": {"name": "mine", "namespace": "others", "generateName": "mine-"}, "spec": GOOD},
    }
    for name, template in templates.items():
        await frameworks.create(name, {"name": "r" * 63, "task": {"pod": template}})
    for name in templates:
        await frameworks.until_running(name, 1)
    made = await frameworks.pods()
    assert made.keys() == {f"{name}-{'r' * 63}-0" for name in templates}
    annotations = made[f"marker-{'r' * 63}-0"]["metadata"]["annotations"]
    assert annotations["x"] == f'@0-@1-index"\\marker-{"r" * 63}-0\u2028'


async def test_an_error_without_a_reason_of_its_own_stalls_until_it_is_fixed(
    frameworks: Frameworks,
) -> None:
    """A 500 may pass by itself, so it completes nothing; the condition has the API server's message."""
    long = "r" * 60
    templates: dict[str, tuple[Json, str]] = {
        "version": ({"metadata": {"resourceVersion": "5"}, "spec": GOOD}, "resourceVersion should not be set"),
        # Half a megabyte, and two of them once the placeholders are replaced.
        "huge": (container(args=["{{FC_POD_NAME}}" * 30_000]), "too large"),
    }
    for name, (template, _) in templates.items():
        await frameworks.create(name, {"name": long, "task": {"pod": template}})
    for name, (_, words) in templates.items():
        said = await stalled(frameworks, name)
        assert said["reason"] == "PodNotAnswered"
        assert f"Cannot create Pod {name}-{long}-0: 500: " in said["message"]
        assert words in said["message"]
        await frameworks.set(name, taskRoles__0__task__pod={"spec": GOOD})
        status = await frameworks.until_running(name, 1)
        assert condition(status, "Stalled")["status"] == "False"


# --- names that are taken -------------------------------------------------------------------------------------------


async def test_names_that_other_controllers_use_are_theirs(frameworks: Frameworks) -> None:
    client, namespace = frameworks.client, frameworks.namespace
    boss = orjson.loads(await client.create(CONFIGMAPS, orjson.dumps(config_map("boss")), namespace))
    theirs = {
        "ConfigMap configs-attempt": await client.create(
            CONFIGMAPS, orjson.dumps(config_map("configs-attempt")), namespace
        ),
        "Pod pods-a-0": await client.create(
            PODS, orjson.dumps(pod_of("pods-a-0", ownerReferences=[owner(boss, controller=True)])), namespace
        ),
    }
    await frameworks.create("configs", role())
    await frameworks.create("pods", role("a", 2))
    controllers = ("without a controller", f"controlled by {boss['metadata']['uid']}")
    for (what, body), who in zip(theirs.items(), controllers, strict=True):
        said = await stalled(frameworks, what.split()[1].split("-")[0])
        assert said["reason"] == "NamingConflict"
        uid = orjson.loads(body)["metadata"]["uid"]
        assert f"{what} ({uid}) already exists, {who}" in said["message"]
    await frameworks.until_running("pods", 1)
    found = (await frameworks.pods())["pods-a-0"]["metadata"]
    assert (found["uid"], found.get("labels")) == (orjson.loads(theirs["Pod pods-a-0"])["metadata"]["uid"], None)
    await client.delete(CONFIGMAPS, "configs-attempt", namespace)
    status = await frameworks.until_running("configs", 1)
    assert condition(status, "Stalled")["status"] == "False"


# --- specs ----------------------------------------------------------------------------------------------------------


def with_role(**fields: Any) -> Json:
    """A spec of one role."""
    return {"taskRoles": [{"name": "a", "task": {"pod": {"spec": GOOD}}, **fields}]}


OLD_SPECS: Final[dict[str, tuple[Json, str, str]]] = {
    "policy": ({"retryPolicy": {"fancyRetryPolicy": "yes"}, **with_role()}, "retryPolicy.fancyRetryPolicy", "yes"),
    "count": ({"retryPolicy": {"maxRetryCount": 2**31}, **with_role()}, "retryPolicy.maxRetryCount", "2147483648"),
    "unnamed": ({"taskRoles": [{"task": {"pod": {"spec": GOOD}}}]}, "taskRoles[0].name", ""),
    "twins": ({"taskRoles": with_role()["taskRoles"] * 2}, "taskRoles[1].name", "a"),
    "text": (with_role(task={"pod": "none"}), "taskRoles[0].task.pod", "none"),
    "wait": (
        with_role(task={"pod": {"spec": GOOD}, "podGracefulDeletionTimeoutSec": "5"}),
        "taskRoles[0].task.podGracefulDeletionTimeoutSec",
        "5",
    ),
}
"""What the original's CRD takes, and this project's does not: the field that is wrong, and its value."""


@pytest.fixture
async def loose(cluster: Cluster, pods: SimulatedRuntime) -> AsyncIterator[Api]:
    """The API server with the original's CRD, which lets nearly everything pass; in the end it is ours again."""
    async with open_api(cluster.kubeconfig, cluster.namespace) as api:
        path = f"{CRDS}/{names.CRD_NAME}"
        ours = (await api.get(path)).ok()["spec"]
        try:
            await original.install_crd(api)
            yield api
        finally:
            there = (await api.get(path)).ok()
            (await api.put(path, {**there, "spec": ours})).ok()


async def test_a_spec_of_an_older_crd_reports_its_error_until_it_is_fixed(cluster: Cluster, loose: Api) -> None:
    for name, (spec, _, _) in OLD_SPECS.items():
        (await loose.post(original.frameworks(loose), original.framework(name, **spec))).ok()
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall):
        await frameworks.create("good", role())
        await frameworks.until_running("good", 1)
        for name, (_, field, value) in OLD_SPECS.items():
            messages = [await told(frameworks, name, "InvalidSpec")]
            # It takes no status for an object whose spec it would not take now; of list maps it knows nothing there.
            if cluster.name != "1.20" or name == "twins":
                said = await stalled(frameworks, name)
                assert said["reason"] == "InvalidSpec"
                messages.append(said["message"])
            for message in messages:
                assert f"spec.{field}: " in message
                assert value in message
        assert (await frameworks.pods()).keys() == {"good-a-0"}
        for name in OLD_SPECS:
            await frameworks.client.patch(
                FRAMEWORKS,
                name,
                orjson.dumps([{"op": "replace", "path": "/spec", "value": with_role()}]),
                frameworks.namespace,
                content_type=JSON_PATCH,
            )
        for name in OLD_SPECS:
            await frameworks.until_running(name, 1)


async def test_a_bad_spec_stops_nothing_and_runs_once_it_is_fixed(
    cluster: Cluster, loose: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """A running Framework whose spec becomes bad runs on as it is, and that is said once."""
    caplog.set_level(logging.INFO)
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall):
        await frameworks.create("f", role("a", 2))
        before = await frameworks.until_running("f", 2)
        wait = "taskRoles__0__task__podGracefulDeletionTimeoutSec"
        # The controller has put its own CRD in its place.
        await original.install_crd(loose)
        await frameworks.set("f", **{wait: "5"}, taskRoles__0__taskNumber=0)
        await told(frameworks, "f", "InvalidSpec")
        if cluster.name != "1.20":
            assert (await stalled(frameworks, "f"))["reason"] == "InvalidSpec"
        await asyncio.sleep(5)
        assert sum("/f]: InvalidSpec: " in message for message in caplog.messages) == 1
        await frameworks.set("f", **{wait: 5}, taskRoles__0__taskNumber=3)
        after = await frameworks.until_running("f", 3)
    uids = [[task["attemptStatus"]["podUID"] for task in tasks(status)] for status in (before, after)]
    assert uids[1][:2] == uids[0]
    if cluster.name != "1.20":
        assert condition(after, "Stalled")["status"] == "False"


@pytest.mark.virtual_clock
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.usefixtures("pods")
async def test_an_invalid_spec_can_ask_for_the_end(cluster: Cluster, *, restart: bool) -> None:
    """A coordinator that is no Task passes each schema."""
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    ends: dict[str, Json] = {
        "stopped": {"executionType": "Stop"},
        "suspended": {"suspend": True},
        "late": {"activeDeadlineSeconds": 1},
    }
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall):
        for name in ends:
            await frameworks.create(name, role("a", 2))
        for name in ends:
            await frameworks.until_running(name, 2)
            await frameworks.set(name, coordinator={"taskRole": "nobody"})
            await told(frameworks, name, "InvalidSpec")
        if not restart:
            await _end_all(frameworks, ends)
    if restart:
        for name, wanted in ends.items():
            await frameworks.set(name, **wanted)
        async with Controller(Config(), await cluster.connection(), wall=cluster.wall):
            await _end_all(frameworks, ends)


@pytest.mark.newest
@pytest.mark.parametrize("levels", [300, 2000])
@pytest.mark.usefixtures("pods")
async def test_a_spec_that_is_too_deep_can_be_ended(cluster: Cluster, levels: int) -> None:
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall):
        for name in ("stopped", "suspended", "deleted"):
            await frameworks.create(name, role("a", 2))
            await frameworks.until_running(name, 2)
            await frameworks.nest(name, levels)
            assert "nested more than 254 levels" in await told(frameworks, name, "InvalidSpec")
        await frameworks.set("stopped", executionType="Stop")
        await frameworks.until_state("stopped", "Completed")
    await frameworks.set("suspended", suspend=True)
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall):
        await frameworks.until("suspended", lambda status: condition(status, "Suspended").get("status") == "True")
        for name in ("deleted", "suspended", "stopped"):
            await frameworks.delete(name)
            await frameworks.until_gone(name)


async def _end_all(frameworks: Frameworks, ends: dict[str, Json]) -> None:
    for name, wanted in ends.items():
        await frameworks.set(name, **wanted)
    codes = {}
    for name in ("stopped", "late"):
        done = await frameworks.until_state(name, "Completed")
        assert (await stalled(frameworks, name))["reason"] == "InvalidSpec"
        codes[name] = done["attemptStatus"]["completionStatus"]["code"]
    assert codes == {"stopped": -210, "late": -250}
    await frameworks.until("suspended", lambda status: condition(status, "Suspended").get("status") == "True")
    assert await frameworks.pods() == {}
    await frameworks.set("suspended", coordinator=None, suspend=False)
    again = await frameworks.until_running("suspended", 2)
    assert again["attemptStatus"]["id"] == 1
    assert condition(again, "Stalled")["status"] == "False"


async def test_a_completed_framework_goes_after_its_retention_though_its_spec_is_bad(
    cluster: Cluster, loose: Api
) -> None:
    if cluster.name == "1.20":
        pytest.skip("it takes no status for an object whose spec it would not take now")
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall):
        await frameworks.create("f", role("a", 1, simulate={"run-seconds": 0.1}))
        await frameworks.until_state("f", "Completed")
        # The controller has put its own CRD in its place.
        await original.install_crd(loose)
        await frameworks.set("f", taskRoles__0__task__podGracefulDeletionTimeoutSec="5")
        assert (await stalled(frameworks, "f"))["reason"] == "InvalidSpec"
    config = Config(framework_completed_retain_sec=5)
    async with Controller(config, await cluster.connection(), wall=cluster.wall):
        await frameworks.until_gone("f")


async def test_an_event_has_the_error_where_the_status_is_refused(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, loose: Api
) -> None:
    """Kubernetes before 1.30 refuses the status of an object whose spec it would not accept now: an Event says it."""
    requests = Requests(monkeypatch, cluster.namespace)

    async def refuse(_: Send) -> bytes:
        raise Invalid('Framework "f" is invalid', code=422)

    requests.always(lambda request: request.writes_status, refuse)
    spec, field, value = OLD_SPECS["text"]
    (await loose.post(original.frameworks(loose), original.framework("f", **spec))).ok()
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall):
        message = await told(frameworks, "f", "InvalidSpec")
        assert f"spec.{field}: " in message
        assert value in message
        await until(lambda: len(requests.status_writes) > 3)
        # Once is enough.
        assert await told(frameworks, "f", "InvalidSpec") == message
    assert await frameworks.status("f") == {}


async def test_an_execution_type_that_goes_back_changes_nothing(cluster: Cluster, frameworks: Frameworks) -> None:
    await frameworks.create("f", role())
    await frameworks.create("g", role())
    for name in "fg":
        await frameworks.until_running(name, 1)
    await frameworks.set("f", executionType="Stop")
    await frameworks.until_state("f", "Completed")
    if cluster.evaluates_rules:
        for name, value in (("f", "Start"), ("g", "Create")):
            with pytest.raises(Invalid, match="executionType may only change from Create to Start"):
                await frameworks.set(name, executionType=value)
        return
    # An API server without rules lets it pass.
    for name, value, state in (("f", "Start", "Completed"), ("g", "Create", "AttemptRunning")):
        changed = await frameworks.set(name, executionType=value)
        wanted = (changed["metadata"]["generation"], state)

        def is_so(status: Json, wanted: tuple[int, str] = wanted) -> bool:
            return (status["observedGeneration"], status["state"]) == wanted

        await frameworks.until(name, is_so)
