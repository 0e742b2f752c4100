"""The address on which a server listens."""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

EXPECTED: Final = 'must be host:port, :port for every address of this machine, or "" for none'

_SHAPE: Final = re.compile(r"(?:\[(?P<six>[^\[\]]*)\]|(?P<host>[^\[\]:/\s]*)):(?P<port>[0-9]{1,5})", re.ASCII)


class BindAddress(NamedTuple):
    """``host``: a name or address of this machine, "" for all addresses. ``port`` 0: any free port."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether it is reachable from this machine only."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bind_address(text: str) -> BindAddress | None:
    """Parse ``host:port``; None for "" and "0", which mean no server.

    Raises:
        ValueError: the format is wrong; the text states the right one.
    """
    if text in ("", "0"):
        return None
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise ValueError(EXPECTED)
    port = int(found["port"])
    if port > 65535:
        raise ValueError("must have a port of at most 65535")
    if found["six"] is not None:
        try:
            return BindAddress(str(ipaddress.IPv6Address(found["six"])), port)
        except ValueError:
            raise ValueError(EXPECTED) from None
    return BindAddress(found["host"], port)
