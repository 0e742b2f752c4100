"""The OpenAPI document of the archive's HTTP API, and its routes that are no reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from frameworkcontroller import __version__
from frameworkcontroller.history.reads import READS, Json, ProblemAnswer, Read

NDJSON: Final = "application/x-ndjson"
JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"
NAMESPACE_HEADER: Final = "Framework-Namespace"

_TEXT: Final = {"text/plain": {"schema": {"type": "string"}}}


class StoredRecords(TypedDict):
    """The answer to records."""

    stored: Annotated[int, Field(ge=0, description="Records stored.")]


@dataclass(frozen=True, slots=True)
class Route:
    """An operation that is no read. ``operation``: the name of its handler, too; ``answer`` None: plain text."""

    operation: str
    path: str
    about: str
    answer: TypeAdapter[Any] | None = None
    method: Literal["GET", "POST"] = "GET"
    problems: tuple[int, ...] = (400, 401, 503)


ROUTES: Final = (
    Route(
        "records",
        "/v1/records",
        "Store records, one JSON object a line: all or none. They are durable when the answer comes.",
        TypeAdapter(StoredRecords),
        "POST",
        (400, 401, 403, 408, 413, 415, 503),
    ),
    Route("openapi", "/openapi.json", "Return this document.", TypeAdapter(dict[str, Any])),
    Route("healthz", "/healthz", "Answer as long as the process runs.", problems=()),
    Route("readyz", "/readyz", "Answer 200 if the database can be used, else 503.", problems=()),
    Route("metrics", "/metrics", "Return metrics for Prometheus."),
)

_MEANINGS: Final = {
    400: "A parameter or a record cannot be used.",
    401: "A bearer token is needed.",
    403: "The token may not do this.",
    404: "There is none, or the token may not read its namespace.",
    408: "The body came too slowly.",
    413: "The body or one of its lines is too large.",
    415: "The Content-Type or the Content-Encoding is not supported.",
    503: "The database or the API server cannot be used now; Retry-After says when to try again.",
}


def document() -> Json:
    """Return the OpenAPI document."""
    types: list[tuple[str, Literal["serialization"], TypeAdapter[Any]]] = [
        ("problem", "serialization", TypeAdapter(ProblemAnswer)),
        *((one.operation, "serialization", one.answer()) for one in READS),
        *((one.operation, "serialization", one.answer) for one in ROUTES if one.answer is not None),
    ]
    made, defined = TypeAdapter.json_schemas(types, ref_template="#/components/schemas/{model}")
    answers = {operation: _plain(schema) for (operation, _), schema in made.items()}
    paths: dict[str, Json] = {}
    for read in READS:
        paths[read.path] = {"get": _read(read, answers)}
    for route in ROUTES:
        paths[route.path] = {route.method.lower(): _other(route, answers)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "FrameworkController history",
            "version": __version__,
            "description": "Past attempts of Frameworks and of their Tasks. All times are RFC 3339 in UTC.",
        },
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": {_name(name): _plain(schema) for name, schema in defined["$defs"].items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _read(read: type[Read[Any]], answers: Json) -> Json:
    parameters = [
        {"name": one.name, "in": "path" if one.in_path else "query", "required": one.in_path, **_described(one.schema)}
        for one in read.parameters()
    ]
    answer = answers[read.operation]
    if read.missing:
        # None is no answer, but 404.
        (answer,) = (one for one in answer["anyOf"] if "$ref" in one)
    problems = (400, 401, *([403] if read.of_logs else ()), *([404] if read.missing else ()), 503)
    content = {JSON: {"schema": answer}}
    return _operation(read.operation, str(read.__doc__), parameters, content, problems, answers["problem"])


def _other(route: Route, answers: Json) -> Json:
    content = _TEXT if route.answer is None else {JSON: {"schema": answers[route.operation]}}
    parameters = []
    if route.method == "POST":
        about = "The namespace of all records, for senders without the permission for all namespaces."
        schema = {"type": "string", "minLength": 1, "maxLength": 1024}
        parameters = [
            {"name": NAMESPACE_HEADER, "in": "header", "required": False, "description": about, "schema": schema}
        ]
    operation = _operation(route.operation, route.about, parameters, content, route.problems, answers["problem"])
    if route.operation == "readyz":
        operation["responses"]["503"] = {"description": "The database cannot be used.", "content": content}
    if route.method == "POST":
        operation["requestBody"] = {
            "required": True,
            "description": "Records, one JSON object a line, optionally with Content-Encoding: gzip.",
            "content": {NDJSON: {"schema": {"type": "string"}}},
        }
    return operation


def _operation(
    name: str, about: str, parameters: list[Json], content: Json, problems: tuple[int, ...], problem: Json
) -> Json:
    responses: Json = {"200": {"description": "Success.", "content": content}}
    for code in problems:
        responses[str(code)] = {"description": _MEANINGS[code], "content": {PROBLEM: {"schema": problem}}}
    return {"operationId": name, "summary": about, "parameters": parameters, "responses": responses}


def _described(schema: Any) -> Json:
    about = {key: value for key, value in schema.items() if key != "description"}
    return {"description": schema["description"], "schema": about}


def _name(answer: str) -> str:
    return answer.removesuffix("Answer")


def _plain(schema: Any) -> Any:
    """Remove titles, write "or null" as a list of types, and say that objects have no other properties."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        schema = {**schema, "$ref": _name(schema["$ref"])}
    made = {key: _plain(value) for key, value in schema.items() if key != "title" or not isinstance(value, str)}
    if len(one := [each for each in made.get("anyOf", ()) if "type" in each and each["type"] != "null"]) == 1:
        made = {**made, **one[0], "type": [one[0]["type"], "null"]}
        del made["anyOf"]
    if isinstance(made.get("properties"), dict) and "type" in made:
        made["additionalProperties"] = False
    return made
