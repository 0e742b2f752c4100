"""Server-side apply and the ledger it needs: ``metadata.managedFields``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frameworkcontroller.local.apiserver.typegraph import Type


def apply(
    live: Mapping[str, Any] | None,
    applied: Mapping[str, Any],
    *,
    of: Type,
    manager: str,
    now: str,
    force: bool = False,
    subresource: str = "",
) -> dict[str, Any]:
    """``live`` (None: a create) with the configuration ``applied`` by ``manager`` put into force at ``now`` (RFC 3339).

    Raises StatusError 409 with one cause per field that another manager holds with a different value, unless ``force``;
    400 for an applied object that carries managedFields, or whose list items cannot be told apart.
    """
    raise NotImplementedError


def update_managers(
    live: Mapping[str, Any] | None,
    new: Mapping[str, Any],
    *,
    of: Type,
    manager: str,
    now: str,
    explicit: bool = False,
    subresource: str = "",
) -> dict[str, Any]:
    """``new``, about to replace ``live`` (None: a create) by a plain write, with its managedFields brought up to date.

    ``explicit`` says that the request itself named its ``fieldManager``: see the module's text for what is tracked.
    """
    raise NotImplementedError
