"""The representations of objects for clients: full objects, a Table, or only metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, cast

import orjson
import yaml

from frameworkcontroller.api import gojson
from frameworkcontroller.local.apiserver import api_errors, table
from frameworkcontroller.local.apiserver.api_errors import ApiStatusError
from frameworkcontroller.local.apiserver.endpoints import Endpoint
from frameworkcontroller.local.apiserver.object_records import Json, ObjectRecord
from frameworkcontroller.local.apiserver.table import IncludeObject

JSON: Final = "application/json"
YAML: Final = "application/yaml"
_OFFERED: Final = (JSON, YAML)
_META_GROUP: Final = "meta.k8s.io"


class Form(Enum):
    """The form of an answer's objects."""

    FULL = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"
    METADATA_LIST = "PartialObjectMetadataList"


@dataclass(frozen=True, slots=True)
class Representation:
    """The requested representation."""

    form: Form = Form.FULL
    media_type: str = JSON
    include: IncludeObject = "Metadata"
    """The part of its object in a Table's row."""

    def dump(self, document: Any) -> bytes:
        """Encode a document in the requested media type."""
        if self.media_type == YAML:
            return yaml.safe_dump(document, allow_unicode=True).encode()
        return gojson.encode_line(document)

    def encode(self, encoded: bytes) -> bytes:
        """Convert JSON to the requested media type."""
        return encoded + b"\n" if self.media_type == JSON else self.dump(orjson.loads(encoded))


def negotiate(accept: str, include: str = "") -> Representation:
    """The best view for an Accept header. Raises a 406 if there is none."""
    clauses = [_clause(text) for text in accept.split(",") if text.strip()] if accept else []
    if not clauses:
        return Representation()
    for _, media_type, parameters in sorted(clauses, key=lambda clause: -clause[0]):
        offered = _match(media_type)
        if offered is None:
            continue
        kind = parameters.get("as")
        if kind is None:
            return Representation(media_type=offered)
        if kind in {form.value for form in Form} and parameters.get("g") == _META_GROUP:
            if parameters.get("v") not in {"v1", "v1beta1"}:
                continue
            chosen = include if include in {"None", "Metadata", "Object"} else "Metadata"
            return Representation(Form(kind), offered, cast("IncludeObject", chosen))
    if any("as" in parameters for _, _, parameters in clauses):
        raise api_errors.not_acceptable([JSON, YAML, "application/vnd.kubernetes.protobuf"])
    raise ApiStatusError(406, "NotAcceptable", "406: Not Acceptable", {})


def _clause(text: str) -> tuple[float, str, dict[str, str]]:
    media_type, *parts = (part.strip() for part in text.split(";"))
    parameters = {key.strip(): value.strip() for key, _, value in (part.partition("=") for part in parts)}
    try:
        quality = float(parameters.pop("q", "1"))
    except ValueError:
        quality = 1.0
    return quality, media_type.lower(), parameters


def _match(media_type: str) -> str | None:
    if media_type in _OFFERED:
        return media_type
    return JSON if media_type in {"*/*", "application/*"} else None


def render_object(view: Representation, endpoint: Endpoint, record: ObjectRecord, now: float) -> bytes:
    """Render one object."""
    match view.form:
        case Form.FULL:
            return view.encode(endpoint.encode(record))
        case Form.METADATA:
            return view.dump(table.partial_object(endpoint.document(record)))
        case Form.METADATA_LIST:
            message = (
                "you requested PartialObjectMetadataList, but the requested object is not a list "
                f"(*core.{endpoint.type.kind})"
            )
            raise ApiStatusError(406, "NotAcceptable", message)
    document = endpoint.document(record)
    metadata = {"resourceVersion": document["metadata"].get("resourceVersion", "")}
    return view.dump(table.table(endpoint.type, [document], now=now, metadata=metadata, include_object=view.include))


def render_list(
    view: Representation, endpoint: Endpoint, records: Sequence[ObjectRecord], metadata: Mapping[str, Any], now: float
) -> bytes:
    """Render a list; ``metadata`` is the list's own."""
    if view.form is Form.TABLE:
        documents = map(endpoint.document, records)
        return view.dump(table.table(endpoint.type, documents, now=now, metadata=metadata, include_object=view.include))
    if view.form is not Form.FULL:
        return view.dump(table.partial_object_list(map(endpoint.document, records), metadata))
    t = endpoint.type
    head = gojson.encode({"kind": t.list_kind, "apiVersion": t.group_version, "metadata": metadata})
    return view.encode(head[:-1] + b',"items":[' + b",".join(map(endpoint.item, records)) + b"]}")


def event_encoder(
    view: Representation, endpoint: Endpoint, wall: Callable[[], float]
) -> Callable[[bytes, ObjectRecord], bytes]:
    """The encoder of a watch: from event type and object to a line of JSON."""
    match view.form:
        case Form.FULL:
            # The hot path of every informer: copies the cached text.
            return lambda kind, record: b'{"type":"%s","object":%s}\n' % (kind, endpoint.encode(record))
        case Form.TABLE:
            return _table_encoder(view, endpoint, wall)

    def metadata_alone(kind: bytes, record: ObjectRecord) -> bytes:
        partial = gojson.encode(table.partial_object(endpoint.document(record)))
        return b'{"type":"%s","object":%s}\n' % (kind, partial)

    return metadata_alone


def _table_encoder(
    view: Representation, endpoint: Endpoint, wall: Callable[[], float]
) -> Callable[[bytes, ObjectRecord], bytes]:
    headers = True

    def one_row(kind: bytes, record: ObjectRecord) -> bytes:
        nonlocal headers
        document = endpoint.document(record)
        rows = table.table(
            endpoint.type,
            [document],
            now=wall(),
            metadata={"resourceVersion": str(record.revision)},
            include_object=view.include,
            headers=headers,
        )
        headers = False
        return b'{"type":"%s","object":%s}\n' % (kind, gojson.encode(rows))

    return one_row


def bookmark(view: Representation, endpoint: Endpoint, revision: int, *, initial_end: bool = False) -> bytes:
    """A BOOKMARK event; ``initial_end`` marks the end of the initial state."""
    metadata: Json = {"resourceVersion": str(revision), "creationTimestamp": None}
    if initial_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    t = endpoint.type
    obj: Json
    if view.form is Form.TABLE:
        obj = {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": str(revision)},
            "columnDefinitions": None,
            "rows": [],
        }
    elif view.form is Form.FULL:
        obj = {"kind": t.kind, "apiVersion": t.group_version, "metadata": metadata}
    else:
        obj = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
    return b'{"type":"BOOKMARK","object":%s}\n' % gojson.encode(obj)
