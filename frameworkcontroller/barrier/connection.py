"""The connection to the API server."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Mapping
from pathlib import Path

from frameworkcontroller.barrier.credentials import Plugin, User
from frameworkcontroller.barrier.errors import CheckFailed, NoConnection, reason
from frameworkcontroller.kubeconfig.reader import SERVICE_ACCOUNT, Kubeconfig, KubeconfigError, split_address
from frameworkcontroller.kubeconfig.tls import TlsError

MOST_BYTES = 64 << 20  # of an answer, and of its unpacked status: more than 10,000 Tasks can need


class Server:
    """An API server.

    Requests ignore the proxies in the environment: those of a container lead out of the cluster, and must not see the
    token.
    """

    def __init__(self, address: str, named: str, config: Kubeconfig | None = None) -> None:
        """``named``: the setting that the address comes from. ``config``: its cluster and user; None: anonymous.

        Raises NoConnection, KubeconfigError, TlsError.
        """
        try:
            url = split_address(address, named)
        except KubeconfigError as error:
            raise NoConnection(str(error)) from None
        config = config or Kubeconfig({}, {})
        if config.proxy():
            raise KubeconfigError("proxy-url is not supported")
        if config.user.get("auth-provider"):
            raise KubeconfigError("auth-provider is not supported, nor by kubectl since 1.26; use exec")
        tls = config.tls()
        self.address = address.strip()
        self._host = url.hostname or ""
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._prefix = url.path.rstrip("/")
        self._tls = tls.context() if url.scheme == "https" else None
        self._tls_server_name = tls.server_name or self._host
        has_plugin = config.user.get("exec") and not config.has_credentials
        self._credentials = Plugin(config, tls, self.address) if has_plugin else User(config)
        self._impersonation = config.impersonation()

    def get(self, path: str, accept: str, timeout: float) -> tuple[int, Mapping[str, str], bytes]:
        """Send a GET; return status, headers (in lower case) and body. ``timeout``: seconds. Raises CheckFailed."""
        deadline = time.monotonic() + timeout
        headers = [("Accept", accept), ("User-Agent", "frameworkbarrier"), ("Connection", "close")]
        headers += self._credentials.headers() + self._impersonation
        tls = self._tls and (self._credentials.tls() or self._tls)
        connection = _Connection(self._host, self._port, timeout, tls, self._tls_server_name)
        try:
            connection.putrequest("GET", self._prefix + path, skip_accept_encoding=True)
            for name, value in headers:
                connection.putheader(name, value)
            connection.endheaders()
            response = connection.getresponse()
            if response.status == 401:
                self._credentials.on_unauthorized()
            chunks = []
            size = 0
            while True:
                chunk = response.read(1 << 16)
                if not chunk:
                    break
                chunks.append(chunk)
                size += len(chunk)
                if size > MOST_BYTES:
                    raise CheckFailed(f"{self.address}: its answer is larger than any Framework")
                if time.monotonic() > deadline:
                    raise CheckFailed(f"{self.address}: its answer was not complete after {timeout:.0f} s")
            return response.status, {key.lower(): value for key, value in response.getheaders()}, b"".join(chunks)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise CheckFailed(f"{self.address}: {reason(error)}") from error
        finally:
            connection.close()


class _Connection(http.client.HTTPConnection):
    """A connection with or without TLS; the name in the certificate may differ from the host."""

    def __init__(self, host: str, port: int, timeout: float, tls: ssl.SSLContext | None, tls_server_name: str) -> None:
        super().__init__(host, port, timeout=timeout)
        self._tls = tls
        self._tls_server_name = tls_server_name

    def connect(self) -> None:
        super().connect()
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._tls_server_name)


def connect(environ: Mapping[str, str], service_account: str = SERVICE_ACCOUNT) -> Server:
    """The API server of the environment: by kubeconfig, by its bare address, or by the Pod's service account.

    With a kubeconfig and an address, the kubeconfig's credentials are used at that address. Raises NoConnection.
    """
    address = environ.get("KUBE_APISERVER_ADDRESS")
    kubeconfig = environ.get("KUBECONFIG")
    if not kubeconfig and environ.get("HOME"):
        usual = Path(environ["HOME"]) / ".kube" / "config"
        kubeconfig = str(usual) if usual.is_file() else None
    source = "$KUBE_APISERVER_ADDRESS"
    try:
        config = Kubeconfig({}, {})
        if kubeconfig:
            source = f"kubeconfig {kubeconfig}"
            config = Kubeconfig.read(kubeconfig)
        elif not address:
            source = "neither $KUBE_APISERVER_ADDRESS nor $KUBECONFIG is set; service account"
            config = Kubeconfig.of_service_account(environ, Path(service_account))
        named = "$KUBE_APISERVER_ADDRESS" if address else f"{source}: server"
        return Server(address or config.server(), named, config)
    except (KubeconfigError, TlsError) as error:
        raise NoConnection(f"{source}: {error}") from error
