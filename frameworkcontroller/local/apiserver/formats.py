"""String and number formats in schemas. Unknown ones are ignored, as on the real server."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import uuid
from collections.abc import Callable
from datetime import date, datetime

_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_HOSTNAME = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?)*"
)
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")
_MAC = re.compile(r"([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}")
_DURATION = re.compile(r"[+-]?(\d+(\.\d*)?(ns|us|µs|ms|s|m|h))+")

INTEGER_BITS = {"int32": 32, "int64": 64}
"""Widths of the integer formats."""


def is_string_of(text: str, format_: str) -> bool:
    """Whether ``text`` matches ``format_``; true for an unknown format."""
    check = _CHECKS.get(format_)
    return check is None or check(text)


def fits(number: int, format_: str) -> bool:
    """Whether ``number`` fits the integer format; other formats are as wide as the server's JSON integers."""
    bits = INTEGER_BITS.get(format_, 64)
    return -(1 << bits - 1) <= number < 1 << bits - 1


def is_date_time(text: str) -> bool:
    """Whether ``text`` is an RFC 3339 time."""
    if _DATE_TIME.fullmatch(text) is None:
        return False
    return _parses(datetime.fromisoformat, text.upper().replace(" ", "T")[:19])


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        return False
    return True


def _is_cidr(text: str) -> bool:
    return "/" in text and _parses(lambda network: ipaddress.ip_network(network, strict=False), text)


_CHECKS: dict[str, Callable[[str], bool]] = {
    "byte": _is_base64,
    "cidr": _is_cidr,
    "date": lambda text: len(text) == 10 and _parses(date.fromisoformat, text),
    "date-time": is_date_time,
    "datetime": is_date_time,
    "duration": lambda text: _DURATION.fullmatch(text) is not None,
    "email": lambda text: _EMAIL.fullmatch(text) is not None,
    "hostname": lambda text: _HOSTNAME.fullmatch(text) is not None,
    "ipv4": lambda text: _parses(ipaddress.IPv4Address, text),
    "ipv6": lambda text: _parses(ipaddress.IPv6Address, text),
    "mac": lambda text: _MAC.fullmatch(text) is not None,
    "uri": lambda text: _URI.fullmatch(text) is not None,
    "uuid": lambda text: _parses(uuid.UUID, text),
}
