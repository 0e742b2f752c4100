"""examples/argo: evaluated as Argo does, for every situation of a Framework."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest
import yaml
from lupa import LuaRuntime

from frameworkcontroller.api.codec import encode_status
from frameworkcontroller.api.spec import parse_spec
from frameworkcontroller.api.status import Phase
from frameworkcontroller.local.apiserver.selectors import parse_labels
from tests.support.examples import OF_ARGO
from tests.unit.machine.test_headline import TABLE, headline

Json = dict[str, Any]
HEALTH = {
    "Pending": "Progressing",
    "Queued": "Progressing",
    "Running": "Healthy",
    "Ending": "Progressing",
    "Suspended": "Suspended",
    "Succeeded": "Healthy",
    "Failed": "Degraded",
    "Stopped": "Suspended",
}


def body(situation: str) -> Json:
    """The object that has such a status."""
    bench = TABLE[situation][0]()
    headline(bench)
    status = orjson.loads(encode_status("f", bench.status))
    return {"metadata": {"generation": status["observedGeneration"] or 1}, "status": status}


def workflow() -> Json:
    made: Json = yaml.safe_load((OF_ARGO / "workflow.yaml").read_text())
    return made


class Document(Mapping[str, str]):
    """The labels that Argo sees: a key is a path (gjson) in the object."""

    def __init__(self, document: Json) -> None:
        self._document = document

    def __getitem__(self, path: str) -> str:
        found: Any = self._document
        for key in path.split("."):
            found = found[key]
        return str(found)

    def __iter__(self) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError


def decision(document: Json) -> str:
    """The decision of Argo's executor: failed if any failure requirement holds, succeeded if all others do."""
    (template,) = workflow()["spec"]["templates"]
    labels, resource = Document(document), template["resource"]
    if any(one.matches(labels) for one in parse_labels(resource["failureCondition"])):
        return "failed"
    met = all(one.matches(labels) for one in parse_labels(resource["successCondition"]))
    return "succeeded" if met else "waits"


@pytest.mark.parametrize("situation", list(TABLE))
def test_the_step_ends_with_the_framework(situation: str) -> None:
    phase = Phase(TABLE[situation][1][0])
    ended = {Phase.SUCCEEDED: "succeeded", Phase.FAILED: "failed", Phase.STOPPED: "failed"}
    assert decision(body(situation)) == ended.get(phase, "waits")


def test_the_step_waits_for_the_controller() -> None:
    assert decision({"metadata": {}}) == "waits"


def test_the_manifest_is_a_framework() -> None:
    (template,) = workflow()["spec"]["templates"]
    framework = yaml.safe_load(template["resource"]["manifest"])
    assert parse_spec(framework["spec"]).task_count == 2


def health(document: Json) -> tuple[str, str]:
    """Status and message in Argo CD."""
    settings = yaml.safe_load((OF_ARGO / "argocd-cm.yaml").read_text())["data"]
    (script,) = settings.values()
    lua = LuaRuntime(unpack_returned_tuples=True, register_eval=False)
    lua.globals().obj = lua.table_from(document, recursive=True)
    found = lua.execute(script)
    return found.status, found.message


@pytest.mark.parametrize("situation", list(TABLE))
def test_health_follows_the_phase(situation: str) -> None:
    document = body(situation)
    phase, _, message = TABLE[situation][1]
    conditions = {one["type"]: one["status"] for one in document["status"].get("conditions", ())}
    stalled = conditions.get("Stalled") == "True"
    wanted = "Degraded" if stalled and HEALTH[phase] == "Progressing" else HEALTH[phase]
    assert health(document) == (wanted, f"{phase}: {message}" if message else phase)


def test_health_before_the_controller_has_seen_it() -> None:
    assert health({"metadata": {"generation": 1}}) == ("Progressing", "not seen by a controller yet")
    changed = body("runs")
    changed["metadata"]["generation"] += 1
    assert health(changed)[0] == "Progressing"
