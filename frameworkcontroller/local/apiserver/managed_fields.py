"""``metadata.managedFields``: which manager owns which fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from frameworkcontroller.local.apiserver.fieldsets import FIELD, FieldSet


class Owner(NamedTuple):
    """The owner in an entry. A manager may have several: for applies, updates, and subresources."""

    manager: str
    operation: str
    """Apply or Update."""
    version: str
    """The apiVersion of its field names."""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class FieldShare:
    """The fields of an owner, and the time of their last change."""

    fields: FieldSet
    time: str


Managers = dict[Owner, FieldShare]

# The server's own fields have no owner.
_SYSTEM = (
    ("apiVersion",),
    ("kind",),
    *(
        ("metadata", field)
        for field in (
            "clusterName",
            "creationTimestamp",
            "generation",
            "managedFields",
            "name",
            "namespace",
            "resourceVersion",
            "selfLink",
            "uid",
        )
    ),
)


def read(entries: Iterable[Mapping[str, Any]]) -> Managers:
    """Parse a managedFields list. Raises ValueError if it is invalid."""
    found: Managers = {}
    for entry in entries:
        if entry.get("fieldsType") != "FieldsV1" or entry.get("operation") not in ("Apply", "Update"):
            raise ValueError(f"not an entry of managedFields: {entry!r}")
        owner = Owner(
            entry.get("manager") or "",
            entry["operation"],
            entry.get("apiVersion") or "",
            entry.get("subresource") or "",
        )
        found[owner] = FieldShare(FieldSet.parse(entry.get("fieldsV1") or {}), entry.get("time") or "")
    return found


def write(managers: Managers) -> list[dict[str, Any]]:
    """Format as a managedFields list: applies first, each group by time."""
    ordered = sorted(managers.items(), key=lambda item: (item[0].operation, item[1].time, item[0]))
    return [_entry(owner, share) for owner, share in ordered if share.fields]


def _entry(owner: Owner, share: FieldShare) -> dict[str, Any]:
    entry = {
        "manager": owner.manager,
        "operation": owner.operation,
        "apiVersion": owner.version,
        "time": share.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": share.fields.fields_v1(),
    }
    if owner.subresource:
        entry["subresource"] = owner.subresource
    return {key: value for key, value in entry.items() if value or key == "fieldsV1"}


def ownable(fields: FieldSet) -> FieldSet:
    """Remove the server's own fields from a set."""
    for path in _SYSTEM:
        fields = fields.without(*(FIELD + name for name in path))
    metadata = fields.children.get(FIELD + "metadata")
    if metadata is not None and metadata.member:
        rest = FieldSet(children=metadata.children)
        children = {step: child for step, child in fields.children.items() if step != FIELD + "metadata"}
        if rest:
            children[FIELD + "metadata"] = rest
        fields = FieldSet(member=fields.member, children=children)
    return FieldSet(children=fields.children)


def give_up(managers: Managers, fields: FieldSet, except_for: Owner | None = None) -> Managers:
    """Remove ``fields`` from all managers but one."""
    return {
        owner: share if owner == except_for else replace(share, fields=share.fields.difference(fields))
        for owner, share in managers.items()
    }
