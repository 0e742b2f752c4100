"""The resources of Kueue (kueue.x-k8s.io/v1beta2) that the local queue reads, as CustomResourceDefinitions.

They accept the objects of Kueue's API, with its names and types, and nothing that this queue ignores: cohorts, several
flavors, admission checks and fair sharing are unknown fields, or refused by a bound. Fields that only Kueue writes are
left out.
"""

from __future__ import annotations

from typing import Any, Final

from frameworkcontroller.kube.resources import RESOURCEFLAVORS, WORKLOADPRIORITYCLASSES, WORKLOADS, Resource

GROUP: Final = WORKLOADS.group

LOCALQUEUES: Final = Resource(GROUP, WORKLOADS.version, "localqueues", "LocalQueue")
CLUSTERQUEUES: Final = Resource(GROUP, WORKLOADS.version, "clusterqueues", "ClusterQueue", namespaced=False)

Json = dict[str, Any]

_LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_QUANTITY: Final = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$"


def _text(description: str = "", **more: Any) -> Json:
    return _described({"type": "string", **more}, description)


def _name(description: str = "") -> Json:
    return _text(description, maxLength=253, pattern=_SUBDOMAIN)


def _number(description: str = "", **more: Any) -> Json:
    return _described({"type": "integer", "format": "int32", **more}, description)


def _object(description: str = "", required: tuple[str, ...] = (), /, **properties: Json) -> Json:
    needed = {"required": list(required)} if required else {}
    return _described({"type": "object", "properties": properties, **needed}, description)


def _map(values: Json, description: str = "", **more: Any) -> Json:
    return _described({"type": "object", "additionalProperties": values, **more}, description)


def _list(items: Json, description: str = "", *, keys: tuple[str, ...] = (), **more: Any) -> Json:
    kind: Json = {"x-kubernetes-list-type": "atomic"}
    if keys:
        kind = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
    return _described({"type": "array", "items": items, **kind, **more}, description)


def _described(schema: Json, description: str) -> Json:
    return {**schema, "description": description} if description else schema


def _quantity(description: str = "") -> Json:
    schema = {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": _QUANTITY,
        "x-kubernetes-int-or-string": True,
    }
    return _described(schema, description)


def _conditions() -> Json:
    condition = _object(
        "",
        ("lastTransitionTime", "message", "reason", "status", "type"),
        lastTransitionTime=_text(format="date-time"),
        message=_text(maxLength=32768),
        observedGeneration={"type": "integer", "format": "int64", "minimum": 0},
        reason=_text(maxLength=1024, minLength=1),
        status=_text(enum=["True", "False", "Unknown"]),
        type=_text(maxLength=316),
    )
    return _list(condition, "The state, one entry for each aspect of it.", keys=("type",), maxItems=16)


def _usage(description: str) -> Json:
    resource = _object("", ("name",), name=_text(), total=_quantity())
    flavor = _object("", ("name", "resources"), name=_name(), resources=_list(resource, keys=("name",), maxItems=64))
    return _list(flavor, description, keys=("name",), maxItems=64)


def _stop_policy(what: str) -> Json:
    return _text(
        f"Hold: admit nothing more {what}. HoldAndDrain: also evict what was admitted.",
        enum=["None", "Hold", "HoldAndDrain"],
        default="None",
    )


def _definition(
    resource: Resource, schema: Json, *, short: tuple[str, ...], columns: tuple[tuple[str, str, str], ...], status: bool
) -> Json:
    properties = {"apiVersion": _text(), "kind": _text(), "metadata": {"type": "object"}, **schema.pop("properties")}
    version: Json = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties, **schema}},
        "subresources": {"status": {}} if status else {},
    }
    if columns:
        shown = [{"name": name, "type": kind, "jsonPath": path} for name, kind, path in columns]
        version["additionalPrinterColumns"] = shown
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.qualified},
        "spec": {
            "group": resource.group,
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "shortNames": list(short),
            },
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [version],
        },
    }


_AGE: Final = ("Age", "date", ".metadata.creationTimestamp")


def _workloads() -> Json:
    topology = _object(
        "Placement in a topology. This queue ignores it.",
        podIndexLabel=_text(maxLength=317),
        podSetGroupName=_text(maxLength=256),
        podSetSliceRequiredTopology=_text(maxLength=63),
        podSetSliceSize=_number(minimum=1),
        preferred=_text(maxLength=63),
        required=_text(maxLength=63),
        subGroupCount=_number(minimum=0),
        subGroupIndexLabel=_text(maxLength=317),
        unconstrained={"type": "boolean"},
    )
    pod_set = _object(
        "",
        ("template",),
        count=_number("Number of Pods.", minimum=0, default=1),
        minCount=_number("Least number of Pods. This queue admits all or none.", minimum=1),
        name=_text("Name of the set.", default="main", maxLength=63, pattern=_LABEL),
        template={
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "description": "The Pods. Their requests, times count, are what the set needs.",
        },
        topologyRequest=topology,
    )
    assignment = _object(
        "",
        count=_number("Number of admitted Pods.", minimum=0),
        flavors=_map(_name(), "The flavor of each resource."),
        name=_text("Name of the set.", default="main", maxLength=63, pattern=_LABEL),
        resourceUsage=_map(_quantity(), "What all Pods of the set take from the quota."),
        topologyAssignment={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    )
    reclaimable = _object("", ("count", "name"), count=_number(minimum=0), name=_text(maxLength=63, pattern=_LABEL))
    spec = _object(
        "What is to run, and in which queue it waits.",
        active={"type": "boolean", "default": True, "description": "False: evict the workload, and do not admit it."},
        maximumExecutionTimeSeconds=_number("Time after which it is deactivated, over all admissions.", minimum=1),
        podSets=_list(pod_set, "Sets of Pods, admitted together.", keys=("name",), minItems=1, maxItems=18),
        priority=_number("Higher ones are admitted first, and preempt lower ones."),
        priorityClassRef=_object(
            "The class that the priority is from.",
            ("group", "kind", "name"),
            group=_text(enum=[GROUP, "scheduling.k8s.io"]),
            kind=_text(enum=["WorkloadPriorityClass", "PriorityClass"]),
            name=_name(),
        ),
        queueName=_name("The LocalQueue."),
    )
    status = _object(
        "The decision of the queue, and the state of the Pods.",
        accumulatedPastExecutionTimeSeconds=_number("Seconds of earlier admissions."),
        admission=_object(
            "The reserved quota. The owner removes it once nothing runs.",
            clusterQueue=_name("The ClusterQueue."),
            podSetAssignments=_list(assignment, "What each set got.", keys=("name",), maxItems=18),
        ),
        conditions=_conditions(),
        reclaimablePods=_list(reclaimable, "Pods that no longer need quota.", keys=("name",), maxItems=18),
        requeueState=_object("", count=_number(minimum=0), requeueAt=_text(format="date-time")),
    )
    columns = (
        ("Queue", "string", ".spec.queueName"),
        ("Reserved in", "string", ".status.admission.clusterQueue"),
        ("Admitted", "string", ".status.conditions[?(@.type=='Admitted')].status"),
        ("Finished", "string", ".status.conditions[?(@.type=='Finished')].status"),
        _AGE,
    )
    schema = _object("Pods that wait for quota together.", spec=spec, status=status)
    return _definition(WORKLOADS, schema, short=("kwl", "kueueworkload"), columns=columns, status=True)


def _local_queues() -> Json:
    spec = _object(
        "Where its workloads go.",
        clusterQueue=_name("The ClusterQueue that has the quota."),
        stopPolicy=_stop_policy("from this queue"),
    )
    status = _object(
        "Counts of its workloads.",
        admittedWorkloads=_number(),
        conditions=_conditions(),
        flavorsReservation=_usage("Reserved quota."),
        flavorsUsage=_usage("Quota of admitted workloads."),
        pendingWorkloads=_number(),
        reservingWorkloads=_number(),
    )
    columns = (
        ("ClusterQueue", "string", ".spec.clusterQueue"),
        ("Pending Workloads", "integer", ".status.pendingWorkloads"),
        ("Admitted Workloads", "integer", ".status.admittedWorkloads"),
    )
    schema = _object("A queue of a namespace.", spec=spec, status=status)
    return _definition(LOCALQUEUES, schema, short=("queue", "lq"), columns=columns, status=True)


def _cluster_queues() -> Json:
    resource = _object("", ("name", "nominalQuota"), name=_text(), nominalQuota=_quantity("The quota."))
    flavor = _object(
        "",
        ("name", "resources"),
        name=_name("A ResourceFlavor."),
        resources=_list(resource, "Its quotas.", keys=("name",), minItems=1, maxItems=64),
    )
    group = _object(
        "",
        ("coveredResources", "flavors"),
        coveredResources=_list(_text(), "Resources with a quota. Others cannot be requested.", minItems=1, maxItems=64),
        flavors=_list(flavor, "One flavor: this queue has no choice.", keys=("name",), minItems=1, maxItems=1),
    )
    preemption = _object(
        "Which workloads may be evicted for others.",
        withinClusterQueue=_text(
            "LowerPriority: those of lower priority. LowerOrNewerEqualPriority: newer ones of the same, too.",
            enum=["Never", "LowerPriority", "LowerOrNewerEqualPriority"],
            default="Never",
        ),
    )
    spec = _object(
        "Quota, and the rules of the queue.",
        namespaceSelector={
            "type": "object",
            # Preserved, so that another one is refused instead of pruned.
            "x-kubernetes-preserve-unknown-fields": True,
            "maxProperties": 0,
            "description": "{}: all namespaces, which is what this queue does.",
        },
        preemption=preemption,
        queueingStrategy=_text(
            "StrictFIFO: a workload that does not fit holds back those behind it.",
            enum=["StrictFIFO", "BestEffortFIFO"],
            default="BestEffortFIFO",
        ),
        resourceGroups=_list(group, "The quota.", maxItems=1),
        stopPolicy=_stop_policy("from any queue"),
    )
    status = _object(
        "Counts of its workloads.",
        admittedWorkloads=_number(),
        conditions=_conditions(),
        flavorsReservation=_usage("Reserved quota."),
        flavorsUsage=_usage("Quota of admitted workloads."),
        pendingWorkloads=_number(),
        reservingWorkloads=_number(),
    )
    columns = (
        ("Strategy", "string", ".spec.queueingStrategy"),
        ("Pending Workloads", "integer", ".status.pendingWorkloads"),
        ("Admitted Workloads", "integer", ".status.admittedWorkloads"),
    )
    schema = _object("Quota that LocalQueues share.", spec=spec, status=status)
    return _definition(CLUSTERQUEUES, schema, short=("cq",), columns=columns, status=True)


def _resource_flavors() -> Json:
    toleration = _object(
        "",
        effect=_text(),
        key=_text(),
        operator=_text(),
        tolerationSeconds={"type": "integer", "format": "int64"},
        value=_text(),
    )
    taint = _object("", ("effect", "key"), effect=_text(), key=_text(), value=_text())
    spec = _object(
        "What Pods get that are admitted to the flavor.",
        nodeLabels=_map(_text(), "Labels of its nodes: the nodeSelector of admitted Pods.", maxProperties=8),
        nodeTaints=_list(taint, "Taints of its nodes. This queue ignores them.", maxItems=8),
        tolerations=_list(toleration, "Tolerations of admitted Pods.", maxItems=8),
    )
    schema = _object("A kind of nodes.", spec=spec)
    return _definition(RESOURCEFLAVORS, schema, short=("flavor", "rf"), columns=(), status=False)


def _priority_classes() -> Json:
    schema = _object(
        "A priority for workloads. Unlike that of a PriorityClass, it does not concern the scheduler of Pods.",
        ("value",),
        description=_text("What it is for.", maxLength=2048),
        value=_number("The priority."),
    )
    columns = (("Value", "integer", ".value"),)
    return _definition(WORKLOADPRIORITYCLASSES, schema, short=("wpc",), columns=columns, status=False)


def definitions() -> list[Json]:
    """The CustomResourceDefinitions."""
    return [_workloads(), _local_queues(), _cluster_queues(), _resource_flavors(), _priority_classes()]
