"""Decodes request bodies into objects, for built-in kinds and custom resources."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from frameworkcontroller.local.apiserver import api_errors, builtin_defaults, builtin_types, decoding, object_meta
from frameworkcontroller.local.apiserver import builtin_validation as validation
from frameworkcontroller.local.apiserver.api_errors import ApiStatusError
from frameworkcontroller.local.apiserver.api_resources import ApiResource
from frameworkcontroller.local.apiserver.builtin_resources import BUILTIN_RESOURCES
from frameworkcontroller.local.apiserver.decoding import DecodeError
from frameworkcontroller.local.apiserver.field_path import FieldPath, show
from frameworkcontroller.local.apiserver.patches import json_fault, json_type
from frameworkcontroller.local.apiserver.schema import Structural
from frameworkcontroller.local.apiserver.schema_types import resource_type
from frameworkcontroller.local.apiserver.status_causes import Cause, invalid
from frameworkcontroller.local.apiserver.typegraph import Type

FieldValidation = Literal["Ignore", "Warn", "Strict"]
"""The ``fieldValidation`` of a request (a request without one means Warn)."""

_SCHEME = "k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"
_HEADER = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded object: with correct types, without unknown fields."""

    obj: dict[str, Any]
    warnings: tuple[str, ...] = ()
    """For ``Warning: 299 - "..."`` headers."""


def type_of(t: ApiResource) -> Type:
    """The type of a built-in kind, or of a custom resource by its schema."""
    return builtin_types.builtin_type(t) if t.schema is None else resource_type(t.schema)


def decode(
    t: ApiResource,
    obj: Any,
    *,
    validation: FieldValidation = "Warn",
    structural: Structural | None = None,
    raw: bytes | None = None,
) -> Decoded:
    """Decode a parsed body as an object of ``t``: fill in kind and apiVersion, drop unknown fields.

    ``structural`` is a custom resource's compiled schema. ``raw``, the JSON text, is checked for duplicate fields.
    Raises StatusError 400 for wrong types and, under Strict, for unknown and duplicate fields; 422 for a custom
    resource of another kind. The result's top level and metadata are new objects; deeper parts may be shared with the
    body.
    """
    if obj is not None and not isinstance(obj, dict):
        raise _unrecognized(t, _text(obj, raw), _not_unmarshalled(obj, f"Go value of type {_HEADER}"))
    body = obj or {}
    for field in ("apiVersion", "kind"):
        if body.get(field) is not None and not isinstance(body[field], str):
            why = _not_unmarshalled(body[field], f"Go struct field .{field} of type string")
            raise _unrecognized(t, _text(obj, raw), why)
    unknown: list[str]
    try:
        if t.schema is None:
            decoded, unknown = _decode_builtin(t, body)
        else:
            if not body.get("kind"):
                text = _text(obj, raw)
                why = f"Object 'Kind' is missing in '{text.decode('utf-8', 'replace')}'"
                raise _unrecognized(t, text, why, parsed=True)
            decoded, unknown = _decode_custom(t, body, structural or Structural(t.schema))
    except DecodeError as error:
        raise cannot_be_handled(t, body, str(error)) from None
    if validation == "Ignore":
        return Decoded(decoded)
    # A text as long as the re-encoded object has no duplicates: the usual case for programs.
    doubtful = raw is not None and len(raw) != len(orjson.dumps(obj))
    faults = [f'duplicate field "{path}"' for path in duplicate_fields(raw or b"")] if doubtful else []
    faults += [f'unknown field "{path}"' for path in unknown]
    if faults and validation == "Strict":
        raise cannot_be_handled(t, body, f"strict decoding error: {', '.join(faults)}")
    return Decoded(decoded, tuple(faults))


def _decode_builtin(t: ApiResource, body: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    kind, version = body.get("kind") or t.kind, body.get("apiVersion") or t.group_version
    if (kind, version) != (t.kind, t.group_version):
        if any((other.kind, other.group_version) == (kind, version) for other in BUILTIN_RESOURCES):
            raise DecodeError(f"converting (v1.{kind}) to (v1.{t.kind}): unknown conversion")
        raise DecodeError(f'no kind "{kind}" is registered for version "{version}" in scheme "{_SCHEME}"')
    places: list[FieldPath] = []
    decoded = decoding.decode_object(body, builtin_types.builtin_type(t), places)
    decoded = {"kind": kind, "apiVersion": version, "metadata": {}, **decoded}
    return decoded, [show(place) for place in places]


def _text(obj: Any, raw: bytes | None) -> bytes:
    """The body's text, as received or re-encoded."""
    return orjson.dumps(obj) if raw is None else raw


def _decode_custom(t: ApiResource, body: Mapping[str, Any], structural: Structural) -> tuple[dict[str, Any], list[str]]:
    kind, version = body["kind"], body.get("apiVersion") or ""
    metadata = body.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise DecodeError(_not_unmarshalled(metadata, "Go value of type v1.ObjectMeta"))
    places: list[FieldPath] = []
    meta = decoding.decode_object(metadata or {}, builtin_types.object_meta(), places)
    pruned, unknown = structural.prune({**body, "metadata": meta})
    if version != t.group_version:
        raise api_errors.bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({t.group_version})"
        )
    if kind != t.kind:
        cause = invalid("kind", kind, f"must be {t.kind}")
        raise api_errors.invalid_kind(kind, t.group, meta.get("name") or "", [cause])
    decoded = pruned if pruned is not body else dict(body)
    return decoded, [f"metadata.{show(place)}" for place in places] + unknown


def cannot_be_handled(t: ApiResource, body: Mapping[str, Any], why: str) -> ApiStatusError:
    """400: the body cannot be decoded as an object of ``t``."""
    kind, version = body.get("kind") or t.kind, body.get("apiVersion") or t.group_version
    return api_errors.bad_request(
        f'{kind} in version "{version.rpartition("/")[2]}" cannot be handled as a {t.kind}: {why}'
    )


def unparsable(t: ApiResource, raw: bytes, error: orjson.JSONDecodeError) -> ApiStatusError:
    """400: the body is not JSON."""
    return _unrecognized(t, raw, json_fault(raw, error))


def _unrecognized(t: ApiResource, raw: bytes, why: str, *, parsed: bool = False) -> ApiStatusError:
    cause = why if parsed else f"couldn't get version/kind; json parse error: {why}"
    return api_errors.bad_request(
        f"the object provided is unrecognized (must be of type {t.kind}): {cause} ({_start(raw)})"
    )


def _start(raw: bytes, limit: int = 30) -> str:
    """The beginning of a body, as the real server quotes it."""
    if not raw:
        return "<empty>"
    start = raw[:limit].decode("utf-8", "replace") if raw.startswith(b"{") else raw[:limit].hex()
    return f"{start} ..." if len(raw) > limit else start


def _not_unmarshalled(value: Any, into: str) -> str:
    return f"json: cannot unmarshal {json_type(value)} into {into}"


def duplicate_fields(raw: bytes) -> list[str]:
    """The paths of duplicate fields in a JSON text (none if it is empty or not JSON)."""
    found = False

    def look(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal found
        members = dict(pairs)
        found = found or len(members) != len(pairs)
        return members

    if not raw:
        return []
    try:
        json.loads(raw, object_pairs_hook=look)
        if not found:
            return []
        paths: list[str] = []
        _collect_duplicates(json.loads(raw, object_pairs_hook=_Pairs), None, paths)
    except ValueError:
        return []
    return paths


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with all members, including duplicates."""


def _collect_duplicates(value: Any, where: FieldPath, paths: list[str]) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, member in value:
            place = (where, key)
            path = show(place)
            if key in seen and path not in paths:
                paths.append(path)
            seen.add(key)
            _collect_duplicates(member, place, paths)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _collect_duplicates(item, (where, index), paths)


def default(t: ApiResource, obj: Mapping[str, Any]) -> dict[str, Any]:
    """Apply the defaults of a built-in kind (for custom resources see ``Structural.default``)."""
    return builtin_defaults.default(t, obj)


def causes_on_create(t: ApiResource, obj: Mapping[str, Any]) -> list[Cause]:
    """Validate a new, defaulted object of a built-in kind, or the metadata of a custom resource."""
    return object_meta.causes_on_create(t, obj) + validation.causes_on_create(t, obj)


def causes_on_update(t: ApiResource, new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
    """Validate ``new`` in place of ``old``: as on create, plus immutable fields."""
    return object_meta.causes_on_update(t, new, old) + validation.causes_on_update(t, new, old)
