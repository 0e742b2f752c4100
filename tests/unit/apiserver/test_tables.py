"""Tables of ``kubectl get``: columns and cells as a real server's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from frameworkcontroller.local.apiserver import ages, builtin_resources, table
from frameworkcontroller.local.apiserver.api_resources import PrinterColumn
from frameworkcontroller.local.apiserver.jsonpath import JsonPath
from tests.unit.apiserver import answers

ANSWERS = answers.load("tables")
NOW = ages.epoch(ANSWERS["now"]) or 0.0
BY_PLURAL = {t.plural: t for t in builtin_resources.BUILTIN_RESOURCES}
# Later versions than the recorded one tell more: when a container was restarted last, and one column more.
RESTARTS, MORE_COLUMNS = {"pods"}, {"priorityclasses"}
ROWS = [(one["resource"], row) for one in ANSWERS["tables"] for row in one["rows"]]


@pytest.mark.parametrize("recorded", ANSWERS["tables"], ids=lambda recorded: str(recorded["resource"]))
def test_a_real_server_has_the_same_columns(recorded: dict[str, Any]) -> None:
    resource = recorded["resource"]
    definitions = table.table(BY_PLURAL[resource], [], now=NOW)["columnDefinitions"]
    columns = [[one["name"], one["type"], one["priority"]] for one in definitions]
    if resource in RESTARTS:
        columns[3][1] = "integer"
    if resource in MORE_COLUMNS:
        columns.pop()
    assert columns == recorded["columns"]


@pytest.mark.parametrize(("resource", "recorded"), ROWS, ids=lambda value: str(value)[:40])
def test_a_real_server_has_the_same_cells(resource: str, recorded: dict[str, Any]) -> None:
    (row,) = table.table(BY_PLURAL[resource], [recorded["object"]], now=NOW)["rows"]
    cells = row["cells"]
    if resource in RESTARTS:
        cells[3] = int(cells[3].partition(" ")[0])
    if resource in MORE_COLUMNS:
        cells.pop()
    assert cells == recorded["cells"]
    assert row.get("conditions") == recorded.get("conditions")


def test_a_restart_is_shown_with_its_age() -> None:
    pod = next(row["object"] for name, row in ROWS if name == "pods" and row["object"]["metadata"]["name"] == "p-run")
    (row,) = table.table(builtin_resources.PODS, [pod], now=NOW)["rows"]
    assert row["cells"][3] == "2 (3h9m ago)"


COLUMNS = [
    ("S", "string", ".spec.s", "str"),
    ("I", "integer", ".spec.i", 3),
    ("N", "number", ".spec.n", 1.5),
    ("B", "boolean", ".spec.b", True),
    ("Date", "date", ".spec.d", "27h"),
    ("Missing", "string", ".spec.zz", None),
    ("MissingDate", "date", ".spec.zz", None),
    ("List", "string", ".spec.l", '["x","y","z"]'),
    ("Map", "string", ".spec.m", '{"j":"q","k":1}'),
    ("Index", "string", ".spec.l[1]", "y"),
    ("All", "string", ".spec.l[*]", "x"),
    ("Nested", "string", ".spec.o[*].name", "a"),
    ("Filter", "string", '.spec.o[?(@.name=="b")].v', "2"),
    ("FilterInteger", "integer", '.spec.o[?(@.name=="b")].v', 2),
    ("IntegerAsText", "string", ".spec.i", "3"),
    ("TextAsInteger", "integer", ".spec.s", None),
    ("NumberAsInteger", "integer", ".spec.n", 1),
    ("NoDate", "date", ".spec.s", "<invalid>"),
    ("NullDate", "date", ".spec.nn", None),
    ("IntegerAsDate", "date", ".spec.i", None),
    ("Label", "string", r".metadata.labels['a\.b/c']", "L"),
    ("FromTheEnd", "string", ".spec.l[-1:]", "z"),
    ("Slice", "string", ".spec.l[0:2]", "x"),
    ("Greater", "string", ".spec.o[?(@.v>1)].name", "b"),
    ("BooleanAsText", "string", ".spec.b", "true"),
    ("Null", "string", ".spec.nn", "<no value>"),
    ("NullDate", "date", ".spec.nn", None),
    ("NumberAsDate", "date", ".spec.i", None),
]
CUSTOM = {
    "metadata": {"name": "t", "labels": {"a.b/c": "L"}, "creationTimestamp": "2026-11-21T03:00:00Z"},
    "spec": {
        "s": "str",
        "i": 3,
        "n": 1.5,
        "b": True,
        "d": "2026-11-20T00:00:00Z",
        "l": ["x", "y", "z"],
        "m": {"k": 1, "j": "q"},
        "o": [{"name": "a", "v": 1}, {"name": "b", "v": 2}],
        "nn": None,
    },
}


@pytest.mark.parametrize(("name", "kind", "path", "cell"), COLUMNS)
def test_a_column_of_a_definition_is_read_by_its_path(name: str, kind: str, path: str, cell: object) -> None:
    t = replace(builtin_resources.CONFIGMAPS, schema={}, printer_columns=(PrinterColumn(name, kind, path),))
    printed = table.table(t, [CUSTOM], now=NOW)
    assert printed["rows"][0]["cells"] == ["t", cell]
    assert [one["name"] for one in printed["columnDefinitions"]] == ["Name", name]


def test_a_custom_resource_without_columns_shows_its_age() -> None:
    printed = table.table(replace(builtin_resources.CONFIGMAPS, schema={}), [CUSTOM], now=NOW)
    assert printed["rows"][0]["cells"] == ["t", "9m38s"]


def test_a_row_carries_as_much_of_the_object_as_is_asked_for() -> None:
    def included(how: Any) -> Any:
        return table.table(builtin_resources.CONFIGMAPS, [CUSTOM], now=NOW, include_object=how)["rows"][0]["object"]

    assert included("None") is None
    assert included("Object") == CUSTOM
    assert included("Metadata") == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": CUSTOM["metadata"],
    }


def test_a_watch_gets_the_columns_once() -> None:
    assert table.table(builtin_resources.PODS, [], now=NOW, headers=False)["columnDefinitions"] is None


def test_a_list_of_metadata_has_nothing_else_in_it() -> None:
    partial = table.partial_object_list([CUSTOM], {"resourceVersion": "7"})
    assert partial["metadata"] == {"resourceVersion": "7"}
    assert [set(item) for item in partial["items"]] == [{"kind", "apiVersion", "metadata"}]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (185, "3m5s"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600, "8h"),
        (47 * 3600, "47h"),
        (49 * 3600, "2d1h"),
        (8 * 86400, "8d"),
        (2 * 365 * 86400 - 1, "729d"),
        (2 * 365 * 86400 + 86400, "2y1d"),
        (8 * 365 * 86400, "8y"),
    ],
)
def test_an_age_has_two_units_at_most(seconds: int, shown: str) -> None:
    assert ages.duration(seconds) == shown


@pytest.mark.parametrize(
    ("timestamp", "shown"),
    [
        (None, "<unknown>"),
        ("", "<unknown>"),
        ("yesterday", "<invalid>"),
        ("2026-11-21T03:09:28Z", "10s"),
        ("2026-11-21T04:09:28.123456789+01:00", "9s"),
    ],
)
def test_an_age_is_counted_from_any_form_of_time(timestamp: str | None, shown: str) -> None:
    assert ages.age(timestamp, NOW) == shown


@pytest.mark.parametrize("text", [".a[", ".a[x]", ".a[?(b)]", ".a[?(@.b==)]", "a..", ".a[?(@.b==zz)]"])
def test_an_invalid_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        JsonPath(text)


def test_a_path_may_lead_to_many_values_or_to_none() -> None:
    document = {"a": [{"n": 1}, {"n": 2, "b": {"n": 3}}], "c": {"x": 4, "y": 5}}
    assert list(JsonPath(".a[*].n").find(document)) == [1, 2]
    assert list(JsonPath("..n").find(document)) == [1, 2, 3]
    assert list(JsonPath(".c.*").find(document)) == [4, 5]
    assert list(JsonPath(".a[?(@.b)].n").find(document)) == [2]
    assert list(JsonPath("{$.c['x']}").find(document)) == [4]
    assert list(JsonPath(".a[9].n").find(document)) == []
    assert list(JsonPath(".c[0]").find(document)) == []
    assert JsonPath(".nope").first(document, "default") == "default"
