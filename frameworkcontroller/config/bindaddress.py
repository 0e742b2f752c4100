"""Where a server of ours is to listen, as configurations write it."""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

EXPECTED: Final = 'must be host:port, :port for every address of this machine, or "" for none'

_SHAPE: Final = re.compile(r"(?:\[(?P<six>[^\[\]]*)\]|(?P<host>[^\[\]:/\s]*)):(?P<port>[0-9]{1,5})", re.ASCII)


class BindAddress(NamedTuple):
    """``host``: a name or address of this machine, "" for all of them. ``port`` 0: any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bind_address(text: str) -> BindAddress | None:
    """What ``text`` says; None, listen nowhere, for "" and "0".

    Raises:
        ValueError: it says nothing that we understand; the text tells what is expected.
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
