"""The controller survives every spec and stored status that the API server accepts.

Content is drawn from the CRD's own schema. Many of the statuses resemble statuses of a controller, so that it acts on
more of them.
"""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timedelta, timezone
from typing import Any, Final

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from frameworkcontroller.api.names import API_VERSION, KIND
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.status import State
from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import JSON_PATCH, KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.errors import NotFound
from frameworkcontroller.kube.resources import CRDS
from frameworkcontroller.local.apiserver.restserver import ApiServer
from frameworkcontroller.local.kubelet.agent import NodeAgent
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support.framework_crd import crd_json, crd_manifest
from tests.support.frameworks import Frameworks, Json, codes, condition, role, tasks
from tests.support.mangled import VALUES
from tests.support.virtual_clock import run, wall

_MOST_TASKS: Final = 3
_INTEGERS: Final = {"int32": 2**31, "int64": 2**63}
_TIMES: Final = ["2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59"]


_ZONES: Final = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
_DATES: Final = st.datetimes(timezones=_ZONES).map(datetime.isoformat)
TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def _content(schema: Json) -> st.SearchStrategy[Any]:
    """Draw content that a structural schema of a CRD accepts.

    (hypothesis-jsonschema would draw it too; it rests on parts of hypothesis that are gone.)
    """
    some = _not_null(schema)
    return st.none() | some if schema.get("nullable") else some


def _not_null(schema: Json) -> st.SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return st.integers(1, 2**31 - 1) | st.sampled_from(["1%", "50%", "100%"])
    match schema.get("type"):
        case "boolean":
            return st.booleans()
        case "integer":
            most = _INTEGERS[schema["format"]]
            least, most = schema.get("minimum", -most), schema.get("maximum", most - 1)
            return st.integers(least, most) | st.sampled_from([0, 1, least, most]).filter(lambda it: it >= least)
        case "number":
            return st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0, 1, -1, 1 << 63])
        case "string" if "pattern" in schema:
            return st.sampled_from(["a", "b"]) | st.from_regex(schema["pattern"], fullmatch=True)
        case "string" if schema.get("format") == "date-time":
            return st.sampled_from(_TIMES) | _DATES
        case "string":
            return TEXT
        case "array":
            keys = schema.get("x-kubernetes-list-map-keys", [])
            unique = (lambda item: tuple(item[key] for key in keys)) if keys else None
            if schema.get("x-kubernetes-list-type") == "set":
                unique = lambda item: (item,)  # noqa: E731
            least, most = schema.get("minItems", 0), min(3, schema.get("maxItems", 3))
            return st.lists(_content(schema["items"]), min_size=least, max_size=most, unique_by=unique)
    fields = {name: _content(inner) for name, inner in schema.get("properties", {}).items()}
    required = {name: fields.pop(name) for name in schema.get("required", ())}
    least = schema.get("minProperties", 0)
    apart = [one["required"] for one in schema.get("not", {}).get("anyOf", ())]
    drawn = st.fixed_dictionaries(required, optional=fields)
    proper = drawn.filter(lambda it: len(it) >= least and not any(it.keys() >= {*one} for one in apart))
    if "anyOf" in schema:
        # A pattern of codes: the operator In takes no 0.
        proper = proper.filter(lambda it: it["operator"] != "In" or 0 not in it["values"])
    if "x-kubernetes-preserve-unknown-fields" in schema:
        return st.builds(lambda more, known: more | known, st.dictionaries(TEXT, VALUES, max_size=3), proper)
    return proper


_PROPERTIES: Final = crd_manifest()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
_SPEC: Final = _PROPERTIES["spec"]
_ROLE: Final = _SPEC["properties"]["taskRoles"]["items"]["properties"]
_ROLE["taskNumber"]["maximum"] = _MOST_TASKS
# Retries without end work (test_stuck.py counts their requests): here they would only take time.
for _retries in _SPEC["properties"]["retryPolicy"], _ROLE["task"]["properties"]["retryPolicy"]:
    _retries["properties"]["maxRetryCount"] |= {"minimum": 0, "maximum": 1}
_STATUS: Final = _PROPERTIES["status"]["properties"]
_ATTEMPT: Final = _STATUS["attemptStatus"]["properties"]


def _likely_status() -> st.SearchStrategy[Json]:
    """States that there are, in Tasks that have the fields of Tasks, in any combination."""
    time = st.sampled_from(["2026-01-01T00:00:00Z", "2025-12-31T23:59:59.5+14:00", "0001-01-01T00:00:00Z"])
    common = {
        "startTime": time,
        "runTime": st.none() | time,
        "completionTime": st.none() | time,
        "transitionTime": time,
        "state": st.sampled_from([state.value for state in State]),
        "retryPolicyStatus": _content(_STATUS["retryPolicyStatus"]),
    }
    attempt = {
        **{field: common[field] for field in ("startTime", "runTime", "completionTime")},
        "id": st.integers(0, 2),
        "completionStatus": st.none()
        | _not_null(_ATTEMPT["completionStatus"]).map(lambda completion: {"code": 1} | completion),
    }
    uid = st.none() | st.sampled_from(["", "u"])
    task = st.fixed_dictionaries(
        {
            **common,
            "instanceUID": uid,
            "deletionPending": st.booleans(),
            "attemptStatus": st.fixed_dictionaries({**attempt, "podUID": uid, "podIP": st.none() | TEXT}),
        }
    )
    some_role = st.fixed_dictionaries(
        {
            "name": st.sampled_from("ab"),
            "instanceUID": uid,
            "taskStatuses": st.lists(task, max_size=_MOST_TASKS).map(
                lambda listed: [{**one, "index": index} for index, one in enumerate(listed)]
            ),
        },
        optional={
            "podGracefulDeletionTimeoutSec": _content(_ROLE["task"]["properties"]["podGracefulDeletionTimeoutSec"])
        },
    )
    roles = st.lists(some_role, max_size=2, unique_by=lambda one: str(one["name"]))
    whole = st.fixed_dictionaries({**attempt, "configMapUID": uid, "taskRoleStatuses": roles})
    return st.fixed_dictionaries(
        {**common, "attemptStatus": whole}, optional={"conditions": _content(_STATUS["conditions"])}
    )


CONTENT: Final = st.tuples(_content(_SPEC), st.none() | _content(_PROPERTIES["status"]) | _likely_status())


@settings(max_examples=40)
@given(st.lists(CONTENT, min_size=1, max_size=3))
def test_others_are_served_and_nothing_is_lost(contents: list[tuple[Json, Json | None]]) -> None:
    run(_play(contents))


async def _play(contents: list[tuple[Json, Json | None]]) -> None:
    async with (
        ApiServer(wall=wall) as server,
        KubeClient(Connection.to_address(server.url, token=server.authenticator.token)) as client,
    ):
        await client.create(CRDS, crd_json())
        node = asyncio.create_task(NodeAgent(client, SimulatedRuntime(wall=wall), wall=wall).run())
        frameworks = Frameworks(client, "default")
        stored = {f"p{number}": await _store(frameworks, f"p{number}", *one) for number, one in enumerate(contents)}
        connection = Connection.to_address(server.url, token=server.authenticator.token)
        async with Controller(Config(), connection, wall=wall) as controller:
            await frameworks.create("healthy", role("a", 2, simulate={"run-seconds": "1"}))
            done = await frameworks.until_state("healthy", "Completed", within=30)
            assert codes(tasks(done)) == [0, 0]
            await asyncio.sleep(30)
            adds = controller.queue.adds
            await asyncio.sleep(60)
            assert controller.queue.adds - adds <= 10 * len(contents)
            assert controller.ready
            for name, before in stored.items():
                await _judge(frameworks, name, before)
        node.cancel()


async def _store(frameworks: Frameworks, name: str, spec: Json, status: Json | None) -> Json:
    body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}
    await frameworks.client.create(FRAMEWORKS, orjson.dumps(body), frameworks.namespace)
    if status is not None:
        patch = orjson.dumps([{"op": "add", "path": "/status", "value": status}])
        await frameworks.client.patch(
            FRAMEWORKS, name, patch, frameworks.namespace, content_type=JSON_PATCH, subresource="status"
        )
    return await frameworks.get(name)


async def _judge(frameworks: Frameworks, name: str, before: Json) -> None:
    """Its spec is unchanged, and if it is ignored, a condition names the cause."""
    status = before.get("status") or {}
    try:
        now = await frameworks.get(name)
    except NotFound:
        # It has been retained for long enough: it was completed, or has completed meanwhile.
        assert status.get("state") == "Completed" or before["spec"].get("ttlSecondsAfterFinished") is not None
        return
    assert now["spec"] == before["spec"]
    why = condition(now.get("status") or {}, "Stalled")
    if why.get("reason") == "Quarantined":
        message = why["message"].partition("leaves it alone: ")[2]
        assert re.match(r"status\.[][.\w]+: |InvariantError: ", message), message
        if message.startswith("status."):
            assert _without_conditions(now["status"]) == _without_conditions(status)


def _without_conditions(status: Json) -> Json:
    return {field: value for field, value in status.items() if field != "conditions"}
