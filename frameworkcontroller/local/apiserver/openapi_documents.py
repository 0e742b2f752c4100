"""OpenAPI documents: v3 (kubectl explain, apply, client-side validation) and v2 for older clients.

Each group version's document is derived from the types that also decode requests, so both always agree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from frameworkcontroller.local.apiserver import builtin_types, openapi_paths
from frameworkcontroller.local.apiserver.api_resources import ApiResource
from frameworkcontroller.local.apiserver.openapi_schemas import API_VERSION, KIND, META, Schemas

Json = dict[str, Any]

_TITLE = "FrameworkController embedded cluster"
_GVK = "x-kubernetes-group-version-kind"


def v3_index(types: Sequence[ApiResource]) -> Json:
    """``/openapi/v3``: the URLs of the documents by group version; a URL changes with its document."""
    return {
        "paths": {
            path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={_hash(tuple(served), path)}"}
            for path, served in sorted(_by_path(types).items())
        }
    }


def v3_document(types: Sequence[ApiResource], path: str) -> Json | None:
    """``/openapi/v3/PATH`` with path ``api/v1`` or ``apis/GROUP/VERSION``; None if there is none."""
    served = _by_path(types).get(path)
    return None if served is None else _document(tuple(served))


def v2_document(types: Sequence[ApiResource]) -> Json:
    """``/openapi/v2`` as JSON."""
    definitions: Json = {}
    paths: Json = {}
    for served in _by_path(types).values():
        document = _document(tuple(served))
        definitions.update(document["components"]["schemas"])
        paths.update(document["paths"])
    return {
        "swagger": "2.0",
        "info": {"title": _TITLE, "version": "v1"},
        "paths": {path: _v2_path(item) for path, item in sorted(paths.items())},
        "definitions": {name: _v2_schema(definitions[name]) for name in sorted(definitions)},
    }


def _by_path(types: Iterable[ApiResource]) -> dict[str, list[ApiResource]]:
    found: dict[str, list[ApiResource]] = {}
    for t in types:
        path = f"apis/{t.group_version}" if t.group else f"api/{t.version}"
        found.setdefault(path, []).append(t)
    return found


def _hash(types: tuple[ApiResource, ...], path: str) -> str:
    if any(t.custom for t in types):
        return _digest(_document(types))
    return _builtin_hash(types, path)


@lru_cache(maxsize=32)
def _builtin_hash(types: tuple[ApiResource, ...], path: str) -> str:
    del path
    return _digest(_document(types))


def _digest(document: Json) -> str:
    return hashlib.sha512(orjson.dumps(document, option=orjson.OPT_SORT_KEYS)).hexdigest().upper()


def _document(types: tuple[ApiResource, ...]) -> Json:
    return _build(types) if any(t.custom for t in types) else _builtin_document(types)


@lru_cache(maxsize=32)
def _builtin_document(types: tuple[ApiResource, ...]) -> Json:
    return _build(types)


def _build(types: tuple[ApiResource, ...]) -> Json:
    schemas = Schemas()
    paths: Json = {}
    for t in types:
        name = schemas.add_resource(t)
        list_name = f"{name.rpartition('.')[0]}.{t.list_kind}"
        if "list" in t.verbs:
            schemas.add(list_name, _list_schema(t, schemas.reference(name), schemas))
        paths.update(openapi_paths.of(t, name, list_name))
    schemas.add_type(builtin_types.named_type("DeleteOptions"))
    schemas.add_type(builtin_types.named_type("Status"))
    schemas.add(
        f"{META}.Patch", {"description": "The patch, in the format that its media type names.", "type": "object"}
    )
    return {
        "openapi": "3.0.0",
        "info": {"title": _TITLE, "version": "v1"},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": schemas.sorted()},
    }


def _list_schema(t: ApiResource, item: Json, schemas: Schemas) -> Json:
    meta = schemas.add_type(builtin_types.named_type("ListMeta"))
    return {
        "description": f"{t.list_kind} is a list of {t.kind}.",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": API_VERSION,
            "items": {"description": f"The {t.plural}.", "type": "array", "items": item},
            "kind": KIND,
            "metadata": {"description": "The list's own metadata.", "allOf": [schemas.reference(meta)]},
        },
        _GVK: [{"group": t.group, "version": t.version, "kind": t.list_kind}],
    }


def _v2_path(item: Mapping[str, Any]) -> Json:
    methods: Json = {}
    for method, operation in item.items():
        if method == "parameters":
            methods[method] = [_v2_parameter(parameter) for parameter in operation]
            continue
        converted = {key: value for key, value in operation.items() if key not in ("requestBody", "responses")}
        converted["parameters"] = [_v2_parameter(parameter) for parameter in operation.get("parameters") or ()]
        body = operation.get("requestBody")
        if body is not None:
            converted["consumes"] = sorted(body["content"])
            schema = next(iter(body["content"].values()))["schema"]
            converted["parameters"].append(
                {"name": "body", "in": "body", "required": True, "schema": _v2_schema(schema)}
            )
        converted["responses"] = {code: _v2_response(answer) for code, answer in operation["responses"].items()}
        methods[method] = converted
    return methods


def _v2_parameter(parameter: Mapping[str, Any]) -> Json:
    return {**{key: value for key, value in parameter.items() if key != "schema"}, **parameter.get("schema", {})}


def _v2_response(answer: Mapping[str, Any]) -> Json:
    content = answer.get("content")
    if not content:
        return {"description": answer["description"]}
    return {"description": answer["description"], "schema": _v2_schema(next(iter(content.values()))["schema"])}


def _v2_schema(schema: Any) -> Any:
    """Convert a schema to v2: other references, which stand alone, and no alternatives."""
    if isinstance(schema, list):
        return [_v2_schema(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    parts = schema.get("allOf")
    if isinstance(parts, list) and len(parts) == 1 and set(parts[0]) == {"$ref"}:
        rest = {key: value for key, value in schema.items() if key != "allOf"}
        return {**_v2_schema(rest), **_v2_schema(parts[0])}
    converted = {}
    for key, value in schema.items():
        if key == "$ref" and isinstance(value, str):
            converted[key] = value.replace("#/components/schemas/", "#/definitions/")
        elif key in ("oneOf", "anyOf", "not", "nullable"):
            if key == "oneOf":
                converted.setdefault("type", "string")
        else:
            converted[key] = _v2_schema(value) if key != "default" else value
    return converted
