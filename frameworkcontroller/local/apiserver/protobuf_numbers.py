"""The protobuf field numbers of the kinds that clients send in protobuf.

kubectl 1.32 and later creates these kinds in protobuf, and everything else in JSON. A field is ``number name``; ``*``
marks a pointer in Go, whose zero value is significant.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

_TYPES = {
    "AggregationRule": "1 clusterRoleSelectors",
    "Binding": "1 metadata, 2 target",
    "ClusterRole": "1 metadata, 2 rules, 3 aggregationRule",
    "ClusterRoleBinding": "1 metadata, 2 subjects, 3 roleRef",
    "ClientIPConfig": "1 timeoutSeconds*",
    "Condition": "1 type, 2 status, 3 observedGeneration, 4 lastTransitionTime, 5 reason, 6 message",
    "ConfigMap": "1 metadata, 2 data, 3 binaryData, 4 immutable*",
    "DeleteOptions": "1 gracePeriodSeconds*, 2 preconditions, 3 orphanDependents*, 4 propagationPolicy*, 5 dryRun",
    "Event": (
        "1 metadata, 2 involvedObject, 3 reason, 4 message, 5 source, 6 firstTimestamp, 7 lastTimestamp, 8 count, "
        "9 type, 10 eventTime, 11 series, 12 action, 13 related, 14 reportingComponent, 15 reportingInstance"
    ),
    "EventSeries": "1 count, 2 lastObservedTime",
    "EventSource": "1 component, 2 host",
    "Eviction": "1 metadata, 2 deleteOptions",
    "FieldSelectorAttributes": "1 rawSelector, 2 requirements",
    "FieldSelectorRequirement": "1 key, 2 operator, 3 values",
    "LabelSelector": "1 matchLabels, 2 matchExpressions",
    "LabelSelectorAttributes": "1 rawSelector, 2 requirements",
    "LabelSelectorRequirement": "1 key, 2 operator, 3 values",
    "Lease": "1 metadata, 2 spec",
    "LeaseSpec": (
        "1 holderIdentity, 2 leaseDurationSeconds*, 3 acquireTime, 4 renewTime, 5 leaseTransitions*, 6 strategy, "
        "7 preferredHolder"
    ),
    "LocalObjectReference": "1 name",
    "LoadBalancerStatus": "",
    "Namespace": "1 metadata, 2 spec, 3 status",
    "NamespaceCondition": "1 type, 2 status, 4 lastTransitionTime, 5 reason, 6 message",
    "NamespaceSpec": "1 finalizers",
    "NamespaceStatus": "1 phase, 2 conditions",
    "NonResourceAttributes": "1 path, 2 verb",
    "ObjectMeta": (
        "1 name, 2 generateName, 3 namespace, 4 selfLink, 5 uid, 6 resourceVersion, 7 generation, 8 creationTimestamp, "
        "9 deletionTimestamp, 10 deletionGracePeriodSeconds*, 11 labels, 12 annotations, 13 ownerReferences, "
        "14 finalizers"
    ),
    "ObjectReference": ("1 kind, 2 namespace, 3 name, 4 uid, 5 apiVersion, 6 resourceVersion, 7 fieldPath"),
    "OwnerReference": "1 kind, 3 name, 4 uid, 5 apiVersion, 6 controller*, 7 blockOwnerDeletion*",
    "PolicyRule": "1 verbs, 2 apiGroups, 3 resources, 4 resourceNames, 5 nonResourceURLs",
    "PortStatus": "1 port, 2 protocol, 3 error",
    "Preconditions": "1 uid*, 2 resourceVersion*",
    "PriorityClass": "1 metadata, 2 value, 3 globalDefault, 4 description, 5 preemptionPolicy",
    "ResourceAttributes": (
        "1 namespace, 2 verb, 3 group, 4 version, 5 resource, 6 subresource, 7 name, 8 fieldSelector, 9 labelSelector"
    ),
    "ResourceQuota": "1 metadata, 2 spec, 3 status",
    "ResourceQuotaSpec": "1 hard, 2 scopes, 3 scopeSelector",
    "ResourceQuotaStatus": "1 hard, 2 used",
    "Role": "1 metadata, 2 rules",
    "RoleBinding": "1 metadata, 2 subjects, 3 roleRef",
    "RoleRef": "1 apiGroup, 2 kind, 3 name",
    "ScopeSelector": "1 matchExpressions",
    "ScopedResourceSelectorRequirement": "1 scopeName, 2 operator, 3 values",
    "Secret": "1 metadata, 2 data, 3 type, 4 stringData, 5 immutable*",
    "SelfSubjectAccessReview": "1 metadata, 2 spec, 3 status",
    "SelfSubjectAccessReviewSpec": "1 resourceAttributes, 2 nonResourceAttributes",
    "SelfSubjectReview": "1 metadata, 2 status",
    "SelfSubjectReviewStatus": "",
    "SelfSubjectRulesReview": "1 metadata, 2 spec, 3 status",
    "SelfSubjectRulesReviewSpec": "1 namespace",
    "Service": "1 metadata, 2 spec, 3 status",
    "ServiceAccount": "1 metadata, 2 secrets, 3 imagePullSecrets, 4 automountServiceAccountToken*",
    "ServicePort": "1 name, 2 protocol, 3 port, 4 targetPort, 5 nodePort, 6 appProtocol",
    "ServiceSpec": (
        "1 ports, 2 selector, 3 clusterIP, 4 type, 5 externalIPs, 7 sessionAffinity, 8 loadBalancerIP, "
        "9 loadBalancerSourceRanges, 10 externalName, 11 externalTrafficPolicy, 12 healthCheckNodePort, "
        "13 publishNotReadyAddresses, 14 sessionAffinityConfig, 17 ipFamilyPolicy, 18 clusterIPs, 19 ipFamilies, "
        "20 allocateLoadBalancerNodePorts*, 21 loadBalancerClass, 22 internalTrafficPolicy, 23 trafficDistribution"
    ),
    "ServiceStatus": "",
    "SessionAffinityConfig": "1 clientIP",
    "Subject": "1 kind, 2 apiGroup, 3 name, 4 namespace",
    "SubjectAccessReview": "1 metadata, 2 spec, 3 status",
    "SubjectAccessReviewSpec": "1 resourceAttributes, 2 nonResourceAttributes, 3 user, 4 groups, 6 uid",
    "SubjectAccessReviewStatus": "",
    "SubjectRulesReviewStatus": "",
    "TokenReview": "1 metadata, 2 spec, 3 status",
    "TokenReviewSpec": "1 token, 2 audiences",
    "TokenReviewStatus": "",
}


@cache
def fields_of(type_name: str) -> Mapping[int, tuple[str, bool]] | None:
    """A type's fields by number: JSON name, and whether zero is significant. None for an unsupported type."""
    declared = _TYPES.get(type_name)
    if declared is None:
        return None
    numbered = (field.split(" ") for field in declared.split(", ") if field)
    return {int(number): (name.rstrip("*"), name.endswith("*")) for number, name in numbered}
