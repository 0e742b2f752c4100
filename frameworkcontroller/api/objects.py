"""Records of the watched objects, with the fields that the controller uses.

A record takes a few hundred bytes, the decoded object tens of kilobytes. Decoders raise ``ObjectError`` for an invalid
object, which must not affect others.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

import orjson

from frameworkcontroller.api import fields, names, progressreports
from frameworkcontroller.api.codec import dumps_to_keep
from frameworkcontroller.api.completion import DISRUPTIONS, ContainerCompletion, PodCompletion
from frameworkcontroller.api.spec import ENDING_FIELDS, FrameworkSpec
from frameworkcontroller.api.status import ProgressStatus

ENDED_PHASES: Final = frozenset({"Succeeded", "Failed"})
"""Phases of Pods that have ended. Since kubelet 1.22.9 their containers have ended too."""

_DEFAULT_GRACE_SEC: Final = 30
_STARTING: Final = frozenset({"ContainerCreating", "PodInitializing"})
"""Reasons of every container before its start: no sign of trouble."""

_MAX_DIGITS: Final = 18
"""Of the id of an attempt: int() raises an error for more than some thousand."""

_MAX_TROUBLE: Final = 512
_MAX_NOTICE: Final = 128
"""Characters of a notice that are kept: users can edit it."""
_UNSCHEDULABLE: Final = "Unschedulable"
_TOO_DEEP: Final = "spec: must not be nested more than 254 levels deep"
DISRUPTION_TARGET: Final = "DisruptionTarget"

P = ParamSpec("P")
R = TypeVar("R")


class ObjectError(ValueError):
    """An API object is invalid: it has no name or UID, for example. The text names the field."""


@dataclass(slots=True, frozen=True)
class Identity:
    """The fields that decide whether to adopt an object, delete it, or leave it alone.

    ``annotations``: values of the identity annotations (``names.POD_IDENTITY``, ``names.CONFIGMAP_IDENTITY``), None if
    one is missing.
    ``deletion_time``: the end of the grace period.
    """

    uid: str
    controller_uid: str | None
    annotations: tuple[str, ...] | None
    deleting: bool
    deletion_time: int | None = None
    deletion_grace_sec: int = 0


@dataclass(slots=True, frozen=True)
class ContainerRecord:
    """A container of a Pod that has ended. ``finished``: RFC 3339 time, "" if it has not terminated.

    ``sidecar``: an init container with restartPolicy Always, which the end of the Pod ends.
    """

    completion: ContainerCompletion
    terminated: bool
    finished: str
    sidecar: bool = False


class ContainerRun(NamedTuple):
    """A run of a container of a Pod, which has a log. ``run``: restarts of the container before it.

    ``previous``: it is not the last one.
    """

    container: str
    run: int
    previous: bool = False


@dataclass(slots=True, frozen=True)
class Disruption:
    """The condition DisruptionTarget of a Pod, with a reason that has a code."""

    reason: str
    message: str


@dataclass(slots=True, frozen=True)
class PodTrouble:
    """Why a Pod that has not ended does not run as it should.

    ``waiting``: why it cannot start, or a container cannot start again. ``restarts``: of all its containers.
    """

    waiting: str
    restarts: int
    restart_policy: str

    @property
    def unschedulable(self) -> bool:
        """Whether the scheduler finds no node for the Pod. Not while a scheduling gate holds it."""
        return self.waiting.startswith(_UNSCHEDULABLE)

    @property
    def restarted(self) -> str:
        """Return ``restarted 4 times inside its Pod: restartPolicy is Always``."""
        times = "once" if self.restarts == 1 else f"{self.restarts:,} times"
        return f"restarted {times} inside its Pod: restartPolicy is {self.restart_policy}"


@dataclass(slots=True, frozen=True)
class PodCondition:
    """A condition of a Pod, without its message."""

    type: str
    status: str
    reason: str


@dataclass(slots=True, frozen=True)
class _OwnedRecord:
    key: str
    namespace: str
    name: str
    resource_version: str
    identity: Identity

    @property
    def uid(self) -> str:
        """Its UID."""
        return self.identity.uid


@dataclass(slots=True, frozen=True)
class ConfigMapRecord(_OwnedRecord):
    """A ConfigMap with the label of a Framework. ``creation_time``: by the clock of the API server.

    ``progress``: reported in this attempt. ``has_ca``: it has the CA of the report server. ``notice``: of the attempt's
    end, "" for none.
    """

    creation_time: int | None = None
    progress: ProgressStatus | None = None
    has_ca: bool = False
    notice: str = ""

    @property
    def inputs(self) -> tuple[object, ...]:
        """The fields whose change is an event."""
        return self.identity, self.progress, self.notice


@dataclass(slots=True, frozen=True)
class PodRecord(_OwnedRecord):
    """A Pod with the label of a Framework. ``containers``: init containers first, empty until the Pod has ended.

    ``conditions``: all of them once the Pod has ended or is terminating, before that only DisruptionTarget.
    ``running_grace_sec``: the grace period, if the Pod has ended and still lists a running container.
    """

    phase: str
    node_name: str = ""
    pod_ip: str = ""
    host_ip: str = ""
    finalizers: bool = False
    """Whether it has any."""
    reason: str = ""
    message: str = ""
    containers: tuple[ContainerRecord, ...] = ()
    disruption: Disruption | None = None
    conditions: tuple[PodCondition, ...] = ()
    running_grace_sec: int | None = None
    ready: bool = False
    """Whether its condition Ready is True."""
    creation_time: int | None = None
    """By the clock of the API server."""
    queued: bool = False
    """Whether Kueue queues it by itself, as its scheduling gate says."""
    trouble: PodTrouble | None = None
    runs: tuple[ContainerRun, ...] = ()
    """The runs with a log, init containers last; empty unless decoded with them."""
    scheduled_time: int | None = None
    """When it got its node, by the clock of the scheduler."""
    ready_time: int | None = None
    """When it became ready, by the clock of its kubelet; None while it is not."""
    template_hash: str = ""
    """The hash of the template that it was created from, "" if its role had no RollingUpdate."""

    @property
    def inputs(self) -> tuple[object, ...]:
        """The fields whose change is an event. Of ``ready`` it is one if a role waits for that.

        The machine reads the others only after a change of these.
        """
        placement = self.node_name, self.pod_ip, self.host_ip
        rest = self.running_grace_sec, self.queued, self.trouble, self.disruption
        return self.identity, self.phase, placement, rest

    @property
    def is_removed(self) -> bool:
        """Whether the API server removes a Pod in this state.

        The DELETED event of a removed Pod shows this state; the event of a Pod without its label does not.
        """
        return self.identity.deleting and self.identity.deletion_grace_sec == 0 and not self.finalizers

    @property
    def completion(self) -> PodCompletion:
        """How the Pod ended, by its own status."""
        return PodCompletion(self.reason, self.message, tuple(item.completion for item in self.containers))


@dataclass(slots=True, frozen=True)
class CompanionRecord(_OwnedRecord):
    """An object with the label of a Framework, except ConfigMap and Pods. ``framework``: its controller, "" if none.

    ``content``: the fields of its spec that the controller changes, "" if it changes none.
    """

    framework: str = ""
    kind: str = "Service"
    content: str = ""

    @property
    def inputs(self) -> tuple[object, ...]:
        """The fields whose change is an event."""
        return self.identity, self.content


@dataclass(slots=True, frozen=True)
class ScalerRecord(CompanionRecord):
    """A FrameworkRoleScaler. ``replicas``: the wanted number, None if it has none. ``shown``, ``selector``: status."""

    kind: str = "FrameworkRoleScaler"
    replicas: int | None = None
    generation: int = 0
    shown: int | None = None
    selector: str = ""

    @property
    def inputs(self) -> tuple[object, ...]:
        """The fields whose change is an event."""
        return self.identity, self.replicas


@dataclass(slots=True, frozen=True)
class ClaimRecord(CompanionRecord):
    """A PersistentVolumeClaim. ``framework``: by its name. ``framework_uid``, ``when_scaled``: annotations, or ""."""

    kind: str = "PersistentVolumeClaim"
    framework_uid: str = ""
    when_scaled: str = ""

    @property
    def inputs(self) -> tuple[object, ...]:
        """The fields whose change is an event."""
        return self.identity, self.framework_uid, self.when_scaled


@dataclass(slots=True, frozen=True)
class QueueLabels:
    """Kueue's labels of a Framework. ``queue_name``: the LocalQueue. The others are "" if absent.

    ``priority_class``: a WorkloadPriorityClass. ``max_execution_seconds``: when Kueue is to evict it.
    """

    queue_name: str
    priority_class: str = ""
    max_execution_seconds: str = ""


@dataclass(slots=True, frozen=True)
class Parsed:
    """A JSON value that is not encoded: not yet, or because it is nested too deeply for that."""

    value: Any


@dataclass(slots=True)
class FrameworkRecord:
    """A cached Framework. Spec and metadata stay encoded, because most Frameworks of a large cluster are completed.

    ``status_json``: the status, which may take megabytes; None once a reconciler tracks it.
    """

    key: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    deletion_time: int | None
    metadata_json: bytes
    spec_json: bytes
    status_json: bytes | Parsed | None
    state: str = ""
    """In the status when it was read."""
    queue: QueueLabels | None = None
    finalizers: tuple[str, ...] = ()
    spec_problem: str = ""
    """Why only ``ENDING_FIELDS`` of the spec are kept, "" if all are."""

    @property
    def status(self) -> Any:
        """The JSON value of the status, decoded at each call; None if there is none."""
        return decoded_json(self.status_json)

    def pack(self) -> None:
        """Keep the status as text, in a fraction of the memory, until it is needed."""
        if isinstance(self.status_json, Parsed):
            self.status_json = encoded_json(self.status_json.value)

    @property
    def inputs(self) -> tuple[object, ...]:
        """The fields whose change is an event."""
        return self.uid, self.generation, self.deletion_time, self.queue, names.HISTORY_FINALIZER in self.finalizers


@dataclass(slots=True, frozen=True)
class Framework:
    """The identity and the spec of a Framework, for the machine."""

    namespace: str
    name: str
    uid: str
    generation: int
    deleting: bool
    spec: FrameworkSpec
    queue: QueueLabels | None = None
    """The queue that its labels ask for. Labels have no generation."""
    ignored_queue: str = ""
    """The LocalQueue in a label that means nothing, as the configuration has no queues."""
    held: bool = False
    """Whether it has the finalizer of a part."""
    invalid: str = ""
    """Why its spec is invalid: then ``spec`` has only ``ENDING_FIELDS``."""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


def decoder_of(kind: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Raise ``ObjectError`` for all errors of a decoder."""

    def wrap(decode: Callable[P, R]) -> Callable[P, R]:
        @wraps(decode)
        def decoded(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return decode(*args, **kwargs)
            except KeyError as error:
                raise ObjectError(f"{kind}: field {error.args[0]!r} is missing") from None
            except (TypeError, ValueError, AttributeError, LookupError, OverflowError) as error:
                raise ObjectError(f"{kind}: {error}") from error

        return decoded

    return wrap


@decoder_of("Pod")
def pod_record(body: Mapping[str, Any], *, runs: bool = False) -> PodRecord:
    """The record of a Pod, with its ``runs`` if wanted. Raises ObjectError if it is invalid."""
    metadata = body["metadata"]
    spec = body.get("spec") or {}
    status = body.get("status") or {}
    phase = sys.intern(fields.text(status, "phase"))
    containers: tuple[ContainerRecord, ...] = ()
    if phase in ENDED_PHASES:
        init_containers = spec.get("initContainers") or ()
        sidecars = {item.get("name") for item in init_containers if item.get("restartPolicy") == "Always"}
        containers = tuple(
            _container(item, sidecar=listed == "initContainerStatuses" and item.get("name") in sidecars)
            for listed in ("initContainerStatuses", "containerStatuses")
            for item in status.get(listed) or ()
        )
    conditions, disruption, ready, ready_time, scheduled = _conditions(
        status, whole=phase in ENDED_PHASES or "deletionTimestamp" in metadata
    )
    return PodRecord(
        *owned_fields(metadata, names.POD_IDENTITY),
        phase=phase,
        node_name=sys.intern(fields.text(spec, "nodeName")),
        pod_ip=fields.text(status, "podIP"),
        host_ip=sys.intern(fields.text(status, "hostIP")),
        finalizers=bool(metadata.get("finalizers")),
        reason=fields.text(status, "reason"),
        message=fields.text(status, "message"),
        containers=containers,
        disruption=disruption,
        conditions=conditions,
        running_grace_sec=_running_grace(spec, status) if phase in ENDED_PHASES else None,
        ready=ready,
        creation_time=fields.maybe_time(metadata, "creationTimestamp"),
        queued=any(gate.get("name") == names.KUEUE_POD_GATE for gate in spec.get("schedulingGates") or ()),
        trouble=None if phase in ENDED_PHASES else trouble_of(spec, status),
        runs=_runs(spec, status, ended=phase in ENDED_PHASES) if runs and spec.get("nodeName") else (),
        scheduled_time=scheduled,
        ready_time=ready_time,
        template_hash=sys.intern(fields.text(metadata.get("labels") or {}, names.TEMPLATE_HASH)),
    )


@decoder_of("ConfigMap")
def configmap_record(body: Mapping[str, Any]) -> ConfigMapRecord:
    """The record of a ConfigMap. Raises ObjectError if it is invalid."""
    metadata = body["metadata"]
    created = fields.maybe_time(metadata, "creationTimestamp")
    progress, data = None, body.get("data") or {}
    if text := data.get(names.PROGRESS_KEY):
        attempt = fields.text(metadata.get("annotations") or {}, names.FRAMEWORK_ATTEMPT_ID)
        if attempt.isdecimal() and len(attempt) <= _MAX_DIGITS:
            progress = progressreports.decode_progress(text, int(attempt))
    owned = owned_fields(metadata, names.CONFIGMAP_IDENTITY)
    notice = data.get(names.NOTICE_KEY)
    shown = notice[:_MAX_NOTICE] if isinstance(notice, str) else ""
    return ConfigMapRecord(*owned, created, progress, names.CA_KEY in data, shown)


def companion_decoder(
    kind: str, identity: tuple[str, ...], content: Callable[[Mapping[str, Any]], str]
) -> Callable[[Mapping[str, Any]], CompanionRecord]:
    """Return the decoder of objects that need only a name, an owner, a Framework, and content.

    ``identity``: names of the identity annotations. ``content``: of a spec.
    """

    @decoder_of(kind)
    def decode(body: Mapping[str, Any]) -> CompanionRecord:
        metadata, found = body["metadata"], content(body.get("spec") or {})
        owned = owned_fields(metadata, identity)
        return CompanionRecord(*owned, framework=framework_in(metadata), kind=kind, content=found)

    return decode


def service_content(spec: Mapping[str, Any]) -> str:
    """The ports in the spec of a Service, without fields that an API server adds."""
    ports = spec.get("ports") or ()
    return "; ".join(
        f"{port.get('name') or ''} {port['port']} {port.get('targetPort') or port['port']} "
        f"{port.get('protocol') or 'TCP'} {port.get('appProtocol') or ''}"
        for port in ports
    )


def budget_content(spec: Mapping[str, Any]) -> str:
    """The minimum in the spec of a PodDisruptionBudget."""
    return str(spec.get("minAvailable"))


service_record: Final = companion_decoder("Service", names.SERVICE_IDENTITY, service_content)
"""The record of a Service. Raises ObjectError if it is invalid."""

budget_record: Final = companion_decoder("PodDisruptionBudget", names.SERVICE_IDENTITY, budget_content)
"""The record of a PodDisruptionBudget. Raises ObjectError if it is invalid."""


@decoder_of("FrameworkRoleScaler")
def scaler_record(body: Mapping[str, Any]) -> ScalerRecord:
    """The record of a FrameworkRoleScaler. Raises ObjectError if it is invalid."""
    metadata, status = body["metadata"], body.get("status") or {}
    return ScalerRecord(
        *owned_fields(metadata, names.SCALER_IDENTITY),
        framework=framework_in(metadata),
        replicas=fields.maybe_number(body.get("spec") or {}, "replicas"),
        generation=fields.number(metadata, "generation"),
        shown=fields.maybe_number(status, "replicas"),
        selector=fields.text(status, "selector"),
    )


@decoder_of("PersistentVolumeClaim")
def claim_record(body: Mapping[str, Any]) -> ClaimRecord:
    """The record of a PersistentVolumeClaim. Raises ObjectError if it is invalid."""
    metadata = body["metadata"]
    parts = names.split_claim_name(metadata["name"])
    annotations = metadata.get("annotations") or {}
    return ClaimRecord(
        *owned_fields(metadata, names.CLAIM_IDENTITY),
        framework="" if parts is None else sys.intern(parts[1]),
        framework_uid=sys.intern(annotations.get(names.FRAMEWORK_UID) or ""),
        when_scaled=sys.intern(annotations.get(names.WHEN_SCALED) or ""),
    )


@decoder_of("Framework")
def framework_record(body: Mapping[str, Any]) -> FrameworkRecord:
    """The record of a Framework, whose spec and status are not decoded. Raises ObjectError if it is invalid."""
    metadata, status = body["metadata"], body.get("status")
    if "managedFields" in metadata:
        # They are as deep as the spec.
        metadata = {key: value for key, value in metadata.items() if key != "managedFields"}
    spec_json, problem = _kept_spec(body.get("spec"))
    return FrameworkRecord(
        key=f"{metadata['namespace']}/{metadata['name']}",
        namespace=sys.intern(metadata["namespace"]),
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        generation=fields.number(metadata, "generation"),
        deletion_time=fields.maybe_time(metadata, "deletionTimestamp"),
        metadata_json=dumps_to_keep(metadata),
        spec_json=spec_json,
        status_json=Parsed(status),
        state=_state(status),
        queue=_queue_labels(metadata.get("labels")),
        finalizers=tuple(map(sys.intern, metadata.get("finalizers") or ())),
        spec_problem=problem,
    )


def _kept_spec(spec: Any) -> tuple[bytes, str]:
    """The spec as text; if it is too deep for that, its ``ENDING_FIELDS``, and the problem."""
    try:
        return dumps_to_keep(spec), ""
    except TypeError:
        found = {name: spec[name] for name in ENDING_FIELDS if name in spec} if isinstance(spec, dict) else {}
        kept = {name: [] if isinstance(value, dict | list) else value for name, value in found.items()}
        return dumps_to_keep(kept if isinstance(spec, dict) else []), _TOO_DEEP


def encoded_json(value: Any) -> bytes | Parsed:
    """The JSON text of a value, which `decoded_json` returns as it was."""
    try:
        return dumps_to_keep(value)
    except TypeError:
        return Parsed(value)


def decoded_json(encoded: bytes | Parsed | None) -> Any:
    """The value of `encoded_json`."""
    if isinstance(encoded, Parsed):
        return encoded.value
    return None if encoded is None else orjson.loads(encoded)


def compressed_json(encoded: bytes | Parsed | None) -> bytes | Parsed | None:
    """The result of `encoded_json` in a sixth of the memory."""
    return zlib.compress(encoded, 1) if isinstance(encoded, bytes) else encoded


def decompressed_json(compressed: bytes | Parsed | None) -> bytes | Parsed | None:
    """The argument of `compressed_json`."""
    return zlib.decompress(compressed) if isinstance(compressed, bytes) else compressed


def _state(status: Any) -> str:
    state = status.get("state") if isinstance(status, dict) else None
    return sys.intern(state) if isinstance(state, str) else ""


def _queue_labels(labels: Mapping[str, str] | None) -> QueueLabels | None:
    queue = (labels or {}).get(names.QUEUE_NAME)
    if not labels or not queue:
        return None
    return QueueLabels(queue, labels.get(names.PRIORITY_CLASS) or "", labels.get(names.MAX_EXEC_TIME_SECONDS) or "")


@decoder_of("metadata")
def identity_of(metadata: Mapping[str, Any], wanted: tuple[str, ...]) -> Identity:
    """The identity in the metadata of an object. Raises ObjectError if they are invalid.

    ``wanted``: names of the identity annotations.
    """
    annotations: Any = metadata.get("annotations") or {}
    values = [annotations.get(name) for name in wanted]
    owner = next((ref.get("uid") for ref in metadata.get("ownerReferences") or () if ref.get("controller")), None)
    # Most are the same for all Pods of an attempt.
    return Identity(
        uid=metadata["uid"],
        controller_uid=None if owner is None else sys.intern(owner),
        annotations=None if None in values else tuple(map(sys.intern, values)),
        deleting=metadata.get("deletionTimestamp") is not None,
        deletion_time=fields.maybe_time(metadata, "deletionTimestamp"),
        deletion_grace_sec=fields.number(metadata, "deletionGracePeriodSeconds"),
    )


def is_claim_of(found: Identity, wanted: tuple[str, ...], framework_uid: str) -> bool:
    """Whether a volume claim belongs to the Task that ``wanted`` identifies, of this or an earlier Framework.

    A claim of another controller, or of an unknown owner, may not be touched.
    """
    return found.annotations == wanted and found.controller_uid in (None, framework_uid)


def is_pod_of_framework(metadata: Mapping[str, Any]) -> bool:
    """Whether the ConfigMap of an attempt controls the Pod. The label proves nothing: any client can set it."""
    wanted = ("ConfigMap", names.configmap_name(names.framework_of(metadata["name"])))
    return any(
        ref.get("controller") and (ref.get("kind"), ref.get("name")) == wanted
        for ref in metadata.get("ownerReferences") or ()
    )


def framework_in(metadata: Mapping[str, Any]) -> str:
    """The name of the Framework that controls an object, "" if none does."""
    controllers = (ref for ref in metadata.get("ownerReferences") or () if ref.get("controller"))
    return next((ref["name"] for ref in controllers if ref.get("kind") == names.KIND), "")


def owned_fields(metadata: Mapping[str, Any], wanted: tuple[str, ...]) -> tuple[str, str, str, str, Identity]:
    """The fields that all records have. ``wanted``: names of the identity annotations."""
    namespace, name = sys.intern(metadata["namespace"]), metadata["name"]
    return f"{namespace}/{name}", namespace, name, metadata["resourceVersion"], identity_of(metadata, wanted)


def _conditions(
    status: Mapping[str, Any], *, whole: bool
) -> tuple[tuple[PodCondition, ...], Disruption | None, bool, int | None, int | None]:
    """The conditions to keep, why Kubernetes deletes the Pod, whether it is ready, since when, and when it got a node.

    One pass, as Pods are many.
    """
    kept: list[tuple[str, str, str]] = []
    disrupted: Mapping[str, Any] | None = None
    ready, ready_time, scheduled = False, None, None
    for item in status.get("conditions") or ():
        kind = item.get("type")
        if kind == "Ready":
            if item.get("status") == "True":
                ready, ready_time = True, fields.maybe_time(item, "lastTransitionTime")
        elif kind == "PodScheduled" and item.get("status") == "True":
            scheduled = fields.maybe_time(item, "lastTransitionTime")
        elif kind == DISRUPTION_TARGET and disrupted is None and item.get("status") == "True":
            disrupted = item
        if whole or kind == DISRUPTION_TARGET:
            kept.append((kind or "", item.get("status") or "", item.get("reason") or ""))
    return (
        _made_conditions(tuple(kept)) if kept else (),
        None if disrupted is None else _disruption(disrupted),
        ready,
        ready_time,
        scheduled,
    )


def trouble_of(spec: Mapping[str, Any], status: Mapping[str, Any]) -> PodTrouble | None:
    """Why the Pod cannot start, or how often its containers have restarted; None for most Pods."""
    waiting, restarts = "", 0
    for listed in ("initContainerStatuses", "containerStatuses"):
        for item in status.get(listed) or ():
            restarts += item.get("restartCount") or 0
            found = (item.get("state") or {}).get("waiting")
            if found and not waiting and found.get("reason") not in _STARTING:
                waiting = f"{item.get('name')}: {_reason_and_message(found)}"
    if not spec.get("nodeName"):
        for item in status.get("conditions") or ():
            if item.get("type") == "PodScheduled" and item.get("status") == "False":
                waiting = _reason_and_message(item)
    if not waiting and not restarts:
        return None
    return PodTrouble(waiting, restarts, sys.intern(spec.get("restartPolicy") or "Always"))


def _reason_and_message(item: Mapping[str, Any]) -> str:
    text = ": ".join(filter(None, (fields.text(item, "reason"), fields.text(item, "message"))))
    return text[:_MAX_TROUBLE]


@lru_cache(maxsize=1024)
def _made_conditions(conditions: tuple[tuple[str, str, str], ...]) -> tuple[PodCondition, ...]:
    """Return the same records for equal conditions, which most Pods have."""
    return tuple(PodCondition(*condition) for condition in conditions)


def _disruption(condition: Mapping[str, Any]) -> Disruption | None:
    reason = fields.text(condition, "reason")
    return Disruption(sys.intern(reason), fields.text(condition, "message")) if reason in DISRUPTIONS else None


def _running_grace(spec: Mapping[str, Any], status: Mapping[str, Any]) -> int | None:
    for listed in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        if any("running" in (item.get("state") or {}) for item in status.get(listed) or ()):
            grace = fields.maybe_number(spec, "terminationGracePeriodSeconds")
            return _DEFAULT_GRACE_SEC if grace is None else grace
    return None


def _runs(spec: Mapping[str, Any], status: Mapping[str, Any], *, ended: bool) -> tuple[ContainerRun, ...]:
    found: list[tuple[str, int, bool]] = []
    # Evicted, for example: the kubelet may still have the logs.
    unknown = ended and not status.get("containerStatuses") and not status.get("initContainerStatuses")
    for kind in ("container", "initContainer"):
        if unknown:
            found += [(fields.text(item, "name"), 0, False) for item in spec.get(f"{kind}s") or ()]
        for item in status.get(f"{kind}Statuses") or ():
            state, last = item.get("state") or {}, (item.get("lastState") or {}).get("terminated")
            name, run = fields.text(item, "name"), fields.number(item, "restartCount")
            if state.get("running") is not None or state.get("terminated") is not None:
                found.append((name, run, False))
                if last is not None and run:
                    found.append((name, run - 1, True))
            elif last is not None:
                # It waits for its restart: kubelets take its last run for the current one.
                found.append((name, run, False))
    return _made_runs(tuple(found)) if found else ()


@lru_cache(maxsize=1024)
def _made_runs(runs: tuple[tuple[str, int, bool], ...]) -> tuple[ContainerRun, ...]:
    """Return the same records for equal runs, which most Pods have."""
    return tuple(ContainerRun(sys.intern(name), run, previous) for name, run, previous in runs)


def _container(status: Mapping[str, Any], *, sidecar: bool) -> ContainerRecord:
    terminated: Any = (status.get("state") or {}).get("terminated")
    end = terminated or {}
    return ContainerRecord(
        completion=ContainerCompletion(
            name=sys.intern(fields.text(status, "name")),
            code=fields.number(end, "exitCode"),
            reason=sys.intern(fields.text(end, "reason")),
            message=fields.text(end, "message"),
            signal=fields.number(end, "signal"),
        ),
        terminated=terminated is not None,
        finished=fields.text(end, "finishedAt"),
        sidecar=sidecar,
    )
