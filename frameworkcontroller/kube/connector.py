"""Makes connections to one server: addresses, proxies, TLS."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from aiohappyeyeballs import start_connection

from frameworkcontroller.kube.httpconnection import HttpConnection

_CONNECT_TIMEOUT_SECONDS: Final = 10.0
_ADDRESSES_FOR_SECONDS: Final = 10.0
# As RFC 8305 recommends.
_NEXT_ADDRESS_AFTER_SECONDS: Final = 0.25

# The caller limits the time.
_ENDLESS_SECONDS: Final = 3600.0

_Addresses = list[tuple[int, int, int, str, Any]]


class ProxyRefused(OSError):
    """The proxy does not connect to the server."""


class Security(NamedTuple):
    """The TLS settings of connections. Without a ``context``, there is no TLS."""

    context: ssl.SSLContext | None
    server_name: str | None


class Connector:
    """Connects to the host of a URL, through the proxy if there is one."""

    def __init__(self, server: str, proxy: str | None) -> None:
        """Both are URLs, http or https; the proxy's may have a user and a password."""
        self._url = urlsplit(server)
        self._proxy = None if proxy is None else urlsplit(proxy)
        self.host = _host_and_port(self._url, always=False)
        """For the header of this name."""
        tunneled = self._proxy is not None and self._url.scheme == "https"
        self.target = "" if self._proxy is None or tunneled else f"http://{self.host}"
        """Prefix of the path in a request line."""
        self.headers = "" if tunneled else self._proxy_headers()
        """More headers of each request, each with the end of its line."""
        self._addresses: _Addresses = []
        self._resolved_at = 0.0
        self._resolving = asyncio.Lock()
        self._unresolved: OSError | None = None
        """The failure of the last lookup that failed."""

    async def connect(self, security: Security, closed: Callable[[HttpConnection], None]) -> HttpConnection:
        """Return a new connection. Raises OSError, including ProxyRefused and TimeoutError."""
        name = _certified(security.server_name or self._url.hostname)
        if self._proxy is None:
            return await self._dial(self._url, security.context, name, closed)
        through = security.context or ssl.create_default_context()
        connection = await self._dial(
            self._proxy, through if self._proxy.scheme == "https" else None, _certified(self._proxy.hostname), closed
        )
        if self._url.scheme == "https" and security.context is not None:
            try:
                await self._tunnel(connection, security.context, name)
            except BaseException:
                connection.abort()
                raise
        return connection

    async def _dial(
        self, url: SplitResult, tls: ssl.SSLContext | None, name: str | None, closed: Callable[[HttpConnection], None]
    ) -> HttpConnection:
        loop = asyncio.get_running_loop()
        addresses = await self._resolve(url)
        async with asyncio.timeout(_CONNECT_TIMEOUT_SECONDS):
            sock = await start_connection(
                addresses, happy_eyeballs_delay=_NEXT_ADDRESS_AFTER_SECONDS, loop=loop, socket_factory=_make_socket
            )
            try:
                _, connection = await loop.create_connection(
                    lambda: HttpConnection(closed), sock=sock, ssl=tls, server_hostname=name if tls else None
                )
            except BaseException:
                # Not closed: a transport of asyncio that was cancelled early still has it, and closes it at its end.
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
                raise
        return connection

    async def _resolve(self, url: SplitResult) -> _Addresses:
        """Return the addresses of the host, which are asked for once for all connections of some seconds."""
        loop = asyncio.get_running_loop()
        host, port = url.hostname, url.port or (443 if url.scheme == "https" else 80)
        earlier = self._unresolved
        async with self._resolving:
            if self._unresolved is not None and self._unresolved is not earlier:
                # Failed during the wait. One lookup after the other would delay and hide the error.
                raise OSError(str(self._unresolved)) from self._unresolved
            if not self._addresses or loop.time() > self._resolved_at + _ADDRESSES_FOR_SECONDS:
                kind = socket.SOCK_STREAM
                try:
                    found = socket.getaddrinfo(host, port, type=kind, flags=socket.AI_NUMERICHOST)
                except socket.gaierror:
                    try:
                        found = await loop.getaddrinfo(host, port, type=kind)
                    except OSError as error:
                        self._unresolved = error
                        raise
                except UnicodeError as error:
                    raise OSError(f"{host!r} is not the name of a host: {error}") from error
                self._addresses = list(found)
                self._resolved_at = loop.time()
            return self._addresses

    async def _tunnel(self, connection: HttpConnection, tls: ssl.SSLContext, name: str | None) -> None:
        target = _host_and_port(self._url, always=True)
        head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{self._proxy_headers()}\r\n"
        await connection.send(head.encode(), b"", limit=_ENDLESS_SECONDS)
        answer = await connection.opened(whole=False)
        if answer.status != 200:
            raise ProxyRefused(f"{answer.status} {answer.reason}")
        async with asyncio.timeout(_CONNECT_TIMEOUT_SECONDS):
            await connection.start_tls(tls, name)

    def _proxy_headers(self) -> str:
        if self._proxy is None or self._proxy.username is None:
            return ""
        user, password = unquote(self._proxy.username), unquote(self._proxy.password or "")
        return f"Proxy-Authorization: Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}\r\n"


def _certified(name: str | None) -> str | None:
    """Return the name as in certificates: without the final dot of a fully qualified name."""
    return None if name is None else name.rstrip(".")


def _host_and_port(url: SplitResult, *, always: bool) -> str:
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
    usual = 443 if url.scheme == "https" else 80
    port = url.port or usual
    return f"{host}:{port}" if always or port != usual else f"{host}"


def _make_socket(info: tuple[int, int, int, str, Any]) -> socket.socket:
    """Return a socket that detects within about 30 s that its peer has vanished."""
    family, kind, protocol, _, _ = info
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000)):
        # Not all systems have these; without them, read timeouts must do.
        with suppress(OSError, AttributeError):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return sock
