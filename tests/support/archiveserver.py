"""A server that takes the history's records, or does not, as a test tells it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from frameworkcontroller.api.historyrecords import HistoryRecord, Trigger, decode_record
from tests.support.faulty_server import Answer, FaultyServer, answer, faulty_server


@dataclass
class ArchiveServer:
    """Stores acknowledged records, and records whose request `dies`."""

    http: FaultyServer
    records: dict[str, list[HistoryRecord]] = field(default_factory=lambda: defaultdict(list))
    """By id, in the order in which they came."""
    refused: Callable[[HistoryRecord], bool] = lambda _: False
    """Records because of which a request is refused as a whole."""

    @property
    def url(self) -> str:
        """The address that takes records."""
        return f"{self.http.url}/v1/records"

    def ids(self, *triggers: Trigger) -> set[str]:
        """Ids of the records of these triggers."""
        return {found for found, all_of in self.records.items() if any(one.trigger in triggers for one in all_of)}

    def keep(self, body: bytes) -> list[HistoryRecord]:
        """The records of a request."""
        return [decode_record(line) for line in body.splitlines()]

    def stores(self) -> Answer:
        """Store the records, then answer."""

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            records = self.keep(self.http.seen[-1].body)
            bad = [str(record.id) for record in records if self.refused(record)]
            if bad:
                return web.json_response({"title": "Bad record", "detail": f"of {len(records)}"}, status=400)
            self._store(records)
            return web.json_response({"stored": len(records)})

        return handle

    def dies(self, then: Answer) -> Answer:
        """Store the records, and answer something else."""

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            self._store(self.keep(self.http.seen[-1].body))
            return await then(request)

        return handle

    def _store(self, records: list[HistoryRecord]) -> None:
        for record in records:
            self.records[str(record.id)].append(record)


@asynccontextmanager
async def archive_server(port: int = 0) -> AsyncIterator[ArchiveServer]:
    """A running server that stores."""
    async with faulty_server(port) as http:
        server = ArchiveServer(http)
        http.otherwise = server.stores()
        yield server


UNAVAILABLE = answer({"title": "The database is away"}, 503)
