"""Memory that an object keeps."""

from __future__ import annotations

import gc
import sys
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final

_SHARED: Final = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)


def reachable_bytes(value: Any) -> int:
    """The bytes of all objects that the object refers to, itself included, without code."""
    seen: set[int] = set()
    total, pending = 0, [value]
    while pending:
        one = pending.pop()
        if id(one) in seen or isinstance(one, _SHARED):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        pending += gc.get_referents(one)
    return total
