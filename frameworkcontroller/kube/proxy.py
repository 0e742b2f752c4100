"""The HTTP proxy for a server, by the usual environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit


def proxy_from_environment(server: str, environ: Mapping[str, str]) -> str | None:
    """Return the proxy for this URL by ``HTTPS_PROXY`` or ``HTTP_PROXY`` and ``NO_PROXY`` (or in lower case), or None.

    As in Kubernetes' own clients, there is none for localhost and loopback addresses. Entries of ``NO_PROXY`` are names
    (with their subdomains, with or without a leading dot) and addresses, both with an optional port, networks such as
    ``10.0.0.0/8``, or ``*``.
    """
    url = urlsplit(server)
    variable = "HTTPS_PROXY" if url.scheme == "https" else "HTTP_PROXY"
    proxy = environ.get(variable) or environ.get(variable.lower())
    host = url.hostname
    if not proxy or host is None:
        return None
    port = url.port or (443 if url.scheme == "https" else 80)
    address = None
    with suppress(ValueError):
        address = ip_address(host)
    if host == "localhost" or host.endswith(".localhost") or (address is not None and address.is_loopback):
        return None
    exceptions = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    if any(_covers(entry.strip(), host, address, port) for entry in exceptions.split(",")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _covers(entry: str, host: str, address: IPv4Address | IPv6Address | None, port: int) -> bool:
    if entry == "*":
        return True
    with suppress(ValueError):
        network = ip_network(entry, strict=False)
        return address is not None and address in network
    with suppress(ValueError):
        exception = urlsplit(f"//{entry}")
        name = (exception.hostname or "").removeprefix("*").removeprefix(".")
        if not name or exception.path or exception.port not in (None, port):
            return False
        return ip_address(name) == address if address is not None else f".{host}".endswith(f".{name}")
    return False
