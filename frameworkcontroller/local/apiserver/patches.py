"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386), as in the real API server.

Both return a new document that shares unchanged parts with the original; arguments are not modified. ``strategic`` has
Kubernetes' third format.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

import orjson

from frameworkcontroller.local.apiserver import api_errors, depth
from frameworkcontroller.local.apiserver.api_errors import ApiStatusError

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

MAX_OPERATIONS = 10_000
"""Maximum number of operations in a JSON patch."""


def json_fault(raw: bytes, error: orjson.JSONDecodeError) -> str:
    """The fault in a JSON text, in the words of Go's decoder."""
    text = raw.decode("utf-8", "replace")
    if error.pos >= len(text.rstrip()):
        return "unexpected end of JSON input"
    return f"invalid character '{text[error.pos]}' looking for beginning of value"


def json_patch(document: Any, operations: Any) -> Any:
    """Apply all operations of a JSON patch in order, or none.

    As on the real server, an array index may be negative (from the end), ``test`` treats an absent member as null, and
    numbers are equal only in the same notation (1 is not 1.0).

    Raises StatusError: 400 for an invalid patch or a document that becomes too deep, 413 for more than
    ``MAX_OPERATIONS``, 422 if an operation does not apply.
    """
    if operations is None:
        return document
    if not isinstance(operations, list):
        raise api_errors.bad_request(
            f"error decoding patch: json: cannot unmarshal {json_type(operations)} into Go value of type "
            "[]handlers.jsonPatchOp"
        )
    if len(operations) > MAX_OPERATIONS:
        raise ApiStatusError(
            413,
            "RequestEntityTooLarge",
            "Request entity too large: The allowed maximum operations in a JSON patch is "
            f"{MAX_OPERATIONS}, got {len(operations)}",
            {},
        )
    for operation in operations:
        _check_operation(operation)
    editor = _Editor(document)
    try:
        for operation in operations:
            editor.do(operation)
    except _DoesNotApply:
        raise api_errors.unpatchable() from None
    except RecursionError:
        raise depth.too_deep() from None
    # Operations can nest values repeatedly.
    depth.check(editor.document)
    return editor.document


def merge_patch(document: Any, patch: Any) -> Any:
    """Apply a JSON merge patch: null deletes, objects merge, everything else replaces.

    As on the real server, nulls are also dropped from objects in a list that replaces another. Raises StatusError 400
    if the patch is not an object.
    """
    if patch is None:
        raise api_errors.bad_request("Invalid JSON Patch")
    if not isinstance(patch, Mapping):
        raise api_errors.bad_request(
            f"error decoding patch: json: cannot unmarshal {json_type(patch)} into Go value of type "
            "map[string]interface {}"
        )
    return _merged(document, patch)


def json_type(value: Any) -> str:
    """The JSON type of a parsed value, as Go's decoder names it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "number"
    return "array" if isinstance(value, list) else "object"


def _merged(target: Any, patch: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            result[key] = _merged(result.get(key), value)
        elif isinstance(value, list):
            result[key] = [_without_nulls(item) for item in value]
        else:
            result[key] = value
    return result


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _check_operation(operation: Any) -> None:
    """Check the members of an operation; the real server checks all before the first one runs."""
    if not isinstance(operation, Mapping):
        raise api_errors.bad_request(
            f"error decoding patch: json: cannot unmarshal {json_type(operation)} into Go value of type "
            "handlers.jsonPatchOp"
        )
    for member in ("op", "from", "path"):
        if operation.get(member) is not None and not isinstance(operation[member], str):
            raise api_errors.bad_request(
                f"error decoding patch: json: cannot unmarshal {json_type(operation[member])} into Go struct field "
                f"jsonPatchOp.{member} of type string"
            )
    fault = ""
    match operation.get("op"):
        case "add" | "replace" if "value" not in operation:
            fault = "failed to decode 'value': operation, missing value field: missing value"
        case "move" | "copy" if operation.get("from") is None:
            fault = "failed to decode 'from': operation, missing from field: missing value"
        case "add" | "replace" | "remove" | "test" | "move" | "copy":
            if operation.get("path") is None:
                fault = "failed to decode 'path': operation, missing path field: missing value"
        case _:
            fault = "unsupported operation"
    if fault:
        raise api_errors.bad_request(f"invalid operation {orjson.dumps(operation).decode()}: {fault}")


class _DoesNotApply(Exception):
    """An operation does not apply to the document."""


_ABSENT = object()


class _Editor:
    """A document under edit. Containers are copied on first write."""

    def __init__(self, document: Any) -> None:
        self.document = document
        # Containers copied for this edit, by id; the references keep the ids valid.
        self._own: dict[int, Any] = {}

    def do(self, operation: Mapping[str, Any]) -> None:
        path = _tokens(operation["path"])
        match operation["op"]:
            case "add":
                self._add(path, operation["value"])
            case "remove":
                self._remove(path)
            case "replace":
                container, key = self._find(path)
                container[key] = operation["value"]
            case "test":
                self._test(path, operation.get("value"))
            case "move":
                self._add(path, self._remove(_tokens(operation["from"])))
            case _:
                # A copy: later operations may write into either.
                self._add(path, copy.deepcopy(self._get(_tokens(operation["from"]))))

    def _add(self, path: list[str], value: Any) -> None:
        container, last = self._writable(path[:-1]), path[-1]
        if isinstance(container, dict):
            container[last] = value
        elif isinstance(container, list):
            if last == "-":
                container.append(value)
                return
            size = len(container) + 1
            index = _index(last, size)
            container.insert(index, value)
        else:
            raise _DoesNotApply

    def _remove(self, path: list[str]) -> Any:
        container, key = self._find(path)
        return container.pop(key)

    def _test(self, path: list[str], value: Any) -> None:
        parent = self._get(path[:-1])
        actual = parent.get(path[-1]) if isinstance(parent, Mapping) else _member(parent, path[-1])
        if not same(actual, value):
            raise _DoesNotApply

    def _find(self, path: list[str]) -> tuple[Any, Any]:
        """The container of an existing value, made writable, and the key or index."""
        container, last = self._writable(path[:-1]), path[-1]
        if isinstance(container, dict):
            if last not in container:
                raise _DoesNotApply
            return container, last
        if isinstance(container, list):
            return container, _index(last, len(container))
        raise _DoesNotApply

    def _get(self, path: list[str]) -> Any:
        value = self.document
        for token in path:
            value = _member(value, token)
        return value

    def _writable(self, path: list[str]) -> Any:
        self.document = value = self._owned(self.document)
        for token in path:
            child = self._owned(_member(value, token))
            if isinstance(value, dict):
                value[token] = child
            else:
                value[_index(token, len(value))] = child
            value = child
        return value

    def _owned(self, value: Any) -> Any:
        if id(value) in self._own or not isinstance(value, Mapping | list):
            return value
        fresh = dict(value) if isinstance(value, Mapping) else list(value)
        self._own[id(fresh)] = fresh
        return fresh


def _member(container: Any, token: str) -> Any:
    if isinstance(container, Mapping):
        value = container.get(token, _ABSENT)
        if value is _ABSENT:
            raise _DoesNotApply
        return value
    if isinstance(container, list):
        return container[_index(token, len(container))]
    raise _DoesNotApply


def _tokens(pointer: str) -> list[str]:
    """The reference tokens of a JSON pointer. Patches may not name the whole document."""
    if not pointer.startswith("/"):
        raise _DoesNotApply
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/")]


def _index(token: str, size: int) -> int:
    try:
        index = int(token)
    except ValueError:
        raise _DoesNotApply from None
    if not -size <= index < size:
        raise _DoesNotApply
    return index if index >= 0 else size + index


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal. Python's ``==`` also equates 1 with 1.0 and true."""
    if isinstance(left, Mapping):
        return (
            isinstance(right, Mapping)
            and left.keys() == right.keys()
            and all(same(value, right[key]) for key, value in left.items())
        )
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and bool(left == right)
