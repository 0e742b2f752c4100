"""Accessible pages: rules of WCAG, keyboard, phone, zoom, print, and without script."""

from __future__ import annotations

import re
from typing import Final, Literal

import pytest
from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]
from playwright.async_api import Page, expect

from tests.browser.conftest import DESKTOP, PHONE, Tabs
from tests.browser.pageserver import PageServer

pytestmark = pytest.mark.asyncio(loop_scope="session")

PATHS: Final = {
    "list": "",
    "nothing": "?q=nosuchthing",
    "framework": "frameworks/default/mnist",
    "large": "frameworks/research/sweep",
    "stalled": "frameworks/serving/stuck",
    "past": "frameworks/default/night1",
    "task": "frameworks/default/mnist/{mnist}/tasks/worker/2",
    "log": "frameworks/default/night1/past-1/logs/1",
    "failures": "failures?since=",
    "cost": "cost?since=",
    "error": "frameworks/default/nosuch",
}
RULES: Final = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
CONTRAST: Final = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
PLACES: Final = {"runOnly": {"type": "rule", "values": ["target-size", "scrollable-region-focusable"]}}

SCHEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")


async def address(samples: PageServer, page: str) -> str:
    """The URL of a page."""
    return samples.url + PATHS[page].format(mnist=await samples.uid("default", "mnist"))


async def overflow(page: Page) -> int:
    """By how many pixels the page is wider than its window."""
    wide: int = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return wide


@pytest.mark.parametrize("name", PATHS)
async def test_rules_of_accessibility_hold(samples: PageServer, tabs: Tabs, name: str) -> None:
    page = await tabs.open(await address(samples, name))
    await page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    tabs.forgive("404" if name == "error" else "^$")
    # Dark pages differ in colors, and phones in places and sizes.
    for size, dark, rules in ((DESKTOP, False, RULES), (DESKTOP, True, CONTRAST), (PHONE, False, PLACES)):
        scheme = SCHEMES[dark]
        await page.set_viewport_size(size)
        await page.emulate_media(color_scheme=scheme)
        assert await overflow(page) == 0, size
        result = await Axe().run(page, options=rules)
        assert not result.violations_count, f"{scheme} {size}: {result.generate_report()}"
    # The width of a window of 1280 pixels at a zoom of 200 %.
    await page.set_viewport_size({"width": 640, "height": 400})
    assert await overflow(page) == 0


@pytest.mark.parametrize("name", PATHS)
async def test_references_have_targets_and_regions_names_of_their_own(
    samples: PageServer, tabs: Tabs, name: str
) -> None:
    """Axe calls a missing description "incomplete", and no rule of WCAG asks for names that differ."""
    page = await tabs.open(await address(samples, name))
    tabs.forgive("404" if name == "error" else "^$")
    rules = ["landmark-unique", "landmark-one-main", "aria-valid-attr-value"]
    result = await Axe().run(page, options={"runOnly": {"type": "rule", "values": rules}})
    found = [one["id"] for kind in ("violations", "incomplete") for one in result.response[kind]]
    assert found == [], result.generate_report()
    missing = await page.evaluate(
        """() => ["aria-describedby", "aria-labelledby", "aria-controls", "for"].flatMap((name) =>
            [...document.querySelectorAll(`[${name}]`)].flatMap((one) => one.getAttribute(name).split(" ")))
            .filter((id) => !document.getElementById(id))"""
    )
    assert missing == []


async def test_messages_stay_in_view_on_a_phone(samples: PageServer, tabs: Tabs) -> None:
    for name in ("framework", "stalled"):
        page = await tabs.open(await address(samples, name), phone=True, viewport={"width": 390, "height": 844})
        await page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        messages = page.locator("td.wide:not(:empty)")
        assert await messages.count()
        for place in await messages.all():
            box = await place.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390
            assert box["width"] > 250


@pytest.mark.parametrize("name", ["list", "framework", "task", "failures", "cost"])
async def test_the_tab_key_reaches_all_controls_and_leaves_them(samples: PageServer, tabs: Tabs, name: str) -> None:
    page = await tabs.open(await address(samples, name))
    wanted: int = await page.evaluate(
        """() => [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")]
            .filter((one) => one.tabIndex >= 0 && one.checkVisibility() && one.getClientRects().length
                && !(one.type === "radio" && !one.checked))
            .map((one, number) => { one.dataset.stop = number; return one; }).length"""
    )
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.textContent") == "Skip to the content"
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_in_viewport()
    reached: set[str] = set()
    for _ in range(wanted + 40):
        stop, outline, element = await page.evaluate(
            """() => { const one = document.activeElement;
                const styles = [one, one.closest("label") ?? one].map((each) => getComputedStyle(each));
                const outline = styles.some((each) => each.outlineStyle !== "none");
                return [one.dataset.stop ?? "", outline, outline ? "" : one.outerHTML]; }"""
        )
        if stop:
            reached.add(stop)
            assert outline, element
        await page.keyboard.press("Tab")
        if len(reached) == wanted:
            break
    assert len(reached) == wanted


async def test_the_skip_link_leads_to_the_content(samples: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(samples.url)
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("main")).to_be_focused()
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("searchbox")).to_be_focused()


async def test_a_chosen_theme_is_remembered(samples: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(samples.url)
    background = "getComputedStyle(document.body).backgroundColor"
    light = await page.evaluate(background)
    button = page.get_by_role("button", name=re.compile("^Theme"))
    await button.click()
    await expect(button).to_have_text("Theme: light")
    assert await page.evaluate(background) == light
    await button.click()
    await expect(button).to_have_text("Theme: dark")
    assert await page.evaluate(background) != light
    await page.goto(f"{samples.url}failures")
    await expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    assert await page.evaluate(background) != light


@pytest.mark.parametrize("name", [name for name in PATHS if name != "error"])
async def test_without_a_script_all_can_be_read(samples: PageServer, tabs: Tabs, name: str) -> None:
    page = await tabs.open(await address(samples, name), java_script_enabled=False)
    expected = {
        "list": ["mnist", "stalled", "exceeded quota", "Filter"],
        "nothing": ["No Framework matches"],
        "framework": ["By phase and reason", "FileNotFoundError", "kubectl framework logs"],
        "large": ["500 failed", "7 ContainerUnrecognizedFailed"],
        "stalled": ["stalled for", "exceeded quota"],
        "past": ["from the archive", "ContainerSigKillReceived", "Last lines of"],
        "log": ["from the archive", "FileNotFoundError", "as a file"],
        "task": ["FileNotFoundError", "node-2"],
        "failures": ["137 ContainerSigKillReceived", "Show"],
        "cost": ["nvidia.com/gpu hours", "default/night0", "Show"],
    }[name]
    for text in expected:
        await expect(page.get_by_text(text).locator("visible=true").first).to_be_visible()
    # Nothing that does nothing.
    await expect(page.locator(".needs-script").locator("visible=true")).to_have_count(0)


async def test_the_form_works_without_a_script(samples: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(samples.url, java_script_enabled=False)
    await page.get_by_role("searchbox").fill("stuck")
    await page.get_by_role("button", name="Filter").click()
    await expect(page.locator("#results tbody th")).to_have_text(["stuck"])


async def test_only_actions_of_the_viewer_are_announced(samples: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(samples.url)
    await expect(page.locator("#link")).to_have_text("Live")
    regions = page.locator("[aria-live], [role=status], [role=alert], [role=log]")
    assert {await one.get_attribute("id") for one in await regions.all()} <= {"link", "lost", "said"}
    await page.get_by_role("searchbox").press_sequentially("stuck")
    await expect(page.locator("#said")).to_have_text("1 of 8 live")


async def test_less_motion_is_respected(samples: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(samples.url, reduced_motion="reduce")
    await page.locator("#results tbody tr").first.evaluate("row => { row.dataset.changed = ''; }")
    assert await page.evaluate("document.getAnimations().length") == 0


@pytest.mark.parametrize("name", ["list", "framework", "task"])
async def test_a_print_is_dark_on_white_and_fits_the_paper(samples: PageServer, tabs: Tabs, name: str) -> None:
    page = await tabs.open(await address(samples, name), viewport={"width": 780, "height": 1000})
    tables = (
        "[...document.querySelectorAll('.scroll')].map((one) => one.offsetHeight - one.firstElementChild.offsetHeight)"
    )
    await page.evaluate("document.documentElement.dataset.theme = 'dark'")
    await page.emulate_media(media="print")
    style = "(({ color, backgroundColor }) => [color, backgroundColor])(getComputedStyle(document.body))"
    assert await page.evaluate(style) == ["rgb(26, 34, 48)", "rgb(255, 255, 255)"]
    assert await overflow(page) == 0
    # No blank lines of the template between a box and its table.
    assert all(gap < 20 for gap in await page.evaluate(tables))
    await expect(page.get_by_role("searchbox")).to_have_count(0)
