"""PodGroups of Kubernetes (scheduling.k8s.io/v1beta1), as a CustomResourceDefinition.

In Kubernetes 1.37 they are built in. As a definition, they can be served by API servers without them, too.
"""

from __future__ import annotations

from typing import Final

from frameworkcontroller.kube.resources import Resource
from frameworkcontroller.local import schemas

PODGROUPS: Final = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")


def definition() -> schemas.Json:
    """The CustomResourceDefinition."""
    gang = schemas.obj(
        "Bind Pods only if at least minCount of them fit.",
        ("minCount",),
        minCount=schemas.int32("Number of Pods that are bound together, counting those that are bound.", minimum=1),
    )
    policy = schemas.obj(
        "How many Pods are bound together: one of basic and gang.",
        basic={"type": "object", "description": "Bind Pods one by one."},
        gang=gang,
    )
    policy["oneOf"] = [{"required": ["basic"]}, {"required": ["gang"]}]
    level = schemas.obj("", ("key",), key=schemas.text("The label of nodes.", maxLength=317, minLength=1))
    constraints = schemas.obj(
        "Where the Pods are placed. The local cluster has one node.",
        topology=schemas.listing(level, "All on nodes with the same value of this label.", maxItems=1),
    )
    mode = schemas.obj(
        "Which Pods a preemption removes. The local cluster preempts none.",
        all={"type": "object", "description": "All of the group."},
        single={"type": "object", "description": "Each by itself."},
    )
    spec = schemas.obj(
        "How the Pods of the group are scheduled.",
        ("schedulingPolicy",),
        disruptionMode=mode,
        priority=schemas.int32("Priority of the group."),
        priorityClassName=schemas.text("Priority class of the group.", maxLength=253),
        schedulingConstraints=constraints,
        schedulingPolicy=policy,
    )
    status = schemas.obj("Whether the group was scheduled.", conditions=schemas.conditions())
    columns = (
        ("Minimum", "integer", ".spec.schedulingPolicy.gang.minCount"),
        ("Scheduled", "string", ".status.conditions[?(@.type=='PodGroupInitiallyScheduled')].status"),
        schemas.AGE,
    )
    return schemas.definition(
        PODGROUPS,
        schemas.obj("The Pods that name it in spec.schedulingGroup, scheduled together.", spec=spec, status=status),
        columns=columns,
        status=True,
        approved="https://github.com/kubernetes/enhancements/issues/4671",
    )
