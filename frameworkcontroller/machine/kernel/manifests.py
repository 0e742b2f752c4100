"""Bodies of the objects that the controller creates.

Source: docs/write-a-framework.md#what-is-put-into-a-pod. A role's Pod is encoded once, and rendered for each Task by
replacing bytes. That is safe, as JSON escapes no character of the values; those in which it does, the JSON lists of
hosts, are escaped.
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

import orjson

from frameworkcontroller.api import hostlists, names
from frameworkcontroller.api.objects import Framework
from frameworkcontroller.api.spec import TaskRoleSpec
from frameworkcontroller.api.status import FrameworkAttemptStatus, TaskStatus
from frameworkcontroller.machine.kernel.model import require
from frameworkcontroller.machine.kernel.requests import LARGE_BYTES, MAX_BODY_BYTES, BodyTooLargeError

_MAX_RAW_BYTES: Final = 4 * MAX_BODY_BYTES
"""Size from which a template in progress is given up: its words are longer than their values, but fewer than this."""


def configmap_body(
    framework: Framework, attempt_id: int, labels: Mapping[str, str], data: Mapping[str, str] | None = None
) -> bytes:
    """The ConfigMap of an attempt. ``labels`` and ``data``: of parts.

    Its foregroundDeletion finalizer holds it, and with it the next attempt, until the last Pod of the attempt is gone.
    """
    return orjson.dumps(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": names.configmap_name(framework.name),
                "namespace": framework.namespace,
                "labels": {names.FRAMEWORK_NAME: framework.name, **labels},
                "annotations": {
                    names.FRAMEWORK_NAMESPACE: framework.namespace,
                    names.FRAMEWORK_NAME: framework.name,
                    names.CONFIGMAP_NAME: names.configmap_name(framework.name),
                    names.FRAMEWORK_UID: framework.uid,
                    names.FRAMEWORK_ATTEMPT_ID: str(attempt_id),
                },
                "ownerReferences": [framework_reference(framework)],
                "finalizers": [names.FOREGROUND_FINALIZER],
            },
            **({"data": data} if data else {}),
        }
    )


def framework_reference(framework: Framework) -> dict[str, Any]:
    return _controller_reference(names.API_VERSION, names.KIND, framework.name, framework.uid)


def pod_annotations(
    framework: Framework,
    attempt: FrameworkAttemptStatus,
    role: str,
    role_uid: str,
    *,
    index: str,
    pod_name: str | None = None,
    task_uid: str | None = None,
    task_attempt_id: str | None = None,
) -> dict[str, str]:
    """The FC_ annotations of a Task's Pod, in the order of the environment variables of its containers.

    Values of None are left out.
    """
    configmap_uid = require(attempt.configmap_uid, "configMapUID")
    annotations = {
        names.FRAMEWORK_NAMESPACE: framework.namespace,
        names.FRAMEWORK_NAME: framework.name,
        names.TASKROLE_NAME: role,
        names.TASK_INDEX: index,
        names.CONFIGMAP_NAME: names.configmap_name(framework.name),
        names.POD_NAME: pod_name,
        names.FRAMEWORK_UID: framework.uid,
        names.FRAMEWORK_ATTEMPT_ID: str(attempt.id),
        names.FRAMEWORK_ATTEMPT_INSTANCE_UID: names.attempt_instance_uid(attempt.id, configmap_uid),
        names.CONFIGMAP_UID: configmap_uid,
        names.TASKROLE_UID: role_uid,
        names.TASK_UID: task_uid,
        names.TASK_ATTEMPT_ID: task_attempt_id,
    }
    return {name: value for name, value in annotations.items() if value is not None}


def filled(template: bytes, words: Mapping[bytes, bytes]) -> bytes:
    """Replace each word in the template by its value, in order."""
    for word, value in words.items():
        template = template.replace(word, value)
    return template


def filled_size(template: bytes, words: Mapping[bytes, bytes]) -> int:
    """The number of bytes after the replacement, if no word is part of another, or of a value."""
    return len(template) + sum(template.count(word) * (len(value) - len(word)) for word, value in words.items())


POD_LABELS = (names.FRAMEWORK_NAME, names.TASKROLE_NAME, names.TASK_INDEX)
"""The annotations that are labels, too."""

_PLACEHOLDERS = (names.FRAMEWORK_NAMESPACE, names.CONFIGMAP_NAME, names.POD_NAME, *POD_LABELS)
"""The annotations that a template may quote."""

_MARKER = re.compile(rb"@([A-Z]{5})-")


def _unused_marker(text: bytes) -> bytes:
    """A marker that the text does not contain, and cannot get: no value has a capital letter."""
    used = set(_MARKER.findall(text))
    salts = (bytes(letters) for letters in itertools.product(string.ascii_uppercase.encode(), repeat=5))
    return b"@%s-" % next(salt for salt in salts if salt not in used)


_FIELDS = (b"index", b"pod_name", b"task_uid", b"task_attempt_id", b"rank")
"""Ends of the words of a template that differ between Tasks."""

_LONGEST_VALUE = 253
"""Characters of a name."""


class PodShape(Protocol):
    """The fields that a part adds to the Pods of a role: a dataclass of the added values."""

    def apply(self, metadata: dict[str, Any], spec: dict[str, Any], pod_name: str) -> None:
        """Add the fields to a Pod's metadata and spec. ``pod_name``: the marker that becomes the name of the Pod.

        A field of a wrong type in the template stays as it is: the API server refuses it, which completes the Task.
        """


class PodTemplate:
    """The Pod template of a role, for one attempt and generation of the Framework.

    The size of each Pod is known before it is rendered: placeholders, and the variables of each container, may multiply
    the template's size.
    """

    __slots__ = (
        "_counts",
        "_first_rank",
        "_framework",
        "_growth",
        "_hosts",
        "_least",
        "_marker",
        "_role",
        "is_large",
        "raw",
    )

    def __init__(
        self,
        framework: Framework,
        attempt: FrameworkAttemptStatus,
        role: TaskRoleSpec,
        role_uid: str,
        shapes: Sequence[PodShape] = (),
    ) -> None:
        """``shapes``: the fields that parts add to the Pods of the role."""
        template = role.task.pod.text
        marker = self._marker = _unused_marker(template + orjson.dumps([*shapes]))
        per_task = {field: marker.decode() + field for field in ("index", "pod_name", "task_uid", "task_attempt_id")}
        annotations = pod_annotations(framework, attempt, role.name, role_uid, **per_task)
        values = {name: annotations[name] for name in _PLACEHOLDERS}
        self._hosts: hostlists.Words | None = None
        self._first_rank: int | None = None
        if framework.spec.has_network_placeholders:
            spec, name = framework.spec, framework.name
            text_of, size_of = partial(spec.host_list, name), partial(spec.host_list_size, name)
            template, self._hosts = hostlists.mark(template, marker, text_of, size_of)
            self._first_rank = framework.spec.first_ranks[role.name]
            values |= _network_values(framework, role) | {names.FRAMEWORK_ATTEMPT_ID: str(attempt.id)}
            values[names.TASK_RANK] = marker.decode() + "rank"
        self._framework = framework.name
        self._role = role.name
        self.raw = b""
        self._counts: dict[bytes, int] = {}
        self.is_large = True
        """Whether a body may have more than ``LARGE_BYTES``."""
        words = {names.placeholder(name).encode(): value.encode() for name, value in values.items()}
        self._least = filled_size(template, words)
        """Bytes at least, if they are too many for a Pod to be rendered, else unused."""
        if self._least > _MAX_RAW_BYTES:
            return
        decoded = orjson.loads(filled(template, words))
        if decoded.get("metadata") is None:
            decoded["metadata"] = {}
        metadata, spec = decoded["metadata"], decoded.get("spec")
        for shape in shapes if isinstance(metadata, dict) and isinstance(spec, dict) else ():
            shape.apply(metadata, spec, annotations[names.POD_NAME])
        env = _env(annotations)
        self._least += _containers(decoded) * len(orjson.dumps(env))
        if self._least > _MAX_RAW_BYTES:
            return
        pod = _pod(decoded, annotations, env)
        self.raw = orjson.dumps(pod)
        self._counts = {self._marker + field: self.raw.count(self._marker + field) for field in _FIELDS}
        longest = {self._marker + field: b"." * _LONGEST_VALUE for field in _FIELDS}
        self._growth = 0 if self._hosts is None else self._hosts.growth(self.raw)
        self.is_large = self._size(longest) > LARGE_BYTES

    def render(self, task: TaskStatus) -> bytes:
        """The body of the Pod of the Task's current attempt. Raises BodyTooLargeError."""
        return self.fill(self.words(task))

    def words(self, task: TaskStatus) -> Mapping[bytes, bytes]:
        """The replacements, in order, that make this body, without the host lists."""
        words = {
            self._marker + b"index": b"%d" % task.index,
            self._marker + b"pod_name": names.pod_name(self._framework, self._role, task.index).encode(),
            self._marker + b"task_uid": task.instance_uid.encode(),
            self._marker + b"task_attempt_id": b"%d" % task.attempt.id,
        }
        if self._first_rank is None:
            return words
        return {**words, self._marker + b"rank": b"%d" % (self._first_rank + task.index)}

    def fill_shaped(self, words: Mapping[bytes, bytes], shapes: tuple[PodShape, ...]) -> bytes:
        """The body with these words, and with the fields of this Pod only. Raises BodyTooLargeError."""
        pod = orjson.loads(self.fill(words))
        metadata, spec = pod["metadata"], pod["spec"]
        for shape in shapes if isinstance(metadata, dict) and isinstance(spec, dict) else ():
            shape.apply(metadata, spec, metadata["name"])
        return orjson.dumps(pod)

    def fill(self, words: Mapping[bytes, bytes]) -> bytes:
        """The body with these words. Raises BodyTooLargeError."""
        if self.is_large and (size := self._size(words) if self.raw else self._least) > MAX_BODY_BYTES:
            what = "with placeholders replaced and the variables of each container, task.pod"
            raise BodyTooLargeError(f"TaskRole {self._role}: {what}", size)
        body = filled(self.raw, words)
        return body if self._hosts is None else self._hosts.filled(body)

    def _size(self, words: Mapping[bytes, bytes]) -> int:
        replaced = sum(self._counts[word] * (len(value) - len(word)) for word, value in words.items())
        return len(self.raw) + self._growth + replaced


def _network_values(framework: Framework, role: TaskRoleSpec) -> dict[str, str]:
    """The values of placeholders that are the same for all Tasks of a role."""
    spec = framework.spec
    values = {
        names.TASKROLE_TASK_NUMBER: str(role.task_number),
        names.FRAMEWORK_TASK_NUMBER: str(spec.task_count),
    }
    if spec.coordinator is not None and spec.has_hostnames:
        pod = names.pod_name(framework.name, spec.coordinator.task_role, spec.coordinator.task_index)
        values[names.COORDINATOR_HOST] = f"{pod}.{spec.subdomain(framework.name)}"
    return values


def _controller_reference(api_version: str, kind: str, name: str, uid: str) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


# Fields of a wrong type in the user's template are passed on: the API server refuses them, which completes the Task.


def _pod(template: Mapping[str, Any], annotations: dict[str, str], env: list[dict[str, Any]]) -> dict[str, Any]:
    metadata = template.get("metadata")
    if metadata is None or isinstance(metadata, dict):
        metadata = dict(metadata or {})
        metadata["name"] = annotations[names.POD_NAME]
        metadata["namespace"] = annotations[names.FRAMEWORK_NAMESPACE]
        metadata["labels"] = with_entries(metadata.get("labels"), {name: annotations[name] for name in POD_LABELS})
        metadata["annotations"] = with_entries(metadata.get("annotations"), annotations)
        configmap = annotations[names.CONFIGMAP_NAME], annotations[names.CONFIGMAP_UID]
        # With another owner, the garbage collector would untie the Pod from its attempt, and let it run on.
        metadata["ownerReferences"] = [_controller_reference("v1", "ConfigMap", *configmap)]
    spec = template.get("spec")
    if isinstance(spec, dict):
        spec = dict(spec)
        for listed in _CONTAINERS:
            if isinstance(spec.get(listed), list):
                spec[listed] = [_container(container, env) for container in spec[listed]]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


_CONTAINERS = ("initContainers", "containers")


def _containers(template: Mapping[str, Any]) -> int:
    spec = template.get("spec")
    lists = [spec.get(listed) for listed in _CONTAINERS] if isinstance(spec, dict) else []
    return sum(len(one) for one in lists if isinstance(one, list))


def _env(annotations: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        *({"name": key, "value": value} for key, value in annotations.items()),
        {"name": names.POD_UID, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {
            "name": names.TASK_ATTEMPT_INSTANCE_UID,
            "value": f"{annotations[names.TASK_ATTEMPT_ID]}_$({names.POD_UID})",
        },
    ]


def _container(container: Any, env: list[dict[str, Any]]) -> Any:
    if not isinstance(container, dict):
        return container
    container = dict(container)
    own = container.get("env")
    if own is None or isinstance(own, list):
        container["env"] = [*env, *(own or [])]
    if not container.get("terminationMessagePolicy"):
        container["terminationMessagePolicy"] = "FallbackToLogsOnError"
    return container


def with_entries(mapping: Any, ours: Mapping[str, str]) -> Any:
    """The mapping of a template with these entries. Anything else stays as it is: the API server refuses it."""
    if mapping is None:
        return dict(ours)
    return {**mapping, **ours} if isinstance(mapping, dict) else mapping
