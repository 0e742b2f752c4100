"""The pages of one Framework and of one Task."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from playwright.async_api import Locator, Page, expect

from frameworkcontroller.api.status import State
from tests.browser.conftest import Tabs
from tests.browser.pageserver import PageServer
from tests.support import pagesamples

pytestmark = pytest.mark.asyncio(loop_scope="session")


def grid(page: Page, role: str) -> Locator:
    """The Tasks of a role."""
    return page.get_by_role("listbox", name=f"Tasks of {role}")


async def active(page: Page, role: str) -> str:
    """A screen reader's words for the active Task."""
    script = "box => document.getElementById(box.getAttribute('aria-activedescendant')).textContent"
    text = await grid(page, role).evaluate(script)
    assert isinstance(text, str)
    return text


async def test_the_sentence_comes_first(samples: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(f"{samples.url}frameworks/serving/stuck")
    main = await page.get_by_role("main").inner_text()
    assert main.index("stalled for") < main.index("AttemptRunning") < main.index("By phase and reason")
    await expect(page.locator(".sentence")).to_contain_text("PodCreationForbidden")
    await expect(page.get_by_role("region", name="Conditions")).to_contain_text("exceeded quota")


async def test_keys_move_through_ten_thousand_tasks(samples: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(f"{samples.url}frameworks/research/sweep")
    box = grid(page, "worker")
    await box.focus()
    assert (await active(page, "worker")).startswith("worker[0], ")
    await page.keyboard.press("ArrowRight")
    assert (await active(page, "worker")).startswith("worker[1], ")
    await page.keyboard.press("End")
    assert (await active(page, "worker")).startswith("worker[9999], ")
    # The tip, for those who see.
    await expect(page.locator(".tip").filter(has_text="worker[9999]")).to_be_in_viewport()
    await page.keyboard.press("ArrowUp")
    row = int(re.findall(r"\d+", await active(page, "worker"))[0])
    assert 9900 <= 9999 - row <= 9990 or 9 < 9999 - row < 200
    await page.keyboard.press("Home")
    await page.keyboard.press("f")
    assert re.match(r"worker\[\d+\], failed, .*7 ContainerUnrecognizedFailed", await active(page, "worker"))
    name = (await active(page, "worker")).partition(",")[0]
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text(name)


async def test_the_pointer_finds_a_task(samples: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(f"{samples.url}frameworks/default/mnist")
    box = page.locator("#cells-worker")
    await box.hover(position={"x": 26 * 3 + 10, "y": 12})
    await expect(page.locator("#cells-worker .tip")).to_contain_text("worker[3]")
    await expect(page.locator("#cells-worker .tip")).to_contain_text("137 ContainerSigKillReceived")
    await box.click(position={"x": 26 * 3 + 10, "y": 12})
    await expect(page.get_by_role("heading", level=1)).to_have_text("worker[3]")


async def test_failed_tasks_are_found_at_once(samples: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(f"{samples.url}frameworks/default/mnist")
    find = page.get_by_role("button", name=re.compile("Next failed Task"))
    await find.click()
    assert (await active(page, "worker")).startswith("worker[2], failed")
    await find.click()
    assert (await active(page, "worker")).startswith("worker[3], failed")
    await find.click()
    assert (await active(page, "worker")).startswith("worker[2], failed")
    # With a filter, the arrows visit only the shown Tasks.
    await page.get_by_role("button", name=re.compile("^Pending")).click()
    await expect(page.get_by_role("button", name=re.compile("^Pending"))).to_have_attribute("aria-pressed", "true")
    await grid(page, "worker").focus()
    await page.keyboard.press("ArrowRight")
    assert (await active(page, "worker")).startswith("worker[5], pending")
    await page.keyboard.press("ArrowRight")
    assert (await active(page, "worker")).startswith("worker[6], pending")


async def pixel(page: Page, cell: int) -> list[int]:
    """The color in the middle of a cell of the first grid, of at most 64 cells."""
    color: list[int] = await page.locator(".cells canvas").first.evaluate(
        "(canvas, cell) => [...canvas.getContext('2d').getImageData("
        "(cell * 26 + 7) * devicePixelRatio, 13 * devicePixelRatio, 1, 1).data]",
        cell,
    )
    return color


async def test_cells_change_while_one_looks(pages: PageServer, tabs: Tabs) -> None:
    def body(state: State, end: Any = None) -> Any:
        workers = [pagesamples.task(0, State.RUNNING), pagesamples.task(1, state, end)]
        return pagesamples.framework("train", {"worker": workers})

    await pages.apply(body(State.RUNNING))
    page = await tabs.open(f"{pages.url}frameworks/default/train")
    await expect(page.locator("#link")).to_have_text("Live")
    await page.get_by_text("Spec", exact=True).click()
    await expect(page.locator("#spec pre")).to_contain_text("taskRoles:")
    box = grid(page, "worker")
    await box.focus()
    await page.keyboard.press("ArrowRight")
    assert await pixel(page, 0) == await pixel(page, 1)
    await pages.apply(body(State.COMPLETED, pagesamples.KILLED))
    await expect(page.locator("#tasks")).to_contain_text("1 failed, 1 running")
    assert (await active(page, "worker")).startswith("worker[1], failed")
    assert await pixel(page, 0) != await pixel(page, 1)
    await expect(box).to_be_focused()
    # Opened parts stay open.
    await expect(page.locator("#spec pre")).to_be_visible()
    await expect(page.locator("#failures")).to_contain_text("Memory cgroup out of memory")


async def bars(page: Page) -> list[float]:
    """The widths of the shown bars of the timeline."""
    return [
        box["width"]
        for bar in await page.locator("svg.timeline rect:has(title):not(.beyond)").all()
        if (box := await bar.bounding_box())
    ]


async def test_the_timeline_zooms_by_wheel_buttons_and_keys(samples: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(f"{samples.url}frameworks/default/mnist")
    picture = page.get_by_role("region", name="Attempts over time")
    whole = await bars(page)
    ticks = await page.locator("svg.timeline text.small:visible").all_text_contents()
    await page.get_by_role("button", name="Zoom in").click()
    closer = await bars(page)
    assert max(closer) >= max(whole)
    assert len(closer) < len(whole) or sum(closer) > sum(whole)
    assert await page.locator("svg.timeline text.small:visible").all_text_contents() != ticks
    await page.get_by_role("button", name="All", exact=True).click()
    assert await bars(page) == whole
    await picture.focus()
    await page.keyboard.press("+")
    assert await bars(page) == closer
    await page.keyboard.press("ArrowLeft")
    assert await bars(page) != closer
    await page.keyboard.press("0")
    assert await bars(page) == whole
    await picture.hover()
    await page.mouse.wheel(0, -300)
    await expect(page.locator("g.ticks")).to_have_count(1)
    assert await bars(page) != whole


async def test_the_wheel_scrolls_the_page_until_the_picture_has_the_focus(samples: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(f"{samples.url}frameworks/default/mnist")
    await page.get_by_role("region", name="Attempts over time").hover()
    before = await page.evaluate("scrollY")
    await page.mouse.wheel(0, 200)
    await page.wait_for_function("before => scrollY > before", arg=before)
    await expect(page.locator("g.ticks")).to_have_count(0)


async def test_a_command_is_copied(samples: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(f"{samples.url}frameworks/default/mnist")
    item = page.locator(".commands li").filter(has_text="kubectl framework logs mnist")
    await item.get_by_role("button").click()
    await expect(item.get_by_role("button")).to_have_text("Copied")
    assert (await page.evaluate("navigator.clipboard.readText()")).startswith("kubectl framework logs mnist")


async def test_a_task_tells_its_attempts(samples: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(f"{samples.url}frameworks/default/mnist")
    await page.get_by_role("link", name="worker[2]").first.click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("worker[2]")
    attempts = page.locator("#attempts")
    await expect(attempts).to_contain_text("7 ContainerUnrecognizedFailed")
    await expect(attempts.locator("pre").first).to_contain_text("FileNotFoundError: no such file")
    await expect(attempts).to_contain_text("earlier attempts are not known")
    await page.get_by_role("link", name="Next Task").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("worker[3]")


async def test_causes_have_the_width_of_a_phone(samples: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(f"{samples.url}failures?since=", phone=True)
    table = page.get_by_role("region", name="Failures")
    for part in ("tbody th", ".share"):
        cell, whole = await table.locator(part).first.bounding_box(), await table.bounding_box()
        assert cell is not None
        assert whole is not None
        assert cell["width"] > 0.8 * whole["width"]


async def test_failures_lead_to_their_examples(samples: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(f"{samples.url}failures?since=")
    rows = page.get_by_role("region", name="Failures").locator("tbody tr")
    await expect(rows.filter(has_text="137")).to_have_count(1)
    await page.get_by_text("by node").click()
    await expect(rows.filter(has_text="node-0")).to_have_count(1)
    await expect(page).to_have_url(re.compile("by=node"))
    # The number leads to all of them, each with its Task.
    await rows.filter(has_text="node-0").get_by_role("link").first.click()
    await expect(page.get_by_role("heading", name="node-0")).to_be_visible()
    await expect(page.locator("#results tbody tr")).to_have_count(8)
    await page.go_back()
    await rows.filter(has_text="node-0").get_by_role("link").last.click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(r"worker\[\d\]|night"))


async def test_a_past_framework_is_marked(samples: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(f"{samples.url}?which=past")
    await page.get_by_role("link", name=re.compile("^night")).first.click()
    await expect(page.get_by_text("past: from the archive")).to_be_visible()


async def test_a_missing_object_has_an_error_page(samples: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(f"{samples.url}frameworks/default/nosuch")
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    await page.get_by_role("link", name="All Frameworks").click()
    await expect(page.get_by_role("heading", name="Frameworks", level=1)).to_be_visible()
    tabs.forgive("404")


async def test_a_framework_that_is_created_again_is_shown(pages: PageServer, tabs: Tabs) -> None:
    def body(number: int) -> dict[str, Any]:
        tasks = [pagesamples.task(index, State.RUNNING) for index in range(number)]
        return pagesamples.framework("again", {"worker": tasks})

    await pages.apply(body(2))
    page = await tabs.open(f"{pages.url}frameworks/default/again")
    await expect(page.locator("#tasks")).to_contain_text("2 running")
    await expect(page.locator("#link")).to_have_text("Live")
    old = await pages.uid("default", "again")
    await pages.delete("default", "again")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Not found")
    await pages.apply(body(3))
    await expect(page.locator("#tasks")).to_contain_text("3 running")
    await expect(page.locator("main")).not_to_contain_text(old)
    await pages.apply(body(4))
    await expect(page.locator("#tasks")).to_contain_text("4 running")
    tabs.forgive("404")


async def test_the_viewers_time_follows_utc(samples: PageServer, tabs: Tabs) -> None:
    moment = "#attempts tbody time"
    page = await tabs.open(f"{samples.url}frameworks/default/mnist", timezone_id="Asia/Shanghai")
    utc = await page.locator(moment).first.get_attribute("datetime")
    assert utc is not None
    here = datetime.fromisoformat(utc).astimezone(ZoneInfo("Asia/Shanghai"))
    await expect(page.locator(moment).first).to_have_attribute("data-local", re.compile(f"{here:%H:%M}$"))
    age = page.locator("dl time[data-age]").first
    await expect(age).to_have_attribute("title", re.compile(r"Z, here .*\d\d:\d\d$"))
    page = await tabs.open(f"{samples.url}frameworks/default/mnist", timezone_id="UTC")
    await expect(page.locator(moment).first).to_have_attribute("data-local", "")


async def test_costs_by_group_and_resource(samples: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(f"{samples.url}cost?since=")
    rows = page.get_by_role("region", name="Cost").locator("tbody tr")
    await expect(rows.filter(has_text="default/night0")).to_contain_text("0.618")
    await expect(page.locator(".days li")).to_have_count(12)
    await page.get_by_text("by node").click()
    await expect(rows).to_have_count(4)
    await expect(page).to_have_url(re.compile("by=node"))
    await page.get_by_label("Resource").select_option("memory")
    await expect(page.get_by_role("heading", name="All memory GiB hours")).to_be_visible()
    # 12 Frameworks of 4 Tasks of 128 GiB: as many hours as by Framework.
    assert await page.locator(".facts dd").first.inner_text() == "119"
    await page.get_by_text("by day").click()
    await expect(rows).to_have_count(12)
    await page.get_by_text("by Framework").click()
    await rows.get_by_role("link").first.click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("night"))
