"""The table of the archive's API: values of parameters, and the document made from it."""

from typing import Any

import pytest

from frameworkcontroller.history.failures import FailureKey, FailureQuery
from frameworkcontroller.history.openapi import ROUTES, ParameterError, Route, document
from frameworkcontroller.history.queries import FrameworkQuery, TaskQuery
from tests.support.answerschema import faults


def route(name: str) -> Route:
    return next(one for one in ROUTES if one.name == name)


def test_absent_parameters_mean_what_the_queries_mean_by_default() -> None:
    assert FrameworkQuery(**route("frameworks").query([])) == FrameworkQuery()
    assert FailureQuery(**route("failures").query([])) == FailureQuery()
    assert TaskQuery(**route("tasks").query([])) == TaskQuery()


def test_every_field_of_a_query_is_a_parameter() -> None:
    for name, query in (("frameworks", FrameworkQuery), ("failures", FailureQuery), ("tasks", TaskQuery)):
        assert set(route(name).query([])) == set(query.__slots__), name


def test_parameters_become_values() -> None:
    given = [
        ("namespace", "team-a"), ("name", "train"), ("state", "Completed"), ("phase", "failed"),
        ("code", "-210"),
        ("since", "1970-01-01T01:00:00.5+01:00"), ("until", "2026-01-31T12:00:00Z"), ("q", "ä"), ("limit", "7"),
        ("after", "x"),
    ]  # fmt: skip
    assert FrameworkQuery(**route("frameworks").query(given)) == FrameworkQuery(
        "team-a", "train", "Completed", "failed", -210, 0, 1769860800, "ä", 7, "x"
    )
    assert route("tasks").query([("failed", "true"), ("index", "3")])["failed"] is True
    assert route("failures").query([("by", "node")])["by"] is FailureKey.NODE


@pytest.mark.parametrize(
    ("name", "given", "field", "text"),
    [
        ("frameworks", [("limit", "0")], "limit", 'limit: must be a whole number from 1 to 1000, not "0"'),
        ("frameworks", [("limit", "1001")], "limit", 'limit: must be a whole number from 1 to 1000, not "1001"'),
        ("frameworks", [("limit", "1e2")], "limit", "whole number"),
        ("frameworks", [("limit", "٣")], "limit", "whole number"),
        ("frameworks", [("state", "completed")], "state", "must be one of AttemptCreationPending, "),
        ("frameworks", [("code", "x")], "code", "whole number"),
        ("frameworks", [("since", "yesterday")], "since", 'must be a time such as 2026-01-31T12:00:00Z, not "yester'),
        ("frameworks", [("since", "2026-02-30T12:00:00Z")], "since", "must be a time"),
        ("frameworks", [("until", "2026-01-31T12:00:00")], "until", "must be a time"),
        ("frameworks", [("until", "0001-01-01T00:00:00+10:00")], "until", "must be a time"),
        ("frameworks", [("q", "")], "q", "must be a text of 1 to 200 characters"),
        ("frameworks", [("q", "a\0")], "q", "must be a text"),
        ("frameworks", [("name", "x" * 1025)], "name", "..."),
        ("frameworks", [("page", "2")], "page", "page: is no parameter of /v1/frameworks (which has namespace, name"),
        ("framework", [("x", "2")], "x", "x: is no parameter of /v1/frameworks/{uid} (which has none)"),
        ("frameworks", [("q", "a"), ("q", "b")], "q", "q: must be given once only"),
        ("tasks", [("failed", "yes")], "failed", 'failed: must be true or false, not "yes"'),
        ("failures", [("by", "name")], "by", 'by: must be one of code, node, role, day, not "name"'),
    ],
)
def test_a_bad_parameter_is_named_with_its_value(
    name: str, given: list[tuple[str, str]], field: str, text: str
) -> None:
    with pytest.raises(ParameterError) as raised:
        route(name).query(given)
    assert raised.value.field == field
    assert text in str(raised.value)


def test_a_bad_part_of_a_path_is_named() -> None:
    with pytest.raises(ParameterError, match='n: must be a whole number from 0 to 2147483647, not "-1"'):
        route("attempt").path_values({"uid": "u", "n": "-1"})
    assert route("attempt").path_values({"uid": "u", "n": "12"}) == {"uid": "u", "n": 12}


def test_the_document_describes_every_route() -> None:
    made = document()
    described = {(method.upper(), path) for path, item in made["paths"].items() for method in item}
    assert described == {(one.method, one.path) for one in ROUTES}
    for one in ROUTES:
        operation = made["paths"][one.path][one.method.lower()]
        assert [p["name"] for p in operation["parameters"]] == [p.name for p in one.parameters]
        in_path = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
        assert in_path == {part[1:-1] for part in one.path.split("/") if part.startswith("{")}


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
