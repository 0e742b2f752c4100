"""Fixtures of the archive."""

from collections.abc import AsyncIterator

import pytest

from frameworkcontroller.history.archive import HistoryArchive


@pytest.fixture
async def archive(database_url: str) -> AsyncIterator[HistoryArchive]:
    """An empty archive."""
    async with await HistoryArchive.open(database_url) as opened:
        yield opened
