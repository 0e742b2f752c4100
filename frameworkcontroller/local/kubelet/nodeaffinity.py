"""Required node affinity: which nodes the terms of a Pod match. Pure. kube-scheduler's rules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DIGITS: Final = 20
"""More than an integer of 64 bits has. Python reads very long ones slowly."""

Term = Mapping[str, Any]


def required_terms(spec: Mapping[str, Any]) -> tuple[Term, ...] | None:
    """The terms of a Pod's required node affinity, None if it has none. One of them must match."""
    found: Any = spec
    for key in ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"):
        if (found := found.get(key)) is None:
            return None
    return tuple(term or {} for term in found.get("nodeSelectorTerms") or ())


def matches(terms: Sequence[Term], name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node of that name and with these labels matches a term. An empty term matches none."""
    fields = {"metadata.name": name}
    return any(
        (term.get("matchExpressions") or term.get("matchFields"))
        and all(_holds(one, labels) for one in term.get("matchExpressions") or ())
        and all(_holds(one, fields) for one in term.get("matchFields") or ())
        for term in terms
    )


def _holds(requirement: Mapping[str, Any], found: Mapping[str, str]) -> bool:
    # The API server of the local cluster does not validate affinity.
    value, values = found.get(requirement.get("key") or ""), list(requirement.get("values") or ())
    match requirement.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            number, bound = _integer(value), _integer(values[0] if len(values) == 1 else None)
            if number is None or bound is None:
                return False
            return number > bound if operator == "Gt" else number < bound
    return False


def _integer(text: str | None) -> int | None:
    if text is None or len(text) > _DIGITS or not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
