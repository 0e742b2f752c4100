"""OpenAPI documents of what is served: v3 (kubectl explain, apply, client-side validation) and v2 for older clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from frameworkcontroller.local.apiserver.served import ServedType


def v3_index(types: Sequence[ServedType]) -> dict[str, Any]:
    """``/openapi/v3``: where the document of each group version is; each URL changes with its document's content."""
    raise NotImplementedError


def v3_document(types: Sequence[ServedType], path: str) -> dict[str, Any] | None:
    """``/openapi/v3/PATH`` with path ``api/v1`` or ``apis/GROUP/VERSION``; None if nothing is served there."""
    raise NotImplementedError


def v2_document(types: Sequence[ServedType]) -> dict[str, Any]:
    """``/openapi/v2`` as JSON."""
    raise NotImplementedError
