"""How the processes of a Pod reach the API server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import orjson

SERVICE_ACCOUNT_DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """``server`` is the API server's URL; ``token`` and ``ca`` (PEM) are "" where it needs none.

    A program in a Pod finds the API server, in the order that suits both a local and a real cluster, by

    1. ``KUBECONFIG``, if set: a kubeconfig, here in JSON, which is YAML that the standard library reads;
    2. ``KUBE_APISERVER_ADDRESS``, if set: its URL, set where it has no TLS;
    3. ``https://KUBERNETES_SERVICE_HOST:KUBERNETES_SERVICE_PORT``, with ``ca.crt``: the one way on a real cluster;

    and for the second and the third, where a token is needed, the files ``token`` and ``namespace`` that every Pod has
    in ``/var/run/secrets/kubernetes.io/serviceaccount``.
    """

    server: str
    token: str = ""
    ca: str = ""

    def service_variables(self) -> dict[str, str]:
        """The variables that kubelets give for the Service ``kubernetes``."""
        url = urlsplit(self.server)
        host, port = url.hostname or "", str(url.port or (443 if url.scheme == "https" else 80))
        address = f"tcp://{host}:{port}"
        return {
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
            "KUBERNETES_SERVICE_PORT_HTTPS": port,
            "KUBERNETES_PORT": address,
        }

    def local_variables(self, kubeconfig: Path) -> dict[str, str]:
        """The variables that only Pods here have."""
        variables = {"KUBECONFIG": str(kubeconfig)}
        if self.server.startswith("http://"):
            # Else clients in a Pod take it for granted that there is TLS.
            variables["KUBE_APISERVER_ADDRESS"] = self.server
        return variables

    def service_account(self, namespace: str) -> Mapping[str, bytes]:
        """The files of the service account directory. Without a token there still is one: clients insist on it."""
        files = {"token": (self.token or "none").encode(), "namespace": namespace.encode()}
        return {**files, "ca.crt": self.ca.encode()} if self.ca else files

    def kubeconfig(self, namespace: str, ca_file: Path) -> bytes:
        """A kubeconfig for the processes of a namespace."""
        cluster = {"server": self.server, **({"certificate-authority": str(ca_file)} if self.ca else {})}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": cluster}],
            "users": [{"name": "pod", "user": {"token": self.token} if self.token else {}}],
            "contexts": [{"name": "pod", "context": {"cluster": "local", "user": "pod", "namespace": namespace}}],
            "current-context": "pod",
        }
        return orjson.dumps(config, option=orjson.OPT_INDENT_2)
