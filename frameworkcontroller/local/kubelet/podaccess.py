"""Access of a Pod's processes to the API server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import orjson

SERVICE_ACCOUNT_DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """``server`` is the API server's URL; ``token`` and ``ca`` (PEM) are "" if it needs none.

    A program that suits local and real clusters looks for the API server in this order:

    1. ``KUBECONFIG``, if set: a kubeconfig, here in JSON, for Python's standard library;
    2. ``KUBE_APISERVER_ADDRESS``, if set: the URL, set only without TLS;
    3. ``https://KUBERNETES_SERVICE_HOST:KUBERNETES_SERVICE_PORT``, with ``ca.crt``: the only way on a real cluster.

    For 2 and 3 the files ``token`` and ``namespace`` are in ``/var/run/secrets/kubernetes.io/serviceaccount``.
    """

    server: str
    token: str = ""
    ca: str = ""

    def service_variables(self) -> dict[str, str]:
        """The variables of the Service ``kubernetes``, as kubelets set them."""
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
        """The variables that only local Pods have."""
        variables = {"KUBECONFIG": str(kubeconfig)}
        if self.server.startswith("http://"):
            # Otherwise clients in a Pod assume TLS.
            variables["KUBE_APISERVER_ADDRESS"] = self.server
        return variables

    def service_account(self, namespace: str) -> Mapping[str, bytes]:
        """The files of the service account directory. Clients require the token file even if it is empty."""
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
