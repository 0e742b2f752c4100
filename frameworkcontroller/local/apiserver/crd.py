"""CustomResourceDefinitions themselves: their defaults and what may be wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frameworkcontroller.local.apiserver.causes import Cause


def defaulted(crd: Mapping[str, Any]) -> dict[str, Any]:
    """``crd`` with the defaults of its own type: names derived from the kind, conversion strategy None, ..."""
    raise NotImplementedError


def causes(crd: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> list[Cause]:
    """What is wrong with a defaulted ``crd`` that replaces ``old`` (None on create)."""
    raise NotImplementedError
