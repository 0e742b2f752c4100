"""Resource quantities such as ``500m`` and ``2Gi``: exact arithmetic, and the canonical form of an API server.

Source: apimachinery, api/resource. A quantity is a whole number of billionths, the smallest unit; more precise ones
are rounded up, away from zero. One of 2**63 or more counts as 2**63 - 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import ROUND_UP, Context, Decimal, localcontext
from typing import Any, Final

_QUANTITY: Final = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([eE][+-]?[0-9]{1,4})|([a-zA-Z]*))\Z")
_MAX_CHARS: Final = 256
_EXACT: Final = Context(prec=20_000, rounding=ROUND_UP)
"""Digits for any quantity of ``_MAX_CHARS`` characters, with an exponent of four digits."""

_MOST: Final = Decimal(2**63 - 1)
_NANO: Final = Decimal("1e-9")
_SUFFIXES: Final = {
    "n": _NANO,
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
_BINARY: Final = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")
_DECIMAL: Final = ("E", "P", "T", "G", "M", "k")
_SMALL: Final = ("m", "u", "n")


def parse_quantity(text: object) -> Decimal:
    """Parse a quantity (a string, or a bare number). Raises ValueError if it is invalid."""
    written = str(text).strip()
    found = _QUANTITY.match(written) if len(written) <= _MAX_CHARS else None
    if found is None or (found[3] or "") not in _SUFFIXES:
        raise ValueError(f"not a quantity: {text!r}")
    with localcontext(_EXACT):
        amount = Decimal(found[1] + found[2]) if found[2] else Decimal(found[1]) * _SUFFIXES[found[3] or ""]
        amount = max(-_MOST, min(_MOST, amount))
        return amount if amount == amount.to_integral_value() else amount.quantize(_NANO)


def format_quantity(amount: Decimal, like: str = "") -> str:
    """Format an amount in the largest unit that keeps it whole; in binary units if ``like`` has one."""
    if amount == 0:
        return "0"
    with localcontext(_EXACT):
        if amount != amount.to_integral_value():
            for unit in _SMALL:
                count = amount / _SUFFIXES[unit]
                if count == count.to_integral_value() or unit == _SMALL[-1]:
                    return f"{int(count.to_integral_value())}{unit}"
        whole = int(amount)
    for unit in _BINARY if like.endswith("i") else _DECIMAL:
        size = int(_SUFFIXES[unit])
        if whole % size == 0:
            return f"{whole // size}{unit}"
    return str(whole)


class Amounts:
    """Amounts of resources by name. Each is formatted in units like those in which it was first given."""

    __slots__ = ("_amounts", "_like")

    def __init__(self) -> None:
        self._amounts: dict[str, Decimal] = {}
        self._like: dict[str, str] = {}

    @property
    def by_name(self) -> Mapping[str, Decimal]:
        """The amounts. Do not modify them."""
        return self._amounts

    def add(self, other: Amounts, times: int = 1) -> None:
        """Add ``other``, ``times`` times."""
        with localcontext(_EXACT):
            for name, amount in other._amounts.items():
                self._set(name, self._amounts.get(name, Decimal(0)) + amount * times, other)

    def raise_to(self, other: Amounts) -> None:
        """Raise each amount to at least ``other``'s."""
        for name, amount in other._amounts.items():
            self._set(name, max(self._amounts.get(name, amount), amount), other)

    def only(self, other: Amounts) -> Amounts:
        """Return the amounts of the resources in ``other``."""
        found = Amounts()
        for name in other._amounts:
            if name in self._amounts:
                found._set(name, self._amounts[name], self)
        return found

    def replace(self, other: Amounts) -> None:
        """Replace the amounts by those that ``other`` has."""
        for name, amount in other._amounts.items():
            self._set(name, amount, other)

    def _set(self, name: str, amount: Decimal, other: Amounts) -> None:
        self._like.setdefault(name, other._like[name])
        self._amounts[name] = amount

    def formatted(self) -> dict[str, str]:
        """The amounts as quantities."""
        return {name: format_quantity(amount, self._like[name]) for name, amount in sorted(self._amounts.items())}

    @classmethod
    def of(cls, quantities: Any) -> Amounts:
        """Those in a mapping of a template. An invalid one is left out: an API server refuses the Pod for it."""
        amounts = cls()
        for name, text in quantities.items() if isinstance(quantities, Mapping) else ():
            if isinstance(text, str | int | float) and not isinstance(text, bool):
                try:
                    amounts._amounts[name] = parse_quantity(text)
                except ValueError:
                    continue
                amounts._like[name] = str(text)
        return amounts


def pod_requests(spec: Any) -> Amounts:
    """The requests of a Pod with that spec, which the user wrote.

    Source: the scheduler's: the containers and sidecars together, or one of the other init containers with the sidecars
    before it, if that needs more; ``resources`` of the Pod replace both; and its overhead.
    """
    if not isinstance(spec, Mapping):
        return Amounts()
    total, sidecars, most = Amounts(), Amounts(), Amounts()
    for container in _mappings(spec.get("containers")):
        total.add(_requests(container))
    for container in _mappings(spec.get("initContainers")):
        requests = _requests(container)
        if container.get("restartPolicy") == "Always":
            total.add(requests)
            sidecars.add(requests)
            most.raise_to(sidecars.only(requests))
        else:
            # The amounts of other resources, which the sidecars have, count already.
            requests.add(sidecars.only(requests))
            most.raise_to(requests)
    total.raise_to(most)
    total.replace(_requests(spec))
    total.add(Amounts.of(spec.get("overhead")))
    return total


def _requests(owner: Mapping[str, Any]) -> Amounts:
    """Its requests; for a resource with a limit alone, that."""
    resources = owner.get("resources")
    if not isinstance(resources, Mapping):
        return Amounts()
    amounts = Amounts.of(resources.get("limits"))
    amounts.replace(Amounts.of(resources.get("requests")))
    return amounts


def _mappings(items: Any) -> Iterable[Mapping[str, Any]]:
    return (item for item in items if isinstance(item, Mapping)) if isinstance(items, list) else ()
