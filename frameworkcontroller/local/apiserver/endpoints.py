"""The served resources with their versions and handlers. CustomResourceDefinitions add and remove entries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from frameworkcontroller.local.apiserver import api_errors, builtin, status_causes
from frameworkcontroller.local.apiserver.api_errors import ApiStatusError
from frameworkcontroller.local.apiserver.api_resources import ApiResource
from frameworkcontroller.local.apiserver.builtin import Decoded, FieldValidation
from frameworkcontroller.local.apiserver.object_records import Json, ObjectRecord
from frameworkcontroller.local.apiserver.schema import Structural
from frameworkcontroller.local.apiserver.status_causes import Cause
from frameworkcontroller.local.apiserver.strategy import Strategy
from frameworkcontroller.local.apiserver.typegraph import Type


class Endpoint:
    """A resource in one version."""

    def __init__(self, t: ApiResource, strategy: Strategy) -> None:
        self.type = t
        self.strategy = strategy
        self.resource = t.resource
        """The resource's name in the store, for all versions."""
        self.structural = Structural(t.schema) if t.schema is not None else None
        names = (
            {"apiVersion": t.group_version, "kind": t.kind}
            if t.custom
            else {"kind": t.kind, "apiVersion": t.group_version}
        )
        self._head = orjson.dumps(names)[:-1] + b","

    @property
    def shape(self) -> Type:
        """The type of its objects."""
        return self.structural.type if self.structural is not None else builtin.type_of(self.type)

    @property
    def standard_labels_only(self) -> bool:
        """Whether an error for an unknown field selector lists only the standard labels."""
        return not self.type.custom and not self.strategy.field_labels

    @property
    def field_labels(self) -> tuple[str, ...]:
        """The field selectors besides name and namespace."""
        return self.strategy.field_labels

    def key(self, namespace: str, name: str) -> str:
        """The key of an object in the store."""
        return f"{namespace}/{name}" if self.type.namespaced else name

    def encode(self, record: ObjectRecord) -> bytes:
        """The object in this version, as JSON."""
        return self._head + record.body[1:]

    def item(self, record: ObjectRecord) -> bytes:
        """Encode an item of a list: as in the real server, items of built-in kinds have no kind."""
        return self.encode(record) if self.type.custom else record.body

    def document(self, record: ObjectRecord) -> Json:
        """A private copy of the object, in this version."""
        return {"apiVersion": self.type.group_version, "kind": self.type.kind, **record.document()}

    def decode(self, parsed: Any, validation: FieldValidation, raw: bytes | None = None) -> Decoded:
        """Decode and check a request's body."""
        return builtin.decode(self.type, parsed, validation=validation, structural=self.structural, raw=raw)

    def decode_patched(self, patched: Any, validation: FieldValidation) -> Decoded:
        """Decode and check a patched object; a fault is reported as the patch's (422)."""
        try:
            return self.decode(patched, validation)
        except ApiStatusError as error:
            if error.code != 400 or validation == "Strict":
                raise
            shown = patched if isinstance(patched, str) else orjson.dumps(patched).decode()
            raise api_errors.invalid_patch([status_causes.invalid("patch", shown, error.message)]) from None

    def default(self, obj: Json) -> Json:
        """Apply the type's defaults."""
        if self.structural is None:
            return self.strategy.default(self.type, obj)
        defaulted: Json = self.structural.default(obj)
        return defaulted

    def schema_causes(self, obj: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> list[Cause]:
        """Validate a custom resource by its schema."""
        return self.structural.validate(obj, old) if self.structural is not None else []


class Endpoints:
    """All endpoints, by path, kind and resource."""

    def __init__(self, endpoints: Iterable[Endpoint] = ()) -> None:
        self._endpoints: dict[tuple[str, str, str], Endpoint] = {}
        self._kinds: dict[tuple[str, str], Endpoint] = {}
        self._types: tuple[ApiResource, ...] | None = None
        for endpoint in endpoints:
            self.add(endpoint)

    def add(self, endpoint: Endpoint) -> None:
        """Serve ``endpoint``, replacing one of the same group, version and plural."""
        t = endpoint.type
        self._endpoints[t.group, t.version, t.plural] = endpoint
        self._kinds[t.group_version, t.kind] = endpoint
        self._types = None

    def remove(self, resource: str) -> None:
        """Stop serving all versions of ``resource``."""
        self._endpoints = {key: found for key, found in self._endpoints.items() if found.resource != resource}
        self._kinds = {key: found for key, found in self._kinds.items() if found.resource != resource}
        self._types = None

    def find(self, group: str, version: str, plural: str) -> Endpoint | None:
        """The endpoint for a path."""
        return self._endpoints.get((group, version, plural))

    def of_kind(self, api_version: str, kind: str) -> Endpoint | None:
        """The endpoint for objects of a kind."""
        return self._kinds.get((api_version, kind))

    def of_resource(self, resource: str) -> Endpoint | None:
        """The endpoint of the first version of a resource, by its name in the store."""
        return next((endpoint for endpoint in self._endpoints.values() if endpoint.resource == resource), None)

    def kinds_of(self, resource: str) -> frozenset[tuple[str, str]]:
        """The apiVersion and kind of a resource in references, for each of its versions."""
        return frozenset(names for names, endpoint in self._kinds.items() if endpoint.resource == resource)

    def has_builtin(self, group: str, version: str) -> bool:
        """Whether there is a built-in resource under ``/apis/GROUP/VERSION``."""
        return any(t.group == group and t.version == version and not t.custom for t in self.types)

    def resources(self) -> list[Endpoint]:
        """One endpoint of each resource."""
        return list({endpoint.resource: endpoint for endpoint in self._endpoints.values()}.values())

    @property
    def types(self) -> tuple[ApiResource, ...]:
        """All served resources, in order; the same tuple until something changes."""
        if self._types is None:
            self._types = tuple(endpoint.type for endpoint in self._endpoints.values())
        return self._types
