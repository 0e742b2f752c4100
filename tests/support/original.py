"""A cluster as Microsoft's FrameworkController leaves it: its CRD, its objects, and how it reads a status.

Facts are from its public sources and the API reference; the code is our own. It installs a CRD with few bounds, that
keeps all unknown fields, and without the status subresource; it writes statuses with the whole object.
"""

import base64
import gzip
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.status import State
from frameworkcontroller.api.timestamps import parse_time
from tests.support.api import CRDS, Api, owner, replace_spec
from tests.support.eventually import eventually
from tests.support.frameworks import Json

_NAME: Final = {"type": "string", "pattern": names.NAME_PATTERN}
_COUNT: Final = {"type": "integer", "minimum": -1}


def _loose(preserve: Json, **properties: Any) -> Json:
    return {"type": "object", **preserve, "properties": properties}


def _schema(preserve: Json) -> Json:
    """A schema of bounds alone; ``preserve``: keeps other fields of an object."""
    policy = _loose(preserve, minFailedTaskCount=_COUNT, minSucceededTaskCount=_COUNT)
    number = {"type": "integer", "minimum": 0, "maximum": 10000}
    role = _loose(preserve, name=_NAME, taskNumber=number, frameworkAttemptCompletionPolicy=policy)
    spec = _loose(
        preserve,
        executionType={"type": "string", "enum": ["Create", "Start", "Stop"]},
        retryPolicy=_loose(preserve, maxRetryCount={"type": "integer", "minimum": -2}),
        taskRoles={"type": "array", "items": role},
    )
    return _loose(preserve, metadata={"type": "object", "properties": {"name": _NAME}}, spec=spec)


_NAMES: Final = {"plural": names.PLURAL, "kind": names.KIND, "singular": "framework", "listKind": "FrameworkList"}


def crd_spec(version: str = "v1") -> Json:
    """The spec of its CRD, as its releases of today (v1) or its older ones (v1beta1) write it."""
    spec: Json = {"group": names.GROUP, "names": _NAMES, "scope": "Namespaced"}
    if version == "v1":
        schema = _schema({"x-kubernetes-preserve-unknown-fields": True})
        served = {"name": names.VERSION, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        return {**spec, "versions": [served]}
    validation = {"openAPIV3Schema": _schema({})}
    return {**spec, "version": names.VERSION, "preserveUnknownFields": True, "validation": validation}


async def install_crd(api: Api, version: str = "v1") -> None:
    """Put its CRD in place of whichever is there, as it does whenever it starts; return once it is in force."""
    path = f"{CRDS.replace('/v1/', f'/{version}/')}/{names.CRD_NAME}"
    await replace_spec(api, path, crd_spec(version))

    async def in_force() -> None:
        # With the status subresource a creation drops the status; without it, it is part of the object.
        probe = {**framework("probe"), "status": {"state": State.COMPLETED}}
        answer = await api.post(frameworks(api), probe)
        await api.delete(f"{frameworks(api)}/probe")
        assert "status" in answer.ok()

    await eventually(in_force)


def frameworks(api: Api, name: str = "") -> str:
    """The path of the namespace's Frameworks, or of one of them."""
    return f"/apis/{names.API_VERSION}/namespaces/{api.namespace}/frameworks" + (f"/{name}" if name else "")


def framework(name: str, **spec: Any) -> Json:
    """A Framework to be created."""
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": name}, "spec": spec}


class Running:
    """A Framework that the original has started, in the making: its ConfigMap and Pods are there."""

    def __init__(self, api: Api, body: Json, configmap: Json, *, ancient: bool) -> None:
        self.api = api
        self.name: str = body["metadata"]["name"]
        self.body = body
        self.configmap = configmap
        self.ancient = ancient
        """As its releases of before rescaling write it: no instance UIDs of roles and Tasks, no label of the index."""
        self.roles: list[Json] = []

    @classmethod
    async def start(cls, api: Api, name: str, *, ancient: bool = False, **spec: Any) -> "Running":
        """Create the Framework and the ConfigMap of its first attempt."""
        body = (await api.post(frameworks(api), framework(name, **spec))).ok()
        uid = body["metadata"]["uid"]
        annotations = {
            names.FRAMEWORK_NAMESPACE: api.namespace,
            names.FRAMEWORK_NAME: name,
            names.CONFIGMAP_NAME: f"{name}-attempt",
            names.FRAMEWORK_ATTEMPT_ID: "0",
        } | ({} if ancient else {names.FRAMEWORK_UID: uid})
        metadata = {
            "name": f"{name}-attempt",
            "labels": {names.FRAMEWORK_NAME: name},
            "annotations": annotations,
            "ownerReferences": [owner(body, controller=True)],
            "finalizers": [names.FOREGROUND_FINALIZER],
        }
        configmap = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        return cls(api, body, (await api.post(api.path("configmaps"), configmap)).ok(), ancient=ancient)

    async def task(self, role: str, index: int, *, attempt: int = 0, spec: Json, recorded: bool = True) -> Json:
        """A Task whose Pod runs; its status. Not ``recorded``: the controller has died before it wrote the UID."""
        uid = f"{role}-{index}-of-{self.name}"
        name = f"{self.name}-{role}-{index}"
        configmap_uid = self.configmap["metadata"]["uid"]
        annotations = {
            names.FRAMEWORK_NAMESPACE: self.api.namespace,
            names.FRAMEWORK_NAME: self.name,
            names.TASKROLE_NAME: role,
            names.TASK_INDEX: str(index),
            names.CONFIGMAP_NAME: f"{self.name}-attempt",
            names.POD_NAME: name,
            names.FRAMEWORK_ATTEMPT_ID: "0",
            names.FRAMEWORK_ATTEMPT_INSTANCE_UID: f"0_{configmap_uid}",
            names.CONFIGMAP_UID: configmap_uid,
            names.TASK_ATTEMPT_ID: str(attempt),
        }
        labels = {names.FRAMEWORK_NAME: self.name, names.TASKROLE_NAME: role}
        if not self.ancient:
            role_uid = self._role(role)["instanceUID"]
            annotations |= {
                names.FRAMEWORK_UID: self.body["metadata"]["uid"],
                names.TASKROLE_UID: role_uid,
                names.TASK_UID: uid,
            }
            labels[names.TASK_INDEX] = str(index)
        metadata = {
            "name": name,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner(self.configmap, controller=True)],
        }
        pod = (
            await self.api.post(
                self.api.path("pods"), {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            )
        ).ok()

        async def running() -> Json:
            body: Json = (await self.api.get(self.api.path("pods", name))).ok()
            assert body["status"]["phase"] == "Running", body["status"]
            return body

        pod = await eventually(running)
        pod_uid, when = pod["metadata"]["uid"], pod["metadata"]["creationTimestamp"]
        status: Json = {
            "index": index,
            "startTime": when,
            "runTime": when if recorded else None,
            "completionTime": None,
            "transitionTime": when,
            "state": "AttemptRunning" if recorded else "AttemptCreationPending",
            "retryPolicyStatus": {
                "totalRetriedCount": attempt,
                "accountableRetriedCount": attempt,
                "retryDelaySec": None,
            },
            "attemptStatus": {
                "id": attempt,
                "startTime": when,
                "runTime": when if recorded else None,
                "completionTime": None,
                "instanceUID": f"{attempt}_{pod_uid}" if recorded else None,
                "podName": name,
                "podUID": pod_uid if recorded else None,
                "podNodeName": pod["spec"]["nodeName"] if recorded else None,
                "podIP": pod["status"]["podIP"] if recorded else None,
                "podHostIP": pod["status"]["hostIP"] if recorded else None,
                "completionStatus": None,
            },
        }
        if not self.ancient:
            status |= {"instanceUID": uid, "deletionPending": False}
        self._role(role)["taskStatuses"].append(status)
        return status

    def completed_task(self, role: str, index: int, completion: Json) -> Json:
        """A Task that has failed, and whose Pod is gone; its status."""
        when = self.body["metadata"]["creationTimestamp"]
        status: Json = {
            "index": index,
            "startTime": when,
            "runTime": when,
            "completionTime": when,
            "transitionTime": when,
            "state": "Completed",
            "retryPolicyStatus": {"totalRetriedCount": 0, "accountableRetriedCount": 0, "retryDelaySec": None},
            "attemptStatus": {
                "id": 0,
                "startTime": when,
                "runTime": when,
                "completionTime": when,
                "instanceUID": "0_00000000-0000-4000-8000-000000000000",
                "podName": f"{self.name}-{role}-{index}",
                "podUID": "00000000-0000-4000-8000-000000000000",
                "podNodeName": "node-of-then",
                "podIP": "10.9.9.9",
                "podHostIP": "",
                "completionStatus": completion,
            },
        }
        if not self.ancient:
            status |= {"instanceUID": f"{role}-{index}-of-{self.name}", "deletionPending": False}
        self._role(role)["taskStatuses"].append(status)
        return status

    async def write(self, *, compressed: bool = False) -> Json:
        """Store the status, with the whole object, as the original does; the Framework then."""
        when = self.body["metadata"]["creationTimestamp"]
        uid = self.configmap["metadata"]["uid"]
        status: Json = {
            "startTime": when,
            "runTime": when,
            "completionTime": None,
            "transitionTime": when,
            "state": "AttemptRunning",
            "retryPolicyStatus": {"totalRetriedCount": 0, "accountableRetriedCount": 0, "retryDelaySec": None},
            "attemptStatus": {
                "id": 0,
                "startTime": when,
                "runTime": when,
                "completionTime": None,
                "instanceUID": f"0_{uid}",
                "configMapName": f"{self.name}-attempt",
                "configMapUID": uid,
                "completionStatus": None,
                "taskRoleStatuses": None if compressed else self.roles,
            },
        }
        if compressed:
            packed = base64.b64encode(gzip.compress(json.dumps(self.roles).encode())).decode()
            status["attemptStatus"]["taskRoleStatusesCompressed"] = packed
        return await write_status(self.api, self.name, status)

    def _role(self, name: str) -> Json:
        found = next((role for role in self.roles if role["name"] == name), None)
        if found is None:
            found = {"name": name, "taskStatuses": []}
            if not self.ancient:
                found |= {"instanceUID": f"role-{name}-of-{self.name}", "podGracefulDeletionTimeoutSec": None}
            self.roles.append(found)
        return found


async def write_status(api: Api, name: str, status: Json) -> Json:
    """Store a status as the original does: with the whole object, as there is no status subresource."""
    there = (await api.get(frameworks(api, name))).ok()
    stored: Json = (await api.put(frameworks(api, name), {**there, "status": status})).ok()
    assert stored["status"] == status
    return stored


def starts(body: Json) -> bool:
    """Whether it creates the ConfigMap of the Framework's attempt when it looks at it next (docs/migration.md)."""
    state = (body.get("status") or {}).get("state", State.CREATION_PENDING)
    execution = body["spec"].get("executionType", "Start")
    return bool(
        state == State.CREATION_PENDING and execution == "Start" and "deletionTimestamp" not in body["metadata"]
    )


# --- how it reads -------------------------------------------------------------------------------------------------

Reader = Callable[[Any, str], None]


def _scalar(kind: type) -> Reader:
    def read(value: Any, where: str) -> None:
        assert type(value) is kind, f"{where}: {value!r}"

    return read


def _integer(bits: int) -> Reader:
    def read(value: Any, where: str) -> None:
        assert type(value) is int, f"{where}: {value!r}"
        assert abs(value) < 2 ** (bits - 1), f"{where}: {value!r}"

    return read


def _time(value: Any, where: str) -> None:
    assert isinstance(value, str), f"{where}: {value!r}"
    assert parse_time(value) > 0, f"{where}: {value!r}"


def _state(value: Any, where: str) -> None:
    assert value in set(State), f"{where}: {value!r}"


def _type_name(value: Any, where: str) -> None:
    assert value in ("Succeeded", "Failed"), f"{where}: {value!r}"


def _list(item: Reader) -> Reader:
    def read(value: Any, where: str) -> None:
        assert isinstance(value, list), f"{where}: {value!r}"
        for index, one in enumerate(value):
            item(one, f"{where}[{index}]")

    return read


def _struct(*, values: Mapping[str, Reader], pointers: Mapping[str, Reader], omitted: Mapping[str, Reader]) -> Reader:
    """Of a Go struct: ``values`` are needed, ``pointers`` may be null, ``omitted`` be absent; others are ignored."""

    def read(value: Any, where: str) -> None:
        assert isinstance(value, dict), f"{where}: {value!r}"
        for name, reader in values.items():
            assert name in value, f"{where}.{name} is absent"
            reader(value[name], f"{where}.{name}")
        for name, reader in pointers.items():
            assert name in value, f"{where}.{name} is absent"
            if value[name] is not None:
                reader(value[name], f"{where}.{name}")
        for name, reader in omitted.items():
            if name in value:
                reader(value[name], f"{where}.{name}")

    return read


_text, _flag = _scalar(str), _scalar(bool)
_int32, _int64 = _integer(32), _integer(64)
_TYPE = _struct(values={"name": _type_name}, pointers={"attributes": _list(_text)}, omitted={})
_TRIGGER = _struct(
    values={"message": _text, "taskRoleName": _text, "taskIndex": _int32},
    pointers={},
    omitted={},
)
_CONTAINER = _struct(
    values={"name": _text, "code": _int32},
    pointers={},
    omitted={"reason": _text, "message": _text, "signal": _int32},
)
_POD = _struct(values={}, pointers={}, omitted={"reason": _text, "message": _text, "containers": _list(_CONTAINER)})
_COMPLETION = _struct(
    values={"code": _int32, "phrase": _text, "type": _TYPE, "diagnostics": _text},
    pointers={},
    omitted={"trigger": _TRIGGER, "pod": _POD},
)
_RETRY = _struct(
    values={"totalRetriedCount": _int32, "accountableRetriedCount": _int32},
    pointers={"retryDelaySec": _int64},
    omitted={},
)
_TASK = _struct(
    values={
        "index": _int32,
        "instanceUID": _text,
        "startTime": _time,
        "transitionTime": _time,
        "state": _state,
        "deletionPending": _flag,
        "retryPolicyStatus": _RETRY,
        "attemptStatus": _struct(
            values={"id": _int32, "startTime": _time, "podName": _text},
            pointers={
                "runTime": _time,
                "completionTime": _time,
                "instanceUID": _text,
                "podUID": _text,
                "podNodeName": _text,
                "podIP": _text,
                "podHostIP": _text,
                "completionStatus": _COMPLETION,
            },
            omitted={},
        ),
    },
    pointers={"runTime": _time, "completionTime": _time},
    omitted={},
)
_ROLES = _list(
    _struct(
        values={"name": _text, "instanceUID": _text, "taskStatuses": _list(_TASK)},
        pointers={"podGracefulDeletionTimeoutSec": _int64},
        omitted={},
    )
)
_STATUS = _struct(
    values={
        "startTime": _time,
        "transitionTime": _time,
        "state": _state,
        "retryPolicyStatus": _RETRY,
        "attemptStatus": _struct(
            values={"id": _int32, "startTime": _time, "configMapName": _text},
            pointers={
                "runTime": _time,
                "completionTime": _time,
                "instanceUID": _text,
                "configMapUID": _text,
                "completionStatus": _COMPLETION,
                "taskRoleStatuses": _ROLES,
            },
            omitted={"taskRoleStatusesCompressed": _text},
        ),
    },
    pointers={"runTime": _time, "completionTime": _time},
    omitted={},
)


def read(body: Json) -> None:
    """Read a Framework as the original would; an AssertionError names the field that it could not take."""
    _STATUS(body["status"], "status")
    packed = body["status"]["attemptStatus"].get("taskRoleStatusesCompressed")
    if packed is not None:
        _ROLES(orjson.loads(gzip.decompress(base64.b64decode(packed))), "taskRoleStatusesCompressed")
