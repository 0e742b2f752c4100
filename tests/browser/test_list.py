"""The list of Frameworks, as its viewer sees and uses it."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import orjson
import pytest
from playwright.async_api import Page, expect

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.status import State
from tests.browser.conftest import Tabs
from tests.browser.pageserver import PageServer
from tests.support import pagesamples
from tests.support.eventually import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

RUNNING = [pagesamples.task(0, State.RUNNING)]
WAITING = [pagesamples.task(0, State.CREATION_PENDING)]
DONE = [pagesamples.task(0, State.COMPLETED, pagesamples.SUCCEEDED)]


def one(name: str, state: State = State.RUNNING, **options: Any) -> dict[str, Any]:
    """A Framework of one Task."""
    tasks = RUNNING if state is State.RUNNING else WAITING
    return pagesamples.framework(name, {"worker": tasks}, state, **options)


def done(name: str) -> dict[str, Any]:
    """One that has succeeded."""
    return pagesamples.framework(name, {"worker": DONE}, State.COMPLETED, end=pagesamples.SUCCEEDED)


def names_of(page: Page) -> Any:
    """The names in the rows, from top to bottom."""
    return page.locator("#results tbody th a")


async def live(page: Page) -> None:
    """Wait until the page hears of changes."""
    await expect(page.locator("#link")).to_have_text("Live")


async def test_a_row_has_phase_reason_and_tasks(samples: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(samples.url)
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="stuck", exact=True))
    await expect(row.get_by_role("cell").filter(has_text="stalled")).to_be_visible()
    await expect(row).to_contain_text('pods "stuck-web-1" is forbidden: exceeded quota')
    bar = row.get_by_role("img")
    await expect(bar).to_have_accessible_name("1 pending, 1 running")
    box = await bar.bounding_box()
    assert box is not None
    widths = [await part.bounding_box() for part in await bar.locator("rect").all()]
    assert abs(sum(part["width"] for part in widths if part) - box["width"]) < 4


async def test_past_frameworks_follow_live_ones(samples: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(samples.url)
    await expect(page.locator("#results")).to_contain_text("Live 1 to 8 of 8, then 12 past")
    await page.get_by_label("Show").select_option("past")
    await expect(names_of(page).first).to_have_text(re.compile("night"))
    await page.get_by_label("Show").select_option("live")
    await expect(page.get_by_role("link", name=re.compile("night"))).to_have_count(0)


async def test_typing_filters_and_keeps_the_focus(samples: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(samples.url)
    box = page.get_by_role("searchbox")
    await box.press_sequentially("exceeded quota")
    await expect(names_of(page)).to_have_text(["stuck"])
    await expect(box).to_be_focused()
    await expect(page).to_have_url(re.compile(r"q=exceeded"))
    await page.reload()
    await expect(names_of(page)).to_have_text(["stuck"])
    await expect(box).to_have_value("exceeded quota")
    await page.get_by_role("link", name="Clear").click()
    await expect(names_of(page)).not_to_have_count(1)


async def test_chips_filter_by_phase(samples: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(samples.url)
    await page.get_by_label("Show").select_option("live")
    await page.locator("#phase-failed").click()
    await expect(names_of(page)).to_have_text(["bad"])
    await page.keyboard.press("ArrowRight")
    await expect(page.get_by_role("radio", name=re.compile("^Pending"))).to_be_checked()
    await expect(names_of(page)).to_have_text(["fresh"])


async def test_headers_sort_both_ways(samples: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(f"{samples.url}?which=live")
    header = page.get_by_role("columnheader", name="Name", exact=True)
    await expect(header).to_have_attribute("aria-sort", "none")
    await header.get_by_role("link").click()
    await expect(header).to_have_attribute("aria-sort", "ascending")
    ascending = await names_of(page).all_inner_texts()
    assert ascending == sorted(ascending)
    await expect(header.get_by_role("link")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(header).to_have_attribute("aria-sort", "descending")
    assert await names_of(page).all_inner_texts() == ascending[::-1]


async def test_changes_are_shown_without_a_reload(pages: PageServer, tabs: Tabs) -> None:
    await pages.apply(one("train", State.CREATION_PENDING))
    page = await tabs.open(pages.url)
    await page.evaluate("window.same = true")
    await live(page)
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="train"))
    await expect(row).to_contain_text("Pending")
    await pages.apply(one("train"))
    await expect(row).to_contain_text("Running")
    await pages.apply(one("other"))
    await expect(names_of(page)).to_have_count(2)
    await pages.delete("default", "train")
    await expect(names_of(page)).to_have_text(["other"])
    assert await page.evaluate("window.same")


async def test_a_change_moves_neither_scroll_nor_focus_nor_selection(pages: PageServer, tabs: Tabs) -> None:
    await pages.apply(*(one(f"job{number:02}", State.CREATION_PENDING) for number in range(60)))
    page = await tabs.open(f"{pages.url}?sort=name")
    await live(page)
    selected = page.get_by_role("link", name="job45")
    await selected.scroll_into_view_if_needed()
    await selected.select_text()
    # Selecting moves the focus.
    await page.get_by_role("link", name="job50").evaluate("link => link.focus({ preventScroll: true })")
    before = await page.evaluate("scrollY")
    assert before > 0
    # Rows before, between and after these change, come and go.
    await pages.apply(one("job44"), one("job45"), one("job50"), one("job70"))
    await pages.delete("default", "job52")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="job50"))
    await expect(row).to_contain_text("Running")
    await expect(page.get_by_role("link", name="job52")).to_have_count(0)
    await expect(page.get_by_role("link", name="job70")).to_have_count(1)
    await expect(page.get_by_role("link", name="job50")).to_be_focused()
    assert await page.evaluate("String(getSelection())") == "job45"
    assert await page.evaluate("scrollY") == before


async def test_a_row_that_moves_keeps_the_focus(pages: PageServer, tabs: Tabs) -> None:
    await pages.apply(*(one(f"job{number}", State.CREATION_PENDING) for number in range(4)))
    page = await tabs.open(f"{pages.url}?sort=phase")
    await live(page)
    await page.get_by_role("link", name="job0").focus()
    await pages.apply(one("job0"))
    await expect(names_of(page)).to_have_text(["job1", "job2", "job3", "job0"])
    await expect(page.get_by_role("link", name="job0")).to_be_focused()


async def test_ages_tick(pages: PageServer, tabs: Tabs) -> None:
    await pages.apply(one("train"))
    page = await tabs.open(pages.url)
    age = page.locator("td.age time")
    first = await age.inner_text()
    await expect(age).not_to_have_text(first)
    # In the form of the commands.
    assert re.fullmatch(r"\d+s|\d+m(\d+s)?", await age.inner_text())


async def test_a_lost_server_is_reported_and_found_again(pages: PageServer, tabs: Tabs) -> None:
    await pages.apply(one("train", State.CREATION_PENDING))
    page = await tabs.open(pages.url)
    await live(page)
    await pages.stop()
    await expect(page.get_by_role("alert")).to_contain_text("Disconnected")
    await expect(page.get_by_role("link", name="train")).to_be_visible()
    await pages.apply(one("train"))
    await pages.start()
    await live(page)
    await expect(page.get_by_role("alert")).to_have_count(0)
    await expect(page.get_by_role("row").filter(has=page.get_by_role("link", name="train"))).to_contain_text("Running")
    tabs.forgive(r"ERR_(CONNECTION|INCOMPLETE|EMPTY)")


async def test_an_empty_list_says_what_to_type(pages: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(pages.url)
    await live(page)
    await expect(page.get_by_text("kubectl apply -f")).to_be_visible()
    await page.get_by_role("button", name="Copy").click()
    await expect(page.locator("button[data-copy]")).to_have_text("Copied")
    assert "kubectl apply -f" in await page.evaluate("navigator.clipboard.readText()")
    await pages.apply(done("first"))
    await expect(names_of(page)).to_have_text(["first"])


async def test_thousands_of_frameworks_come_in_pages(pages: PageServer, tabs: Tabs) -> None:
    number = 2500
    slots = asyncio.Semaphore(50)

    async def create(index: int) -> None:
        body = one(f"job{index:04}")
        body["metadata"] = {"name": f"job{index:04}"}
        body.pop("status")
        async with slots:
            await pages.client.create(FRAMEWORKS, orjson.dumps(body), "default")

    await asyncio.gather(*(create(index) for index in range(number)))
    await pages.apply()
    page = await tabs.open(f"{pages.url}?sort=name")
    await expect(page.get_by_text("Live 1 to 100 of 2,500")).to_be_visible()
    await expect(names_of(page)).to_have_count(100)
    await page.get_by_role("link", name="Next").click()
    await expect(names_of(page).first).to_have_text("job0100")
    # A search covers all of them, not the page.
    await page.get_by_role("searchbox").press_sequentially("job2499")
    await expect(names_of(page)).to_have_text(["job2499"])


async def test_a_hidden_tab_holds_no_connection(pages: PageServer, tabs: Tabs) -> None:
    # Browsers have six connections to a server over HTTP/1.1: six open tabs would keep a seventh from loading.
    page = await tabs.open(pages.url)
    await expect(page.locator("#link")).to_have_text("Live")
    hide = """hidden => {
        Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    await page.evaluate(hide, True)
    await until(lambda: len(pages.streams) == 0)
    await pages.apply(*pagesamples.frameworks()[:1])
    await page.evaluate(hide, False)
    await expect(page.locator("#results tbody tr")).to_have_count(1)
