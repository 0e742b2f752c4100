"""The connection to the API server."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Mapping
from pathlib import Path

from frameworkcontroller.barrier.exits import BarrierError, CheckFailed, reason
from frameworkcontroller.kubeconfig.plugin import Plugin
from frameworkcontroller.kubeconfig.reader import SERVICE_ACCOUNT, Kubeconfig, KubeconfigError, split_address
from frameworkcontroller.kubeconfig.tls import TlsError

MOST_BYTES = 64 << 20  # of an answer, and of its unpacked status: more than 10,000 Tasks can need

_ANONYMOUS = Kubeconfig({}, {})


class Server:
    """An API server.

    Requests ignore the proxies in the environment: a container's proxies lead out of the cluster, and must not see the
    token.
    """

    def __init__(self, address: str, config: Kubeconfig = _ANONYMOUS) -> None:
        """``config``: its cluster and user. Raises KubeconfigError, TlsError."""
        url = split_address(address, "server")
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
        self._config = config
        self._impersonation = config.impersonation()
        has_plugin = config.user.get("exec") and not config.has_credentials
        self._plugin = Plugin(config, tls, self.address) if has_plugin else None
        self._plugin_token = ""
        self._plugin_tls: ssl.SSLContext | None = None
        self._plugin_due = 0.0

    def get(self, path: str, accept: str, timeout: float) -> tuple[int, Mapping[str, str], bytes]:
        """Send a GET; return status, headers (in lower case) and body. ``timeout``: seconds. Raises CheckFailed."""
        deadline = time.monotonic() + timeout
        authorization = self._authorization()
        headers = [("Accept", accept), ("User-Agent", "frameworkbarrier"), ("Connection", "close")]
        headers += [("Authorization", authorization)] if authorization else []
        connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        try:
            connection.connect()
            if self._tls is not None:
                # Not HTTPSConnection: the name in the certificate may differ from the host.
                tls = self._plugin_tls or self._tls
                connection.sock = tls.wrap_socket(connection.sock, server_hostname=self._tls_server_name)
            connection.putrequest("GET", self._prefix + path, skip_accept_encoding=True)
            for name, value in headers + self._impersonation:
                connection.putheader(name, value)
            connection.endheaders()
            response = connection.getresponse()
            if response.status == 401:
                self._plugin_due = 0.0
            body = bytearray()
            for chunk in iter(lambda: response.read(1 << 16), b""):
                body += chunk
                if len(body) > MOST_BYTES:
                    raise CheckFailed(f"{self.address}: its answer is larger than any Framework")
                if time.monotonic() > deadline:
                    raise CheckFailed(f"{self.address}: its answer was not complete after {timeout:.0f} s")
            return response.status, {key.lower(): value for key, value in response.getheaders()}, bytes(body)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise CheckFailed(f"{self.address}: {reason(error)}") from error
        finally:
            connection.close()

    def _authorization(self) -> str | None:
        """The header of the next request, after a renewal of the credentials if due. Raises CheckFailed."""
        try:
            if self._plugin is None:
                # Reads the token's file each time: the kubelet replaces it while the Pod runs.
                return self._config.authorization()
            if time.time() >= self._plugin_due:
                token, tls, expires = self._plugin.run()
                try:
                    self._plugin_tls = None if tls is None else tls.context()
                except TlsError as error:
                    raise CheckFailed(f"{self._plugin.name}: {error}") from None
                self._plugin_token, self._plugin_due = token, expires
            return "Bearer " + self._plugin_token if self._plugin_token else None
        except KubeconfigError as error:
            raise CheckFailed(str(error)) from error


def connect(environ: Mapping[str, str], service_account: str = SERVICE_ACCOUNT) -> Server:
    """The API server of the environment: by kubeconfig, by its bare address, or by the Pod's service account.

    With a kubeconfig and an address, the kubeconfig's credentials are used at that address. Raises BarrierError.
    """
    address = environ.get("KUBE_APISERVER_ADDRESS")
    kubeconfig = environ.get("KUBECONFIG")
    if not kubeconfig and environ.get("HOME"):
        usual = Path(environ["HOME"]) / ".kube" / "config"
        kubeconfig = str(usual) if usual.is_file() else None
    source, config = "", _ANONYMOUS
    try:
        if address:
            split_address(address, "$KUBE_APISERVER_ADDRESS")
            source = "$KUBE_APISERVER_ADDRESS: "
        if kubeconfig:
            source = f"kubeconfig {kubeconfig}: "
            config = Kubeconfig.read(kubeconfig)
        elif not address:
            source = "neither $KUBE_APISERVER_ADDRESS nor $KUBECONFIG is set; service account: "
            config = Kubeconfig.of_service_account(environ, Path(service_account))
        return Server(address or config.server(), config)
    except (KubeconfigError, TlsError) as error:
        raise BarrierError(f"{source}{error}") from error
