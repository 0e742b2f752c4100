"""The condition Ready of Pods and Nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_ready(body: Mapping[str, Any]) -> bool:
    """Return whether the status of a Pod or Node says that it is ready."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
