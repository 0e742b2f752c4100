"""Bodies of the objects that the controller creates.

Source: docs/manual.md, "What is put into a Pod". A role's Pod is encoded once, and rendered for each Task by replacing
bytes. That is safe, as JSON escapes no character of the values; those in which it does, the JSON lists of hosts, are
escaped.
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import orjson

from frameworkcontroller.api import hostlists, names
from frameworkcontroller.api.objects import Framework
from frameworkcontroller.api.spec import ClaimRetention, ClaimTemplate, TaskRoleSpec
from frameworkcontroller.api.status import AdmissionStatus, AdmittedPodSet, FrameworkAttemptStatus, TaskStatus
from frameworkcontroller.machine.kernel.model import require
from frameworkcontroller.machine.kernel.requests import LARGE_BYTES, MAX_BODY_BYTES, BodyTooLargeError
from frameworkcontroller.machine.parts.gangs.podgroupbodies import Member

_MAX_RAW_BYTES: Final = 4 * MAX_BODY_BYTES
"""Size from which a template in progress is given up: its words are longer than their values, but fewer than this."""


def configmap_body(framework: Framework, attempt_id: int, admission: AdmissionStatus | None = None) -> bytes:
    """The ConfigMap of an attempt. With its queue as label, Kueue takes the Pods for those of a managed job.

    Its foregroundDeletion finalizer holds it, and with it the next attempt, until the last Pod of the attempt is gone.
    """
    return orjson.dumps(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": names.configmap_name(framework.name),
                "namespace": framework.namespace,
                "labels": {
                    names.FRAMEWORK_NAME: framework.name,
                    **({} if admission is None else {names.QUEUE_NAME: admission.queue_name}),
                },
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
        }
    )


def service_body(framework: Framework) -> bytes:
    """The headless Service that gives the Framework's Pods their host names. It needs no ports for that."""
    spec = framework.spec
    return orjson.dumps(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": spec.subdomain(framework.name),
                "namespace": framework.namespace,
                "labels": {names.FRAMEWORK_NAME: framework.name},
                "annotations": {
                    names.FRAMEWORK_NAMESPACE: framework.namespace,
                    names.FRAMEWORK_NAME: framework.name,
                    names.FRAMEWORK_UID: framework.uid,
                },
                "ownerReferences": [framework_reference(framework)],
            },
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": spec.network is None or spec.network.publish_not_ready_addresses,
                "selector": {names.FRAMEWORK_NAME: framework.name},
            },
        }
    )


def is_large(template: ClaimTemplate) -> bool:
    """Whether a body of the claim may have more than ``LARGE_BYTES``."""
    metadata = template.metadata
    size = sum(len(part.text) for part in (metadata.labels, metadata.annotations, template.spec))
    # A placeholder is replaced by the seventeen-fold, at most.
    return 17 * size > LARGE_BYTES


def claim_body(framework: Framework, role: TaskRoleSpec, template: ClaimTemplate, index: int) -> bytes:
    """A volume claim of a Task. It outlives attempts, and so has no placeholder that depends on one.

    Raises BodyTooLargeError.
    """
    marks = claim_annotations(framework, role, index)
    values = {
        names.FRAMEWORK_NAMESPACE: framework.namespace,
        names.CONFIGMAP_NAME: names.configmap_name(framework.name),
        names.POD_NAME: names.pod_name(framework.name, role.name, index),
        **{name: marks[name] for name in POD_LABELS},
    }
    metadata = template.metadata
    raw = b"[%s]" % b",".join(part.text for part in (metadata.labels, metadata.annotations, template.spec))
    words = {names.placeholder(name).encode(): value.encode() for name, value in values.items()}
    if (size := filled_size(raw, words)) > MAX_BODY_BYTES:
        raise BodyTooLargeError(f"volumeClaimTemplate {metadata.name} of TaskRole {role.name}", size)
    labels, annotations, spec = orjson.loads(filled(raw, words))
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": names.claim_name(metadata.name, framework.name, role.name, index),
            "namespace": framework.namespace,
            "labels": {**labels, **{name: marks[name] for name in POD_LABELS}},
            "annotations": {**annotations, **marks},
        },
        "spec": spec,
    }
    if claim_has_owner(role):
        body["metadata"]["ownerReferences"] = [framework_reference(framework)]
    return orjson.dumps(body)


def claim_has_owner(role: TaskRoleSpec) -> bool:
    """Whether the Framework owns the volume claims of the role, so that they are deleted with it."""
    return role.persistent_volume_claim_retention_policy.when_deleted is ClaimRetention.DELETE


def claim_annotations(framework: Framework, role: TaskRoleSpec, index: int) -> dict[str, str]:
    """The annotations by which a volume claim of a Task is recognized, and that say what happens to it."""
    identity = (framework.namespace, framework.name, role.name, str(index))
    return {
        **dict(zip(names.CLAIM_IDENTITY, identity, strict=True)),
        names.FRAMEWORK_UID: framework.uid,
        names.WHEN_SCALED: role.persistent_volume_claim_retention_policy.when_scaled.value,
    }


def framework_reference(framework: Framework) -> dict[str, Any]:
    """The reference of an object to its controller, the Framework."""
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

    Without those of one instance or attempt that are None.
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


class PodTemplate:
    """The Pod template of a role, for one attempt and generation of the Framework.

    The size of each Pod is known before it is rendered: placeholders, and the variables of each container, may multiply
    that of the template.
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
        admitted: AdmittedPodSet | None = None,
        member: Member | None = None,
    ) -> None:
        """``admitted``: what Kueue adds to the Pods of the role. ``member``: what puts them into a gang."""
        template = role.task.pod.text
        marker = self._marker = _unused_marker(template + orjson.dumps(admitted))
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
        subdomain = framework.spec.subdomain(framework.name) if framework.spec.has_hostnames else None
        claims = [one.metadata.name for one in role.volume_claim_templates]
        decoded = orjson.loads(filled(template, words))
        if admitted is not None:
            decoded = with_admission(decoded, admitted)
        env = _env(annotations)
        self._least += _containers(decoded) * len(orjson.dumps(env))
        if self._least > _MAX_RAW_BYTES:
            return
        pod = _pod(decoded, annotations, subdomain, claims, env)
        if member is not None and isinstance(pod["metadata"], dict) and isinstance(pod["spec"], dict):
            member.join(pod["metadata"], pod["spec"])
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


def with_admission(template: Mapping[str, Any], admitted: AdmittedPodSet) -> dict[str, Any]:
    """The Pod template with what Kueue adds. Nothing contradicts it: ``workloads.ReadAdmission`` has compared them."""
    metadata, spec = template.get("metadata"), template.get("spec")
    if metadata is None or isinstance(metadata, dict):
        metadata = dict(metadata or {})
        for name, ours in (("labels", admitted.labels), ("annotations", admitted.annotations)):
            if ours:
                metadata[name] = _with(metadata.get(name), ours)
    if isinstance(spec, dict):
        spec = dict(spec)
        if admitted.node_selector:
            spec["nodeSelector"] = _with(spec.get("nodeSelector"), admitted.node_selector)
        gates = [{"name": name} for name in admitted.scheduling_gates]
        for name, added in (("tolerations", admitted.tolerations), ("schedulingGates", gates)):
            own = spec.get(name)
            if added and (own is None or isinstance(own, list)):
                known = set(map(_key, own or ()))
                spec[name] = [*(own or []), *(one for one in added if _key(one) not in known)]
    return {**template, "metadata": metadata, "spec": spec}


def _key(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


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


def _pod(
    template: Mapping[str, Any],
    annotations: dict[str, str],
    subdomain: str | None,
    claims: Sequence[str],
    env: list[dict[str, Any]],
) -> dict[str, Any]:
    metadata = template.get("metadata")
    if metadata is None or isinstance(metadata, dict):
        metadata = dict(metadata or {})
        metadata["name"] = annotations[names.POD_NAME]
        metadata["namespace"] = annotations[names.FRAMEWORK_NAMESPACE]
        metadata["labels"] = _with(metadata.get("labels"), {name: annotations[name] for name in POD_LABELS})
        metadata["annotations"] = _with(metadata.get("annotations"), annotations)
        configmap = annotations[names.CONFIGMAP_NAME], annotations[names.CONFIGMAP_UID]
        # With another owner, the garbage collector would untie the Pod from its attempt, and let it run on.
        metadata["ownerReferences"] = [_controller_reference("v1", "ConfigMap", *configmap)]
    spec = template.get("spec")
    if isinstance(spec, dict):
        spec = dict(spec)
        if subdomain is not None and not (spec.get("hostname") or spec.get("subdomain")):
            spec |= {"hostname": annotations[names.POD_NAME], "subdomain": subdomain}
        volumes = spec.get("volumes")
        if claims and (volumes is None or isinstance(volumes, list)):
            spec["volumes"] = _volumes(claims, annotations[names.POD_NAME], volumes or [])
        for listed in _CONTAINERS:
            if isinstance(spec.get(listed), list):
                spec[listed] = [_container(container, env) for container in spec[listed]]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


_CONTAINERS = ("initContainers", "containers")


def _containers(template: Mapping[str, Any]) -> int:
    """The number of containers in a template."""
    spec = template.get("spec")
    lists = [spec.get(listed) for listed in _CONTAINERS] if isinstance(spec, dict) else []
    return sum(len(one) for one in lists if isinstance(one, list))


def _env(annotations: Mapping[str, str]) -> list[dict[str, Any]]:
    """The variables of each container."""
    return [
        *({"name": key, "value": value} for key, value in annotations.items()),
        {"name": names.POD_UID, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {
            "name": names.TASK_ATTEMPT_INSTANCE_UID,
            "value": f"{annotations[names.TASK_ATTEMPT_ID]}_$({names.POD_UID})",
        },
    ]


def _volumes(claims: Sequence[str], pod: str, others: Sequence[Any]) -> list[Any]:
    """The volumes of the claims, and the others, but for those of the same name."""
    ours = [{"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{pod}"}} for claim in claims]
    return [*ours, *(one for one in others if not (isinstance(one, dict) and one.get("name") in claims))]


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


def _with(mapping: Any, ours: Mapping[str, str]) -> Any:
    if mapping is None:
        return dict(ours)
    return {**mapping, **ours} if isinstance(mapping, dict) else mapping
