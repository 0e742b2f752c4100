"""The page of failures by node: suspect nodes are marked, and come first."""

from __future__ import annotations

from frameworkcontroller.dashboard.failurepage import FailurePage, FailureQuery
from frameworkcontroller.dashboard.rendering import render
from tests.support import pagesamples as samples


def test_suspect_nodes_are_marked() -> None:
    page = samples.failures({"by": "node"})
    assert [(group["key"], group["suspect"], group["usual"]) for group in page.groups] == [
        ("node-3", True, "30.5"),
        ("node-1", False, "30.5"),
        ("node-2", False, "30.5"),
    ]
    assert render(page).count("suspect</span>") == 1
    assert "suspect" not in render(samples.failures({"by": "code"}))


def test_suspect_nodes_come_first_and_an_older_archive_has_none() -> None:
    def item(key: str, **more: object) -> dict[str, object]:
        return {**samples._group(key, key, 20), "ofAttempts": 40, "frameworks": 3, **more}

    query = FailureQuery("node")
    page = FailurePage(samples.shell("failures"), query, [item("n1", expected=15.0), item("n2", expected=1.0)])
    assert [group["key"] for group in page.groups] == ["n2", "n1"]
    old = FailurePage(samples.shell("failures"), query, [item("n1")])
    assert [(group["suspect"], group["usual"]) for group in old.groups] == [(False, "")]
