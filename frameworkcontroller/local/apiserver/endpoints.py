"""Which resources are served, in which versions, and what handles each. CustomResourceDefinitions come and go in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from frameworkcontroller.local.apiserver import api_errors, builtin, status_causes
from frameworkcontroller.local.apiserver.api_errors import StatusError
from frameworkcontroller.local.apiserver.api_resources import ApiResource
from frameworkcontroller.local.apiserver.builtin import Decoded, FieldValidation
from frameworkcontroller.local.apiserver.records import Json, Record
from frameworkcontroller.local.apiserver.schema import Structural
from frameworkcontroller.local.apiserver.status_causes import Cause
from frameworkcontroller.local.apiserver.strategy import Strategy
from frameworkcontroller.local.apiserver.typegraph import Type


class Endpoint:
    """A resource in one of its versions."""

    def __init__(self, t: ApiResource, strategy: Strategy) -> None:
        self.type = t
        self.strategy = strategy
        self.resource = t.resource
        """Under this name the store keeps it, whatever the version."""
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
        """Whether a refused field selector is answered with the two that every built-in type has."""
        return not self.type.custom and not self.strategy.field_labels

    @property
    def field_labels(self) -> tuple[str, ...]:
        """What field selectors may ask for besides name and namespace."""
        return self.strategy.field_labels

    def key(self, namespace: str, name: str) -> str:
        """The key of an object in the store."""
        return f"{namespace}/{name}" if self.type.namespaced else name

    def encode(self, record: Record) -> bytes:
        """The object in this version, as JSON."""
        return self._head + record.body[1:]

    def item(self, record: Record) -> bytes:
        """The object as an item of a list: as in the real server, built-in kinds name themselves in the list alone."""
        return self.encode(record) if self.type.custom else record.body

    def document(self, record: Record) -> Json:
        """A private copy of the object, in this version."""
        return {"apiVersion": self.type.group_version, "kind": self.type.kind, **record.document()}

    def decode(self, parsed: Any, validation: FieldValidation, raw: bytes | None = None) -> Decoded:
        """What a request's body says, checked for its form."""
        return builtin.decode(self.type, parsed, validation=validation, structural=self.structural, raw=raw)

    def decode_patched(self, patched: Any, validation: FieldValidation) -> Decoded:
        """What a patch made of an object, checked for its form; where that is wrong, the patch is (422)."""
        try:
            return self.decode(patched, validation)
        except StatusError as error:
            if error.code != 400 or validation == "Strict":
                raise
            shown = patched if isinstance(patched, str) else orjson.dumps(patched).decode()
            raise api_errors.invalid_patch([status_causes.invalid("patch", shown, error.message)]) from None

    def default(self, obj: Json) -> Json:
        """``obj`` with its type's defaults."""
        if self.structural is None:
            return self.strategy.default(self.type, obj)
        defaulted: Json = self.structural.default(obj)
        return defaulted

    def schema_causes(self, obj: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> list[Cause]:
        """What a custom resource's schema finds wrong."""
        return self.structural.validate(obj, old) if self.structural is not None else []


class Endpoints:
    """Every endpoint, by what requests name it."""

    def __init__(self, endpoints: Iterable[Endpoint] = ()) -> None:
        self._endpoints: dict[tuple[str, str, str], Endpoint] = {}
        self._kinds: dict[tuple[str, str], Endpoint] = {}
        self._types: tuple[ApiResource, ...] | None = None
        for endpoint in endpoints:
            self.add(endpoint)

    def add(self, endpoint: Endpoint) -> None:
        """Serves ``endpoint``, in place of an earlier one of the same group, version and plural."""
        t = endpoint.type
        self._endpoints[t.group, t.version, t.plural] = endpoint
        self._kinds[t.group_version, t.kind] = endpoint
        self._types = None

    def remove(self, resource: str) -> None:
        """Serves no version of ``resource`` any more."""
        self._endpoints = {key: found for key, found in self._endpoints.items() if found.resource != resource}
        self._kinds = {key: found for key, found in self._kinds.items() if found.resource != resource}
        self._types = None

    def find(self, group: str, version: str, plural: str) -> Endpoint | None:
        """The endpoint that a path names."""
        return self._endpoints.get((group, version, plural))

    def of_kind(self, api_version: str, kind: str) -> Endpoint | None:
        """The endpoint whose objects carry these names."""
        return self._kinds.get((api_version, kind))

    def of_resource(self, resource: str) -> Endpoint | None:
        """The endpoint of the first version of a resource, as the store names it."""
        return next((endpoint for endpoint in self._endpoints.values() if endpoint.resource == resource), None)

    def kinds_of(self, resource: str) -> frozenset[tuple[str, str]]:
        """The apiVersion and kind by which references name objects of a resource, for each of its versions."""
        return frozenset(names for names, endpoint in self._kinds.items() if endpoint.resource == resource)

    def has_builtin(self, group: str, version: str) -> bool:
        """Whether there is a built-in resource under ``/apis/GROUP/VERSION``."""
        return any(t.group == group and t.version == version and not t.custom for t in self.types)

    def resources(self) -> list[Endpoint]:
        """One endpoint of each resource."""
        return list({endpoint.resource: endpoint for endpoint in self._endpoints.values()}.values())

    @property
    def types(self) -> tuple[ApiResource, ...]:
        """Everything served, in order; the same tuple as long as nothing changes."""
        if self._types is None:
            self._types = tuple(endpoint.type for endpoint in self._endpoints.values())
        return self._types
