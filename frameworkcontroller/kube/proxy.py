"""The HTTP proxy for a server, by the usual environment variables."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
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
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if host == "localhost" or host.endswith(".localhost") or (address is not None and address.is_loopback):
        return None
    exceptions = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    if any(_covers(entry.strip().lower(), host, address, port) for entry in exceptions.split(",")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _covers(entry: str, host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None, port: int) -> bool:
    if not entry:
        return False
    if entry == "*":
        return True
    if "/" in entry:
        try:
            network = ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
        return address is not None and address in network
    name, only_port = _split_port(entry)
    if only_port is not None and only_port != port:
        return False
    if address is not None:
        try:
            return ipaddress.ip_address(name) == address
        except ValueError:
            return False
    name = name.removeprefix("*").removeprefix(".")
    return bool(name) and (host == name or host.endswith("." + name))


def _split_port(entry: str) -> tuple[str, int | None]:
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        port = rest.removeprefix(":")
    elif entry.count(":") == 1:
        name, _, port = entry.partition(":")
    else:
        return entry, None
    return name, int(port) if port.isdecimal() else None
