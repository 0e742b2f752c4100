"""The bar of reported progress, as assistive technology and live updates have it."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.conftest import Tabs
from tests.browser.pageserver import PageServer, clock
from tests.support import pagesamples

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_bar_has_role_name_and_value(pages: PageServer, tabs: Tabs) -> None:
    # The samples age while the tests run, and an old report shows no remaining time.
    progress = pagesamples.reported(0, age=int(pagesamples.NOW - clock()))
    await pages.apply(pagesamples.running("fresh", progress))
    page = await tabs.open(f"{pages.url}frameworks/default/fresh")
    region = page.get_by_role("region", name="Progress")
    bar = region.get_by_role("progressbar", name="Progress")
    await expect(bar).to_have_attribute("value", "42")
    await expect(bar).to_have_attribute("max", "100")
    await expect(region).to_contain_text("8,400 of 20,000")
    await expect(region).to_contain_text("42%, 1h")


async def test_the_bars_of_the_list_have_names(samples: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(samples.url)
    await expect(page.get_by_role("columnheader", name="Progress")).to_be_visible()
    await expect(page.get_by_role("progressbar")).to_have_count(1)
    await expect(page.get_by_role("progressbar", name="Progress of mnist")).to_have_attribute("value", "42")
    await page.get_by_role("searchbox").fill("stuck")
    await expect(page.get_by_role("columnheader", name="Progress")).to_have_count(0)


async def test_the_bar_grows_while_one_looks(pages: PageServer, tabs: Tabs) -> None:
    def body(step: int | None) -> pagesamples.Json:
        progress = None if step is None else pagesamples.reported(0, step=step)
        return pagesamples.running("grows", progress)

    await pages.apply(body(None))
    page = await tabs.open(f"{pages.url}frameworks/default/grows")
    await expect(page.locator("#link")).to_have_text("Live")
    bar = page.get_by_role("progressbar")
    await expect(bar).to_have_count(0)
    for step, percentage in ((2000, "10"), (9000, "45")):
        await pages.set_status("default", "grows", body(step)["status"])
        await expect(bar).to_have_attribute("value", percentage)
        await expect(page.get_by_role("region", name="Progress")).to_contain_text(f"{step:,} of 20,000")
    assert await bar.evaluate("one => one.value") == 45
