"""The archive's HTTP API as a table: routes, parameters and answers.

The server takes its routes and checks its parameters from it, and serves it as an OpenAPI document. So what is
described is what is served.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from frameworkcontroller import __version__
from frameworkcontroller.api.completion import Outcome
from frameworkcontroller.api.status import State
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.history.failures import MAX_GROUPS, FailureKey
from frameworkcontroller.history.ingest import RUNNING
from frameworkcontroller.history.queries import MAX_PAGE, TaskQuery

Schema = Mapping[str, Any]

NDJSON: Final = "application/x-ndjson"
JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"

PHASES: Final = [*Outcome, RUNNING]
"""The phases of past Frameworks."""
NAMESPACE_HEADER: Final = "Framework-Namespace"

_MAX_TEXT: Final = 1024
_MAX_SEARCH: Final = 200
_SEARCH: Final = (
    "Only those with all of these words in namespace, name, UID, state, code, phrase or diagnostics, in any case. "
    "A page may have few items, or none, and still a `next`: each searches a part of the archive."
)
_SHOWN: Final = 100
_NUMBER: Final = re.compile(r"-?[0-9]{1,10}", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)


class ParameterError(ValueError):
    """A parameter cannot be used. ``field``: its name; the text has the name, the value, and what is allowed."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(f"{field}: {detail}")
        self.field = field


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a path, a query or a header.

    ``parse`` returns its value, or raises ValueError with what it must be. ``default``: its value if it is absent.
    """

    name: str
    about: str
    schema: Schema
    parse: Callable[[str], Any]
    default: Any = None
    place: Literal["path", "query", "header"] = "query"

    def value(self, text: str) -> Any:
        """Return the value that ``text`` stands for.

        Raises:
            ParameterError: it stands for none.
        """
        try:
            return self.parse(text)
        except ValueError as error:
            raise ParameterError(self.name, f"must be {error}, not {shown(text)}") from None


@dataclass(frozen=True, slots=True)
class Route:
    """One operation. ``name`` is that of its handler; ``answer`` None: not JSON, described by ``about``."""

    name: str
    method: Literal["GET", "POST"]
    path: str
    about: str
    answer: Schema | None
    parameters: tuple[Parameter, ...] = ()
    problems: tuple[int, ...] = ()
    content_type: str = JSON

    def query(self, given: Iterable[tuple[str, str]]) -> dict[str, Any]:
        """Return the values of the parameters of a query, with defaults for those that are absent.

        Raises:
            ParameterError: one is unknown, given twice, or has a bad value.
        """
        known = {one.name: one for one in self.parameters if one.place == "query"}
        found: dict[str, Any] = {}
        for name, text in given:
            if name not in known:
                allowed = ", ".join(known) or "none"
                raise ParameterError(name[:_SHOWN], f"is no parameter of {self.path} (which has {allowed})")
            if name in found:
                raise ParameterError(name, "must be given once only")
            found[name] = known[name].value(text)
        return {name: found.get(name, one.default) for name, one in known.items()}

    def path_values(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Return the values of the parameters of a path. Raise ParameterError as ``query`` does."""
        return {one.name: one.value(given[one.name]) for one in self.parameters if one.place == "path"}


def shown(text: str) -> str:
    """Quote a value for a message, shortened."""
    return f'"{text[:_SHOWN]}"{"..." if len(text) > _SHOWN else ""}'


# --- values ---


def _text(text: str) -> str:
    if not 1 <= len(text) <= _MAX_TEXT or "\x00" in text:
        raise ValueError(f"a text of 1 to {_MAX_TEXT} characters")
    return text


def _search(text: str) -> str:
    if not 1 <= len(text) <= _MAX_SEARCH or "\x00" in text:
        raise ValueError(f"a text of 1 to {_MAX_SEARCH} characters")
    return text


def _one_of(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return text

    return parse


def _integer(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return int(text)

    return parse


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text == "true"


def _time(text: str) -> int:
    """Return the time in seconds since the epoch. Fractions are dropped."""
    try:
        if not _TIME.fullmatch(text):
            raise ValueError
        return parse_time(text)
    except (ValueError, OverflowError):
        raise ValueError("a time such as 2026-01-31T12:00:00Z") from None


_INT32: Final = 2**31 - 1
_TEXT: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": _MAX_TEXT}


def _int_schema(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


def _moment(name: str, about: str) -> Parameter:
    return Parameter(name, about, {"type": "string", "format": "date-time"}, _time)


def _path(name: str, about: str, schema: Schema = _TEXT, parse: Callable[[str], Any] = _text) -> Parameter:
    return Parameter(name, about, schema, parse, place="path")


_UID: Final = _path("uid", "UID of the Framework.")
_ATTEMPT: Final = _path("n", "Attempt of the Framework, from 0.", _int_schema(0, _INT32), _integer(0, _INT32))
_NAMESPACE: Final = Parameter("namespace", "Only of this namespace.", _TEXT, _text, "")


def _limit(about: str, most: int, default: int) -> Parameter:
    return Parameter("limit", about, {**_int_schema(1, most), "default": default}, _integer(1, most), default)


_LIMIT: Final = _limit("Most items of a page.", MAX_PAGE, TaskQuery().limit)
_AFTER: Final = Parameter("after", "`next` of the page before, with the same other parameters.", _TEXT, _text, "")


# --- answers ---


def _object(**properties: Schema) -> Schema:
    """Return the schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _nullable(kind: str, about: str, **more: Any) -> Schema:
    return {"type": [kind, "null"], "description": about, **more}


def _string(about: str, **more: Any) -> Schema:
    return {"type": "string", "description": about, **more}


def _number(about: str) -> Schema:
    return {"type": "integer", "description": about, "minimum": 0}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _page(item: str) -> Schema:
    return _object(
        items={"type": "array", "items": _ref(item)},
        next=_nullable("string", "Value of `after` for the next page; null: this is the last one."),
    )


def _count(about: str) -> Schema:
    return _nullable("integer", about, minimum=0)


def _when(about: str) -> Schema:
    return _nullable("string", about, format="date-time")


_ANY_OBJECT: Final[Schema] = {"type": "object"}
_OBJECT_OR_NULL: Final[Schema] = {"type": ["object", "null"]}

_COMPLETION: Final[Mapping[str, Schema]] = {
    "code": _nullable("integer", "Completion code; null: not completed."),
    "phrase": _nullable("string", "Name of the code, such as ContainerTransientFailed."),
    "type": _nullable("string", "Type of the completion, such as Succeeded or Permanent Failed."),
}
_DIAGNOSTICS: Final = _nullable("string", "Text of the completion, such as the messages of containers.")
_TRIGGER: Final = _nullable("string", "Event for which the controller made the newest record; null: it made none.")

_FRAMEWORK: Final[Mapping[str, Schema]] = {
    "uid": _string("UID."),
    "namespace": _string("Namespace."),
    "name": _string("Name."),
    "cluster": _nullable("string", "Cluster: the name configured there, or the UID of its namespace kube-system."),
    "state": _nullable("string", "State in the newest record; null: only attempts of Tasks are archived yet."),
    "phase": _string("How it ended; running: no record says that it has ended.", enum=PHASES),
    **_COMPLETION,
    "diagnostics": _nullable("string", "Reason for its end, shortened."),
    "attempts": _count("Attempts that were begun."),
    "taskRetries": _count("Retries of Tasks, over all attempts."),
    "tasks": _count("Tasks of the newest archived attempt."),
    "failedTasks": _count("Failed Tasks of that attempt, without stopped ones."),
    "succeededTasks": _count("Succeeded Tasks of that attempt."),
    "stoppedTasks": _count("Tasks of that attempt that ended on request, or with the attempt."),
    "created": _when("Creation."),
    "started": _when("Start of the first attempt."),
    "completed": _when("Completion."),
    "archived": _when("Time of the newest record."),
    "deleted": _when("Deletion; null: none is archived."),
}
_ATTEMPT_FIELDS: Final[Mapping[str, Schema]] = {
    "id": _number("Attempt, from 0."),
    "trigger": _TRIGGER,
    **_COMPLETION,
    "diagnostics": _DIAGNOSTICS,
    "started": _when("Start."),
    "completed": _when("Completion."),
    "tasks": _count("Tasks."),
    "failedTasks": _count("Failed Tasks, without stopped ones."),
}
_TASK_ATTEMPT: Final[Mapping[str, Schema]] = {
    "frameworkAttempt": _number("Attempt of the Framework, from 0."),
    "role": _string("Role."),
    "index": _count("Index of the Task."),
    "taskUid": _string("UID of the instance of the Task."),
    "attempt": _number("Attempt of the Task, from 0."),
    **_COMPLETION,
    "diagnostics": _DIAGNOSTICS,
    "node": _nullable("string", "Node of the Pod."),
    "pod": _nullable("string", "Name of the Pod."),
    "podUid": _nullable("string", "UID of the Pod."),
    "podIP": _nullable("string", "IP address of the Pod."),
    "hostIP": _nullable("string", "IP address of the node."),
    "started": _when("Start."),
    "ran": _when("Time at which the Pod ran."),
    "completed": _when("Completion."),
    "trigger": _TRIGGER,
}

SCHEMAS: Final[Mapping[str, Schema]] = {
    "Problem": {
        "type": "object",
        "description": "An error.",
        "properties": {
            "title": _string("Kind of the error."),
            "detail": _string("What is wrong, with field and value."),
            "field": _string("Parameter or header at fault, if it is one."),
            "line": _number("Line of the body at fault, from 1, if it is one."),
        },
        "required": ["title", "detail"],
        "additionalProperties": False,
    },
    "Framework": _object(**_FRAMEWORK),
    "FrameworkWithAttempts": _object(
        **{
            **_FRAMEWORK,
            "attempts": {"type": "array", "items": _ref("FrameworkAttempt"), "description": "The archived ones."},
            "attemptCount": _count("Attempts that were begun."),
        }
    ),
    "FrameworkAttempt": _object(**_ATTEMPT_FIELDS),
    "FrameworkAttemptWithObject": _object(
        **{
            **_ATTEMPT_FIELDS,
            "record": {**_OBJECT_OR_NULL, "description": "The newest record, without its object."},
            "object": {
                **_OBJECT_OR_NULL,
                "description": "The Framework as archived; null: only Tasks are archived yet.",
            },
            "tasks": _object(
                total=_count("Tasks."),
                running=_count("Not completed ones."),
                succeeded=_count("Succeeded ones."),
                stopped=_count("Ones that ended on request, or with the attempt."),
                failed=_count("Failed ones."),
            ),
        }
    ),
    "TaskAttempt": _object(**_TASK_ATTEMPT),
    "TaskAttemptWithObjects": _object(
        **_TASK_ATTEMPT,
        object={**_OBJECT_OR_NULL, "description": "The Task as archived."},
        pods={"type": "array", "items": _ANY_OBJECT, "description": "Its Pods as archived."},
    ),
    "Failure": _object(
        key=_string("Code, node, role or day (UTC)."),
        label=_nullable("string", "The same for people: of a code its name."),
        taskAttempts=_count("Failed attempts of Tasks."),
        frameworkAttempts=_count("Failed attempts of Frameworks."),
        frameworks=_count("Frameworks to which these belong."),
        first=_when("Earliest completion."),
        last=_when("Latest completion."),
        example={
            **_object(
                uid=_string("UID of the Framework."),
                namespace=_string("Namespace."),
                name=_string("Name of the Framework."),
                attempt=_count("Attempt of the Framework."),
                role=_nullable("string", "Role; null: the attempt of the Framework."),
                index=_count("Index of the Task."),
            ),
            "type": ["object", "null"],
            "description": "One of the failures.",
        },
    ),
}
"""The schemas of answers, by name."""


# --- routes ---

_PAGE_PARAMETERS: Final = (_LIMIT, _AFTER)
_ROLE_PATH: Final = _path("role", "Role.")
_INDEX_PATH: Final = _path("index", "Index of the Task.", _int_schema(0, _INT32), _integer(0, _INT32))

ROUTES: Final = (
    Route(
        "records",
        "POST",
        "/v1/records",
        "Store records, one JSON object a line: all or none. They are durable when the answer comes.",
        _object(stored=_number("Records stored.")),
        (
            Parameter(
                NAMESPACE_HEADER,
                "The namespace of all records, for senders without the permission for all namespaces.",
                _TEXT,
                _text,
                place="header",
            ),
        ),
        problems=(403, 408, 413, 415),
    ),
    Route(
        "frameworks",
        "GET",
        "/v1/frameworks",
        "List Frameworks, newest first.",
        _page("Framework"),
        (
            _NAMESPACE,
            Parameter("name", "Only of this name.", _TEXT, _text, ""),
            Parameter("state", "Only in this state.", {"enum": list(State)}, _one_of(*State), ""),
            Parameter("phase", "Only in this phase.", {"enum": PHASES}, _one_of(*PHASES), ""),
            Parameter(
                "code", "Only with this completion code.", _int_schema(-_INT32, _INT32), _integer(-_INT32, _INT32)
            ),
            _moment("since", "Only those that existed at this time or later."),
            _moment("until", "Only those that existed before this time."),
            Parameter("q", _SEARCH, {"type": "string", "minLength": 1, "maxLength": _MAX_SEARCH}, _search, ""),
            *_PAGE_PARAMETERS,
        ),
    ),
    Route(
        "framework",
        "GET",
        "/v1/frameworks/{uid}",
        "Return a Framework and its attempts.",
        _ref("FrameworkWithAttempts"),
        (_UID,),
        (404,),
    ),
    Route(
        "attempt",
        "GET",
        "/v1/frameworks/{uid}/attempts/{n}",
        "Return an attempt of a Framework, with its object and the counts of its Tasks.",
        _ref("FrameworkAttemptWithObject"),
        (_UID, _ATTEMPT),
        (404,),
    ),
    Route(
        "tasks",
        "GET",
        "/v1/frameworks/{uid}/attempts/{n}/tasks",
        "List the Task attempts of an attempt of a Framework, by role, index, instance and attempt.",
        _page("TaskAttempt"),
        (
            _UID,
            _ATTEMPT,
            Parameter("role", "Only of this role.", _TEXT, _text, ""),
            Parameter("index", "Only of Tasks with this index.", _int_schema(0, _INT32), _integer(0, _INT32)),
            Parameter(
                "failed",
                "true: only those that failed; stopped ones have not. false: only the others.",
                {"type": "boolean"},
                _boolean,
            ),
            *_PAGE_PARAMETERS,
        ),
        (404,),
    ),
    Route(
        "task_attempt",
        "GET",
        "/v1/frameworks/{uid}/attempts/{n}/tasks/{role}/{index}/{taskUid}/{attempt}",
        "Return a Task attempt, with the objects of the Task and of its Pods.",
        _ref("TaskAttemptWithObjects"),
        (
            _UID,
            _ATTEMPT,
            _ROLE_PATH,
            _INDEX_PATH,
            _path("taskUid", "UID of the instance of the Task."),
            _path("attempt", "Attempt of the Task, from 0.", _int_schema(0, _INT32), _integer(0, _INT32)),
        ),
        (404,),
    ),
    Route(
        "task_history",
        "GET",
        "/v1/frameworks/{uid}/tasks/{role}/{index}",
        "List all attempts of a Task over all attempts of its Framework, oldest first: the newest 1000 of them.",
        _object(items={"type": "array", "items": _ref("TaskAttempt")}),
        (_UID, _ROLE_PATH, _INDEX_PATH),
        (404,),
    ),
    Route(
        "failures",
        "GET",
        "/v1/failures",
        "Count failed attempts, most Task attempts first; by day: newest first. What was stopped on request is none.",
        _object(items={"type": "array", "items": _ref("Failure")}),
        (
            Parameter(
                "by",
                "By what to count.",
                {"enum": list(FailureKey), "default": FailureKey.CODE},
                lambda text: FailureKey(_one_of(*FailureKey)(text)),
                FailureKey.CODE,
            ),
            _NAMESPACE,
            _moment("since", "Only completions at this time or later."),
            _moment("until", "Only completions before this time."),
            _limit("Most items.", MAX_GROUPS, MAX_GROUPS),
        ),
    ),
    Route(
        "namespaces",
        "GET",
        "/v1/namespaces",
        "List the namespaces of all Frameworks.",
        _object(items={"type": "array", "items": {"type": "string"}}),
    ),
    Route("openapi", "GET", "/openapi.json", "Return this document.", _ANY_OBJECT),
    Route("healthz", "GET", "/healthz", "Answer as long as the process runs.", None, content_type="text/plain"),
    Route(
        "readyz",
        "GET",
        "/readyz",
        "Answer 200 if the database can be used, else 503.",
        None,
        content_type="text/plain",
    ),
    Route("metrics", "GET", "/metrics", "Return metrics for Prometheus.", None, content_type="text/plain"),
)
"""Every operation of the API."""

_PROBES: Final = frozenset({"healthz", "readyz"})
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


def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
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
            "schemas": dict(SCHEMAS),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def problems_of(route: Route) -> tuple[int, ...]:
    """Return the status codes of the errors that an operation may answer."""
    if route.name in _PROBES:
        return ()
    return tuple(sorted({400, 401, 503, *route.problems}))


def _operation(route: Route) -> dict[str, Any]:
    content = {"text/plain": {"schema": {"type": "string"}}}
    if route.answer is not None:
        content = {JSON: {"schema": dict(route.answer)}}
    responses: dict[str, Any] = {"200": {"description": "Success.", "content": content}}
    for code in problems_of(route):
        problem = {PROBLEM: {"schema": _ref("Problem")}}
        responses[str(code)] = {"description": _MEANINGS[code], "content": problem}
    if route.name == "readyz":
        responses["503"] = {"description": "The database cannot be used.", "content": content}
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.about,
        "parameters": [
            {
                "name": one.name,
                "in": one.place,
                "description": one.about,
                "required": one.place == "path",
                "schema": dict(one.schema),
            }
            for one in route.parameters
        ],
        "responses": responses,
    }
    if route.method == "POST":
        about = "Records, one JSON object a line, optionally with Content-Encoding: gzip."
        operation["requestBody"] = {
            "required": True,
            "description": about,
            "content": {NDJSON: {"schema": {"type": "string"}}},
        }
    return operation
