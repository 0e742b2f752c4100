"""Connections of tests, which end before the event loop does."""

from typing import Any

import aiohttp


class AbruptConnector(aiohttp.TCPConnector):
    """Aborts a connection that it does not keep.

    The base class ends TLS with the consent of the server, and does not wait for that when it is closed: where the
    server is slow, the socket is still open at the end of the test's loop.
    """

    def _release(self, key: Any, protocol: Any, *, should_close: bool = False) -> None:
        if self._force_close or should_close or protocol.should_close:
            protocol.abort()
        super()._release(key, protocol, should_close=should_close)
