"""The login page in a browser: by keyboard, in both schemes, at the width of a phone, and without a script."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from aiohttp import web
from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]
from playwright.async_api import expect

from frameworkcontroller.webaccess.loopback_access import LoopbackAccess
from frameworkcontroller.webaccess.viewers import AuthenticationRequired, SimpleViewer, Viewer, WebAccess
from tests.browser.conftest import DESKTOP, PHONE, Tabs
from tests.browser.pageserver import PageServer, serving
from tests.browser.test_accessibility import RULES, SCHEMES, overflow
from tests.support import pagesamples

pytestmark = pytest.mark.asyncio(loop_scope="session")

TOKEN: Final = "the-token_of.ann"


class ByToken(WebAccess):
    """Knows one token."""

    def check_address(self, request: web.BaseRequest) -> None:
        pass

    async def identify(self, request: web.BaseRequest, token: str | None) -> Viewer:
        if token != TOKEN:
            raise AuthenticationRequired("the token is invalid")
        ann = SimpleViewer("ann", reads=True)
        # So it is a user of the cluster, whose name is shown.
        ann.token = TOKEN
        return ann


@pytest_asyncio.fixture(loop_scope="session")
async def closed(tmp_path: Path) -> AsyncIterator[PageServer]:
    """Pages that demand a token."""
    async with serving(tmp_path, access=ByToken()) as server:
        await server.apply(*pagesamples.frameworks()[:1])
        yield server


@pytest.mark.parametrize("script", [True, False])
async def test_a_browser_logs_in_and_out(closed: PageServer, tabs: Tabs, script: bool) -> None:
    page = await tabs.open(f"{closed.url}frameworks/default/mnist?attempt=1", java_script_enabled=script)
    await expect(page).to_have_url(re.compile("/login"))
    box = page.get_by_label("Bearer token")
    await box.fill("wrong")
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("alert")).to_be_visible()
    await expect(box).to_have_value("")
    await box.fill(f"  {TOKEN}\n")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(f"{closed.url}frameworks/default/mnist?attempt=1")
    await expect(page.get_by_role("heading", level=1)).to_have_text("mnist")
    assert TOKEN not in await page.content()
    await page.get_by_role("link", name="log out").click()
    await page.get_by_role("button", name="Log out").click()
    await page.goto(closed.url)
    await expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
    tabs.forgive("401")


async def test_the_login_page_is_public(closed: PageServer, tabs: Tabs) -> None:
    page = await tabs.open(closed.url)
    await page.get_by_label("Bearer token").fill("wrong")
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("alert")).to_be_visible()
    backgrounds = set()
    for scheme in SCHEMES:
        await page.emulate_media(color_scheme=scheme)
        backgrounds.add(await page.evaluate("getComputedStyle(document.body).backgroundColor"))
        result = await Axe().run(page, options=RULES)
        assert not result.violations_count, result.generate_report()
    assert len(backgrounds) == 2
    for size in (DESKTOP, PHONE):
        await page.set_viewport_size(size)
        assert await overflow(page) == 0, size
    tabs.forgive("401")


@pytest.mark.parametrize("script", [True, False])
async def test_the_printed_address_logs_in(tmp_path: Path, tabs: Tabs, script: bool) -> None:
    """Also from a page of another origin, such as a terminal in a browser."""
    access = LoopbackAccess()
    async with serving(tmp_path, access=access) as server:
        page = await tabs.open("about:blank", java_script_enabled=script)
        await page.set_content(f'<a href="{access.link(server.url.rstrip("/"))}">The pages</a>')
        await page.get_by_role("link", name="The pages").click()
        await expect(page).to_have_url(server.url)
        await expect(page.get_by_role("heading", level=1)).to_have_text("Frameworks")
        await page.goto("about:blank")
