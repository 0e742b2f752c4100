"""Resource quantities such as ``500m`` and ``2Gi``: parsing and formatting."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_QUANTITY: Final = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([eE][+-]?[0-9]+)|([a-zA-Z]*))\Z")
_SUFFIXES: Final = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("0.001"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}


def parse_quantity(text: object) -> Decimal:
    """Parse a quantity (a string, or a bare number). Raises ValueError if it is invalid."""
    found = _QUANTITY.match(str(text).strip())
    if found is None or (found[3] or "") not in _SUFFIXES:
        raise ValueError(f"not a quantity: {text!r}")
    if found[2]:
        return Decimal(found[1] + found[2])
    return Decimal(found[1]) * _SUFFIXES[found[3] or ""]


def format_quantity(amount: Decimal, like: str = "") -> str:
    """Format an amount in the largest unit that keeps it whole; in binary units if ``like`` has one."""
    if amount == 0:
        return "0"
    if amount != amount.to_integral_value():
        milli = amount * 1000
        return f"{milli.to_integral_value(rounding='ROUND_CEILING')}m"
    whole = int(amount)
    units = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki") if like.endswith("i") else ("E", "P", "T", "G", "M", "k")
    for unit in units:
        size = int(_SUFFIXES[unit])
        if whole % size == 0:
            return f"{whole // size}{unit}"
    return str(whole)
