"""The CustomResourceDefinition controller: starts and stops serving the defined resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from frameworkcontroller.local.apiserver import api_errors, builtin_resources, crd_validation
from frameworkcontroller.local.apiserver.api_resources import ApiResource, crd_resources
from frameworkcontroller.local.apiserver.deletion import DeleteOptions, Fate, Verdict
from frameworkcontroller.local.apiserver.endpoints import Endpoint, Endpoints
from frameworkcontroller.local.apiserver.metadata import rfc3339
from frameworkcontroller.local.apiserver.object_records import Change, Json, ObjectRecord
from frameworkcontroller.local.apiserver.options import Call
from frameworkcontroller.local.apiserver.registry import Registry
from frameworkcontroller.local.apiserver.status_causes import Cause
from frameworkcontroller.local.apiserver.strategy import CustomStrategy, Strategy
from frameworkcontroller.local.apiserver.worker import ObjectController

_CRDS: Final = builtin_resources.CRDS.resource
_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
_NAME_FIELDS: Final = ("plural", "singular", "shortNames", "kind", "listKind")


class DefinitionStrategy(Strategy):
    """A finalizer of the server holds a definition until the last object of its type is gone."""

    unconditional_update = False
    counts_generations = True
    marks_on_delete = True

    def default(self, t: ApiResource, obj: dict[str, Any]) -> dict[str, Any]:
        """Apply defaults, such as names derived from the kind."""
        return crd_validation.defaulted(super().default(t, obj))

    def prepare_create(self, t: ApiResource, obj: dict[str, Any]) -> None:
        """Reset the status: no names are accepted yet."""
        super().prepare_create(t, obj)
        obj["status"] = {
            "conditions": None,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": _storage_versions(obj),
        }

    def prepare_update(self, t: ApiResource, new: dict[str, Any], old: Mapping[str, Any], subresource: str) -> None:
        """Record every storage version ever used."""
        super().prepare_update(t, new, old, subresource)
        if not subresource:
            state = new["status"] = dict(new.get("status") or {})
            stored = list(state.get("storedVersions") or ())
            state["storedVersions"] = stored + [name for name in _storage_versions(new) if name not in stored]

    def causes_on_create(self, t: ApiResource, obj: Mapping[str, Any]) -> list[Cause]:
        """Validate as every kind, and as a definition."""
        return super().causes_on_create(t, obj) + crd_validation.causes(obj)

    def causes_on_update(
        self, t: ApiResource, new: Mapping[str, Any], old: Mapping[str, Any], subresource: str
    ) -> list[Cause]:
        """Validate as every kind, and as a definition."""
        found = super().causes_on_update(t, new, old, subresource)
        return found if subresource else found + crd_validation.causes(new, old)

    def judge(self, obj: dict[str, Any], options: DeleteOptions, now: float) -> Verdict:
        """Mark the definition for deletion; its objects go first."""
        metadata = obj["metadata"]
        if metadata.get("deletionTimestamp"):
            return super().judge(obj, options, now)
        finalizers = list(metadata.get("finalizers") or ())
        if _FINALIZER not in finalizers:
            finalizers.append(_FINALIZER)
        message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
        set_condition(obj, "Terminating", "True", "InstanceDeletionPending", message, rfc3339(now))
        return Verdict(Fate.KEPT, {**metadata, "deletionTimestamp": rfc3339(now), "finalizers": finalizers})


def _storage_versions(obj: Mapping[str, Any]) -> list[str]:
    return [version["name"] for version in obj["spec"].get("versions") or () if version.get("storage")]


def set_condition(obj: Json, kind: str, state: str, reason: str, message: str, now: str) -> None:
    """Set a condition; its time changes only with its status."""
    conditions = list((obj.get("status") or {}).get("conditions") or ())
    before = next((one for one in conditions if one["type"] == kind), None)
    since = before["lastTransitionTime"] if before is not None and before["status"] == state else now
    condition = {"type": kind, "status": state, "lastTransitionTime": since, "reason": reason, "message": message}
    if before is None:
        conditions.append(condition)
    else:
        conditions[conditions.index(before)] = condition
    obj["status"] = {**(obj.get("status") or {}), "conditions": conditions}


class Definitions(ObjectController[str]):
    """Serves the resources that the stored definitions define."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(self._clean_up)
        self._registry = registry
        self._served: dict[str, list[ApiResource]] = {}
        """By definition."""
        self._ending: set[str] = set()
        """Definitions whose objects are being deleted. A definition is named after its resource."""
        registry.reactions[_CRDS] = self._written
        for record in registry.storage.records(_CRDS):
            self._written(record, gone=False)
        self._unobserve = registry.storage.observe(self._observe)

    def before_create(self, endpoint: Endpoint, namespace: str, obj: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Refuse new objects of a type in deletion."""
        if endpoint.type.custom and endpoint.resource in self._ending:
            name = (obj.get("metadata") or {}).get("name") or ""
            why = "create not allowed while custom resource definition is terminating"
            raise api_errors.forbidden(endpoint.type, name, why)

    def before_store(self, endpoint: Endpoint, namespace: str, obj: Mapping[str, Any]) -> None:
        """Do nothing."""

    @property
    def _endpoints(self) -> Endpoints:
        return self._registry.endpoints

    def _written(self, record: ObjectRecord, gone: bool) -> None:
        """React to a write at once; each step is another write, which calls this again."""
        if gone:
            self._ending.discard(record.name)
            self._served.pop(record.name, None)
            self._endpoints.remove(record.name)
            self._registry.storage.wake(record.name)
            return
        endpoint = self._endpoints.of_resource(_CRDS)
        if endpoint is None:
            return
        obj = endpoint.document(record)
        if record.deleting:
            self._ending.add(record.name)
            self.add(record.name)
        elif self._advance(obj):
            call = Call("update", "crd-controller")
            self._registry.store(endpoint, record, obj, call, subresource="status")
            return
        self._serve(record.name, obj)

    def _advance(self, obj: Json) -> bool:
        """Take the next step towards an established definition; False if there is none."""
        before = obj["status"]
        state = {one["type"]: one["status"] for one in before.get("conditions") or ()}
        now = rfc3339(self._registry.wall())
        names = obj["spec"]["names"]
        clash = self._clash(obj)
        if clash:
            set_condition(obj, "NamesAccepted", "False", *clash, now)
            if "Established" not in state:
                message = "not all names are accepted"
                set_condition(obj, "Established", "False", "NotAccepted", message, now)
        elif state.get("Established") == "True" or state.get("NamesAccepted") == "True":
            obj["status"] = {**obj["status"], "acceptedNames": _accepted(names)}
            message = "the initial names have been accepted"
            set_condition(obj, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now)
            set_condition(obj, "Established", "True", "InitialNamesAccepted", message, now)
        else:
            obj["status"] = {**obj["status"], "acceptedNames": _accepted(names)}
            message = "the initial names have been accepted"
            set_condition(obj, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now)
            set_condition(obj, "Established", "False", "Installing", message, now)
        return bool(obj["status"] != before)

    def _clash(self, obj: Json) -> tuple[str, str] | None:
        """Reason and message of a name that another definition of the group uses."""
        names, group = obj["spec"]["names"], obj["spec"]["group"]
        for name, types in self._served.items():
            for other in types:
                if name == obj["metadata"]["name"] or other.group != group:
                    continue
                taken = {
                    "plural": {other.plural, other.singular, *other.short_names},
                    "singular": {other.plural, other.singular, *other.short_names},
                    "shortNames": {other.plural, other.singular, *other.short_names},
                    "kind": {other.kind, other.list_kind},
                    "listKind": {other.kind, other.list_kind},
                }
                for field in _NAME_FIELDS:
                    value = names.get(field)
                    for wanted in value if isinstance(value, list) else [value]:
                        if wanted in taken[field]:
                            reason = f"{field[0].upper()}{field[1:]}Conflict"
                            return reason, f'"{wanted}" is already in use'
        return None

    def _serve(self, name: str, obj: Json) -> None:
        established = any(
            one["type"] == "Established" and one["status"] == "True" for one in obj["status"].get("conditions") or ()
        )
        types = crd_resources(obj) if established else []
        if types == self._served.get(name):
            return
        self._endpoints.remove(name)
        self._served[name] = types
        strategy = CustomStrategy()
        for t in types:
            self._endpoints.add(Endpoint(t, strategy))
        # Like the real server: stored objects are reread by the new schema, and watches end.
        endpoint = self._endpoints.of_resource(name)
        if endpoint is not None and endpoint.structural is not None:
            structural = endpoint.structural
            self._registry.storage.reread(name, lambda old: structural.default(structural.prune(old)[0]))
        self._registry.storage.wake(name)

    def _observe(self, change: Change) -> None:
        if change.new is None and change.record.resource in self._ending:
            self.add(change.record.resource)

    def _clean_up(self, name: str) -> None:
        registry = self._registry
        definitions = self._endpoints.of_resource(_CRDS)
        record = registry.storage.get(_CRDS, name)
        if definitions is None or record is None or not record.deleting or _FINALIZER not in record.finalizers:
            return
        call = Call("delete", "crd-finalizer")
        endpoint = self._endpoints.of_resource(name)
        for found in registry.storage.records(name) if endpoint is not None else ():
            if endpoint is not None and not found.deleting:
                registry.delete_record(endpoint, found, DeleteOptions(), call)
        left = bool(registry.storage.records(name))
        obj = definitions.document(record)
        now = rfc3339(registry.wall())
        message = "CustomResource deletion is in progress"
        set_condition(obj, "Terminating", "True", "InstanceDeletionInProgress", message, now)
        if obj["status"] != definitions.document(record)["status"]:
            record = registry.store(definitions, record, obj, call, subresource="status")
            obj = definitions.document(record)
        if not left:
            kept = [finalizer for finalizer in record.finalizers if finalizer != _FINALIZER]
            obj["metadata"]["finalizers"] = kept
            if not kept:
                del obj["metadata"]["finalizers"]
            registry.store(definitions, record, obj, call)


def _accepted(names: Mapping[str, Any]) -> dict[str, Any]:
    return {key: names[key] for key in (*_NAME_FIELDS, "categories") if names.get(key)}
