"""Server-side apply, step by step, as a real 1.36 did it."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from typing import Any

import orjson
import pytest

from frameworkcontroller.local.apiserver import apply, builtin, builtin_resources, patches
from frameworkcontroller.local.apiserver.api_errors import ApiStatusError
from frameworkcontroller.local.apiserver.api_resources import ApiResource, Subresource
from frameworkcontroller.local.apiserver.fieldsets import FieldSet
from frameworkcontroller.local.apiserver.schema import Structural
from tests.unit.apiserver import answers

Json = dict[str, Any]

STORIES = answers.load("applies")["stories"]
SCHEMA = answers.load("custom_resources")["schema"]
WIDGETS = replace(
    builtin_resources.CONFIGMAPS,
    group="test.example.com",
    kind="Wid",
    plural="wids",
    schema=SCHEMA,
    subresources=(Subresource("status", "Wid", ("get", "patch", "update")),),
)
TYPES = {t.plural: t for t in (builtin_resources.CONFIGMAPS, builtin_resources.PODS, WIDGETS)}


class Replay:
    """One object, written as a server would, without one."""

    def __init__(self, t: ApiResource) -> None:
        self.t = t
        self.of = builtin.type_of(t)
        self.structural = Structural(t.schema) if t.schema is not None else None
        self.live: Json | None = None
        self._ticks = itertools.count()

    def do(self, step: Json) -> Json:
        now = f"2026-11-21T03:00:{next(self._ticks):02}Z"
        manager, subresource = step["manager"], step.get("subresource", "")
        if "apply" in step:
            apply.check(self.t, step["apply"], of=self.of)
            configuration = builtin.decode(self.t, step["apply"], structural=self.structural).obj
            new = apply.apply(
                self.live,
                configuration,
                of=self.of,
                manager=manager,
                now=now,
                force=step.get("force", False),
                subresource=subresource,
                status_apart=self.t.subresource("status") is not None,
            )
            new = self._admitted(new, subresource)
        else:
            given = step["create"] if "create" in step else patches.merge_patch(self.live, step["merge"])
            new = self._admitted(builtin.decode(self.t, given, structural=self.structural).obj, subresource)
            new = apply.update_managers(
                self.live, new, of=self.of, manager=manager, now=now, explicit=True, subresource=subresource
            )
        self.live = new
        return new

    def _admitted(self, new: Json, subresource: str) -> Json:
        new = builtin.default(self.t, new) if self.structural is None else self.structural.default(new)
        if self.t.subresource("status") is None:
            return new
        untouched = "spec" if subresource == "status" else "status"
        new = {key: value for key, value in new.items() if key != untouched}
        return {**new, untouched: self.live[untouched]} if self.live and untouched in self.live else new


def canonical(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def comparable(obj: Json) -> Json:
    found = copy.deepcopy(obj)
    metadata = found["metadata"]
    metadata.pop("namespace", None)
    for entry in metadata.get("managedFields", []):
        entry.pop("time", None)
    metadata["managedFields"] = sorted(metadata.get("managedFields", []), key=canonical)
    if found["kind"] == "Pod":
        found.pop("status", None)
    return found


@pytest.mark.parametrize("story", STORIES, ids=lambda story: str(story["story"]))
def test_an_object_fares_as_on_a_real_server(story: Json) -> None:
    replay = Replay(TYPES[story["resource"]])
    for number, step in enumerate(story["steps"]):
        refused = step.get("refused")
        if refused is None:
            recorded = comparable(step["becomes"])
            assert comparable(replay.do(step)) == recorded, f"step {number}"
            continue
        before = copy.deepcopy(replay.live)
        with pytest.raises(ApiStatusError) as refusal:
            replay.do(step)
        assert (refusal.value.code, refusal.value.message) == (refused["code"], refused["message"]), f"step {number}"
        causes = sorted([cause["message"], cause["field"]] for cause in refusal.value.causes())
        assert causes == refused.get("causes", [])
        assert replay.live == before


def config_map(data: Json, **metadata: Any) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", **metadata}, "data": data}


OF = builtin.type_of(builtin_resources.CONFIGMAPS)


def applied(live: Json | None, data: Json, manager: str = "m", *, force: bool = False, now: str = "t1") -> Json:
    return apply.apply(live, config_map(data), of=OF, manager=manager, now=now, force=force)


def test_a_write_without_a_manager_is_not_tracked() -> None:
    created = apply.update_managers(None, config_map({"a": "1"}), of=OF, manager="program", now="t0")
    assert "managedFields" not in created["metadata"]
    updated = apply.update_managers(
        created, config_map({"a": "2"}), of=OF, manager="kubectl-edit", now="t1", explicit=True
    )
    assert "managedFields" not in updated["metadata"]


def test_the_first_apply_to_an_untracked_object_conflicts_with_its_fields() -> None:
    live = config_map({"a": "1", "b": "1"})
    with pytest.raises(ApiStatusError) as refusal:
        applied(live, {"a": "2"})
    assert refusal.value.message == 'Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.a'
    forced = applied(live, {"a": "2"}, force=True)
    assert forced["data"] == {"a": "2", "b": "1"}
    assert [entry["manager"] for entry in forced["metadata"]["managedFields"]] == ["m", "before-first-apply"]


def test_an_apply_that_changes_nothing_leaves_the_object_as_it_is() -> None:
    live = applied(None, {"a": "1"})
    assert applied(live, {"a": "1"}, now="t2") == live


def test_an_entry_has_the_time_of_its_last_change() -> None:
    live = applied(applied(None, {"a": "1"}), {"b": "1"}, "other", now="t2")
    times = {entry["manager"]: entry["time"] for entry in live["metadata"]["managedFields"]}
    assert times == {"m": "t1", "other": "t2"}


def test_a_client_may_rewrite_the_ledger_but_not_with_nonsense() -> None:
    live = applied(None, {"a": "1"})
    entry = {**live["metadata"]["managedFields"][0], "manager": "other"}
    moved = apply.update_managers(
        live, config_map({"a": "1"}, managedFields=[entry]), of=OF, manager="x", now="t2", explicit=True
    )
    assert [one["manager"] for one in moved["metadata"]["managedFields"]] == ["other"]
    kept = apply.update_managers(
        live, config_map({"a": "1"}, managedFields=[{"manager": "x"}]), of=OF, manager="x", now="t2", explicit=True
    )
    assert [one["manager"] for one in kept["metadata"]["managedFields"]] == ["m"]
    dropped = apply.update_managers(
        live, config_map({"a": "1"}, managedFields=[{}]), of=OF, manager="x", now="t2", explicit=True
    )
    assert "managedFields" not in dropped["metadata"]


def test_a_configuration_may_not_bring_its_own_ledger() -> None:
    with pytest.raises(ApiStatusError) as refusal:
        apply.apply(None, config_map({}, managedFields=[{"manager": "x"}]), of=OF, manager="m", now="t")
    assert (refusal.value.code, refusal.value.message) == (400, "metadata.managedFields must be nil")


@pytest.mark.parametrize(
    ("configuration", "code", "message"),
    [
        (
            [],
            400,
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go "
            "value of type map[string]interface {}",
        ),
        (None, 400, "invalid object type: /, Kind="),
        ({"apiVersion": "v1", "kind": "Pod"}, 400, "invalid object type: /v1, Kind=Pod"),
        (
            {**config_map({"a": "1"}, namespace="n"), "foo": 1},
            500,
            "failed to create typed patch object (n/c; /v1, Kind=ConfigMap): .foo: field not declared in schema",
        ),
    ],
)
def test_a_configuration_must_be_of_the_type(configuration: Any, code: int, message: str) -> None:
    with pytest.raises(ApiStatusError) as refusal:
        apply.check(builtin_resources.CONFIGMAPS, configuration, of=OF)
    assert (refusal.value.code, refusal.value.message) == (code, message)


def test_a_set_of_fields_is_read_and_written_in_the_form_of_the_api() -> None:
    text = {"f:a": {".": {}, "f:b": {}, 'k:{"name":"x"}': {"f:c": {}}}, "f:d": {'v:"y"': {}}}
    fields = FieldSet.parse(text)
    assert fields.fields_v1() == text
    assert list(fields.paths()) == [".a", ".a.b", '.a[name="x"].c', '.d[="y"]']
    with pytest.raises(ValueError, match="not a step"):
        FieldSet.parse({"x": {}})


def test_kubectl_does_not_conflict_with_its_client_side_apply() -> None:
    last = orjson.dumps(config_map({"a": "1", "b": "1"})).decode()
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": last}
    live = apply.update_managers(
        None,
        config_map({"a": "1", "b": "2"}, annotations=annotations),
        of=OF,
        manager="kubectl-client-side-apply",
        now="t0",
        explicit=True,
    )
    taken = applied(live, {"a": "2"}, "kubectl")
    assert taken["data"] == {"a": "2", "b": "2"}
    with pytest.raises(ApiStatusError, match="conflict with"):
        applied(live, {"a": "2"}, "somebody")
    # Another client has changed the applied value.
    with pytest.raises(ApiStatusError, match=r"\.data\.b"):
        applied(live, {"b": "3"}, "kubectl")
