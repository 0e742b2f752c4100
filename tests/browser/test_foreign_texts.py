"""Foreign content is only ever text, wherever it is shown."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import pytest
from playwright.async_api import Page, expect

from frameworkcontroller.api.completion import (
    FAILED,
    CompletionStatus,
    ContainerCompletion,
    PodCompletion,
)
from frameworkcontroller.api.status import State
from tests.browser.conftest import Tabs
from tests.browser.pageserver import PageServer, with_name
from tests.support import pagesamples

pytestmark = pytest.mark.asyncio(loop_scope="session")

IMAGE: Final = "<img src=x onerror=\"window.pwned='image'\">"
SCRIPT: Final = "</script><script>window.pwned='script'</script>"
QUOTES: Final = "\" autofocus onfocus=\"window.pwned='attribute'\" x='"
LINK: Final = "javascript:window.pwned='link'"
SVG: Final = "</title></svg><svg onload=\"window.pwned='svg'\">"
OVERRIDE: Final = "invoice\u202efdp.exe\u2066"
COLORS: Final = "\x1b[31mred\x1b[0m\x07"
LONG: Final = "x" * 100_000
TEMPLATE: Final = "{{ 7 * 7 }}{% raw %}${7*7}"
ALL: Final = f"{IMAGE} {SCRIPT} {QUOTES} {LINK} {SVG} {OVERRIDE} {COLORS} {TEMPLATE}"


def hostile(name: str = "hostile") -> dict[str, Any]:
    """A Framework whose every text that its users or containers control is hostile."""
    pod = PodCompletion(ALL, ALL, (ContainerCompletion("main", 1, IMAGE, f"{ALL}\n{LONG}", 0),))
    end = CompletionStatus(1, SVG, FAILED, (IMAGE,), f"{ALL} {LONG}", pod=pod)
    tasks = [pagesamples.task(index, State.COMPLETED, end, retries=index) for index in range(3)]
    for task in tasks:
        task.attempt.pod_node_name = ALL
    conditions = [
        pagesamples.condition("Stalled", "True", "Bad", ALL),
        pagesamples.condition("Running", "False", "Bad", f"{ALL} {LONG}"),
    ]
    body = pagesamples.framework(name, {"worker": tasks}, State.COMPLETED, end=end, retries=1, conditions=conditions)
    container = body["spec"]["taskRoles"][0]["task"]["pod"]["spec"]["containers"][0]
    container["command"] = ["echo", ALL, LINK]
    body["metadata"]["annotations"] = {"note": ALL}
    return body


async def check(page: Page) -> None:
    """Look for effects of an injection: scripts that ran, elements and handlers that texts made."""
    assert await page.evaluate("window.pwned") is None
    assert await page.locator("main img").count() == 0
    script = """() => {
      const bad = [];
      for (const one of document.querySelectorAll("*")) {
        for (const { name, value } of one.attributes) {
          const ours = name === "style" && one.closest("[data-own]");
          if (name.startsWith("on") || name === "style" && !ours || name === "autofocus") bad.push(`${name}=${value}`);
          if (["href", "src", "action", "formaction", "xlink:href"].includes(name)
              && new URL(value, location.href).origin !== location.origin) bad.push(`${name}=${value}`);
        }
        if (one.nodeName === "SCRIPT" && !one.src && one.type !== "application/json") bad.push(one.outerHTML);
      }
      return bad;
    }"""
    assert await page.evaluate(script) == []
    wide = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide == 0
    text = await page.locator("main").inner_text()
    assert "\x1b" not in text


@pytest.mark.parametrize("phone", [False, True])
async def test_texts_of_users_and_containers(pages: PageServer, tabs: Tabs, phone: bool) -> None:
    await pages.apply(hostile())
    uid = await pages.uid("default", "hostile")
    await pages.add_event("default", "Framework", "hostile", "Bad", ALL)
    page = await tabs.open(pages.url, phone=phone)
    await expect(page.get_by_role("link", name="hostile")).to_be_visible()
    await check(page)
    await page.get_by_role("link", name="hostile").click()
    await expect(page.locator("#failures")).to_contain_text("<img src=x onerror")
    await page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    await expect(page.locator("#spec pre")).to_contain_text("javascript:window.pwned")
    # The tip is made by the script.
    await page.get_by_role("listbox").focus()
    await page.keyboard.press("ArrowRight")
    await expect(page.locator(".tip")).to_contain_text("</title></svg>")
    await check(page)
    # The content of a refresh goes through the parser once more.
    changed = hostile()
    changed["status"]["conditions"][0]["message"] = f"again {ALL}"
    await pages.apply(changed)
    await expect(page.locator("#conditions")).to_contain_text("again <img")
    await check(page)
    await page.goto(f"{pages.url}frameworks/default/hostile/{uid}/tasks/worker/2")
    await expect(page.locator("#attempts")).to_contain_text("<img src=x onerror")
    await check(page)


async def test_texts_of_a_log(pages: PageServer, tabs: Tabs) -> None:
    ended = with_name(hostile(), "ended", uid="ended")
    await pages.archive_of(ended)
    control = b"\x1b[2J\x1b]0;owned\x07\xff\x9b2J\x00"
    await pages.archive_log("ended", "ended", control + ALL.encode() + b"\n" + b"z" * 2**20)
    page = await tabs.open(f"{pages.url}frameworks/default/ended/ended/logs/1?lines=all")
    await expect(page.locator("#log")).to_contain_text("zzz")
    await check(page)
    await page.goto(f"{pages.url}frameworks/default/ended/ended/tasks/worker/0")
    await check(page)


async def test_texts_of_an_archive(pages: PageServer, tabs: Tabs) -> None:
    # An archive takes records of many clusters, and checks no names.
    await pages.archive_of(with_name(hostile(), IMAGE, namespace=SCRIPT, uid="past-hostile", labels={"x": ALL}))
    page = await tabs.open(pages.url)
    await expect(page.locator("#results tbody th")).to_contain_text("<img src=x")
    await check(page)
    await page.locator("#results tbody th a").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(IMAGE)
    await check(page)
    await page.goto(f"{pages.url}failures?since=&by=node")
    await expect(page.locator("#results")).to_contain_text("<img src=x")
    await check(page)
    await page.goto(f"{pages.url}cost?since=")
    await expect(page.locator("#results")).to_contain_text("<img src=x")
    await check(page)


@pytest.mark.parametrize("text", [IMAGE, SCRIPT, QUOTES, LINK, OVERRIDE])
async def test_texts_in_urls(pages: PageServer, tabs: Tabs, text: str) -> None:
    for path in (
        f"?q={quote(text)}&sort={quote(text)}&namespace={quote(text)}",
        f"failures?by={quote(text)}&namespace={quote(text)}",
        f"cost?by={quote(text)}&namespace={quote(text)}&resource={quote(text)}&since={quote(text)}",
        f"frameworks/default/{quote(text, safe='')}",
        f"nosuch/{quote(text, safe='')}",
    ):
        page = await tabs.open(pages.url + path)
        await check(page)
    tabs.forgive("404")
