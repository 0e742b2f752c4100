"""``meta.k8s.io/v1`` Table, for ``kubectl get``, and PartialObjectMetadata, for metadata clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal

import orjson

from frameworkcontroller.local.apiserver.ages import age, duration, epoch
from frameworkcontroller.local.apiserver.api_resources import ApiResource, PrinterColumn
from frameworkcontroller.local.apiserver.builtin_columns import BUILTIN_COLUMNS, Columns, TableColumn
from frameworkcontroller.local.apiserver.jsonpath import JsonPath

IncludeObject = Literal["None", "Metadata", "Object"]

_META = "meta.k8s.io/v1"
_NAME = TableColumn("Name", "string", "Name of the object.", format="name")
_AGE = TableColumn("Age", "date", "Time since the object was created.")
_ABSENT = object()


def table(
    t: ApiResource,
    objects: Iterable[Mapping[str, Any]],
    *,
    now: float,
    metadata: Mapping[str, Any] | None = None,
    include_object: IncludeObject = "Metadata",
    headers: bool = True,
) -> dict[str, Any]:
    """``objects`` as a Table at the wall time ``now`` (epoch seconds, for ages).

    ``metadata`` is the list's own (resourceVersion, continue), or a single object's resourceVersion. ``headers`` is
    true only for the first event of a watch: column definitions are sent once.
    """
    columns = columns_of(t)
    rows = []
    for obj in objects:
        row: dict[str, Any] = {"cells": columns.cells(obj, now)}
        conditions = columns.conditions(obj)
        if conditions:
            row["conditions"] = conditions
        row["object"] = _included(obj, include_object)
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": _META,
        "metadata": dict(metadata or {}),
        "columnDefinitions": [column.body() for column in columns.definitions] if headers else None,
        "rows": rows,
    }


def _included(obj: Mapping[str, Any], include_object: IncludeObject) -> dict[str, Any] | None:
    if include_object == "None":
        return None
    return partial_object(obj) if include_object == "Metadata" else dict(obj)


def partial_object(obj: Mapping[str, Any]) -> dict[str, Any]:
    """``obj`` as a PartialObjectMetadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": obj.get("metadata") or {}}


def partial_object_list(objects: Iterable[Mapping[str, Any]], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """``objects`` as a PartialObjectMetadataList."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": _META,
        "metadata": dict(metadata),
        "items": [partial_object(obj) for obj in objects],
    }


def columns_of(t: ApiResource) -> Columns:
    """The columns of ``t``."""
    if not t.custom:
        return BUILTIN_COLUMNS.get(t.kind, _PLAIN)
    return _custom_columns(t.printer_columns) if t.printer_columns else _PLAIN


def _name(obj: Mapping[str, Any]) -> str:
    return (obj.get("metadata") or {}).get("name") or ""


_PLAIN = Columns(
    (_NAME, _AGE),
    lambda obj, now: [_name(obj), age((obj.get("metadata") or {}).get("creationTimestamp"), now)],
)
"""The default columns."""


@lru_cache(maxsize=64)
def _custom_columns(declared: tuple[PrinterColumn, ...]) -> Columns:
    definitions = [_NAME]
    readers: list[tuple[Callable[[Any, float], Any], JsonPath]] = []
    for column in declared:
        try:
            path = JsonPath(column.json_path)
        except ValueError:
            # As on the real server, an invalid path ends the table.
            break
        description = (
            column.description or f"Custom resource definition column (in JSONPath format): {column.json_path}"
        )
        definitions.append(TableColumn(column.name, column.type, description, column.priority, column.format))
        readers.append((_READERS.get(column.type, _text), path))

    def cells(obj: Mapping[str, Any], now: float) -> list[Any]:
        found = [(read, path.first(obj, _ABSENT)) for read, path in readers]
        return [_name(obj), *(None if value is _ABSENT else read(value, now) for read, value in found)]

    return Columns(tuple(definitions), cells)


def _text(value: Any, now: float) -> str:
    del now
    if value is None:
        return "<no value>"
    if isinstance(value, str):
        return value
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def _integer(value: Any, now: float) -> int | None:
    del now
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _number(value: Any, now: float) -> float | None:
    del now
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _boolean(value: Any, now: float) -> bool | None:
    del now
    return value if isinstance(value, bool) else None


def _date(value: Any, now: float) -> str | None:
    if not isinstance(value, str):
        return None
    moment = epoch(value)
    return "<invalid>" if moment is None else duration(now - moment)


_READERS: Mapping[str, Callable[[Any, float], Any]] = {
    "boolean": _boolean,
    "date": _date,
    "integer": _integer,
    "number": _number,
    "string": _text,
}
