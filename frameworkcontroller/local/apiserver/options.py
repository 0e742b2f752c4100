"""Request options, from the query string and, for a DELETE, the body."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast, get_args

import orjson

from frameworkcontroller.local.apiserver import api_errors, depth, protobuf, status_causes
from frameworkcontroller.local.apiserver.api_errors import ApiStatusError
from frameworkcontroller.local.apiserver.builtin import FieldValidation
from frameworkcontroller.local.apiserver.deletion import DeleteOptions, Propagation
from frameworkcontroller.local.apiserver.status_causes import Cause

Query = Mapping[str, Sequence[str]]

_ENCODING: Final = "meta.k8s.io/v1"


@dataclass(slots=True)
class Call:
    """One write request: its caller and options."""

    verb: str
    agent: str
    """User-Agent, or the server's component."""
    manager: str = ""
    """The field manager of the written fields."""
    explicit_manager: bool = False
    """Whether the request named its manager."""
    dry_run: bool = False
    validation: FieldValidation = "Warn"
    force: bool = False
    """Server-side apply takes fields from other managers."""
    warnings: list[str] = field(default_factory=list)
    """Warnings for the answer."""


def write_call(verb: str, agent: str, query: Query, kind: str) -> Call:
    """The options of a create, update or patch; ``kind`` is their kind, such as ``CreateOptions``."""
    manager = first(query, "fieldManager")
    validation = first(query, "fieldValidation") or "Warn"
    if validation not in get_args(FieldValidation):
        cause = status_causes.not_supported("fieldValidation", validation, ["", "Ignore", "Strict", "Warn"])
        raise api_errors.invalid_options(kind, [cause])
    return Call(
        verb=verb,
        agent=agent,
        # The default manager is the User-Agent up to its version.
        manager=manager or agent.partition("/")[0] or "unknown",
        explicit_manager=bool(manager),
        dry_run=dry_run(query.get("dryRun") or (), kind),
        validation=cast("FieldValidation", validation),
        force=boolean(query, "force"),
    )


def dry_run(values: Sequence[str], kind: str) -> bool:
    """Whether a request is a dry run: the only valid value is ``All``."""
    unknown = [value for value in values if value != "All"]
    if unknown:
        shown = ", ".join(status_causes.quote(value) for value in values)
        message = f'Unsupported value: []string{{{shown}}}: supported values: "All"'
        raise api_errors.invalid_options(kind, [Cause("FieldValueNotSupported", message, "dryRun")])
    return bool(values)


@dataclass(frozen=True, slots=True)
class ContinueToken:
    """The position and revision of a paged list."""

    revision: int
    """-1: the current state, despite changes since the first page."""
    after: str
    """The last key of the previous page, relative to the list's namespace."""

    def encode(self) -> str:
        """The opaque token for clients, in the real server's format."""
        token = {"v": _ENCODING, "rv": self.revision, "start": self.after + "\0"}
        return base64.urlsafe_b64encode(orjson.dumps(token)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> ContinueToken:
        """Decode a token. Raises a 400 if it is invalid."""
        try:
            token = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        except (binascii.Error, orjson.JSONDecodeError, ValueError) as error:
            raise _bad_token(str(error)) from None
        version = token.get("v") if isinstance(token, dict) else None
        if version != _ENCODING:
            raise _bad_token(f'server does not recognize this encoded version "{version}"')
        revision, start = token.get("rv"), token.get("start")
        if not isinstance(revision, int) or not revision:
            raise _bad_token(f"incorrect encoded start resourceVersion (version {version})")
        if not isinstance(start, str) or not start:
            raise _bad_token(f"encoded start key empty (version {version})")
        # Without the final NUL, the list starts at the key instead of after it; only clients create such tokens.
        return cls(revision, start[:-1] if start.endswith("\0") else _just_before(start))


def _just_before(key: str) -> str:
    return key[:-1] + chr(ord(key[-1]) - 1) + "\U0010ffff"


def _bad_token(why: str) -> ApiStatusError:
    return api_errors.bad_request(f"invalid continue token: continue key is not valid: {why}")


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The options of a list or a watch."""

    label_selector: str
    field_selector: str
    limit: int
    resume: ContinueToken | None
    version: int | None
    """``resourceVersion``; None if not given."""
    match: Literal["", "Exact", "NotOlderThan"]
    watch: bool
    timeout: int | None
    """Timeout of a watch in seconds."""
    bookmarks: bool
    initial_events: bool | None
    """Whether a watch begins with the current state and a bookmark; None: according to ``version``."""


def list_options(query: Query) -> ListOptions:
    """The options in a query string. Raises StatusError for invalid combinations."""
    watch = boolean(query, "watch")
    version_text, match = first(query, "resourceVersion"), first(query, "resourceVersionMatch")
    initial_events = boolean(query, "sendInitialEvents") if "sendInitialEvents" in query else None
    found = _match_causes(version_text, match, watch, initial_events)
    if found:
        raise api_errors.invalid_options("ListOptions", found)
    resume_text = first(query, "continue")
    resume = ContinueToken.decode(resume_text) if resume_text and not watch else None
    if resume is not None and version_text not in {"", "0"}:
        raise api_errors.bad_request("specifying resource version is not allowed when using continue")
    timeout = integer(query, "timeoutSeconds")
    return ListOptions(
        label_selector=first(query, "labelSelector"),
        field_selector=first(query, "fieldSelector"),
        limit=max(0, integer(query, "limit") or 0),
        resume=resume,
        version=resource_version(version_text),
        match=cast('Literal["", "Exact", "NotOlderThan"]', match),
        watch=watch,
        timeout=timeout if timeout and timeout > 0 else None,
        bookmarks=boolean(query, "allowWatchBookmarks"),
        initial_events=initial_events,
    )


def resource_version(text: str) -> int | None:
    """Parse a ``resourceVersion``; None if it is empty. Raises the real server's 500 if it is no number."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        message = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise ApiStatusError(500, "", message)
    return int(text)


def _match_causes(version: str, match: str, watch: bool, initial_events: bool | None) -> list[Cause]:
    path = "resourceVersionMatch"
    if initial_events is not None and watch:
        if match == "NotOlderThan":
            return []
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        return [status_causes.forbidden(path, why)]
    if initial_events is not None:
        return [status_causes.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")]
    if not match:
        return []
    if watch:
        return [status_causes.forbidden(path, "resourceVersionMatch is forbidden for watch")]
    if not version:
        return [status_causes.forbidden(path, "resourceVersionMatch is forbidden unless resourceVersion is provided")]
    if match not in {"Exact", "NotOlderThan"}:
        return [status_causes.not_supported(path, match, ["Exact", "NotOlderThan", ""])]
    if match == "Exact" and version == "0":
        why = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        return [status_causes.forbidden(path, why)]
    return []


def delete_options(query: Query, body: bytes) -> tuple[DeleteOptions, bool]:
    """The options of a DELETE, and whether it is a dry run. As in the real server, the body overrides the query."""
    given = _delete_body(body) if body else _delete_query(query)
    is_dry_run = dry_run(given.get("dryRun") or (), "DeleteOptions")
    propagation, orphan = given.get("propagationPolicy"), given.get("orphanDependents")
    found: list[Cause] = []
    if propagation is not None and orphan is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        found.append(status_causes.invalid("propagationPolicy", propagation, why))
    elif propagation is not None and propagation not in get_args(Propagation):
        found.append(
            status_causes.not_supported("propagationPolicy", propagation, ["Foreground", "Background", "Orphan", "nil"])
        )
    if found:
        raise api_errors.invalid_options("DeleteOptions", found)
    if orphan is not None:
        propagation = "Orphan" if orphan else "Background"
    preconditions = given.get("preconditions") or {}
    options = DeleteOptions(
        grace_period_seconds=given.get("gracePeriodSeconds"),
        propagation=propagation,
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        orphan_dependents=orphan,
    )
    return options, is_dry_run


def _delete_query(query: Query) -> dict[str, Any]:
    given: dict[str, Any] = {"dryRun": query.get("dryRun") or ()}
    if first(query, "gracePeriodSeconds"):
        given["gracePeriodSeconds"] = integer(query, "gracePeriodSeconds")
    if first(query, "propagationPolicy"):
        given["propagationPolicy"] = first(query, "propagationPolicy")
    if first(query, "orphanDependents"):
        given["orphanDependents"] = boolean(query, "orphanDependents")
    return given


_DELETE_TYPES: Final[Mapping[str, type]] = {
    "gracePeriodSeconds": int,
    "propagationPolicy": str,
    "orphanDependents": bool,
    "preconditions": dict,
    "dryRun": list,
}


def _delete_body(body: bytes) -> dict[str, Any]:
    try:
        given = protobuf.decode(body) if protobuf.is_message(body) else orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if depth.is_cause(error):
            raise depth.too_deep() from None
        raise ApiStatusError(500, "", f"couldn't get version/kind; json parse error: {error}") from None
    if not isinstance(given, dict):
        raise ApiStatusError(500, "", "couldn't get version/kind; json parse error: the body is no JSON object")
    kind = given.get("kind") or "DeleteOptions"
    if kind != "DeleteOptions":
        version = given.get("apiVersion") or "v1"
        scheme = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27"
        message = f'no kind "{kind}" is registered for version "{version}" in scheme "{scheme}"'
        raise ApiStatusError(500, "", message)
    options = {key: value for key, value in given.items() if key in _DELETE_TYPES and value is not None}
    for key, value in options.items():
        if not isinstance(value, _DELETE_TYPES[key]) or (key == "gracePeriodSeconds" and isinstance(value, bool)):
            raise api_errors.bad_request(f"json: cannot unmarshal into Go struct field DeleteOptions.{key}")
    return options


def first(query: Query, name: str) -> str:
    """The first value of a parameter, empty if there is none."""
    values = query.get(name)
    return values[0] if values else ""


def boolean(query: Query, name: str) -> bool:
    """A parameter that is true if present, unless its value is false: ``watch`` and ``watch=1``."""
    values = query.get(name)
    return bool(values and values[0].lower() not in {"false", "0"})


def integer(query: Query, name: str) -> int | None:
    """An integer; None if absent. Raises a 400 if it is invalid."""
    text = first(query, name)
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise api_errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None
