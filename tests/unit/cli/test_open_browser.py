"""A browser is opened without its token in the arguments of a process, which other users can read."""

import os
import re
import webbrowser
from html import unescape
from pathlib import Path
from urllib.request import url2pathname

import pytest

from frameworkcontroller.cli.dashboard import open_browser

URL = "http://127.0.0.1:1/login?token=se&cret"


@pytest.mark.parametrize("found", [True, False])
async def test_the_browser_gets_a_file_that_leads_to_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, found: bool
) -> None:
    opened: list[str] = []

    def start(url: str) -> bool:
        opened.append(url)
        return found

    monkeypatch.setattr(webbrowser, "open", start)
    umask = os.umask(0)
    try:
        assert await open_browser(URL, tmp_path) is found
    finally:
        os.umask(umask)
    (url,) = opened
    assert "cret" not in url
    assert url.startswith("file://")
    page = Path(url2pathname(url.removeprefix("file://")))
    assert page.stat().st_mode & 0o777 == 0o600
    target = re.search(r'content="0; url=([^"]*)"', page.read_text())
    assert target is not None
    assert unescape(target[1]) == URL
