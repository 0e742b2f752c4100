"""The pages below a prefix, as an Ingress or kubectl proxy puts them there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import expect

from frameworkcontroller.api.status import State
from tests.browser.conftest import Tabs
from tests.browser.pageserver import PageServer
from tests.support import pagesamples
from tests.support.reverseproxy import Request, ReverseProxy

pytestmark = pytest.mark.asyncio(loop_scope="session")

PREFIXES = ["/tools/frameworks", "/api/v1/namespaces/ops/services/http:dashboard:80/proxy"]


class Below(ReverseProxy):
    """Removes a prefix, and forwards streams without delay."""

    def __init__(self, upstream: str, prefix: str) -> None:
        super().__init__(upstream)
        self._prefix = prefix

    async def respond(self, request: Request, incoming: web.BaseRequest, body: bytes) -> web.StreamResponse:
        path = incoming.raw_path
        if not path.startswith(f"{self._prefix}/"):
            return web.Response(status=404, text="not below the prefix")
        stripped = incoming.clone(rel_url=path.removeprefix(self._prefix))
        return await (self.watch(stripped) if "/events" in path else self.forward(stripped, body))


@pytest_asyncio.fixture(loop_scope="session", params=PREFIXES)
async def url(request: pytest.FixtureRequest, pages: PageServer) -> AsyncIterator[str]:
    """The URL of the list behind such a proxy, which outlives the tabs."""
    async with Below(pages.url.rstrip("/"), request.param) as proxy:
        yield f"{proxy.url}{request.param}/"


async def test_every_link_stays_below_the_prefix(pages: PageServer, url: str, tabs: Tabs) -> None:
    def body(state: State) -> dict[str, Any]:
        return pagesamples.framework("train", {"worker": [pagesamples.task(0, state)]})

    await pages.apply(body(State.PREPARING))
    page = await tabs.open(url)
    await expect(page.locator("#link")).to_have_text("Live")
    await page.get_by_role("searchbox").press_sequentially("train")
    await expect(page).to_have_url(f"{url}?q=train")
    await page.get_by_role("link", name="train").click()
    await expect(page).to_have_url(f"{url}frameworks/default/train")
    await expect(page.locator("#link")).to_have_text("Live")
    await pages.apply(body(State.RUNNING))
    await expect(page.locator("#tasks")).to_contain_text("1 running")
    await page.get_by_role("listbox").focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("worker[0]")
    assert page.url.startswith(f"{url}frameworks/default/train/")
    links = await page.evaluate("[...document.querySelectorAll('a[href]')].map((one) => one.href)")
    assert links
    async with aiohttp.ClientSession() as session:
        for link in {link.partition("#")[0] for link in links}:
            assert link.startswith(url)
            async with session.get(link) as answer:
                assert answer.status == 200, link
    await page.get_by_role("link", name="Failures").click()
    await expect(page).to_have_url(f"{url}failures")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Failures")
