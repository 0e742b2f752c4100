"""A Chromium for all tests of a process, a fresh profile of it for each, and the pages that it is to show.

Tests, pages and browser share the event loop of the session: each module of tests says so by its ``pytestmark``.
A page that logs an error to its console fails the test: so does a violation of the Content-Security-Policy, which
Chromium logs as one.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, ViewportSize, async_playwright, expect

from tests.browser.pageserver import PageServer, past_frameworks, serving
from tests.support import pagesamples

CHROMIUM: Final = shutil.which("chromium") or "/usr/bin/chromium"

PATIENCE_MS: Final = 60_000
"""The longest wait for a condition: long only where something is wrong."""

DESKTOP: Final[ViewportSize] = {"width": 1280, "height": 800}
PHONE: Final[ViewportSize] = {"width": 360, "height": 740}


class Tabs:
    """Opens pages, and records their errors."""

    def __init__(self, chromium: Browser) -> None:
        self._chromium = chromium
        self._contexts: list[BrowserContext] = []
        self.problems: list[str] = []

    async def open(self, url: str, *, dark: bool = False, phone: bool = False, **options: Any) -> Page:
        """Open a page in a profile of its own."""
        context = await self._chromium.new_context(
            **{
                "viewport": PHONE if phone else DESKTOP,
                "color_scheme": "dark" if dark else "light",
                "permissions": ["clipboard-read", "clipboard-write"],
                **options,
            }
        )
        self._contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = await context.new_page()
        page.on("console", lambda message: self._add(message.type, f"{message.text} ({message.location['url']})"))
        page.on("pageerror", lambda error: self._add("error", str(error)))
        page.on("dialog", lambda dialog: self._add("error", f"dialog: {dialog.message}"))
        await page.goto(url)
        return page

    def _add(self, kind: str, text: str) -> None:
        if kind == "error":
            self.problems.append(text)

    def forgive(self, pattern: str) -> None:
        """Take away the problems that a test has caused on purpose."""
        self.problems = [one for one in self.problems if not re.search(pattern, one)]

    async def close(self) -> None:
        """Close all of them."""
        for context in self._contexts:
            await context.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    """The browser."""
    if not Path(CHROMIUM).exists():
        pytest.skip("there is no chromium; Debian's package has that name")
    async with async_playwright() as playwright:
        expect.set_options(timeout=PATIENCE_MS)
        # Its sandbox refuses root.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def tabs(request: pytest.FixtureRequest, chromium: Browser) -> AsyncIterator[Tabs]:
    """Pages of one test. Last of its fixtures: a page that outlives its server logs an error."""
    servers = {"pages", "closed", "url"} & set(request.fixturenames)
    assert all(request.fixturenames.index(one) < request.fixturenames.index("tabs") for one in servers)
    made = Tabs(chromium)
    yield made
    await made.close()
    assert made.problems == []


@pytest_asyncio.fixture(loop_scope="session")
async def pages(tmp_path: Path) -> AsyncIterator[PageServer]:
    """The pages of a cluster and an archive that are empty at first."""
    async with serving(tmp_path) as server:
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def samples(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PageServer]:
    """The pages of Frameworks in every state, live and past. To be read only."""
    async with serving(tmp_path_factory.mktemp("samples")) as server:
        await server.apply(*pagesamples.frameworks())
        await server.archive_of(*past_frameworks())
        await server.archive_log("past-1", "night1", pagesamples.SAID.encode() * 20 + b"x" * 3000)
        await server.add_event("default", "Framework", "mnist", "TaskFailed", "worker[2] has failed with code 7")
        yield server
