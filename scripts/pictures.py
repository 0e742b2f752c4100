"""Draw the pictures of docs/pages.md: `make pictures`. They show samples, on a clock of their own, in Chromium."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from playwright.async_api import Browser, Page, async_playwright, expect

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser.conftest import CHROMIUM  # noqa: E402
from tests.browser.pageserver import past_frameworks, serving  # noqa: E402
from tests.support import pagesamples  # noqa: E402

IMAGES: Final = ROOT / "docs" / "images"
MOST_BYTES: Final = 150_000

DESKTOP: Final = {"width": 1120, "height": 640}
PHONE: Final = {"width": 360, "height": 640}


async def main() -> None:
    """Draw all of them."""
    with TemporaryDirectory() as folder:
        async with serving(Path(folder)) as server, async_playwright() as playwright:
            await server.apply(*pagesamples.frameworks())
            await server.archive_of(*past_frameworks())
            arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
            mnist = f"frameworks/default/mnist/{await server.uid('default', 'mnist')}"
            for name, path, options in (
                ("list", "", {}),
                ("list-dark", "", {"color_scheme": "dark"}),
                ("list-phone", "", {"viewport": PHONE}),
                ("framework", mnist, {}),
                ("tasks", "frameworks/research/sweep", {"color_scheme": "dark"}),
                ("timeline", mnist, {}),
                ("task", f"{mnist}/tasks/worker/2", {}),
                ("failures", "failures?since=", {}),
            ):
                page = await opened(browser, server.url + path, options)
                await show(page, name)
                picture = IMAGES / f"pages-{name}.png"
                await page.screenshot(path=picture)
                assert picture.stat().st_size < MOST_BYTES, f"{picture}: {picture.stat().st_size:,} bytes"
                print(f"{picture.relative_to(ROOT)}: {picture.stat().st_size:,} bytes")
                await page.context.close()
            await browser.close()


async def opened(browser: Browser, url: str, options: dict[str, Any]) -> Page:
    """Open a page, and wait until it is connected."""
    context = await browser.new_context(**{"viewport": DESKTOP, "reduced_motion": "reduce", **options})
    page = await context.new_page()
    await page.goto(url)
    if await page.locator("body[data-events]").count():
        await expect(page.locator("#link")).to_have_text("Live")
    return page


async def show(page: Page, name: str) -> None:
    """Bring the part that the picture is of into view."""
    if name == "tasks":
        await page.get_by_role("listbox").focus()
        await page.keyboard.press("f")
    elif name == "timeline":
        await page.locator("#attempts").evaluate("part => part.scrollIntoView({ block: 'start' })")


if __name__ == "__main__":
    asyncio.run(main())
