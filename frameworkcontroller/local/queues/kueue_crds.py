"""The resources of Kueue (kueue.x-k8s.io/v1beta2) that the local queue reads, as CustomResourceDefinitions.

They accept the objects of Kueue's API, with its names and types, and nothing that this queue ignores: cohorts, several
flavors, admission checks and fair sharing are unknown fields, or refused by a bound. Fields that only Kueue writes are
left out.
"""

from __future__ import annotations

from typing import Final

from frameworkcontroller.kube.resources import RESOURCEFLAVORS, WORKLOADPRIORITYCLASSES, WORKLOADS, Resource
from frameworkcontroller.local import schemas

GROUP: Final = WORKLOADS.group

LOCALQUEUES: Final = Resource(GROUP, WORKLOADS.version, "localqueues", "LocalQueue")
CLUSTERQUEUES: Final = Resource(GROUP, WORKLOADS.version, "clusterqueues", "ClusterQueue", namespaced=False)


def _usage(description: str) -> schemas.Json:
    resource = schemas.obj("", ("name",), name=schemas.text(), total=schemas.quantity())
    flavor = schemas.obj(
        "", ("name", "resources"), name=schemas.name(), resources=schemas.listing(resource, keys=("name",), maxItems=64)
    )
    return schemas.listing(flavor, description, keys=("name",), maxItems=64)


def _stop_policy(what: str) -> schemas.Json:
    return schemas.text(
        f"Hold: admit nothing more {what}. HoldAndDrain: also evict admitted workloads.",
        enum=["None", "Hold", "HoldAndDrain"],
        default="None",
    )


def _workloads() -> schemas.Json:
    topology = schemas.obj(
        "Placement in a topology. This queue ignores it.",
        podIndexLabel=schemas.text(maxLength=317),
        podSetGroupName=schemas.text(maxLength=256),
        podSetSliceRequiredTopology=schemas.text(maxLength=63),
        podSetSliceSize=schemas.int32(minimum=1),
        preferred=schemas.text(maxLength=63),
        required=schemas.text(maxLength=63),
        subGroupCount=schemas.int32(minimum=0),
        subGroupIndexLabel=schemas.text(maxLength=317),
        unconstrained={"type": "boolean"},
    )
    pod_set = schemas.obj(
        "",
        ("template",),
        count=schemas.int32("Number of Pods.", minimum=0, default=1),
        minCount=schemas.int32("Least number of Pods. This queue admits all or none.", minimum=1),
        name=schemas.text("Name of the set.", default="main", maxLength=63, pattern=schemas.LABEL),
        template={
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "description": "The Pods. The set needs their requests, times count.",
        },
        topologyRequest=topology,
    )
    assignment = schemas.obj(
        "",
        count=schemas.int32("Number of admitted Pods.", minimum=0),
        flavors=schemas.mapping(schemas.name(), "The flavor of each resource."),
        name=schemas.text("Name of the set.", default="main", maxLength=63, pattern=schemas.LABEL),
        resourceUsage=schemas.mapping(schemas.quantity(), "The quota that all Pods of the set use."),
        topologyAssignment={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    )
    reclaimable = schemas.obj(
        "", ("count", "name"), count=schemas.int32(minimum=0), name=schemas.text(maxLength=63, pattern=schemas.LABEL)
    )
    spec = schemas.obj(
        "A set of Pods to run, and its queue.",
        active={"type": "boolean", "default": True, "description": "False: evict the workload, and do not admit it."},
        maximumExecutionTimeSeconds=schemas.int32(
            "Time after which it is deactivated, over all admissions.", minimum=1
        ),
        podSets=schemas.listing(pod_set, "Sets of Pods, admitted together.", keys=("name",), minItems=1, maxItems=18),
        priority=schemas.int32("Higher ones are admitted first, and preempt lower ones."),
        priorityClassRef=schemas.obj(
            "The class that the priority is from.",
            ("group", "kind", "name"),
            group=schemas.text(enum=[GROUP, "scheduling.k8s.io"]),
            kind=schemas.text(enum=["WorkloadPriorityClass", "PriorityClass"]),
            name=schemas.name(),
        ),
        queueName=schemas.name("The LocalQueue."),
    )
    status = schemas.obj(
        "The decision of the queue, and the state of the Pods.",
        accumulatedPastExecutionTimeSeconds=schemas.int32("Seconds of earlier admissions."),
        admission=schemas.obj(
            "The reserved quota. The owner removes it once nothing runs.",
            clusterQueue=schemas.name("The ClusterQueue."),
            podSetAssignments=schemas.listing(assignment, "Each set's flavors.", keys=("name",), maxItems=18),
        ),
        conditions=schemas.conditions(),
        reclaimablePods=schemas.listing(reclaimable, "Pods that no longer need quota.", keys=("name",), maxItems=18),
        requeueState=schemas.obj("", count=schemas.int32(minimum=0), requeueAt=schemas.text(format="date-time")),
    )
    columns = (
        ("Queue", "string", ".spec.queueName"),
        ("Reserved in", "string", ".status.admission.clusterQueue"),
        ("Admitted", "string", ".status.conditions[?(@.type=='Admitted')].status"),
        ("Finished", "string", ".status.conditions[?(@.type=='Finished')].status"),
        schemas.AGE,
    )
    schema = schemas.obj("Pods that wait for quota together.", spec=spec, status=status)
    return schemas.definition(WORKLOADS, schema, short=("kwl", "kueueworkload"), columns=columns, status=True)


def _local_queues() -> schemas.Json:
    spec = schemas.obj(
        "Where its workloads go.",
        clusterQueue=schemas.name("The ClusterQueue that has the quota."),
        stopPolicy=_stop_policy("from this queue"),
    )
    column = ("ClusterQueue", "string", ".spec.clusterQueue")
    return _queue(LOCALQUEUES, "A queue of a namespace.", spec, column, ("queue", "lq"))


def _queue(
    resource: Resource, description: str, spec: schemas.Json, column: tuple[str, str, str], short: tuple[str, ...]
) -> schemas.Json:
    """The definition of a kind that counts its workloads. ``column``: the first one, before their numbers."""
    status = schemas.obj(
        "Counts of its workloads.",
        admittedWorkloads=schemas.int32(),
        conditions=schemas.conditions(),
        flavorsReservation=_usage("Reserved quota."),
        flavorsUsage=_usage("Quota of admitted workloads."),
        pendingWorkloads=schemas.int32(),
        reservingWorkloads=schemas.int32(),
    )
    columns = (
        column,
        ("Pending Workloads", "integer", ".status.pendingWorkloads"),
        ("Admitted Workloads", "integer", ".status.admittedWorkloads"),
    )
    schema = schemas.obj(description, spec=spec, status=status)
    return schemas.definition(resource, schema, short=short, columns=columns, status=True)


def _cluster_queues() -> schemas.Json:
    resource = schemas.obj(
        "", ("name", "nominalQuota"), name=schemas.text(), nominalQuota=schemas.quantity("The quota.")
    )
    flavor = schemas.obj(
        "",
        ("name", "resources"),
        name=schemas.name("A ResourceFlavor."),
        resources=schemas.listing(resource, "Its quotas.", keys=("name",), minItems=1, maxItems=64),
    )
    group = schemas.obj(
        "",
        ("coveredResources", "flavors"),
        coveredResources=schemas.listing(
            schemas.text(), "Resources with a quota. Others cannot be requested.", minItems=1, maxItems=64
        ),
        flavors=schemas.listing(
            flavor, "One flavor: this queue has no choice.", keys=("name",), minItems=1, maxItems=1
        ),
    )
    preemption = schemas.obj(
        "Which workloads may be evicted for others.",
        withinClusterQueue=schemas.text(
            "LowerPriority: workloads of lower priority. LowerOrNewerEqualPriority: newer ones of the same, too.",
            enum=["Never", "LowerPriority", "LowerOrNewerEqualPriority"],
            default="Never",
        ),
    )
    spec = schemas.obj(
        "Quota, and the rules of the queue.",
        namespaceSelector={
            "type": "object",
            # Preserved, so that another one is refused instead of pruned.
            "x-kubernetes-preserve-unknown-fields": True,
            "maxProperties": 0,
            "description": "{}: all namespaces, as in this queue.",
        },
        preemption=preemption,
        queueingStrategy=schemas.text(
            "StrictFIFO: a workload that does not fit holds back those behind it.",
            enum=["StrictFIFO", "BestEffortFIFO"],
            default="BestEffortFIFO",
        ),
        resourceGroups=schemas.listing(group, "The quota.", maxItems=1),
        stopPolicy=_stop_policy("from any queue"),
    )
    column = ("Strategy", "string", ".spec.queueingStrategy")
    return _queue(CLUSTERQUEUES, "Quota that LocalQueues share.", spec, column, ("cq",))


def _resource_flavors() -> schemas.Json:
    toleration = schemas.obj(
        "",
        effect=schemas.text(),
        key=schemas.text(),
        operator=schemas.text(),
        tolerationSeconds={"type": "integer", "format": "int64"},
        value=schemas.text(),
    )
    taint = schemas.obj("", ("effect", "key"), effect=schemas.text(), key=schemas.text(), value=schemas.text())
    spec = schemas.obj(
        "Additions to Pods that are admitted to the flavor.",
        nodeLabels=schemas.mapping(
            schemas.text(), "Labels of its nodes: the nodeSelector of admitted Pods.", maxProperties=8
        ),
        nodeTaints=schemas.listing(taint, "Taints of its nodes. This queue ignores them.", maxItems=8),
        tolerations=schemas.listing(toleration, "Tolerations of admitted Pods.", maxItems=8),
    )
    schema = schemas.obj("A kind of nodes.", spec=spec)
    return schemas.definition(RESOURCEFLAVORS, schema, short=("flavor", "rf"))


def _priority_classes() -> schemas.Json:
    schema = schemas.obj(
        "A priority for workloads. Unlike a PriorityClass's, it does not concern the scheduler of Pods.",
        ("value",),
        description=schemas.text("Its purpose.", maxLength=2048),
        value=schemas.int32("The priority."),
    )
    columns = (("Value", "integer", ".value"),)
    return schemas.definition(WORKLOADPRIORITYCLASSES, schema, short=("wpc",), columns=columns)


def definitions() -> list[schemas.Json]:
    """The CustomResourceDefinitions."""
    return [_workloads(), _local_queues(), _cluster_queues(), _resource_flavors(), _priority_classes()]
