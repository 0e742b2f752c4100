"""Arithmetic with amounts of resources by name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

from frameworkcontroller.api.quantities import format_quantity, parse_quantity, pod_requests

ResourceList = Mapping[str, Decimal]
"""Amounts by resource: processors, bytes, or devices. A resource that is missing has the amount 0."""

PODS: Final = "pods"
"""The resource that counts Pods."""

AUTO: Final = "auto"
"""In an option, in place of an amount: as much as the machine has."""

_ZERO: Final = Decimal(0)


def requests_of(spec: Any) -> dict[str, Decimal]:
    """The requests of a Pod with this spec, and the Pod itself as `PODS`."""
    return {**pod_requests(spec).by_name, PODS: Decimal(1)}


def parse_resources(amounts: Mapping[str, Any] | None) -> dict[str, Decimal]:
    """Parse quantities by resource. Raises ValueError for an invalid one."""
    return {name: parse_quantity(amount) for name, amount in (amounts or {}).items()}


def parse_option(text: str, *, auto: Collection[str] = ()) -> dict[str, str]:
    """Parse ``cpu=8,memory=16Gi``. Resources in ``auto`` may have `AUTO` as amount.

    Raises ValueError, whose text names the resource at fault.
    """
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, amount = (piece.strip() for piece in part.partition("="))
        if not name or not equals or not amount:
            raise ValueError(f"must be RESOURCE=QUANTITY, separated by commas, such as cpu=8,memory=16Gi: {part!r}")
        try:
            valid = (amount == AUTO and name in auto) or parse_quantity(amount) >= 0
        except ValueError:
            valid = False
        if not valid:
            raise ValueError(f"{name}: not a quantity: {amount!r}")
        if name in found:
            raise ValueError(f"{name}: is given twice")
        found[name] = amount
    return found


def plus(left: ResourceList, right: ResourceList) -> dict[str, Decimal]:
    """The sum."""
    return {name: left.get(name, _ZERO) + right.get(name, _ZERO) for name in {**left, **right}}


def minus(left: ResourceList, right: ResourceList) -> dict[str, Decimal]:
    """The difference."""
    return {name: left.get(name, _ZERO) - right.get(name, _ZERO) for name in {**left, **right}}


def larger(left: ResourceList, right: ResourceList) -> dict[str, Decimal]:
    """The larger amount of each resource."""
    return {name: max(left.get(name, _ZERO), right.get(name, _ZERO)) for name in {**left, **right}}


def times(amounts: ResourceList, count: int) -> dict[str, Decimal]:
    """The amounts of ``count`` Pods."""
    return {name: amount * count for name, amount in amounts.items()}


def total(amounts: Iterable[ResourceList]) -> dict[str, Decimal]:
    """The sum of all."""
    result: dict[str, Decimal] = {}
    for each in amounts:
        result = plus(result, each)
    return result


def shown(name: str, amount: Decimal) -> str:
    """The amount of a resource as a quantity, memory and storage in binary units."""
    is_binary = name.endswith(("memory", "storage")) or name.startswith("hugepages-")
    return format_quantity(amount, "Ki" if is_binary else "")
