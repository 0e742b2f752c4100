"""The address of an API server, and the credentials for it.

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
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from frameworkcontroller.kube.errors import ConnectionConfigError, NoClusterError
from frameworkcontroller.kube.kubeconfig import ServerAccess, read_kubeconfig, read_service_account
from frameworkcontroller.kube.proxy import proxy_from_environment
from frameworkcontroller.kubeconfig.reader import KubeconfigError, existing, split_address
from frameworkcontroller.kubeconfig.tls import TlsError

Headers = list[tuple[str, str]]

_log: Final = logging.getLogger(__name__)

ADDRESS_VARIABLE: Final = "KUBE_APISERVER_ADDRESS"
KUBECONFIG_VARIABLE: Final = "KUBECONFIG"
SERVICE_VARIABLE: Final = "KUBERNETES_SERVICE_HOST"
"""Set in Pods."""

_FORCED_RENEWAL_EVERY_SECONDS: Final = 5.0
_FAILED_RENEWAL_AGAIN_SECONDS: Final = 30.0


class Connection:
    """The address, TLS settings and credentials of an API server. It renews the credentials by itself.

    ``server`` has no trailing slash, and may have a path. ``origin`` describes the setting that it comes from.
    """

    def __init__(
        self,
        access: ServerAccess,
        *,
        origin: str,
        renew: Callable[[], Awaitable[ServerAccess]] | None = None,
        proxy: str | None = None,
    ) -> None:
        """``renew`` reads the access again, and raises ConnectionConfigError; None: it does not expire.

        Raises ConnectionConfigError if the certificates cannot be used.
        """
        self.server = access.server.rstrip("/")
        self.origin = origin
        self.proxy = proxy
        self.access = access
        self.tls = self._tls_context(access)
        self._renew = renew
        self._renew_at: float | None = None
        self._renewal: asyncio.Task[bool] | None = None
        self._forced_at: float | None = None
        self._use(access)

    @classmethod
    def to_address(cls, address: str, *, token: str | None = None) -> Connection:
        """Return a connection to ``http[s]://host[:port]`` without a proxy, with an optional bearer token.

        Reads no environment and no files. Raises ConnectionConfigError if the address is not of that form.
        """
        server = check_address(address, "the API server's address")
        authorization = None if token is None else f"Bearer {token}"
        return cls(ServerAccess(server=server, authorization=authorization), origin="the address given")

    async def headers(self) -> Headers:
        """Return the credentials for a request, renewed if due.

        A failed renewal is logged and retried after 30 s; the old credentials may still be valid.
        """
        if self._renew_at is not None and self._renewal is None and _now() >= self._renew_at:
            await self._renewed()
        return self._headers

    async def renew_after_refusal(self, refused: Headers) -> bool:
        """Renew the credentials after a 401 to a request with these headers. Return whether to repeat the request.

        Concurrent calls share one renewal.
        """
        if refused is not self._headers:
            return True
        if self._renewal is None:
            if self._forced_at is not None and _now() - self._forced_at < _FORCED_RENEWAL_EVERY_SECONDS:
                # Refused right after a renewal: another one would not help, and exec plugins are expensive.
                return False
            self._forced_at = _now()
        return await self._renewed()

    async def _renewed(self) -> bool:
        """Wait for the current renewal, or start one. Return whether it succeeded.

        It continues if the caller is cancelled: a renewal of the lease has a shorter timeout than a slow exec plugin.
        """
        if self._renewal is None:
            self._renewal = asyncio.create_task(self._renew_once(), name="renewal of credentials")
        return await asyncio.shield(self._renewal)

    async def _renew_once(self) -> bool:
        try:
            if self._renew is None:
                return False
            access = await self._renew()
            if access.server != self.access.server:
                raise ConnectionConfigError(
                    f"{self.origin} now names another server, {access.server}; restart to use it"
                )
            self._use(access)
        except ConnectionConfigError as error:
            self._renew_at = _now() + _FAILED_RENEWAL_AGAIN_SECONDS
            _log.warning("Cannot renew the credentials, using the old ones: %s", error)
            return False
        else:
            return True
        finally:
            self._renewal = None

    def _use(self, access: ServerAccess) -> None:
        if access.tls != self.access.tls:
            self.tls = self._tls_context(access)
        self.access = access
        self._renew_at = None if access.renew_after is None else _now() + access.renew_after
        # A new object even if the content is equal: renew_after_refusal compares identities.
        self._headers = list(access.impersonate)
        if access.authorization is not None:
            self._headers.append(("Authorization", access.authorization))

    def _tls_context(self, access: ServerAccess) -> ssl.SSLContext | None:
        # The proxy of a server without TLS may have TLS.
        if not any(url.startswith("https:") for url in (access.server, self.proxy or "")):
            return None
        try:
            return access.tls.context()
        except TlsError as error:
            raise ConnectionConfigError(f"{self.origin}: {error}") from error


async def connect(
    *,
    address: str | None = None,
    kubeconfig: str | None = None,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
    absent_kubeconfig_ok: bool = False,
) -> Connection:
    """Return the connection for these settings, completed from the environment by the rules of the module.

    ``kubeconfig`` is a path, or several separated by ``:``. None stands for ``$KUBE_APISERVER_ADDRESS``, and for
    ``$KUBECONFIG`` or ``~/.kube/config``; empty for no setting at all. Sends no request.

    ``absent_kubeconfig_ok``: ignore a ``$KUBECONFIG`` that names no existing file, as the original does. Not for
    commands, which would reach another cluster than the intended one.

    An HTTP proxy is taken from the kubeconfig or from the usual environment variables, but not in a cluster: the
    API server then has a cluster-internal address, and a proxy for outgoing traffic must not see the token.

    Raises ConnectionConfigError, naming the file, variable or value at fault.
    """
    named = "kubeApiServerAddress"
    if address is None and environ.get(ADDRESS_VARIABLE):
        address, named = environ[ADDRESS_VARIABLE], f"${ADDRESS_VARIABLE}"
    server = check_address(address, named) if address else None
    paths = kubeconfig
    if paths is None:
        paths = environ.get(KUBECONFIG_VARIABLE)
        if paths and absent_kubeconfig_ok and not existing(paths):
            _log.warning("Ignoring $%s, which names no existing file: %s", KUBECONFIG_VARIABLE, paths)
            paths = None
        paths = paths or next(iter(existing("~/.kube/config")), None)

    renew: Callable[[], Awaitable[ServerAccess]]
    if paths:
        renew = partial(read_kubeconfig, paths, context=context, address=server)
        access = await renew()
        check_address(access.server, f"kubeconfig {paths}: server")
        origin = f"{named}, with kubeconfig {paths}" if server else f"kubeconfig {paths}"
        proxy = access.proxy or proxy_from_environment(access.server, environ)
    elif server:
        return Connection(ServerAccess(server=server), origin=named, proxy=proxy_from_environment(server, environ))
    else:
        renew = partial(read_service_account, environ)
        try:
            access = await renew()
        except ConnectionConfigError as error:
            raise (ConnectionConfigError if environ.get(SERVICE_VARIABLE) else NoClusterError)(
                f"no API server is configured: no kubeApiServerAddress, no kubeConfigFilePath, "
                f"no ${ADDRESS_VARIABLE}, no ${KUBECONFIG_VARIABLE}, no ~/.kube/config, and not in a Pod: {error}"
            ) from error
        origin = "in-cluster configuration"
        proxy = None
    if proxy is not None and urlsplit(proxy).scheme not in ("http", "https"):
        scheme = urlsplit(proxy).scheme  # only the scheme: the rest may hold a password
        raise ConnectionConfigError(f"{scheme} proxy for {access.server}: only http and https proxies are supported")
    return Connection(access, origin=origin, renew=renew, proxy=proxy)


def check_address(address: str, named: str) -> str:
    """Return the address without a trailing slash. Raises ConnectionConfigError, which calls the address ``named``."""
    try:
        split_address(address, named)
    except KubeconfigError as error:
        raise ConnectionConfigError(str(error)) from error
    return address.strip().rstrip("/")


def _now() -> float:
    return asyncio.get_running_loop().time()
