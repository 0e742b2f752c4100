"""Names of the wire contract: the API group, FC_ keys, object names and instance UIDs.

Source: docs/write-a-framework.md#what-is-put-into-a-pod. Clients split names of Pods at ``-`` and select by the
labels, so nothing here may change.
"""

from __future__ import annotations

import re

GROUP = "frameworkcontroller.microsoft.com"
VERSION = "v1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "Framework"
PLURAL = "frameworks"
CRD_NAME = f"{PLURAL}.{GROUP}"

NAME_PATTERN = r"^[a-z0-9]{1,63}$"
"""Pattern of Framework and TaskRole names: no dash, because ``-`` separates the parts of a Pod name."""

NAME_RULE = (
    "must be lower case letters and digits only, at most 63 of them (a dash separates the parts of a Pod's name)"
)
"""The pattern in words, for error messages."""

FOREGROUND_FINALIZER = "foregroundDeletion"
"""A finalizer of Kubernetes: an object outlives its blocking dependents. It keeps attempts apart (C3, C4)."""

HISTORY_FINALIZER = f"{GROUP}/history"
"""The controller's finalizer of a Framework: it stays until all of its attempts are in the archive."""

FRAMEWORK_NAMESPACE = "FC_FRAMEWORK_NAMESPACE"
FRAMEWORK_NAME = "FC_FRAMEWORK_NAME"
TASKROLE_NAME = "FC_TASKROLE_NAME"
TASK_INDEX = "FC_TASK_INDEX"
CONFIGMAP_NAME = "FC_CONFIGMAP_NAME"
POD_NAME = "FC_POD_NAME"
FRAMEWORK_UID = "FC_FRAMEWORK_UID"
FRAMEWORK_ATTEMPT_ID = "FC_FRAMEWORK_ATTEMPT_ID"
FRAMEWORK_ATTEMPT_INSTANCE_UID = "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID"
CONFIGMAP_UID = "FC_CONFIGMAP_UID"
TASKROLE_UID = "FC_TASKROLE_UID"
TASK_UID = "FC_TASK_UID"
TASK_ATTEMPT_ID = "FC_TASK_ATTEMPT_ID"
POD_UID = "FC_POD_UID"
TASK_ATTEMPT_INSTANCE_UID = "FC_TASK_ATTEMPT_INSTANCE_UID"

POD_IDENTITY = (FRAMEWORK_UID, FRAMEWORK_ATTEMPT_INSTANCE_UID, TASKROLE_UID, TASK_UID, TASK_ATTEMPT_ID)
"""Annotations that identify a TaskAttempt: a controlled Pod with exactly these may be adopted."""

CONFIGMAP_IDENTITY = (FRAMEWORK_UID, FRAMEWORK_ATTEMPT_ID)
"""Annotations that identify a FrameworkAttempt."""

PODGROUP_IDENTITY = CONFIGMAP_IDENTITY
"""Annotations that identify the FrameworkAttempt of a PodGroup."""

SERVICE_IDENTITY = (FRAMEWORK_UID,)
"""Annotations that identify the Framework of a Service or of a disruption budget."""

SCALER_ID = f"{GROUP}/scaler-id"
"""Annotation of a FrameworkRoleScaler: the id in the status of its role. Another one is outdated, and never read."""

SCALER_IDENTITY = (FRAMEWORK_UID, SCALER_ID)
"""Annotations that identify the role of a FrameworkRoleScaler."""

CLAIM_IDENTITY = (FRAMEWORK_NAMESPACE, FRAMEWORK_NAME, TASKROLE_NAME, TASK_INDEX)
"""Annotations that identify the Task of a volume claim, for all Frameworks of that name."""

WHEN_SCALED = "FC_VOLUME_CLAIM_WHEN_SCALED"
"""Annotation of a volume claim: the whenScaled that counts when its Task leaves, as its role may be removed by then."""

SERVICE_PATTERN = r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"
"""Pattern of the names of Services."""

LABEL_PATTERN = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
"""Pattern of the names of volumes."""

PORT_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
"""Pattern of the names of a Service's ports: `LABEL_PATTERN`, spelled otherwise, as `RULES` has other words for it."""

APP_PROTOCOL_PATTERN = (
    r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$"
)
"""Pattern of the protocol of an application: `LABEL_KEY_PATTERN`, spelled otherwise for the same reason."""

SUBDOMAIN_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
"""Pattern of the names of most objects."""

LABEL_KEY_PATTERN = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)
"""Pattern of the keys of labels."""

MAX_LABEL_KEY = 317
"""A prefix of 253 characters, a slash, and a name of 63."""

RULES = {
    NAME_PATTERN: NAME_RULE,
    SERVICE_PATTERN: "must be the name of a Service: lower case letters, digits and dashes, at most 63 of them, a "
    "letter first, and no dash last",
    LABEL_PATTERN: "must be the name of a volume: lower case letters, digits and dashes, at most 63 of them, no dash "
    "first or last",
    SUBDOMAIN_PATTERN: "must be the name of an object: lower case letters, digits, dashes and dots, none of these "
    "two at an end",
    PORT_PATTERN: "must be the name of a port: lower case letters, digits and dashes, at most 63 of them, no dash "
    "first or last",
    APP_PROTOCOL_PATTERN: "must be the name of a protocol, such as http or kubernetes.io/h2c",
    LABEL_KEY_PATTERN: "must be the key of a label, such as topology.kubernetes.io/zone",
}
"""The patterns in words, for error messages."""

KUBE_GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
VOLCANO_GROUP_ANNOTATION = "scheduling.volcano.sh/group-name"
COSCHEDULING_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
"""These put a Pod into a group: the annotations for Volcano, the label for the plugin coscheduling."""

MAX_LABEL_VALUE = 63

KUEUE_TOPOLOGY_ANNOTATIONS = tuple(
    f"kueue.x-k8s.io/podset-{kind}-topology" for kind in ("required", "preferred", "unconstrained")
)
"""Annotations of a Pod template by which Kueue chooses its Nodes."""

MAX_HOSTNAME = 63
"""Characters of a host name: it is a DNS label."""

TASKROLE_TASK_NUMBER = "FC_TASKROLE_TASK_NUMBER"
FRAMEWORK_TASK_NUMBER = "FC_FRAMEWORK_TASK_NUMBER"
TASK_RANK = "FC_TASK_RANK"
COORDINATOR_HOST = "FC_COORDINATOR_HOST"

ONLY_PLACEHOLDERS = (FRAMEWORK_TASK_NUMBER, TASKROLE_TASK_NUMBER, TASK_RANK, COORDINATOR_HOST)
"""Words that are placeholders of Pod templates, and nothing else."""

PLACEHOLDERS = (FRAMEWORK_NAMESPACE, FRAMEWORK_NAME, TASKROLE_NAME, TASK_INDEX, CONFIGMAP_NAME, POD_NAME)
"""Words that are replaced in the strings of a Pod template, in double braces."""

NETWORK_PLACEHOLDERS = (FRAMEWORK_ATTEMPT_ID, *ONLY_PLACEHOLDERS)
"""Placeholders of Pod templates that count only if the spec has network or coordinator."""

KUEUE_POD_GATE = "kueue.x-k8s.io/admission"
"""Scheduling gate of a Pod that Kueue queues by itself."""

QUEUE_NAME = "kueue.x-k8s.io/queue-name"
PRIORITY_CLASS = "kueue.x-k8s.io/priority-class"
MAX_EXEC_TIME_SECONDS = "kueue.x-k8s.io/max-exec-time-seconds"
"""Labels of a Framework, as of every job under Kueue: the LocalQueue, a WorkloadPriorityClass, and the time after which
Kueue evicts it."""

USER = f"{GROUP}/user"
"""Annotation or label of a Framework with the name of its user, which the controller does not verify."""

GPU = "nvidia.com/gpu"
"""The resource of NVIDIA's device plugin."""

PROGRESS_AUDIENCE = "frameworkcontroller-progress"
"""Audience of the tokens with which Pods report their progress: no API server takes them."""

PROGRESS_KEY = "progress"
INTERVAL_KEY = "interval"
CA_KEY = "ca.crt"
REPORTERS_KEY = "reporters"
"""Keys in the data of an attempt's ConfigMap: the merged reports (JSON), the seconds between two writes of them, the CA
of the report server, and the last report of each Pod (JSON)."""

NOTICE_KEY = "notice"
"""Key in the data of an attempt's ConfigMap: the reason and the time of an end that is to come."""

NOTICE_FILE = "FC_NOTICE_FILE"
"""Variable of Pods that may be notified: the path of the file with that, which is absent without a notice."""

SERVER_URL = "KUBEFLOW_TRAINER_SERVER_URL"
SERVER_CA_CERT = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
SERVER_TOKEN = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105 - a name
"""Variables of Pods that report progress: where, and the paths of the CA and of the token (KEP-2779)."""

PROGRESS_VOLUME = "frameworkcontroller-progress"
PROGRESS_PATH = "/var/run/secrets/frameworkcontroller"
TOKEN_FILE = "token"  # noqa: S105 - a name
"""The volume of Pods that report progress or see a notice, where it is mounted, and the token in it. A template that
has one of both gets them with a number at the end. The other files are keys of the ConfigMap."""

TEMPLATE_HASH = f"{GROUP}/template-hash"
"""Label of the Pods of a role with RollingUpdate: the hash of the template that the Pod was created from."""

LAST_CHECKPOINT = f"{GROUP}/last-checkpoint-time"
"""Annotation of the Workload and the PodGroups of an attempt, for schedulers that choose whom to preempt."""

SNAPSHOT_MARK = "ObjectSnapshot: "
"""In a log line, the JSON of an object follows this mark (docs/history-records.md)."""

_NAME = re.compile(NAME_PATTERN)
_SERVICE = re.compile(SERVICE_PATTERN)
_LABEL = re.compile(LABEL_PATTERN)
_PORT = re.compile(r"(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")


def is_valid_name(name: str) -> bool:
    """Whether ``name`` is a valid name of Frameworks and TaskRoles."""
    return _NAME.fullmatch(name) is not None


def is_valid_service(name: str) -> bool:
    """Whether ``name`` is a valid name of Services."""
    return _SERVICE.fullmatch(name) is not None


def is_port_name(name: str) -> bool:
    """Whether ``name`` is a valid name of a container's port."""
    return _PORT.fullmatch(name) is not None


def is_label(name: str) -> bool:
    """Whether ``name`` is a DNS label, as the names of containers, volumes and namespaces are."""
    return _LABEL.fullmatch(name) is not None


def placeholder(name: str) -> str:
    """The text in a Pod template that is replaced by the value of that name."""
    return f"{{{{{name}}}}}"


def configmap_name(framework: str) -> str:
    """Name of the ConfigMap of a Framework's current attempt."""
    return f"{framework}-attempt"


def framework_of(name: str) -> str:
    """Name of the Framework to which a Pod or ConfigMap of that name would belong."""
    return name.partition("-")[0]


def scaler_name(framework: str, role: str) -> str:
    """Name of the FrameworkRoleScaler of a role."""
    return f"{framework}-{role}"


def pod_name(framework: str, role: str, index: int) -> str:
    """Name of the Pod of Task ``index`` of ``role``: the same for all attempts, which ensures C1."""
    return f"{framework}-{role}-{index}"


def role_object(framework: str, role: str) -> str:
    """Name of the Service and of the disruption budget of a role. No two roles have the same one."""
    return f"{framework}-{role}"


def claim_name(claim: str, framework: str, role: str, index: int) -> str:
    """Name of the volume claim ``claim`` of a Task, as in a StatefulSet. No two Tasks have the same one."""
    return f"{claim}-{pod_name(framework, role, index)}"


def split_claim_name(name: str) -> tuple[str, str, str, int] | None:
    """Claim, framework, role and index of a volume claim's name, None if it is not the name of a Task's claim."""
    claim, *of_pod = name.rsplit("-", 3)
    parts = split_pod_name("-".join(of_pod)) if claim else None
    return None if parts is None else (claim, *parts)


_MOST_DIGITS = 10


def split_pod_name(name: str) -> tuple[str, str, int] | None:
    """Framework, role and index of the Pod's name, None if it is not the name of a Task's Pod."""
    parts = name.split("-")
    # Only the canonical decimal: "f-r-01" is not Task 1. And `int` refuses thousands of digits, which involved objects
    # of Events may have.
    if (
        len(parts) != 3
        or len(parts[2]) > _MOST_DIGITS
        or not parts[2].isascii()
        or not parts[2].isdigit()
        or str(int(parts[2])) != parts[2]
    ):
        return None
    return parts[0], parts[1], int(parts[2])


def attempt_instance_uid(attempt_id: int, object_uid: str) -> str:
    """Identity of an attempt: its id and the UID of its ConfigMap (Framework) or Pod (Task)."""
    return f"{attempt_id}_{object_uid}"
