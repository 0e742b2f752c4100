"""``meta.k8s.io/v1`` Table and PartialObjectMetadata: what ``kubectl get`` prints and metadata clients read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from frameworkcontroller.local.apiserver.served import ServedType

IncludeObject = Literal["None", "Metadata", "Object"]


def table(
    t: ServedType,
    objects: Iterable[Mapping[str, Any]],
    *,
    now: float,
    metadata: Mapping[str, Any] | None = None,
    include_object: IncludeObject = "Metadata",
    headers: bool = True,
) -> dict[str, Any]:
    """``objects`` as a Table at the wall time ``now`` (epoch seconds, for ages).

    ``metadata`` is the list's own (resourceVersion, continue), or for a single object its resourceVersion.
    ``headers`` is false for all but the first event of a watch, as column definitions are sent once.
    """
    raise NotImplementedError


def partial_object(obj: Mapping[str, Any]) -> dict[str, Any]:
    """``obj`` as a PartialObjectMetadata."""
    raise NotImplementedError


def partial_object_list(objects: Iterable[Mapping[str, Any]], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """``objects`` as a PartialObjectMetadataList."""
    raise NotImplementedError
