"""The table of the archive's reads: values of parameters, and the document made from it."""

from typing import Any

import pytest

from frameworkcontroller.history.apidocument import ROUTES, document
from frameworkcontroller.history.archiveerrors import QueryError
from frameworkcontroller.history.reads import (
    READS,
    CountFailures,
    GetAttempt,
    GetFramework,
    GetTaskAttempt,
    ListFrameworks,
    ListTasks,
    Read,
)
from tests.support.answerschema import faults

ATTEMPT = {"uid": "u", "n": "12"}


def test_parameters_become_values_and_texts_again() -> None:
    given = {
        "namespace": "team-a", "name": "train", "state": "Completed", "phase": "failed", "code": "-210",
        "since": "1970-01-01T00:00:00Z", "until": "2026-01-31T12:00:00Z", "q": "ä", "limit": "7", "after": "x",
    }  # fmt: skip
    found = ListFrameworks.parse({}, given.items())
    assert found == ListFrameworks("team-a", "train", "Completed", "failed", -210, 0, 1769860800, "ä", 7, "x")
    assert found.location() == ("/v1/frameworks", given)
    assert ListFrameworks.parse({}, [("since", "1970-01-01T01:00:00.5+01:00")]) == ListFrameworks(since=0)
    tasks = ListTasks.parse(ATTEMPT, [("failed", "true"), ("index", "3")])
    assert tasks == ListTasks("u", 12, failed=True, index=3)
    assert tasks.location() == ("/v1/frameworks/u/attempts/12/tasks", {"failed": "true", "index": "3"})
    assert CountFailures.parse({}, [("by", "node")]) == CountFailures(by="node")
    assert GetTaskAttempt("a/b", 0, "w", 1, "t?", 2).location() == (
        "/v1/frameworks/a%2Fb/attempts/0/tasks/w/1/t%3F/2",
        {},
    )


def test_absent_parameters_have_their_defaults() -> None:
    assert ListFrameworks.parse({}, []) == ListFrameworks()
    assert ListFrameworks().location() == ("/v1/frameworks", {})
    assert ListTasks.parse(ATTEMPT, []) == ListTasks("u", 12)


@pytest.mark.parametrize(
    ("read", "given", "text"),
    [
        (ListFrameworks, [("limit", "0")], 'limit: must be a whole number from 1 to 1000, not "0"'),
        (ListFrameworks, [("limit", "1001")], 'limit: must be a whole number from 1 to 1000, not "1001"'),
        (ListFrameworks, [("limit", "1e2")], "limit: must be a whole number"),
        (ListFrameworks, [("limit", "٣")], "limit: must be a whole number"),
        (ListFrameworks, [("state", "completed")], "state: must be one of AttemptCreationPending, "),
        (ListFrameworks, [("code", "x")], "code: must be a whole number from -2147483647 to 2147483647"),
        (ListFrameworks, [("since", "yesterday")], 'since: must be a time such as 2026-01-31T12:00:00Z, not "yester'),
        (ListFrameworks, [("since", "2026-02-30T12:00:00Z")], "since: must be a time"),
        (ListFrameworks, [("until", "2026-01-31T12:00:00")], "until: must be a time"),
        (ListFrameworks, [("until", "0001-01-01T00:00:00+10:00")], "until: must be a time"),
        (ListFrameworks, [("q", "")], "q: must be a text of 1 to 200 characters"),
        (ListFrameworks, [("q", "a\0")], "q: must be a text"),
        (ListFrameworks, [("name", "x" * 1025)], f'name: must be a text of 1 to 1024 characters, not "{"x" * 100}"...'),
        (ListFrameworks, [("page", "2")], "page: is no parameter of /v1/frameworks (which has namespace, name"),
        (GetFramework, [("x", "2")], "x: is no parameter of /v1/frameworks/{uid} (which has none)"),
        (GetFramework, [("uid", "2")], "uid: is no parameter of /v1/frameworks/{uid} (which has none)"),
        (ListFrameworks, [("q", "a"), ("q", "b")], "q: must be given once only"),
        (ListTasks, [("failed", "yes")], 'failed: must be true or false, not "yes"'),
        (CountFailures, [("by", "name")], 'by: must be one of code, cause, node, role, day, not "name"'),
    ],
)
def test_a_bad_parameter_is_named_with_its_value(
    read: type[Read[Any]], given: list[tuple[str, str]], text: str
) -> None:
    with pytest.raises(QueryError) as raised:
        read.parse(ATTEMPT, given)
    assert raised.value.field == given[0][0]
    assert str(raised.value).startswith(text)


def test_a_bad_part_of_a_path_is_named() -> None:
    with pytest.raises(QueryError, match='n: must be a whole number from 0 to 2147483647, not "-1"'):
        GetAttempt.parse({"uid": "u", "n": "-1"}, [])


def test_the_document_describes_every_route() -> None:
    made = document()
    described = {(method, path) for path, item in made["paths"].items() for method in item}
    assert described == {("get", read.path) for read in READS} | {(one.method.lower(), one.path) for one in ROUTES}
    for path, methods in made["paths"].items():
        for operation in methods.values():
            in_path = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
            assert in_path == {part[1:-1] for part in path.split("/") if part.startswith("{")}
            assert operation["summary"].endswith(".")
            assert all(one["description"] and one["schema"] for one in operation["parameters"])
    (limit,) = (one for one in made["paths"]["/v1/frameworks"]["get"]["parameters"] if one["name"] == "limit")
    assert limit["schema"] == {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}


def test_references_lead_to_schemas() -> None:
    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if "$ref" in value else []
            return own + [one for member in value.values() for one in references(member)]
        return [one for member in value for one in references(member)] if isinstance(value, list | tuple) else []

    made = document()
    schemas = made["components"]["schemas"]
    found = {one.removeprefix("#/components/schemas/") for one in references(made)}
    assert found == set(schemas)


def test_the_check_of_answers_finds_faults() -> None:
    made = document()
    schema = {"$ref": "#/components/schemas/Problem"}
    assert list(faults({"title": "a", "detail": "b"}, schema, made)) == []
    assert list(faults({"title": 1, "other": "b"}, schema, made)) == [
        "$: has no detail",
        "$.title: 1 is no string",
        "$: has other, which is not described",
    ]
