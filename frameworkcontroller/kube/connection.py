"""Where an API server is, and how to prove who we are to it.

| address | kubeconfig | connection |
|---|---|---|
| given | given, or found | the kubeconfig's, to that address instead of its server |
| given | none | to that address, without credentials |
| none | given, or found | the kubeconfig's |
| none | none | in-cluster: the Pod's service account |
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from multidict import CIMultiDict

from frameworkcontroller.kube.errors import ConnectionConfigError
from frameworkcontroller.kube.kubeconfig import Access, any_exists, read_kubeconfig, read_service_account
from frameworkcontroller.kube.proxy import proxy_from_environment
from frameworkcontroller.kubeconfig.tls import TlsError

_log: Final = logging.getLogger(__name__)

ADDRESS_VARIABLE: Final = "KUBE_APISERVER_ADDRESS"
KUBECONFIG_VARIABLE: Final = "KUBECONFIG"

_FORCED_RENEWAL_EVERY_SECONDS: Final = 5.0
_FAILED_RENEWAL_AGAIN_SECONDS: Final = 30.0


class Connection:
    """An API server's address, TLS settings and credentials, which it renews by itself.

    ``server`` has no trailing slash; it may have a path. ``origin`` says in words which setting it came from.
    ``generation`` rises when what a new TLS session needs has changed: connections made before belong to the old.
    """

    def __init__(
        self,
        access: Access,
        *,
        origin: str,
        renew: Callable[[], Awaitable[Access]] | None = None,
        proxy: str | None = None,
    ) -> None:
        """``renew`` reads the access anew, raising ConnectionConfigError; None: there is nothing to renew.

        Raises ConnectionConfigError if the certificates cannot be used.
        """
        self.server = access.server.rstrip("/")
        self.origin = origin
        self.proxy = proxy
        self.generation = 0
        self._renew = renew
        self.access = access
        self._renewal: asyncio.Task[bool] | None = None
        self._renew_at: float | None = None
        self._forced_at: float | None = None
        self._headers = _headers(access)
        self.tls = _tls_context(access, origin)

    @classmethod
    def to_address(cls, address: str, *, token: str | None = None) -> Connection:
        """A connection to ``http[s]://host[:port]`` without proxy; reads no environment and no files.

        ``token``: what it bears, if anything.

        Raises ConnectionConfigError if the address is not of that form.
        """
        server = check_address(address, "the API server's address")
        authorization = None if token is None else f"Bearer {token}"
        return cls(Access(server=server, authorization=authorization), origin="the address given")

    @property
    def tls_server_name(self) -> str | None:
        """The name that the server's certificate must have, if it is not that of the address."""
        return self.access.tls.server_name

    async def headers(self) -> CIMultiDict[str]:
        """What every request carries to prove who sends it. Do not change it. Renewed when it is due.

        A renewal that fails is logged and tried again half a minute later: the old may well still do.
        """
        if self._renew is None:
            return self._headers
        now = asyncio.get_running_loop().time()
        if self._renew_at is None and self.access.renew_after is not None:
            self._renew_at = now + self.access.renew_after
        if self._renew_at is not None and now >= self._renew_at and self._renewal is None:
            await self._renewed(self._renew)
        return self._headers

    async def renew_after_refusal(self, refused: CIMultiDict[str]) -> bool:
        """Get new credentials after a 401 to a request with these headers. Returns whether to send it again.

        Many requests may be refused at once: they all wait for one renewal, and use what comes of it.
        """
        if self._renew is None:
            return False
        if refused is not self._headers:
            return True
        if self._renewal is None:
            now = asyncio.get_running_loop().time()
            if self._forced_at is not None and now - self._forced_at < _FORCED_RENEWAL_EVERY_SECONDS:
                # Just renewed, and refused again: this is no matter of age, and plugins may be costly.
                return False
            self._forced_at = now
        return await self._renewed(self._renew)

    async def _renewed(self, renew: Callable[[], Awaitable[Access]]) -> bool:
        """Wait for the renewal that is under way, or a new one; whether it brought anything.

        It goes on if who waits for it is cancelled: a claim of the lease has a few seconds, a plugin takes longer.
        """
        if self._renewal is None:
            self._renewal = asyncio.create_task(self._renew_once(renew), name="renewal of credentials")
        return await asyncio.shield(self._renewal)

    async def _renew_once(self, renew: Callable[[], Awaitable[Access]]) -> bool:
        loop = asyncio.get_running_loop()
        try:
            try:
                access = await renew()
                if access.server != self.access.server:
                    raise ConnectionConfigError(
                        f"{self.origin} now names another server, {access.server}: to follow it takes a restart"
                    )
                tls = self.tls if access.tls == self.access.tls else _tls_context(access, self.origin)
            except ConnectionConfigError as error:
                self._renew_at = loop.time() + _FAILED_RENEWAL_AGAIN_SECONDS
                _log.warning("Credentials were not renewed, the old ones stay in use: %s", error)
                return False
            if tls is not self.tls:
                self.tls = tls
                self.generation += 1
            self.access = access
            self._renew_at = None if access.renew_after is None else loop.time() + access.renew_after
            # A new object even if nothing in it is new: it says "renewed since", see renew_after_refusal.
            self._headers = _headers(access)
            return True
        finally:
            self._renewal = None


async def connect(
    *,
    address: str | None = None,
    kubeconfig: str | None = None,
    context: str | None = None,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
    service_account: str | None = None,
    wall: Callable[[], float] = time.time,
    absent_kubeconfig_ok: bool = False,
) -> Connection:
    """The connection that these settings, or else the environment, mean; the module says by which rules.

    ``kubeconfig`` is a path, or several separated by ``:``. None comes from ``$KUBE_APISERVER_ADDRESS``, and from
    ``$KUBECONFIG`` or ``~/.kube/config``; empty means none, and the environment is ignored. Nothing is sent to the
    server yet. ``service_account`` is the directory of the Pod's token, if not the usual one.

    ``absent_kubeconfig_ok``: a ``$KUBECONFIG`` that names no file counts as not set, as in the original. Not for
    commands: what was meant for one cluster would reach another.

    An HTTP proxy is taken from the kubeconfig or, by the customary variables, from the environment. In a cluster it
    never is: the API server is then at a cluster-internal address, and a proxy that was set for the way out, with
    exceptions that cover that address or not, must not get to see the token.

    Raises ConnectionConfigError, naming the file, variable or value at fault.
    """
    environ = os.environ if environ is None else environ
    named = "kubeApiServerAddress"
    if address is None and environ.get(ADDRESS_VARIABLE):
        address, named = environ[ADDRESS_VARIABLE], f"${ADDRESS_VARIABLE}"
    server = check_address(address, named) if address else None
    paths = kubeconfig
    if paths is None:
        paths = environ.get(KUBECONFIG_VARIABLE)
        if paths and absent_kubeconfig_ok and not any_exists(paths):
            _log.warning("$%s names no file, and is passed over: %s", KUBECONFIG_VARIABLE, paths)
            paths = None
        paths = paths or _usual_kubeconfig(home)

    if paths:
        files = paths

        async def renew() -> Access:
            return await read_kubeconfig(files, context=context, address=server, wall=wall)

        access = await renew()
        check_address(access.server, f"kubeconfig {paths}: server")
        origin = f"{named}, with kubeconfig {paths}" if server else f"kubeconfig {paths}"
        proxy = access.proxy or proxy_from_environment(access.server, environ)
    elif server:
        return Connection(Access(server=server), origin=named, proxy=proxy_from_environment(server, environ))
    else:

        async def renew() -> Access:
            return read_service_account(environ, service_account)

        try:
            access = await renew()
        except ConnectionConfigError as error:
            raise ConnectionConfigError(
                f"no API server is configured: no kubeApiServerAddress, no kubeConfigFilePath, "
                f"no ${ADDRESS_VARIABLE}, no ${KUBECONFIG_VARIABLE}, no ~/.kube/config, and not in a Pod: {error}"
            ) from error
        origin = "in-cluster configuration"
        proxy = None
    if proxy is not None and urlsplit(proxy).scheme not in ("http", "https"):
        scheme = urlsplit(proxy).scheme  # and no more of it: it may hold a password
        raise ConnectionConfigError(f"{scheme} proxy for {access.server}: only http and https proxies are supported")
    return Connection(access, origin=origin, renew=renew, proxy=proxy)


def _usual_kubeconfig(home: Path | None) -> str | None:
    try:
        found = (home or Path.home()) / ".kube" / "config"
        return str(found) if found.is_file() else None
    except (RuntimeError, OSError):
        # A user without a home, or one that may not be looked into.
        return None


def check_address(address: str, named: str) -> str:
    """The address of an API server without a trailing slash. Raises ConnectionConfigError, naming it as ``named``."""
    wanted = f"{named} must be http[s]://host:port: {address!r}"
    try:
        url = urlsplit(address.strip())
        port = url.port
    except ValueError as error:
        raise ConnectionConfigError(f"{wanted} ({error})") from error
    if url.scheme not in ("http", "https") or not url.hostname or port == 0:
        raise ConnectionConfigError(wanted)
    if url.username is not None or url.password is not None or url.query or url.fragment:
        raise ConnectionConfigError(f"{named} must be http[s]://host:port, without user, query or fragment")
    return address.strip().rstrip("/")


def _headers(access: Access) -> CIMultiDict[str]:
    headers: CIMultiDict[str] = CIMultiDict()
    if access.authorization is not None:
        headers["Authorization"] = access.authorization
    headers.extend(access.impersonate)
    return headers


def _tls_context(access: Access, origin: str) -> ssl.SSLContext | None:
    try:
        return access.tls.context() if access.server.startswith("https:") else None
    except TlsError as error:
        raise ConnectionConfigError(f"{origin}: {error}") from error
