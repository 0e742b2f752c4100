"""The CRD agrees with the models of spec and status."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, get_args

import orjson
import pytest
from pydantic import BaseModel

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import EncodedStatus, encode_status
from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.spec import Chosen, FrameworkSpec, parse_spec
from frameworkcontroller.api.status import FrameworkAttemptStatus, FrameworkStatus, State, TaskRoleStatus
from tests.support.filled import filled
from tests.support.framework_crd import crd_manifest

Json = dict[str, Any]

MANIFEST: Final[Json] = crd_manifest()
VERSION: Final[Json] = MANIFEST["spec"]["versions"][0]
ROOT: Final[Json] = VERSION["schema"]["openAPIV3Schema"]
PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"


def at(path: str, *, schema: Json = ROOT) -> Json:
    """The schema of the field at that path, through lists as if they were their items."""
    for part in filter(None, path.split(".")):
        schema = schema.get("items", schema)["properties"][part]
    return schema


def test_names() -> None:
    spec = MANIFEST["spec"]
    assert MANIFEST["metadata"]["name"] == names.CRD_NAME
    assert (spec["group"], spec["names"]["kind"], spec["names"]["plural"]) == (names.GROUP, names.KIND, names.PLURAL)
    assert VERSION["name"] == names.VERSION
    assert at("metadata.name")["pattern"] == at("spec.taskRoles.name")["pattern"] == names.NAME_PATTERN


def models(model: type[BaseModel], path: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """The models below a model, by the path of the schema."""
    yield path, model
    for name, field in model.model_fields.items():
        for hint in (field.annotation, *get_args(field.annotation)):
            if isinstance(hint, type) and issubclass(hint, BaseModel) and hint is not Chosen:
                yield from models(hint, f"{path}.{field.alias or name}")


MODELS: Final = tuple(models(FrameworkSpec, "spec"))


@pytest.mark.parametrize(("path", "model"), MODELS, ids=[path for path, _ in MODELS])
def test_fields_and_bounds_of_the_spec(path: str, model: type[BaseModel]) -> None:
    schema = at(path)
    fields = schema.get("items", schema)["properties"]
    whole = model.model_json_schema(by_alias=True)
    read: Json = whole["properties"]
    assert fields.keys() == read.keys()
    for name, field in fields.items():
        # For pydantic, null is one of several types.
        said = next((one for one in read[name].get("anyOf", ()) if one.get("type") != "null"), read[name])
        wide = {"int32": 2**31, "int64": 2**63}.get(field.get("format", ""), 0)
        low, high = field.get("minimum", -wide), field.get("maximum", wide - 1)
        if field.get("x-kubernetes-int-or-string"):
            # The model has a function for it.
            continue
        if field["type"] == "integer":
            assert (said["type"], said["minimum"], said["maximum"]) == ("integer", low, high), name
        elif "enum" in field:
            named = whole["$defs"][said["$ref"].rpartition("/")[2]] if "$ref" in said else {"enum": [said["const"]]}
            assert named["enum"] == field["enum"], name
        elif field["type"] in ("string", "boolean"):
            assert said["type"] == field["type"], name
        assert said.get("pattern") == field.get("pattern"), name
        # The model has no bound for roles: it reads specs from before the CRD had one.
        assert said.get("maxItems") == (field.get("maxItems") if name != "taskRoles" else None), name
        if "default" in field and field["default"] not in ({}, []):
            assert read[name]["default"] == field["default"], name


def test_the_walk_finds_the_models() -> None:
    assert len(MODELS) == 34
    assert len(MODELS) == 34
    assert {"spec", "spec.network", "spec.taskRoles.task.podFailurePolicy.rules.onExitCodes"} <= dict(MODELS).keys()


def test_a_role_has_one_task_by_default() -> None:
    """Zero in the original, whose schema has no defaults (docs/differences.md)."""
    assert at("spec.taskRoles.taskNumber")["default"] == 1


def test_defaults_of_the_schema_mean_the_same_as_absence() -> None:
    def filled(schema: Json) -> Any:
        if schema["type"] != "object":
            return schema.get("default")
        return {name: filled(field) for name, field in schema["properties"].items() if "default" in field}

    assert parse_spec(filled(at("spec"))) == parse_spec({})
    role = filled(at("spec.taskRoles")["items"])
    assert parse_spec({"taskRoles": [{"name": "a", **role}]}) == parse_spec({"taskRoles": [{"name": "a"}]})


def whole_status(*, compress: bool = False) -> Json:
    """A status in which every field has a value."""
    status: FrameworkStatus = filled(FrameworkStatus)
    # Only Tasks have a Pod.
    status.attempt.completion_status = replace(filled(CompletionStatus), pod=None)
    # Long enough to be compressed.
    status.attempt.roles[0].tasks[0].instance_uid = "t" * 800_000
    body: Json = orjson.loads(EncodedStatus("f", status, compress=compress).body)
    return body


TYPES: Final[dict[type, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    dict: "object",
    list: "array",
}


def compare(value: Any, schema: Json, path: str, seen: set[str]) -> None:
    """Every field of ``value`` has a schema of its type; ``seen`` gets the paths of the fields."""
    assert TYPES[type(value)] == schema["type"], path
    if schema["type"] == "array":
        for item in value:
            compare(item, schema["items"], path, seen)
    elif isinstance(of_values := schema.get("additionalProperties"), dict):
        for item in value.values():
            compare(item, of_values, path, seen)
    elif schema["type"] == "object" and not schema.get(PRESERVE):
        for name, item in value.items():
            seen.add(f"{path}.{name}")
            compare(item, schema["properties"][name], f"{path}.{name}", seen)


def fields(schema: Json, path: str) -> set[str]:
    """The paths of all fields that a schema has."""
    schema = schema.get("items", schema)
    found = set()
    for name, field in (schema.get("properties") or {}).items():
        found |= {f"{path}.{name}"} | fields(field, f"{path}.{name}")
    return found


def test_fields_of_the_status() -> None:
    seen: set[str] = set()
    for compress in (False, True):
        body = whole_status(compress=compress)
        if compress:
            del body["attemptStatus"]["taskRoleStatuses"]
        compare(body, at("status"), "status", seen)
    assert seen == fields(at("status"), "status")


def test_fields_that_may_have_no_value_are_nullable() -> None:
    attempt = FrameworkAttemptStatus(0, 1, roles=[TaskRoleStatus("a", "r")])
    attempt.completion_status = CompletionStatus(1, "", "Failed", None, "")

    def check(value: Any, schema: Json, path: str) -> None:
        if value is None:
            assert schema.get("nullable") is True, path
        elif isinstance(value, dict):
            for name, item in value.items():
                check(item, schema["properties"][name], f"{path}.{name}")
        elif isinstance(value, list):
            for item in value:
                check(item, schema["items"], path)

    for status in (FrameworkStatus(1, 2, attempt), FrameworkStatus(1, 2, FrameworkAttemptStatus(0, 1))):
        check(orjson.loads(encode_status("f", status)), at("status"), "status")


def test_the_description_names_every_state() -> None:
    said = at("status.state")["description"]
    assert [state for state in State if state not in said] == []


def test_every_column_shows_a_field() -> None:
    for column in VERSION["additionalPrinterColumns"]:
        path = column["jsonPath"].removeprefix(".")
        if path == "metadata.creationTimestamp":
            continue
        field = at(path)
        wanted = "date" if field.get("format") == "date-time" else field["type"]
        assert column["type"] == wanted, path


def test_every_field_is_explained() -> None:
    def check(schema: Json, path: str) -> None:
        for name, field in (schema.get("properties") or {}).items():
            if name not in ("apiVersion", "kind", "metadata"):
                assert field.get("description"), f"{path}.{name}"
            check(field.get("items", field), f"{path}.{name}")

    check(ROOT, "")
