"""``metadata.managedFields``: who manages which fields, entry by entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from frameworkcontroller.local.apiserver.fieldsets import FIELD, FieldSet


class Owner(NamedTuple):
    """Whom an entry is for. The same name may stand several times: what it applied, what it wrote, and where."""

    manager: str
    operation: str
    """Apply or Update."""
    version: str
    """The apiVersion that its fields are named in."""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Share:
    """What an owner owns, and since when it does just that."""

    fields: FieldSet
    time: str


Managers = dict[Owner, Share]

# What the server itself keeps belongs to nobody.
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
    """The managers in a list of managedFields. Raises ValueError for a list that is not one."""
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
        found[owner] = Share(FieldSet.parse(entry.get("fieldsV1") or {}), entry.get("time") or "")
    return found


def write(managers: Managers) -> list[dict[str, Any]]:
    """The managers as a list of managedFields: those who apply first, each kind by time."""
    ordered = sorted(managers.items(), key=lambda item: (item[0].operation, item[1].time, item[0]))
    return [_entry(owner, share) for owner, share in ordered if share.fields]


def _entry(owner: Owner, share: Share) -> dict[str, Any]:
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
    """A set without what the server itself keeps."""
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
    """The managers once all of them, one excepted, own none of ``fields`` any more."""
    return {
        owner: share if owner == except_for else replace(share, fields=share.fields.difference(fields))
        for owner, share in managers.items()
    }
