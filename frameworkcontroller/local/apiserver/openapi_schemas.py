"""The schemas in an OpenAPI document, from types and CRDs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frameworkcontroller.local.apiserver import builtin_types
from frameworkcontroller.local.apiserver.api_resources import ApiResource
from frameworkcontroller.local.apiserver.typegraph import Field, Ownership, Shape, Type

Json = dict[str, Any]

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_APIEXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_META_TYPES = frozenset(
    {
        "Condition",
        "DeleteOptions",
        "LabelSelector",
        "LabelSelectorRequirement",
        "ListMeta",
        "ManagedFieldsEntry",
        "ObjectMeta",
        "OwnerReference",
        "Preconditions",
        "Status",
        "StatusCause",
        "StatusDetails",
    }
)
_LEAVES: Mapping[str, tuple[str, Json]] = {
    "date-time": (f"{META}.Time", {"type": "string", "format": "date-time"}),
    "int-or-string": (
        _INT_OR_STRING,
        {
            "description": "A number or a text: the number of a port, or its name.",
            "format": "int-or-string",
            "oneOf": [{"type": "integer"}, {"type": "string"}],
        },
    ),
    "micro-time": (f"{META}.MicroTime", {"type": "string", "format": "date-time"}),
    "quantity": (
        _QUANTITY,
        {
            "description": "An amount with a unit, such as 500m or 2Gi.",
            "oneOf": [{"type": "string"}, {"type": "number"}],
        },
    ),
}
_KINDS = {
    "ClusterRole": "ClusterRole is a set of permissions, in the whole cluster.",
    "ClusterRoleBinding": "ClusterRoleBinding grants a ClusterRole to subjects, in the whole cluster.",
    "ConfigMap": "ConfigMap holds configuration for Pods to read.",
    "CustomResourceDefinition": "CustomResourceDefinition is a kind of resource that is added to the API.",
    "Event": "Event says that something happened to an object.",
    "Lease": "Lease says who holds something, and for how long.",
    "Namespace": "Namespace is a scope for names.",
    "Node": "Node is a machine that runs Pods.",
    "PersistentVolumeClaim": "PersistentVolumeClaim is a request for storage, which Pods then use as a volume.",
    "Pod": "Pod is a group of containers that run together on a node.",
    "PodDisruptionBudget": "PodDisruptionBudget limits evictions of Pods.",
    "PriorityClass": "PriorityClass maps the name of a priority to its value.",
    "ResourceQuota": "ResourceQuota limits the resources of a namespace.",
    "Role": "Role is a set of permissions in a namespace.",
    "RoleBinding": "RoleBinding grants a role to subjects, in a namespace.",
    "Secret": "Secret holds confidential data.",
    "SelfSubjectAccessReview": "SelfSubjectAccessReview asks whether the one who asks may do something.",
    "SelfSubjectReview": "SelfSubjectReview asks who the one who asks is.",
    "SelfSubjectRulesReview": "SelfSubjectRulesReview asks for the sender's permissions in a namespace.",
    "Service": "Service is a name for a set of Pods, and a way to reach them.",
    "ServiceAccount": "ServiceAccount is an identity for Pods.",
    "SubjectAccessReview": "SubjectAccessReview asks whether a user may do something.",
    "TokenReview": "TokenReview asks for the user of a token.",
}
_COMMON = {
    "metadata": "The object's name, labels, owners and the like.",
    "spec": "The desired state.",
    "status": "The observed state.",
}
_PREFIX = "#/components/schemas/"

API_VERSION: Json = {
    "description": "Version of the schema that the object is written in: GROUP/VERSION.",
    "type": "string",
}
KIND: Json = {"description": "Kind of the object, in CamelCase.", "type": "string"}


class Schemas:
    """The named schemas of one document; adding one also adds its references."""

    def __init__(self) -> None:
        self._found: Json = {}
        self._prefix = META

    def sorted(self) -> Json:
        """All schemas by name."""
        return {name: self._found[name] for name in sorted(self._found)}

    def add(self, name: str, schema: Json) -> str:
        """Add a schema; return its name."""
        self._found[name] = schema
        return name

    @staticmethod
    def reference(name: str) -> Json:
        """A reference to a schema of the document."""
        return {"$ref": _PREFIX + name}

    def add_resource(self, t: ApiResource) -> str:
        """Add the schema of a resource's kind; return its name."""
        kinds = [{"group": t.group, "version": t.version, "kind": t.kind}]
        if t.schema is None:
            self._prefix = _package(t.group, t.version)
            name = self.add_type(builtin_types.builtin_type(t))
            self._found[name] = {"description": _KINDS.get(t.kind, ""), **self._found[name]}
            self._found[name]["x-kubernetes-group-version-kind"] = kinds
            return name
        name = ".".join([*reversed(t.group.split(".")), t.version, t.kind])
        schema = self._resource_schema(t.schema)
        schema["x-kubernetes-group-version-kind"] = kinds
        return self.add(name, schema)

    def _resource_schema(self, schema: Mapping[str, Any]) -> Json:
        meta = self.add_type(builtin_types.object_meta())
        properties = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"description": _COMMON["metadata"], "allOf": [self.reference(meta)]},
        }
        declared = {name: child for name, child in (schema.get("properties") or {}).items() if name not in properties}
        return {**schema, "properties": {**properties, **declared}}

    def add_type(self, of: Type) -> str:
        """Add the schema of an object type; return its name."""
        name = f"{META if of.name in _META_TYPES else self._prefix}.{of.name}"
        if name not in self._found:
            self._found[name] = schema = self._object(of)
            schema["properties"] = {field: self._field(field, of.fields[field]) for field in sorted(of.fields)}
        return name

    @staticmethod
    def _object(of: Type) -> Json:
        schema: Json = {"type": "object"}
        required = sorted(name for name, field in of.fields.items() if field.required)
        if required:
            schema["required"] = required
        if of.ownership is Ownership.ATOMIC:
            schema["x-kubernetes-map-type"] = "atomic"
        return schema

    def _field(self, name: str, field: Field) -> Json:
        schema = self._schema(field.type)
        description = field.description or _COMMON.get(name, "")
        if "$ref" in schema:
            schema = {"allOf": [schema]}
        if description:
            schema = {"description": description, **schema}
        if field.patch_merge:
            schema["x-kubernetes-patch-strategy"] = "merge,retainKeys" if field.patch_retain_keys else "merge"
            if field.patch_key:
                schema["x-kubernetes-patch-merge-key"] = field.patch_key
        return schema

    def _schema(self, of: Type) -> Json:
        if of.shape is Shape.OBJECT:
            return self.reference(self.add_type(of))
        if of.shape is Shape.SCALAR:
            return self._scalar(of)
        if of.element is None:
            # Free-form, such as a default in a schema.
            return {}
        element = self._schema(of.element)
        if of.shape is Shape.MAP:
            schema: Json = {"type": "object", "additionalProperties": element or True}
            return schema | ({"x-kubernetes-map-type": "atomic"} if of.ownership is Ownership.ATOMIC else {})
        schema = {"type": "array", "items": element, "x-kubernetes-list-type": of.ownership.value}
        return schema | ({"x-kubernetes-list-map-keys": list(of.keys)} if of.keys else {})

    def _scalar(self, of: Type) -> Json:
        if of.format in _LEAVES:
            name, leaf = _LEAVES[of.format]
            return self.reference(self.add(name, leaf))
        schema: Json = {"type": of.kind}
        return schema | ({"format": of.format} if of.format not in ("", "uid") else {})


def _package(group: str, version: str) -> str:
    if group == "apiextensions.k8s.io":
        return _APIEXTENSIONS
    return f"io.k8s.api.{group.partition('.')[0] or 'core'}.{version}"
