"""Dashboard and alert rules: nothing in them that the controller does not serve, and each alert with its runbook."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.test_generated_pages import ROOT, generator

MONITORING = ROOT / "manifests" / "monitoring"
RULES: list[dict[str, Any]] = yaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"]["groups"][0]["rules"]
PANELS: list[dict[str, Any]] = json.loads((MONITORING / "dashboard.json").read_text())["panels"]

_WORD = re.compile(r"\b(?:frameworkcontroller|workqueue|leader_election|process|python)_[a-z_]+\b")


def served() -> dict[str, list[str]]:
    """The names that one asks Prometheus for, and their labels."""
    script = generator("metrics")
    found = {}
    for family in [*script.families(), *script.archive_families()]:
        suffixes = ("_bucket", "_sum", "_count") if family.type == "histogram" else ("",)
        for suffix in suffixes:
            found[script.name_of(family) + suffix] = script.labels_of(family)
    return found


def expressions() -> list[tuple[str, str]]:
    """Every PromQL there is, and where."""
    rules = [(rule["alert"], rule["expr"]) for rule in RULES]
    return rules + [(panel["title"], target["expr"]) for panel in PANELS for target in panel.get("targets", ())]


def headings(page: str) -> list[str]:
    return re.findall(r"^## (.+)$", (ROOT / "docs" / page).read_text(), re.MULTILINE)


def test_the_dashboard_is_current() -> None:
    assert (MONITORING / "dashboard.json").read_text() == generator("dashboard").document(), "run `make docs`"


def test_every_metric_in_use_is_served() -> None:
    known = served()
    for where, expression in expressions():
        names = _WORD.findall(re.sub(r'"[^"]*"', "", expression))
        assert names, where
        assert [name for name in names if name not in known] == [], where


def test_each_metric_with_results_is_shown() -> None:
    shown = " ".join(target["expr"] for panel in PANELS for target in panel.get("targets", ()))
    script = generator("metrics")
    names = [script.name_of(family) for family in script.families() if "result" in script.labels_of(family)]
    assert "frameworkcontroller_events_total" in names
    assert [name for name in names if not re.search(rf"\b{name}(_count)?\b", shown)] == []


def test_every_label_in_use_is_the_metrics_own_or_its_targets() -> None:
    known = served()
    target = {"namespace", "job", "instance"}
    for where, expression in expressions():
        for name, selector in re.findall(r"([a-z_]+)\{([^}]*)\}", expression):
            labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", selector))
            assert labels <= {*known[name], *target}, f"{where}: {name}"
        bare = set(_WORD.findall(expression))
        for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
            labels = {label.strip() for label in group.split(",")} - target - {"le"}
            assert any(labels <= set(known.get(name, ())) for name in bare), f"{where}: {labels}"


def test_every_value_of_a_label_that_is_asked_for_exists() -> None:
    """A state, a result or a reason that was renamed would silence an alert."""
    script = generator("metrics")
    values: dict[str, set[str]] = {}
    for family in script.families():
        for sample in family.samples:
            for label, value in sample.labels.items():
                values.setdefault(label, set()).add(value)
    for where, expression in expressions():
        for label, operator, text in re.findall(r"(\w+)\s*(=~|!~|!=|=)\s*\"([^\"]*)\"", expression):
            if label in ("job", "code"):
                continue
            for one in text.split("|") if operator in ("=~", "!~") else [text]:
                assert one in values[label], f"{where}: {label} {one}"


def test_every_alert_has_its_runbook_and_every_runbook_its_alert() -> None:
    alerts = [rule["alert"] for rule in RULES]
    assert headings("runbooks.md") == alerts
    for rule in RULES:
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"].endswith(".")


@pytest.mark.parametrize("file", sorted(MONITORING.glob("*.yaml")), ids=lambda file: file.name)
def test_manifests_name_the_application(file: Path) -> None:
    for body in yaml.safe_load_all(file.read_text()):
        if body["kind"] != "Component":
            assert body["metadata"]["labels"]["app.kubernetes.io/name"] == "frameworkcontroller"


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        grid = panel["gridPos"]
        cells = {
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not taken & cells, panel["title"]
        taken |= cells
