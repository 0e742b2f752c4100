"""Reported progress, and avoided nodes, on the pages."""

from __future__ import annotations

import re
from dataclasses import replace

from frameworkcontroller.api.status import ProgressMetric, ProgressStatus
from frameworkcontroller.dashboard.frameworkpage import FrameworkPage, FrameworkSource
from frameworkcontroller.dashboard.listing import FrameworkList, ListQuery, PastRows
from frameworkcontroller.dashboard.rendering import render
from frameworkcontroller.dashboard.rows import live_framework
from tests.support import pagesamples as samples


def panel(page: FrameworkPage) -> str:
    """The text of the panel; "" without one. A bar is ``[bar NAME VALUE/MAX]``."""
    found = re.search(r'<section class="panel" id="progress".*?</section>', render(page), re.DOTALL)
    text = found.group() if found else ""
    text = re.sub(r'<progress max="(\d+)" value="(\d+)" aria-label="(.*?)">', r"[bar \3 \2/\1] ", text)
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def list_of(*bodies: samples.Json, **query: str) -> FrameworkList:
    """The list of these Frameworks."""
    found = [live_framework(body) for body in bodies]
    asked = ListQuery.of(query)
    matched = asked.ordered(one for one in found if asked.matches(one))
    return FrameworkList(samples.shell("frameworks"), asked, found, matched, PastRows(), ["default"])


def test_a_framework_shows_bar_step_metrics_and_times() -> None:
    assert panel(samples.one_framework()) == (
        "Progress [bar Progress 42/100] 42%, 1h9m left Step 8,400 of 20,000 loss 0.2513 learning_rate 2.517e-05 "
        "Last checkpoint 5m20s ago Last report 20s ago"
    )


def test_a_framework_without_progress_has_no_panel() -> None:
    assert panel(samples.one_framework(samples.many(3))) == ""


def test_progress_without_a_percentage_has_no_bar() -> None:
    page = samples.one_framework(samples.running("f", ProgressStatus(step=7, last_report_time=samples.NOW - 9)))
    assert panel(page) == "Progress step 7 Step 7 Last report 9s ago"


def test_an_old_report_is_marked() -> None:
    page = samples.one_framework(samples.running("f", samples.reported(0, age=200)))
    assert 'class="stale">42%, last report 3m20s ago<' in render(page)
    slow = samples.running("f", samples.reported(0, age=200))
    slow["spec"]["progress"] = {"intervalSeconds": 600}
    assert "stale" not in render(samples.one_framework(slow))
    assert "stale" not in render(list_of(slow))


def test_an_earlier_attempt_is_named() -> None:
    text = panel(samples.one_framework(samples.running("f", samples.reported(0), retries=2)))
    assert "] 42% (attempt 0) Step" in text


def test_an_ended_framework_of_the_archive_shows_its_last_progress() -> None:
    body = samples.running("f", samples.reported(0, age=5000))
    for source in (
        FrameworkSource(body, body, live=False),
        # An earlier attempt of a live one, as it was archived.
        FrameworkSource(samples.many(3), body, live=True),
    ):
        text = panel(FrameworkPage(samples.shell("framework"), source))
        assert text.startswith("Progress [bar Progress 42/100] 42% Step 8,400 of 20,000 ")


def test_the_list_has_a_column_only_if_a_framework_has_progress() -> None:
    plain, busy = samples.running("plain", None), samples.running("busy", samples.reported(0))
    assert "progress" not in {column.key for column in list_of(plain).columns}
    assert "progress-cell" not in render(list_of(plain))
    page = render(list_of(plain, busy))
    assert page.count("<progress") == 1
    assert '<progress max="100" value="42" aria-label="Progress of busy">' in page
    assert ">42%, 1h9m left<" in page
    assert "progress-cell" not in render(list_of(plain, busy, q="plain"))


def test_the_list_is_sorted_by_progress() -> None:
    bodies = [
        samples.running("none", None),
        samples.running("late", samples.reported(0, step=18_000)),
        samples.running("early", samples.reported(0, step=200)),
        samples.running("step", ProgressStatus(step=1)),
    ]
    assert [row.name for row in list_of(*bodies, sort="progress").rows] == ["late", "early", "step", "none"]
    names = [row.name for row in list_of(*bodies, sort="progress", order="asc").rows]
    assert names == ["none", "step", "early", "late"]


def test_foreign_names_of_metrics_are_only_text() -> None:
    progress = replace(samples.reported(0), metrics=[ProgressMetric("<img src=x onerror=alert(1)>", 1.0)])
    text = render(samples.one_framework(samples.running("f", progress)))
    assert "<img" not in text
    assert "&lt;img src=x" in text


def test_a_task_names_the_nodes_that_it_avoids() -> None:
    assert "Avoided nodes</dt><dd><bdi>node-1</bdi>, <bdi>node-0</bdi></dd>" in render(samples.one_task())
    assert "Avoided" not in render(samples.one_task(5))
