"""The pages: their content, from statuses and entries of the archive."""

import asyncio
import re
import shlex
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from frameworkcontroller.api.completion import (
    FRAMEWORK_ATTEMPT_COMPLETION,
    CompletionStatus,
    ContainerCompletion,
    PodCompletion,
)
from frameworkcontroller.api.phases import phase_of_task
from frameworkcontroller.api.status import State, TaskStatus
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.dashboard.failurepage import FailureQuery
from frameworkcontroller.dashboard.frameworkpage import FrameworkPage, FrameworkSource
from frameworkcontroller.dashboard.listing import ROWS, FrameworkList, ListQuery, PastRows
from frameworkcontroller.dashboard.live import Changes, PodsAndEvents
from frameworkcontroller.dashboard.rendering import render
from frameworkcontroller.dashboard.rows import ONLY_TASKS, live_framework, past_row
from frameworkcontroller.dashboard.views import PHASES
from frameworkcontroller.views.diagnosis import NOT_SEEN, diagnose_framework, read_view
from tests.support import pagesamples as samples

SVG = "{http://www.w3.org/2000/svg}"
WHY = "no disk"


def names_in(page: FrameworkList) -> list[str]:
    return [row.name for row in page.rows if row.live]


# --- the list ---


def test_a_framework_is_shown_with_why_it_waits_or_how_it_ended() -> None:
    rows = {row.name: row for row in samples.list_page().rows if row.live}
    assert {name: (row.phase, row.word) for name, row in rows.items()} == {
        "mnist": ("running", ""),
        "sweep": ("running", ""),
        "fresh": ("pending", ""),
        "queued": ("queued", ""),
        "good": ("succeeded", ""),
        "bad": ("failed", ""),
        "paused": ("suspended", ""),
        "stuck": ("running", "stalled"),
    }
    assert rows["fresh"].message == NOT_SEEN
    assert "queue gpus has not admitted it" in rows["queued"].message
    no_file = "FileNotFoundError: no such file: /data/<script>alert(1)</script>.bin"
    assert rows["bad"].message == f"worker[1] on node-1: main exited with 7: {no_file}"
    assert (rows["bad"].result, rows["bad"].retries) == ("210 ContainerPermanentFailed", 2)
    assert "exceeded quota" in rows["stuck"].message
    assert rows["mnist"].bar.text == "2 failed, 3 pending, 1 ending, 3 running, 2 succeeded"
    assert sum(share.percent for share in rows["mnist"].bar.shares) == pytest.approx(100, abs=0.1)
    # Before the first status there are no Tasks, but those to come.
    assert rows["fresh"].bar.text == "4 pending"


def test_a_framework_that_cannot_be_read_is_listed_as_such() -> None:
    body = samples.training()
    body["status"]["attemptStatus"]["taskRoleStatuses"][0]["taskStatuses"][0]["state"] = "Nonsense"
    assert (live_framework(body).message, live_framework(body).phase) == ("its status cannot be read", "failed")
    page = samples.one_framework(body)
    assert "Nonsense" in page.problem
    assert page.roles == []


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"q": "MNI"}, ["mnist"]),
        ({"q": "gpus admitted"}, ["queued"]),
        ({"q": "210"}, ["bad"]),
        ({"namespace": "serving"}, ["paused", "stuck"]),
        ({"phase": "failed"}, ["bad"]),
        ({"phase": "suspended"}, ["paused"]),
        ({"phase": "stalled"}, ["stuck"]),
        ({"phase": "nonsense", "namespace": "serving"}, ["paused", "stuck"]),
        ({"which": "past"}, []),
        ({"sort": "name", "q": "default", "which": "live"}, ["bad", "good", "mnist"]),
        ({"sort": "name", "order": "desc", "namespace": "serving"}, ["stuck", "paused"]),
        ({"sort": "tasks", "namespace": "research"}, ["sweep", "fresh", "queued"]),
        ({"sort": "retries", "namespace": "default"}, ["mnist", "bad", "good"]),
        ({"page": "1", "which": "live"}, []),
        ({"page": "-1", "sort": "<", "order": "?", "which": "x", "namespace": "serving"}, ["paused", "stuck"]),
    ],
)
def test_the_list_filters_and_sorts(query: dict[str, str], found: list[str]) -> None:
    names = names_in(samples.list_page(query))
    assert names == found or (set(names) == set(found) and "sort" not in query)


def test_every_link_of_the_list_leads_to_the_list_that_it_says() -> None:
    query = ListQuery(text="a b", namespace="x", phase="failed", which="live", sort="name", descending=True, page=3)
    assert ListQuery.of(dict(part.split("=") for part in query.href[1:].replace("+", " ").split("&"))) == query
    assert ListQuery().href == "?"
    page = samples.list_page({"q": "mnist", "sort": "name"})
    links = {column.key: column for column in page.columns}
    assert (links["name"].href, links["name"].sorted) == ("?q=mnist&sort=name&order=desc", "ascending")
    assert (links["tasks"].href, links["tasks"].sorted) == ("?q=mnist&sort=tasks", "")
    assert page.clear == "?sort=name"


def test_pages_of_live_ones_are_followed_by_past_ones() -> None:
    query = ListQuery()
    body = samples.training()
    found = []
    for number in range(ROWS + 1):
        body["metadata"] |= {"name": f"n{number}", "uid": f"u{number}"}
        found.append(live_framework(body))
    past = samples.list_page({"which": "past"}).rows
    first = FrameworkList(samples.shell("frameworks"), query, found, found, PastRows(), ["default"])
    assert (len(first.rows), first.older, first.newer) == (ROWS, "?page=1", "")
    second = FrameworkList(
        samples.shell("frameworks"), ListQuery(page=1), found, found, PastRows(past, "k"), ["default"]
    )
    assert [row.live for row in second.rows] == [True] + [False] * len(past)
    assert (second.older, second.newer, second.first_row) == ("?after=k", "?", ROWS + 1)
    third = FrameworkList(samples.shell("frameworks"), ListQuery(after="k"), found, found, PastRows(past), ["default"])
    assert ({row.live for row in third.rows}, third.older, third.newer) == ({False}, "", "?")
    # Exactly full: past ones begin on a page of their own.
    full = FrameworkList(samples.shell("frameworks"), query, found, found[:ROWS], PastRows(), ["default"])
    assert full.older == "?page=1"
    alone = FrameworkList(samples.shell("frameworks", past=False), query, found, found[:ROWS], PastRows(), ["default"])
    assert alone.older == ""


def test_a_row_is_found_by_its_phase_and_word() -> None:
    page = samples.list_page({"which": "live"})
    for row in page.rows:
        for shown in filter(None, (row.word, row.phase)):
            choice = next(one for one in page.phases if one.value == shown)
            found = names_in(samples.list_page({"which": "live", "phase": shown}))
            assert row.name in found
            assert choice.number == len(found)


def test_a_past_framework_has_the_bar_that_it_had() -> None:
    """A Task that failed, and nine that the end of the attempt stopped: the same before and after."""
    tasks = {"worker": [samples.task(0, State.COMPLETED, samples.NO_DATA)]}
    stopped = CompletionStatus.of(FRAMEWORK_ATTEMPT_COMPLETION, "")
    tasks["worker"] += [samples.task(index, State.COMPLETED, stopped) for index in range(1, 10)]
    body = samples.framework("f", tasks, State.COMPLETED, end=samples.NO_DATA)
    item = {
        **samples.past_items()[1], "tasks": 10, "failedTasks": 1, "succeededTasks": 0, "stoppedTasks": 9,
    }  # fmt: skip
    assert live_framework(body).bar == past_row(item).bar
    assert past_row(item).bar.text == "1 failed, 9 stopped"


@pytest.mark.parametrize(
    ("item", "phase", "message", "bar"),
    [
        ({"state": None, "phase": "running", "code": None, "tasks": None}, "running", ONLY_TASKS, ""),
        ({"phase": "running", "state": "AttemptCompleted"}, "running", "", "3 failed, 5 running"),
        ({"phase": "stopped", "state": "Other"}, "stopped", WHY, "3 failed, 5 stopped"),
        ({"phase": "failed"}, "failed", WHY, "3 failed, 5 stopped"),
        ({"phase": "succeeded"}, "succeeded", "", "3 failed, 5 stopped"),
    ],
)  # fmt: skip
def test_a_past_framework_has_its_phase_and_reason(item: dict[str, Any], phase: str, message: str, bar: str) -> None:
    counts = {"tasks": 8, "failedTasks": 3, "succeededTasks": None, "stoppedTasks": None}
    if item.get("tasks", 8) is None:
        counts = dict.fromkeys(counts)
    row = past_row({**samples.past_items()[1], "diagnostics": "no disk ", **counts, **item})
    assert (row.phase, row.message, row.bar.text) == (phase, message, bar)


def test_numbers_of_choices_follow_the_other_filters() -> None:
    def numbers(query: dict[str, str]) -> tuple[dict[str, int | None], dict[str, int | None]]:
        page = samples.list_page(query)
        phases, namespaces = page.phases[1:], page.namespaces[1:]
        return {one.value: one.number for one in phases}, {one.value: one.number for one in namespaces}

    phases, namespaces = numbers({})
    assert (phases["failed"], phases["pending"], namespaces["serving"], namespaces["default"]) == (1, 1, 2, 3)
    for query in ({"q": "serving"}, {"namespace": "serving"}, {"q": "serving", "phase": "stalled"}):
        phases, namespaces = numbers(query)
        # Each is the length of the list that the choice gives.
        for value, number in phases.items():
            assert number == samples.list_page({**query, "phase": value}).matched, (query, value)
        for value, number in namespaces.items():
            assert number == samples.list_page({**query, "namespace": value}).matched, (query, value)
    phases, namespaces = numbers({"which": "past"})
    assert set(phases) == {"failed", "running", "stopped", "succeeded"}
    assert {*phases.values(), *namespaces.values()} == {None}


def test_phases_that_no_framework_has_take_no_place() -> None:
    live = [one.value for one in samples.list_page({"which": "live"}).phases]
    assert live == ["", "failed", "pending", "queued", "suspended", "running", "succeeded", "stalled"]
    # The archive may have them, which counts none.
    assert "stopped" in [one.value for one in samples.list_page().phases]
    chosen = samples.list_page({"which": "live", "phase": "ending"}).phases
    assert [(one.value, one.number) for one in chosen if one.selected] == [("ending", 0)]


def test_the_usual_end_needs_no_reason() -> None:
    text = render(samples.list_page({"which": "live"}))
    assert "worker[1] on node-1: main exited with 7" in text
    assert "0 Succeeded" not in text


def test_an_empty_list_says_what_to_type() -> None:
    empty = samples.list_page(past=False, empty=True).empty
    assert empty is not None
    assert [command.text for command in empty.commands] == ["kubectl apply -f examples/batch/batchsucceeded.yaml"]
    archive = samples.list_page({"which": "past"}, past=False).empty
    assert archive is not None
    assert any("history serve" in command.text for command in archive.commands)


# --- one Framework ---


def test_page_and_command_give_the_same_reasons() -> None:
    for body in samples.frameworks():
        page = samples.one_framework(body)
        said = diagnose_framework(read_view(body, {}), samples.NOW) or [NOT_SEEN] * ("status" not in body)
        # The usual end is said in plain words before.
        plain = ["Succeeded: all 2 Tasks succeeded"] if body["metadata"]["name"] == "good" else []
        assert page.sentences == plain + said, body["metadata"]["name"]
        assert all(phase_of_task(task).lower() in PHASES for role in page.roles for task in role.tasks)


def test_tasks_are_grouped_by_state_and_reason() -> None:
    page = samples.one_framework(samples.many(40))
    (role,) = page.roles
    assert len(role.tasks) == 40
    assert sum(len(one.tasks) for one in role.groups) == 40
    assert phase_of_task(role.groups[0].tasks[0]) == "Failed"
    assert "no such file: /data/<script>alert(1)</script>.bin" in role.groups[0].text
    waiting = next(one for one in samples.one_framework().roles[0].groups if one.indexes == "5")
    assert waiting.text == f"Unschedulable: {samples.NO_NODE}"


def test_failures_count_retried_attempts_of_the_archive_too() -> None:
    code = "7 ContainerUnrecognizedFailed"
    for past, number in ((True, 3), (False, 1)):
        rows = [row for row in samples.one_framework(past=past).failures if row.result == code]
        (row,) = rows
        assert {one.names for one in row.words} == {"worker[2]"}
        assert row.number == sum(len(one.tasks) for one in row.words) == number


def test_failures_are_grouped_by_code_in_the_containers_own_words() -> None:
    """Words that differ in numbers are shown once, as the first container wrote them."""

    def failed(index: int, message: str) -> TaskStatus:
        container = ContainerCompletion("main", 7, "Error", message)
        end = CompletionStatus(7, "Unrecognized", "Failed", (), "", pod=PodCompletion(containers=(container,)))
        return samples.task(index, State.COMPLETED, end)

    tasks = [failed(index, f'lost Pod "f-worker-{index}" of 9') for index in range(3)]
    tasks += [failed(index, f"text {chr(97 + index)}") for index in range(3, 14)]
    (row,) = samples.one_framework(samples.framework("f", {"worker": tasks}, State.RUNNING)).failures
    assert (row.result, row.number, len(row.words), len(row.by_text)) == ("7 Unrecognized", 14, 8, 12)
    first, second = row.words[:2]
    assert first.text == 'main exited with 7: lost Pod "f-worker-0" of 9'
    assert (first.names, len(first.tasks), second.names, len(second.tasks)) == ("worker[0-2]", 3, "worker[3]", 1)
    assert "its Pod" not in render(samples.one_framework(
        samples.framework("f", {"worker": tasks[:1]}, State.RUNNING)
    )).partition('id="failures"')[2].partition("</section>")[0]  # fmt: skip


def test_an_entry_of_the_archive_that_has_no_attributes_has_no_category() -> None:
    assert samples.one_task(2).attempts[-1].type == ""
    live = next(row for row in samples.one_framework(past=False).failures if row.result.startswith("200 "))
    assert live.category == "Transient"


def test_attempts_that_are_not_stored_are_listed_as_such() -> None:
    known, unknown = samples.one_framework().attempts[1], samples.one_framework(past=False).attempts[1]
    assert (known.stored, known.result) == (True, "200 ContainerTransientFailed")
    assert (unknown.id, unknown.stored, unknown.result) == (0, False, "")


def test_the_picture_links_to_tasks_and_has_no_style_of_its_own() -> None:
    page = samples.one_framework()
    picture = ET.fromstring(page.timeline)
    links = [link.get("href") for link in picture.iter(f"{SVG}a")]
    assert "../../frameworks/default/mnist/0f1e2d3c-mnist/tasks/worker/2" in links
    assert not list(picture.iter(f"{SVG}style"))
    assert "style=" not in page.timeline
    told = [title.text or "" for title in picture.iter(f"{SVG}title")]
    assert any(text.startswith("worker[2] attempt 1: ran for 1m15s on node-1, then 7") for text in told)


def test_earlier_attempts_are_drawn_from_their_entries() -> None:
    body = samples.framework("many", {"worker": [samples.task(0, State.RUNNING)]}, retries=20)
    began = samples.NOW - 20_000
    entries = [
        {"id": number, "code": 7, "phrase": "P", "type": "Failed", "diagnostics": "", "tasks": 5000,
         "started": format_time(began + 700 * number), "completed": format_time(began + 700 * number + 600)}
        for number in range(20)
    ]  # fmt: skip
    page = FrameworkPage(samples.shell("framework"), FrameworkSource(body, body, live=True, attempts=entries))
    drawn = [title.text or "" for title in ET.fromstring(page.timeline).iter(f"{SVG}title")]
    assert sum(text.startswith("Framework attempt ") for text in drawn) >= 21
    assert not any("earlier attempt" in text for text in drawn)


def test_yaml_of_many_tasks_leaves_them_out() -> None:
    page = samples.one_framework(samples.many(101))
    assert page.status_cut == "the statuses of 101 Tasks"
    assert "taskRoleStatuses" not in page.status
    assert "taskStatuses" in samples.one_framework().status


def test_commands_are_quoted_and_fit_the_state() -> None:
    def commands(body: samples.Json) -> dict[str, bool]:
        return {one.text: one.changes for one in samples.one_framework(body).commands}

    running = commands(samples.training())
    assert running["kubectl framework suspend mnist -n default"]
    assert running["kubectl framework logs mnist -f -n default"] is False
    by_name = {body["metadata"]["name"]: body for body in samples.frameworks()}
    assert "kubectl framework resume paused -n serving" in commands(by_name["paused"])
    done = commands(by_name["good"])
    assert [text.split()[1:3] for text, changes in done.items() if changes] == [["delete", shlex.split(next(
        text for text, changes in done.items() if changes
    ))[2]]]  # fmt: skip
    body = samples.training()
    body["metadata"]["namespace"] = "a b;$(rm)"
    assert all(shlex.split(text)[-1] == "a b;$(rm)" for text in commands(body))


# --- one Task ---


def test_a_task_has_its_attempts_of_status_and_archive() -> None:
    page = samples.one_task()
    found = [(one.task.attempt.id, one.trigger) for one in page.attempts]
    assert found == [(2, ""), (1, "OnTaskRetry"), (0, "OnTaskRetry")]
    assert page.missing == 0
    (container,) = page.attempts[0].containers
    assert (container.state, container.code) == ("ended", 7)
    assert "\n" in container.message
    assert samples.one_task(past=False).missing == 2
    assert (page.previous, page.next) == (
        "frameworks/default/mnist/0f1e2d3c-mnist/tasks/worker/1",
        "frameworks/default/mnist/0f1e2d3c-mnist/tasks/worker/3",
    )


def test_a_waiting_task_shows_its_pod() -> None:
    page = samples.one_task(5)
    assert page.pod_text == f"Unschedulable: {samples.NO_NODE}"
    assert any(command.text.startswith("kubectl describe pod") for command in page.commands)


# --- failures ---


def test_failures_are_compared_with_the_largest_group() -> None:
    page = samples.failures()
    assert [group["percent"] for group in page.groups] == [100.0, 14.1, 0.7]
    assert page.groups[0]["href"] == "frameworks/default/mnist/past-1/tasks/worker/2"
    assert [group["rate"] for group in page.groups] == ["", "", ""]
    assert [group["rate"] for group in samples.failures({"by": "node"}).groups] == ["34.2%", "4.8%", "0.2%"]
    assert [day["key"] for day in page.days] == sorted(day["key"] for day in page.days)
    assert samples.failures(past=False).empty is not None
    limit = "At most the newest 5,000 failed attempts of Tasks are counted by cause."
    assert [limit in render(samples.failures({"by": by})) for by in ("cause", "node")] == [True, False]


def test_each_number_of_failures_leads_to_its_attempts() -> None:
    group = samples.failures({"by": "node", "since": "30", "namespace": "default"}).groups[0]
    assert group["attempts"] == "failures?by=node&since=30&namespace=default&key=node-3"
    page = samples.failures({"by": "node", "since": "30", "key": "node-3"})
    assert (page.key, page.back) == ("node-3", "failures?by=node&since=30&namespace=&key=")
    assert page.attempts is not None
    first = page.attempts[0]
    assert (first.name, first.href) == (
        "default/mnist worker[2]",
        "frameworks/default/mnist/past-1/tasks/worker/2",
    )
    assert 'href="./failures?by=node' in render(page)


@pytest.mark.parametrize(("since", "days"), [("1", 1), ("30", 30), ("nonsense", 7), ("", None)])
def test_a_period_begins_some_days_ago(since: str, days: int | None) -> None:
    begins = FailureQuery.of({"since": since}).begins(samples.NOW)
    assert begins == (None if days is None else samples.NOW - days * 86400)


# --- all of them ---


@pytest.mark.parametrize("name", list(samples.pages()))
def test_foreign_text_is_only_text(name: str) -> None:
    html = render(samples.pages()[name])
    assert "<script>alert" not in html
    assert "<b>bold</b>" not in html
    # The policy forbids them, and a browser would ignore them.
    assert "style=" not in html
    assert "onclick=" not in html


def test_changes_are_a_bounded_set() -> None:
    async def run() -> None:
        changes = Changes()
        for number in range(10_000):
            changes.add("default", f"u{number % 1000}")
        await changes.wait()
        assert len(changes.take()) == 100
        assert changes.take() == []
        changes.touch()
        await changes.wait()

    asyncio.run(run())


def test_the_newest_event_comes_first_also_within_a_second() -> None:
    events = tuple(replace(samples.EVENTS[0], seen=seen, reason=f"R{seen}{n}") for seen in (5, 6) for n in (0, 1))
    page = FrameworkPage(
        samples.shell("framework", "../../"), replace(samples.source(), more=PodsAndEvents(events=events))
    )
    assert re.findall(r"<bdi>(R\d\d)</bdi>", render(page)) == ["R61", "R60", "R51", "R50"]


def test_one_retry_is_singular() -> None:
    page = samples.one_framework()
    page.roles[0].retries = 1
    assert ">1 retry<" in render(page)


def test_states_have_the_names_of_the_api() -> None:
    page = samples.one_framework()
    assert {one.tasks[0].state for one in page.roles[0].groups} <= set(State)


def test_roles_with_failed_tasks_come_first() -> None:
    assert [role.name for role in samples.one_framework().roles] == ["worker", "ps"]
    assert [role.name for role in samples.one_framework(samples.frameworks()[-1]).roles] == ["web"]


def test_the_first_lines_say_how_it_is_and_why() -> None:
    bad = samples.one_framework(next(body for body in samples.frameworks() if body["metadata"]["name"] == "bad"))
    assert bad.head.phase == "failed"
    assert bad.sentences[0] == bad.head.message
    assert bad.sentences[1] == "210 ContainerPermanentFailed, by worker[1]: 1 has reached minFailedTaskCount 1"
    html = render(bad)
    assert html.index("Failed</span>") < html.index("main exited with 7") < html.index('id="tasks"')


@pytest.mark.parametrize(
    ("name", "tone"),
    [("mnist", "warning"), ("stuck", "warning"), ("calm", "running"), ("bad", "failed"), ("queued", "queued")],
)
def test_the_first_lines_warn_of_failed_tasks_while_others_run(name: str, tone: str) -> None:
    calm = samples.framework("calm", {"a": [samples.task(0, State.RUNNING), samples.task(1, State.PREPARING)]})
    bodies = {body["metadata"]["name"]: body for body in [*samples.frameworks(), calm]}
    page = samples.one_framework(bodies[name])
    assert page.tone == tone
    assert f'<ul class="sentence {tone}">' in render(page) or not page.sentences


# --- cost ---


def test_bars_show_the_parts_of_a_cost_in_relation_to_the_largest_group() -> None:
    page = samples.costs()
    assert [row.label for row in page.groups] == ["default/mnist", "research/llama", "default/preprocess"]
    first, second, last = page.groups
    assert [(one.span, round(one.at, 1), round(one.percent, 1)) for one in first.shares] == [
        ("useful", 0.0, 77.9),
        ("waiting", 77.9, 1.4),
        ("lost", 79.3, 20.7),
    ]
    assert round(sum(one.percent for one in second.shares), 1) == 28.4
    assert [one.span for one in last.shares] == ["waiting", "lost"]
    assert first.href == "frameworks/default/mnist/past-1"
    assert [first.total, first.hours["useful"], first.hours["waiting"], first.lost] == [
        "2,952",
        "2,300",
        "40.5",
        "20.7%",
    ]
    assert page.sums is not None
    assert page.sums.total == "3,820"


def test_a_page_of_costs_names_the_unit_and_counts_unknown_attempts() -> None:
    assert "The cost of 3 attempts is not known" in render(samples.costs(unknown=3))
    assert "not known" not in render(samples.costs())
    page = render(samples.costs())
    assert "in nvidia.com/gpu hours" in page
    assert '<option value="cpu">CPU hours</option>' in page
    for empty in (samples.costs(empty=True), samples.costs(past=False)):
        assert empty.empty is not None
        assert "<table" not in render(empty)


def test_a_group_without_a_name_has_a_word() -> None:
    assert [row.label for row in samples.costs({"by": "user"}).groups] == ["ann", "none", "=bob"]
    assert samples.costs({"by": "code"}).groups[2].label == "-220 FrameworkAttemptCompletion"
    assert samples.costs({"by": "nonsense", "since": "x"}).by[0].selected
