"""The Framework CRD on an API server: the contract that clients and the controller build on."""

import copy
from typing import Any

import orjson
import pytest

from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.errors import Invalid
from frameworkcontroller.kube.resources import Resource
from tests.support.clusters import Cluster
from tests.support.objects import read

FRAMEWORKS = Resource("frameworkcontroller.microsoft.com", "v1", "frameworks", "Framework")

RETRY_DEFAULT = {"fancyRetryPolicy": False, "maxRetryCount": 0}
COMPLETION_DEFAULT = {"minFailedTaskCount": 0, "minSucceededTaskCount": 0}
TASK_DEFAULT = {"retryPolicy": RETRY_DEFAULT}


class Frameworks:
    """Frameworks of one namespace, as decoded JSON."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    async def create(self, name: str = "f", **body: Any) -> Any:
        document = {
            "apiVersion": "frameworkcontroller.microsoft.com/v1",
            "kind": "Framework",
            "metadata": {"name": name},
            **body,
        }
        return orjson.loads(await self.client.create(FRAMEWORKS, orjson.dumps(document), self.namespace))

    async def patch(self, change: Any, name: str = "f") -> Any:
        answer = await self.client.patch(
            FRAMEWORKS, name, orjson.dumps(change), self.namespace, content_type=MERGE_PATCH
        )
        return orjson.loads(answer)

    async def put_status(self, status: Any, name: str = "f") -> Any:
        body = await read(self.client, FRAMEWORKS, name, self.namespace) | {"status": status}
        await self.client.raw("PUT", FRAMEWORKS.path(self.namespace, name, "status"), body=orjson.dumps(body))
        return (await read(self.client, FRAMEWORKS, name, self.namespace))["status"]


@pytest.fixture
async def frameworks(cluster: Cluster) -> Frameworks:
    return Frameworks(await cluster.client(), cluster.namespace)


async def test_only_a_role_name_is_required(frameworks: Frameworks) -> None:
    empty = {"executionType": "Start", "retryPolicy": RETRY_DEFAULT, "taskRoles": []}
    assert (await frameworks.create("f1"))["spec"] == empty
    assert (await frameworks.create("f2", spec={}))["spec"] == empty
    assert (await frameworks.create("f3", spec={"taskRoles": [{"name": "a"}]}))["spec"] == empty | {
        "taskRoles": [
            {
                "name": "a",
                "taskNumber": 1,
                "frameworkAttemptCompletionPolicy": COMPLETION_DEFAULT,
                "task": TASK_DEFAULT,
            }
        ]
    }


async def test_partial_and_null_policies_mean_the_defaults(frameworks: Frameworks) -> None:
    spec = {
        "description": None,
        "retryPolicy": None,
        "taskRoles": [
            {"name": "a", "taskNumber": None, "frameworkAttemptCompletionPolicy": None, "task": None},
            {"name": "b", "frameworkAttemptCompletionPolicy": {}, "task": {"retryPolicy": {}}},
            {
                "name": "c",
                "frameworkAttemptCompletionPolicy": {"minFailedTaskCount": 1},
                "task": {"retryPolicy": {"fancyRetryPolicy": True}, "podGracefulDeletionTimeoutSec": None},
            },
        ],
    }
    stored = (await frameworks.create(spec=spec))["spec"]
    assert stored["description"] is None
    assert stored["retryPolicy"] == RETRY_DEFAULT
    a, b, c = stored["taskRoles"]
    for role in (a, b):
        assert role["taskNumber"] == 1
        assert role["frameworkAttemptCompletionPolicy"] == COMPLETION_DEFAULT
        assert role["task"] == TASK_DEFAULT
    assert c["frameworkAttemptCompletionPolicy"] == COMPLETION_DEFAULT | {"minFailedTaskCount": 1}
    assert c["task"] == {
        "retryPolicy": RETRY_DEFAULT | {"fancyRetryPolicy": True},
        "podGracefulDeletionTimeoutSec": None,
    }


async def test_a_pod_template_passes_through_untouched(frameworks: Frameworks) -> None:
    pod = {
        "metadata": {"annotations": {"note": "{{FC_TASK_INDEX}}"}},
        "spec": {
            "containers": [{"name": "x", "image": "y", "securityContext": None, "invented": {"deep": [1, None, "z"]}}],
            "privileged": False,
            "volumes": [{"name": "v", "azureFile": {"shareName": "s", "readonly": False}}],
        },
    }
    stored = await frameworks.create(spec={"taskRoles": [{"name": "a", "task": {"pod": pod}}]})
    assert stored["spec"]["taskRoles"][0]["task"]["pod"] == pod


async def test_unknown_fields_next_to_the_template_are_dropped(frameworks: Frameworks) -> None:
    stored = await frameworks.create(spec={"invented": 1, "taskRoles": [{"name": "a", "invented": 2}]})
    assert "invented" not in stored["spec"]
    assert "invented" not in stored["spec"]["taskRoles"][0]


def with_role(**role: Any) -> dict[str, Any]:
    return {"taskRoles": [{"name": "a", **role}]}


@pytest.mark.parametrize(
    "spec",
    [
        {"retryPolicy": {"maxRetryCount": -2}},
        {"retryPolicy": {"maxRetryCount": 2**31 - 1}},
        with_role(taskNumber=0),
        with_role(taskNumber=10000),
        with_role(frameworkAttemptCompletionPolicy={"minFailedTaskCount": -1, "minSucceededTaskCount": 2**31 - 1}),
        with_role(task={"podGracefulDeletionTimeoutSec": 2**62}),
        with_role(task={"podForceDeletionPolicy": "NodeUnreachable"}),
        {"retryPolicy": {"backoff": {"baseSeconds": 2**31 - 1, "maxSeconds": 2**31 - 1}}},
        with_role(task={"retryPolicy": {"backoff": {"baseSeconds": 0, "maxSeconds": 0}}}),
        {"taskRoles": [{"name": "a1" * 31 + "z"}]},
    ],
)
async def test_values_at_the_bounds_are_kept(frameworks: Frameworks, spec: dict[str, Any]) -> None:
    stored = (await frameworks.create(spec=spec))["spec"]
    assert_contains(stored, spec)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"retryPolicy": {"maxRetryCount": -3}}, "spec.retryPolicy.maxRetryCount"),
        ({"retryPolicy": {"maxRetryCount": 2**31}}, "spec.retryPolicy.maxRetryCount"),
        ({"retryPolicy": {"fancyRetryPolicy": "yes"}}, "spec.retryPolicy.fancyRetryPolicy"),
        ({"retryPolicy": {"backoff": {"maxSeconds": 2**31}}}, "spec.retryPolicy.backoff.maxSeconds"),
        ({"executionType": "start"}, "spec.executionType"),
        (with_role(taskNumber=-1), "taskNumber"),
        (with_role(taskNumber=10001), "taskNumber"),
        (with_role(taskNumber=1.5), "taskNumber"),
        (with_role(frameworkAttemptCompletionPolicy={"minFailedTaskCount": -2}), "minFailedTaskCount"),
        (with_role(frameworkAttemptCompletionPolicy={"minSucceededTaskCount": -2}), "minSucceededTaskCount"),
        (with_role(task={"pod": "text"}), "pod"),
        ({"taskRoles": [{}]}, "name"),
        ({"taskRoles": [{"name": "a-b"}]}, "name"),
        ({"network": {"subdomain": "0a"}}, "spec.network.subdomain"),
        ({"coordinator": {"taskRole": "a", "taskIndex": -1}}, "spec.coordinator.taskIndex"),
        ({"coordinator": {}}, "spec.coordinator.taskRole"),
        ({"taskRoles": [{"name": "A"}]}, "name"),
        ({"taskRoles": [{"name": ""}]}, "name"),
        ({"taskRoles": [{"name": "a" * 64}]}, "name"),
        ({"taskRoles": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}, "spec.taskRoles[2]"),
    ],
)
async def test_values_out_of_bounds_are_refused_by_name(
    frameworks: Frameworks, spec: dict[str, Any], field: str
) -> None:
    with pytest.raises(Invalid) as refusal:
        await frameworks.create(spec=spec)
    assert field in str(refusal.value)


@pytest.mark.parametrize("name", ["a-b", "a.b"])
async def test_a_name_that_would_break_pod_names_is_refused(frameworks: Frameworks, name: str) -> None:
    with pytest.raises(Invalid, match=r"metadata\.name"):
        await frameworks.create(name)


@pytest.mark.parametrize(("before", "after"), [("Create", "Start"), ("Create", "Stop"), ("Start", "Stop")])
async def test_supported_changes_of_execution_type(frameworks: Frameworks, before: str, after: str) -> None:
    await frameworks.create(spec={"executionType": before})
    assert (await frameworks.patch({"spec": {"executionType": before}}))["spec"]["executionType"] == before
    assert (await frameworks.patch({"spec": {"executionType": after}}))["spec"]["executionType"] == after


async def test_a_suspended_framework_may_go_back_to_create(frameworks: Frameworks) -> None:
    await frameworks.create(spec={"suspend": True})
    assert (await frameworks.patch({"spec": {"executionType": "Create"}}))["spec"]["executionType"] == "Create"


@pytest.mark.parametrize("suspend", [False, None])
async def test_no_other_framework_may(cluster: Cluster, frameworks: Frameworks, suspend: bool | None) -> None:
    await frameworks.create(spec={"suspend": suspend})
    if not cluster.evaluates_rules:
        pytest.skip("this API server ignores CEL rules")
    with pytest.raises(Invalid, match="executionType may only change from Create to Start"):
        await frameworks.patch({"spec": {"executionType": "Create", "suspend": True}})


@pytest.mark.parametrize(("before", "after"), [("Start", "Create"), ("Stop", "Start"), ("Stop", "Create")])
async def test_other_changes_of_execution_type_are_refused(
    cluster: Cluster, frameworks: Frameworks, before: str, after: str
) -> None:
    await frameworks.create(spec={"executionType": before})
    if not cluster.evaluates_rules:
        pytest.skip("this API server ignores CEL rules")
    with pytest.raises(
        Invalid,
        match="executionType may only change from Create to Start, from Create to Stop, from Start to Stop, and",
    ):
        await frameworks.patch({"spec": {"executionType": after}})
    with pytest.raises(Invalid):
        await frameworks.patch(
            {"spec": {"executionType": None}} if after == "Start" else {"spec": {"executionType": after}}
        )


def _gang(**fields: Any) -> dict[str, Any]:
    return {"schedulingPolicy": {"gang": {"minCount": 4}}, **fields}


TOPOLOGY: dict[str, Any] = {"schedulingConstraints": {"topology": [{"key": "topology.kubernetes.io/zone"}]}}


@pytest.mark.parametrize(
    ("field", "before", "after"),
    [
        ("network", None, {}),
        ("network", {}, None),
        ("network", {"subdomain": "a"}, {"subdomain": "b"}),
        ("network", {}, {"subdomain": "b"}),
        ("network", {}, {"publishNotReadyAddresses": False}),
        ("scheduling", None, _gang()),
        ("scheduling", _gang(), None),
        ("scheduling", _gang(), {"schedulingPolicy": {"basic": {}, "gang": None}}),
        ("scheduling", _gang(), TOPOLOGY),
        ("scheduling", _gang(disruptionMode={"all": {}}), {"disruptionMode": {"all": None, "single": {}}}),
        ("scheduling", _gang(), {"disruptionMode": {"single": {}}}),
        ("scheduling", _gang(queue="a"), {"queue": "b"}),
        ("scheduling", _gang(queue="a"), {"queue": None}),
    ],
)
async def test_network_and_scheduling_are_immutable_except_the_minimum(
    cluster: Cluster, frameworks: Frameworks, field: str, before: Any, after: Any
) -> None:
    await frameworks.create(spec={} if before is None else {field: before})
    if not cluster.evaluates_rules:
        pytest.skip("this API server ignores CEL rules")
    with pytest.raises(Invalid, match=f"{field} is immutable"):
        await frameworks.patch({"spec": {field: after}})
    await frameworks.patch({"spec": {"suspend": True}})
    if field == "scheduling" and before is not None:
        for policy in ({"minCount": 8}, {"minCount": None}):
            await frameworks.patch({"spec": {"scheduling": {"schedulingPolicy": {"gang": policy}}}})


@pytest.mark.parametrize(
    ("scheduling", "text"),
    [
        ({}, "schedulingPolicy"),
        ({"schedulingPolicy": {"basic": {}, "gang": {}}}, "exactly one of basic and gang"),
        ({"schedulingPolicy": {}}, "exactly one of basic and gang"),
        (_gang(disruptionMode={}), "exactly one of single and all"),
        (_gang(schedulingConstraints={"topology": [{"key": "a"}, {"key": "b"}]}), "topology"),
        (_gang(schedulingConstraints={"topology": [{"key": "a/"}]}), "topology"),
        (_gang(queue="A"), "queue"),
        ({"schedulingPolicy": {"gang": {"minCount": 0}}}, "minCount"),
    ],
)
async def test_scheduling_that_cannot_be(
    cluster: Cluster, frameworks: Frameworks, scheduling: dict[str, Any], text: str
) -> None:
    if "exactly" in text and not cluster.evaluates_rules:
        pytest.skip("this API server ignores CEL rules")
    with pytest.raises(Invalid, match=text):
        await frameworks.create(spec={"scheduling": scheduling})


async def test_all_of_scheduling_is_kept(frameworks: Frameworks) -> None:
    scheduling = _gang(disruptionMode={"all": {}}, queue="team-a", **TOPOLOGY)
    stored = await frameworks.create(spec={"scheduling": scheduling})
    assert stored["spec"]["scheduling"] == scheduling


def _claims(name: str = "data", **spec: Any) -> list[dict[str, Any]]:
    return [{"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "future": {"field": 1}, **spec}}]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, _claims()),
        (_claims(), None),
        (_claims(), _claims("other")),
        (_claims(), _claims() + _claims("other")),
        (_claims(), _claims(storageClassName="fast")),
        (_claims(), _claims(future={"field": 2})),
    ],
)
async def test_the_claims_of_a_role_stay(cluster: Cluster, frameworks: Frameworks, before: Any, after: Any) -> None:
    other = {"name": "b"}
    await frameworks.create(spec={"taskRoles": [{"name": "a", "volumeClaimTemplates": before}]})
    if not cluster.evaluates_rules:
        pytest.skip("this API server ignores CEL rules")
    with pytest.raises(Invalid, match="volumeClaimTemplates is immutable"):
        await frameworks.patch({"spec": {"taskRoles": [{"name": "a", "volumeClaimTemplates": after}]}})
    policy = {"whenScaled": "Delete"}
    changed = {"name": "a", "volumeClaimTemplates": before, "persistentVolumeClaimRetentionPolicy": policy}
    await frameworks.patch({"spec": {"taskRoles": [other, {**changed, "taskNumber": 7}]}})


AT: dict[str, Any] = {"startTime": "2026-01-01T00:00:00Z", "runTime": None, "completionTime": None}
RETRIES = {"totalRetriedCount": 0, "accountableRetriedCount": 0, "retryDelaySec": None}
ATTEMPT: dict[str, Any] = {"id": 0, **AT, "instanceUID": None, "completionStatus": None}
NULLS: dict[str, Any] = {
    **AT,
    "transitionTime": "2026-01-01T00:00:00Z",
    "state": "AttemptRunning",
    "observedGeneration": 1,
    "retryPolicyStatus": RETRIES,
    "attemptStatus": {**ATTEMPT, "configMapName": "f-attempt", "configMapUID": None, "taskRoleStatuses": None},
}
TASK_STATUS: dict[str, Any] = {
    "index": 0,
    "instanceUID": "t",
    **AT,
    "transitionTime": "2026-01-01T00:00:00Z",
    "state": "AttemptCreationPending",
    "deletionPending": False,
    "retryPolicyStatus": RETRIES,
    "attemptStatus": {
        **ATTEMPT,
        "podName": "f-a-0",
        **dict.fromkeys(("podUID", "podNodeName", "podIP", "podHostIP")),
    },
}


async def test_a_status_field_without_a_value_stays_null(frameworks: Frameworks) -> None:
    await frameworks.create()
    assert await frameworks.put_status(NULLS) == NULLS
    full = copy.deepcopy(NULLS)
    full["attemptStatus"] |= {
        "completionStatus": {
            "code": -310,
            "phrase": "PodCreationUnknownError",
            "type": {"name": "Failed", "attributes": None},
            "diagnostics": "",
            "trigger": {"message": "", "taskRoleName": "a", "taskIndex": 0},
        },
        "taskRoleStatuses": [
            {"name": "a", "instanceUID": "r", "podGracefulDeletionTimeoutSec": None, "taskStatuses": [TASK_STATUS]}
        ],
        "taskRoleStatusesCompressed": None,
    }
    assert await frameworks.put_status(full) == full


async def test_an_empty_text_in_the_status_is_kept(frameworks: Frameworks) -> None:
    condition = {"type": "Stalled", "status": "False", "reason": "", "message": ""}
    trigger = {"message": "", "taskRoleName": "", "taskIndex": 0}
    completion = {"code": 0, "phrase": "", "type": {"name": "Succeeded", "attributes": []}, "diagnostics": ""}
    status = {
        "state": "Completed",
        "conditions": [condition],
        "attemptStatus": {"completionStatus": completion | {"trigger": trigger}},
    }
    await frameworks.create()
    assert await frameworks.put_status(status) == status


async def test_status_and_spec_are_written_apart(frameworks: Frameworks) -> None:
    created = await frameworks.create(status={"state": "Completed"})
    assert "status" not in created
    assert created["metadata"]["generation"] == 1
    await frameworks.put_status({"state": "AttemptRunning"})
    changed = await frameworks.patch({"spec": {"executionType": "Stop"}, "status": {"state": "Completed"}})
    assert changed["status"] == {"state": "AttemptRunning"}
    assert changed["metadata"]["generation"] == 2


def assert_contains(whole: Any, part: Any) -> None:
    """Fail unless all of `part` stands in `whole`."""
    if isinstance(part, dict):
        for key, value in part.items():
            assert_contains(whole[key], value)
    elif isinstance(part, list):
        assert len(whole) == len(part)
        for one, other in zip(whole, part, strict=True):
            assert_contains(one, other)
    else:
        assert whole == part
