"""Server-side apply and its ledger, ``metadata.managedFields``.

The ledger is kept for objects that were ever applied, or whose creator named a ``fieldManager``, as kubectl always
does. Other writes are not tracked, so a thousand Pods cost nothing. The first apply to an untracked object attributes
all existing fields to "before-first-apply", as a real server does for objects older than the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from frameworkcontroller.local.apiserver import api_errors, managed_fields, typed
from frameworkcontroller.local.apiserver.api_errors import ApiStatusError
from frameworkcontroller.local.apiserver.api_resources import ApiResource
from frameworkcontroller.local.apiserver.fieldsets import FIELD, NOTHING, FieldSet
from frameworkcontroller.local.apiserver.managed_fields import FieldShare, Managers, Owner, ownable
from frameworkcontroller.local.apiserver.patches import json_type
from frameworkcontroller.local.apiserver.status_causes import Cause, quote
from frameworkcontroller.local.apiserver.typegraph import Type

Json = dict[str, Any]

_BEFORE = "before-first-apply"
_KUBECTL = "kubectl"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_STATUS = FIELD + "status"


def check(t: ApiResource, applied: Any, *, of: Type) -> None:
    """Check a parsed apply configuration for ``t``, whose type is ``of``.

    Raises StatusError: 400 for another kind; 500, as the real server does, for unknown fields, wrong types and list
    items with equal keys, because an apply must know the fields it owns.
    """
    if applied is not None and not isinstance(applied, Mapping):
        raise api_errors.bad_request(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal "
            f"{json_type(applied)} into Go value of type map[string]interface {{}}"
        )
    configuration = applied or {}
    group, _, version = str(configuration.get("apiVersion") or "").rpartition("/")
    called = f"{group}/{version}, Kind={configuration.get('kind') or ''}"
    if configuration.get("kind") != t.kind:
        raise api_errors.bad_request(f"invalid object type: {called}")
    fault = typed.check(configuration, of)
    if fault:
        metadata = configuration.get("metadata")
        named = metadata if isinstance(metadata, Mapping) else {}
        what = f"{named.get('namespace') or ''}/{named.get('name') or ''}"
        raise ApiStatusError(500, "", f"failed to create typed patch object ({what}; {called}): {fault}")


def apply(
    live: Mapping[str, Any] | None,
    applied: Mapping[str, Any],
    *,
    of: Type,
    manager: str,
    now: str,
    force: bool = False,
    subresource: str = "",
    status_apart: bool = True,
) -> Json:
    """Apply ``applied`` by ``manager`` to ``live`` (None: a create) at ``now`` (RFC 3339).

    Fields that the manager applied before, no longer applies, and that have no other owner are removed.
    ``status_apart``: the status is written only through a subresource. If nothing changes, the result equals ``live``.

    Raises StatusError: 409 with one cause per field that another manager holds with a different value, unless
    ``force``; 400 if the configuration has managedFields.
    """
    if (applied.get("metadata") or {}).get("managedFields"):
        raise api_errors.bad_request("metadata.managedFields must be nil")
    before: Json = dict(live) if live is not None else {}
    held = _managers(before)
    if live is not None and not held:
        first = Owner(_BEFORE, "Update", str(before.get("apiVersion") or ""))
        held = {first: FieldShare(ownable(typed.everything(_bare(before), of)), now)}
    owner = Owner(manager, "Apply", str(applied.get("apiVersion") or ""), subresource)
    fields = ownable(typed.owned(_bare(applied), of))
    if subresource == "status":
        fields = fields.only(_STATUS)
    elif status_apart:
        fields = fields.without(_STATUS)
    last = held[owner].fields if owner in held else NOTHING

    configuration = _bare(_reach(applied, subresource)) if live is not None else _bare(applied)
    merged = typed.merge(_bare(before), configuration, of)
    after = {**held, owner: FieldShare(fields, held[owner].time if owner in held else now)}
    kept = NOTHING
    for share in after.values():
        kept = kept.union(share.fields)
    # Merge again: fields that are applied as empty, and became empty, must remain.
    merged = typed.merge(typed.prune(merged, last, kept, of), configuration, of)

    difference = typed.compare(_bare(before), merged, of) if live is not None else None
    if difference is not None:
        written = ownable(difference.written)
        contested = written
        if manager == _KUBECTL:
            contested = written.difference(_once_applied(before, of))
        conflicts = _conflicts(after, owner, contested)
        if conflicts and not force:
            raise _refused(conflicts)
        after = managed_fields.give_up(after, written, except_for=owner)
        after = managed_fields.give_up(after, ownable(difference.removed))
        if not difference and fields == last and owner in held:
            return before
    if fields != last or (difference is not None and difference):
        after[owner] = FieldShare(after[owner].fields, now)
    return _with_managers(merged, after)


def update_managers(
    live: Mapping[str, Any] | None,
    new: Mapping[str, Any],
    *,
    of: Type,
    manager: str,
    now: str,
    explicit: bool = False,
    subresource: str = "",
) -> Json:
    """Update the managedFields of ``new``, which replaces ``live`` (None: a create) by a plain write.

    ``explicit``: the request named its ``fieldManager``. The module's docstring lists the tracked changes.
    """
    bare = _bare(new)
    if live is None:
        held: Managers = {}
        if not explicit:
            return bare
    else:
        held = _managers(live)
        if not held:
            return bare
        given = (new.get("metadata") or {}).get("managedFields")
        if given is not None and given != live["metadata"]["managedFields"]:
            # A client may rewrite the ledger, as kubectl does when it migrates an object to server-side apply, or drop
            # it.
            try:
                held = managed_fields.read(given) if given != [{}] else {}
            except ValueError:
                given = None
            if not held:
                return bare
    old = _bare(live) if live is not None else _frame(bare, of)
    difference = typed.compare(old, bare, of)
    if not difference:
        return _with_managers(bare, held)
    written, removed = ownable(difference.written), ownable(difference.removed)
    owner = Owner(manager, "Update", str(new.get("apiVersion") or ""), subresource)
    held = managed_fields.give_up(held, written, except_for=owner)
    mine = held[owner].fields if owner in held else NOTHING
    if mine.union(written) != mine:
        held[owner] = FieldShare(mine.union(written), now)
    return _with_managers(bare, managed_fields.give_up(held, removed))


def _managers(obj: Mapping[str, Any]) -> Managers:
    try:
        return managed_fields.read((obj.get("metadata") or {}).get("managedFields") or ())
    except ValueError:
        return {}


def _bare(obj: Mapping[str, Any]) -> Json:
    """Copy an object without its ``managedFields``."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, Mapping) or "managedFields" not in metadata:
        return dict(obj)
    return {**obj, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def _once_applied(live: Json, of: Type) -> FieldSet:
    """The fields of kubectl's last client-side apply that still exist: they are its own, regardless of the ledger."""
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(_LAST_APPLIED)
    try:
        configuration = orjson.loads(text or "null")
    except orjson.JSONDecodeError:
        return NOTHING
    if not isinstance(configuration, dict):
        return NOTHING
    difference = typed.compare(_bare(configuration), _bare(live), of)
    fields = ownable(typed.owned(_bare(configuration), of))
    return fields.difference(difference.written).difference(difference.removed)


def _frame(obj: Json, of: Type) -> Json:
    """An empty object of a built-in kind: its parts always exist and have no owner."""
    return {name: {} for name, value in obj.items() if of.name and isinstance(value, Mapping) and name in _PARTS}


_PARTS = frozenset({"metadata", "spec", "status"})


def _reach(applied: Mapping[str, Any], subresource: str) -> Mapping[str, Any]:
    """The part of a configuration that an apply through a subresource can change."""
    if subresource != "status":
        return applied
    return {key: value for key, value in applied.items() if key == "status"}


def _with_managers(obj: Json, managers: Managers) -> Json:
    entries = managed_fields.write(managers)
    metadata = {**(obj.get("metadata") or {})}
    if entries:
        metadata["managedFields"] = entries
    return {**obj, "metadata": metadata}


def _conflicts(managers: Managers, owner: Owner, written: FieldSet) -> dict[Owner, list[str]]:
    found = {}
    for other, share in managers.items():
        if other != owner:
            paths = list(share.fields.intersection(written).paths())
            if paths:
                found[other] = paths
    return dict(sorted(found.items()))


def _refused(conflicts: dict[Owner, list[str]]) -> ApiStatusError:
    causes = [
        Cause("FieldManagerConflict", f"conflict with {_called(owner)}", path)
        for owner, paths in conflicts.items()
        for path in paths
    ]
    if len(causes) == 1:
        return api_errors.apply_conflict(causes, f"{causes[0].message}: {causes[0].field}")
    lines = []
    for owner, paths in conflicts.items():
        lines += [f"conflicts with {_called(owner)}:", *(f"- {path}" for path in paths)]
    return api_errors.apply_conflict(causes, "\n".join(lines))


def _called(owner: Owner) -> str:
    text = quote(owner.manager)
    if owner.subresource:
        text += f" with subresource {quote(owner.subresource)}"
    return f"{text} using {owner.version}" if owner.operation == "Update" else text
