"""JSON that no client should send: arbitrary, or a proper value with a few changed places."""

from __future__ import annotations

import copy
from typing import Any, Final

from hypothesis import strategies as st

SCALARS: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([0, -1, 1, 2**31, 10**9, -(2**63)]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.sampled_from(
        ["", "0", "Failed", "Running", "AttemptRunning", "Completed", "2026-01-01T00:00:00Z", "H4sIAAAAAAAA"]
    ),
    st.sampled_from(["0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "2026-01-01", "\u0000"]),
)

VALUES: Final = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
"""Any JSON value."""


@st.composite
def mangled(draw: st.DrawFn, proper: Any, most: int = 3) -> Any:
    """``proper`` with one to ``most`` of its places replaced by any value, removed, or put twice."""
    value = copy.deepcopy(proper)
    for _ in range(draw(st.integers(1, most))):
        places = list(_places(value))
        if not places:
            return draw(VALUES)
        holder, key = places[draw(st.integers(0, len(places) - 1))]
        match draw(st.sampled_from(["replace", "replace", "remove", "repeat"])):
            case "replace":
                holder[key] = draw(VALUES)
            case "remove":
                del holder[key]
            case "repeat":
                if isinstance(holder, list):
                    holder.append(copy.deepcopy(holder[key]))
                else:
                    holder[draw(st.text(max_size=5))] = holder[key]
    return value


def _places(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield value, key
        yield from _places(item)
