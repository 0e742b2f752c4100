"""Creates, changes and deletes objects, with the steps common to all resources.

Nothing here awaits: a read-modify-write is a transaction, so a patch without a resourceVersion never conflicts (the
real server retries instead).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from frameworkcontroller.local.apiserver import api_errors, apply
from frameworkcontroller.local.apiserver.api_errors import ApiStatusError
from frameworkcontroller.local.apiserver.api_resources import ApiResource
from frameworkcontroller.local.apiserver.deletion import DeleteOptions, Fate
from frameworkcontroller.local.apiserver.endpoints import Endpoint, Endpoints
from frameworkcontroller.local.apiserver.metadata import Identities, begin, carry_over, rfc3339
from frameworkcontroller.local.apiserver.object_records import Json, ObjectRecord, Origin, make_record
from frameworkcontroller.local.apiserver.options import Call
from frameworkcontroller.local.apiserver.status_causes import Cause
from frameworkcontroller.local.apiserver.storage import ObjectStorage, ObjectTooLargeError

_NAME_ATTEMPTS: Final = 8


class Admission(Protocol):
    """An admission rule for creations that depends on other objects."""

    def before_create(self, endpoint: Endpoint, namespace: str, obj: Mapping[str, Any]) -> None:
        """Raise StatusError to refuse an object before it is validated."""

    def before_store(self, endpoint: Endpoint, namespace: str, obj: Mapping[str, Any]) -> None:
        """Raise StatusError to refuse a valid object."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """The outcome of a DELETE."""

    record: ObjectRecord
    """The object's current or last version."""
    gone: bool


class Registry:
    """The objects of one cluster, with the rules of their types."""

    def __init__(
        self, storage: ObjectStorage, endpoints: Endpoints, wall: Callable[[], float], identities: Identities
    ) -> None:
        """``wall`` is the time of day in epoch seconds."""
        self.storage = storage
        self.endpoints = endpoints
        self.wall = wall
        self.identities = identities
        self.admission: list[Admission] = []
        self.reactions: dict[str, Callable[[ObjectRecord, bool], None]] = {}
        """By resource: callbacks with the written record, and whether it was deleted, before the request is answered.
        """

    def get(self, endpoint: Endpoint, namespace: str, name: str) -> ObjectRecord:
        """Get the object. Raises a 404."""
        record = self.storage.get(endpoint.resource, endpoint.key(namespace, name))
        if record is None:
            raise api_errors.not_found(endpoint.type, name)
        return record

    def create(
        self, endpoint: Endpoint, namespace: str, parsed: Any, call: Call, *, raw: bytes | None = None
    ) -> ObjectRecord:
        """Create the object in a request's body."""
        decoded = endpoint.decode(parsed, call.validation, raw)
        call.warnings.extend(decoded.warnings)
        return self.create_decoded(endpoint, namespace, decoded.obj, call)

    def create_decoded(
        self, endpoint: Endpoint, namespace: str, obj: Json, call: Call, *, applied: bool = False
    ) -> ObjectRecord:
        """Create a decoded object; ``applied``: its managedFields are already set."""
        t = endpoint.type
        given = obj.setdefault("metadata", {})
        if t.namespaced and given.get("namespace") not in {None, "", namespace}:
            raise api_errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        for rule in self.admission:
            rule.before_create(endpoint, namespace, obj)
        versioned = bool(given.get("resourceVersion"))
        generated = not given.get("name") and bool(given.get("generateName"))
        obj = endpoint.default(obj)
        now = self.wall()
        begin(obj, namespace if t.namespaced else "", self.identities.uid(), now, self.identities.name)
        endpoint.strategy.prepare_create(t, obj)
        if not applied:
            obj = self._managed(endpoint, None, obj, call, "")
        name = obj["metadata"].get("name") or ""
        found = endpoint.strategy.causes_on_create(t, obj) + endpoint.schema_causes(obj)
        if found:
            raise api_errors.invalid(t, name, found)
        for rule in self.admission:
            rule.before_store(endpoint, namespace, obj)
        if versioned:
            raise ApiStatusError(500, "", "resourceVersion should not be set on objects to be created")
        return self._store_new(endpoint, namespace, obj, call, generated)

    def _store_new(self, endpoint: Endpoint, namespace: str, obj: Json, call: Call, generated: bool) -> ObjectRecord:
        t, metadata = endpoint.type, obj["metadata"]
        for _ in range(_NAME_ATTEMPTS):
            key = endpoint.key(namespace, metadata["name"])
            present = self.storage.get(endpoint.resource, key)
            if present is None:
                fields = endpoint.strategy.fields(obj)
                if call.dry_run:
                    return make_record(endpoint.resource, key, 0, obj, fields)
                try:
                    record = self.storage.create(endpoint.resource, key, obj, _origin(call), fields)
                except ObjectTooLargeError:
                    raise _too_large() from None
                self._react(record, gone=False)
                return record
            if not generated:
                raise api_errors.already_exists(t, metadata["name"], deleting=present.deleting)
            metadata["name"] = self.identities.name(metadata["generateName"])
        raise api_errors.generate_name_exhausted(t, metadata["name"])

    def replace(
        self,
        endpoint: Endpoint,
        namespace: str,
        name: str,
        parsed: Any,
        call: Call,
        *,
        raw: bytes | None = None,
        subresource: str = "",
    ) -> tuple[ObjectRecord, bool]:
        """Handle a PUT; also return whether it created the object."""
        decoded = endpoint.decode(parsed, call.validation, raw)
        call.warnings.extend(decoded.warnings)
        new = decoded.obj
        check_names(endpoint.type, namespace, name, new)
        record = self.storage.get(endpoint.resource, endpoint.key(namespace, name))
        uid = new["metadata"].get("uid")
        if record is None:
            if not endpoint.strategy.create_on_update or subresource:
                raise api_errors.not_found(endpoint.type, name)
            new["metadata"].pop("resourceVersion", None)
            return self.create_decoded(endpoint, namespace, new, call), True
        if uid and uid != record.uid:
            raise _other_uid(endpoint, uid, record)
        if not new["metadata"].get("resourceVersion") and not endpoint.strategy.unconditional_update:
            # The real server names the resource here instead of the kind.
            named = replace(endpoint.type, kind=endpoint.type.plural)
            cause = Cause("FieldValueInvalid", "Invalid value: 0: must be specified for an update", _VERSION_PATH)
            raise api_errors.invalid(named, name, [cause])
        return self.write(endpoint, record, new, call, subresource=subresource), False

    def write(
        self,
        endpoint: Endpoint,
        record: ObjectRecord,
        new: Json,
        call: Call,
        *,
        subresource: str = "",
        applied: bool = False,
    ) -> ObjectRecord:
        """Replace ``record`` by ``new``, through ``subresource`` if given.

        A resourceVersion in ``new`` must be the record's. Without a difference, nothing is written.
        """
        t = endpoint.type
        version = new["metadata"].get("resourceVersion")
        if version and version != str(record.revision):
            raise api_errors.conflict(t, record.name)
        old = endpoint.document(record)
        new = endpoint.default(new)
        carry_over(new, old)
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        endpoint.strategy.prepare_update(t, new, old, subresource)
        if not applied:
            new = self._managed(endpoint, old, new, call, subresource)
        found = endpoint.strategy.causes_on_update(t, new, old, subresource) + endpoint.schema_causes(new, old)
        if found:
            raise api_errors.invalid(t, record.name, found)
        if new == old:
            return record
        return self.store(endpoint, record, new, call, subresource=subresource)

    def store(
        self, endpoint: Endpoint, record: ObjectRecord, new: Json, call: Call, *, subresource: str = ""
    ) -> ObjectRecord:
        """Write the valid object ``new`` in place of ``record``.

        An object in deletion is removed with its last finalizer; the answer is then its would-be next version.
        """
        fields = endpoint.strategy.fields(new)
        gone = record.deleting and endpoint.strategy.released(new, record.document())
        if call.dry_run or gone:
            after = make_record(record.resource, record.key, record.revision, new, fields)
            if gone and not call.dry_run:
                self._react(self.storage.delete(record, _origin(call, subresource)), gone=True)
            return after
        try:
            after = self.storage.update(record, new, _origin(call, subresource), fields)
        except ObjectTooLargeError:
            raise _too_large() from None
        self._react(after, gone=False)
        return after

    def delete(self, endpoint: Endpoint, namespace: str, name: str, options: DeleteOptions, call: Call) -> Deleted:
        """Handle a DELETE of one object."""
        record = self.get(endpoint, namespace, name)
        if name in endpoint.strategy.reserved_names:
            raise api_errors.forbidden(endpoint.type, name, f"this {endpoint.type.singular} may not be deleted")
        return self.delete_record(endpoint, record, options, call)

    def delete_record(self, endpoint: Endpoint, record: ObjectRecord, options: DeleteOptions, call: Call) -> Deleted:
        """Handle a DELETE of the object whose current version is ``record``."""
        t = endpoint.type
        if options.uid is not None and options.uid != record.uid:
            refuse = api_errors.uid_mismatch if endpoint.strategy.marks_on_delete else api_errors.delete_uid_mismatch
            raise refuse(t, record.name, options.uid, record.uid)
        if options.resource_version is not None and options.resource_version != str(record.revision):
            raise api_errors.delete_version_mismatch(t, record.name, options.resource_version, str(record.revision))
        obj = endpoint.document(record)
        verdict = endpoint.strategy.judge(obj, options, self.wall())
        origin = _origin(call)
        if verdict.metadata is not None:
            obj["metadata"] = verdict.metadata
            fields = endpoint.strategy.fields(obj)
            if call.dry_run:
                record = make_record(record.resource, record.key, record.revision, obj, fields)
            else:
                record = self.storage.update(record, obj, origin, fields)
                self._react(record, gone=False)
        gone = verdict.fate is Fate.REMOVED
        if gone and not call.dry_run:
            self._react(self.storage.delete(record, origin), gone=True)
        return Deleted(record, gone)

    def _managed(self, endpoint: Endpoint, old: Json | None, new: Json, call: Call, subresource: str) -> Json:
        tracked = old is not None and bool(old["metadata"].get("managedFields"))
        if not tracked and not call.explicit_manager:
            # This object's fields are not tracked: tracking costs as much as the write itself.
            new["metadata"].pop("managedFields", None)
            return new
        return apply.update_managers(
            old,
            new,
            of=endpoint.shape,
            manager=call.manager,
            now=rfc3339(self.wall()),
            explicit=call.explicit_manager,
            subresource=subresource,
        )

    def _react(self, record: ObjectRecord, *, gone: bool) -> None:
        reaction = self.reactions.get(record.resource)
        if reaction is not None:
            reaction(record, gone)


_VERSION_PATH: Final = "metadata.resourceVersion"


def check_names(t: ApiResource, namespace: str, name: str, obj: Mapping[str, Any]) -> None:
    """Refuse an object that differs from its URL; a missing namespace is taken from there."""
    metadata = obj.get("metadata") or {}
    given = metadata.get("name")
    if not given:
        raise api_errors.bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )
    if given != name:
        raise api_errors.bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")
    given = metadata.get("namespace")
    if t.namespaced and given and given != namespace:
        raise api_errors.bad_request(
            f"the namespace of the object ({given}) does not match the namespace on the request ({namespace})"
        )


def _other_uid(endpoint: Endpoint, uid: str, record: ObjectRecord) -> ApiStatusError:
    t = endpoint.type
    where = f"/registry/{t.group}/{t.plural}/" if t.custom else f"/registry/{t.plural}/"
    return api_errors.conflict(
        t,
        record.name,
        f"StorageError: invalid object, Code: 4, Key: {where}{record.key}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {uid}, UID in object meta: {record.uid}",
    )


def _too_large() -> ApiStatusError:
    # The real server passes etcd's error on as a 500.
    return ApiStatusError(500, "", "etcdserver: request is too large")


def _origin(call: Call, subresource: str = "") -> Origin:
    return Origin(call.verb, subresource, call.agent)
