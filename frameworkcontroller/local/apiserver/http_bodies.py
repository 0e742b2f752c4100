"""Parses request bodies and builds responses."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs

import orjson
import yaml
from aiohttp import web
from multidict import CIMultiDict

from frameworkcontroller.api import gojson
from frameworkcontroller.api.yamldocuments import Loader
from frameworkcontroller.local.apiserver import api_errors, depth, protobuf
from frameworkcontroller.local.apiserver.api_errors import ApiStatusError
from frameworkcontroller.local.apiserver.options import Query
from frameworkcontroller.local.apiserver.patches import json_fault
from frameworkcontroller.local.apiserver.paths import ResourcePath
from frameworkcontroller.local.apiserver.representations import JSON, YAML

MAX_BODY_BYTES: Final = 3 << 20
"""Maximum request body, as in the real server."""

ACCEPTED: Final = (JSON, YAML, protobuf.MEDIA_TYPE)
"""Media types of a body that is an object."""


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """A request for a resource, read completely."""

    http: web.BaseRequest
    method: str
    path: ResourcePath
    query: Query
    body: bytes
    media_type: str
    """Of the body, without parameters."""
    agent: str
    accept: str

    def parsed(self) -> tuple[Any, bytes | None]:
        """Parse the body; return it with its text if that is JSON. Raises the real server's 400 or 415."""
        if self.media_type in {JSON, ""}:
            return parse_json(self.body), self.body
        if self.media_type == YAML:
            return parse_yaml(self.body), None
        if self.media_type == protobuf.MEDIA_TYPE:
            return protobuf.decode(self.body), None
        raise api_errors.unsupported_media_type(ACCEPTED)


def split_target(target: str) -> tuple[str, dict[str, list[str]]]:
    """Split a request target into path and query; a parameter without a value is empty."""
    path, mark, query = target.partition("?")
    return path, parse_qs(query, keep_blank_values=True) if mark else {}


def parse_json(body: bytes) -> Any:
    """A JSON document."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if depth.is_cause(error):
            raise depth.too_deep() from None
        whole = gojson.repaired(body)
        if whole is None:
            raise InvalidJsonError(body, error) from None
        body, document = whole, orjson.loads(whole)
    depth.check_json(body, document)
    return document


def parse_yaml(body: bytes) -> Any:
    """A YAML document, JSON included. Times stay strings, as everywhere in the API."""
    try:
        return parse_json(body)
    except InvalidJsonError:
        pass
    try:
        document = yaml.load(body, Loader=_Loader)  # noqa: S506 -- a SafeLoader, less its timestamps
    except yaml.YAMLError as error:
        raise api_errors.bad_request(f"error decoding YAML: error converting YAML to JSON: yaml: {error}") from None
    except RecursionError:
        raise depth.too_deep() from None
    depth.check(document)
    return document


class _Loader(Loader):
    """YAML as JSON: string keys, and no aliases, which could expand to gigabytes."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]  # the stubs do not say
            raise yaml.composer.ComposerError(None, None, "aliases are not supported", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        found = super().construct_mapping(node, deep)
        return {_key(key): value for key, value in found.items()}


def _key(key: Hashable) -> str:
    if isinstance(key, str):
        return key
    return orjson.dumps(key).decode()


class InvalidJsonError(ApiStatusError):
    """400: the body is not JSON."""

    def __init__(self, raw: bytes, error: orjson.JSONDecodeError) -> None:
        super().__init__(400, "BadRequest", json_fault(raw, error))
        self.raw = raw
        self.error = error


def answer(
    body: bytes,
    *,
    code: int = 200,
    media_type: str = JSON,
    warnings: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Build an API response."""
    fields = CIMultiDict({"Cache-Control": "no-cache, private", "Content-Type": media_type})
    fields.extend(headers or {})
    for warning in warnings:
        fields.add("Warning", warning_header(warning))
    return web.Response(body=body, status=code, headers=fields)


def warning_header(text: str) -> str:
    """A warning as the value of a ``Warning`` header: one line, quoted."""
    line = " ".join(text.split())
    escaped = line.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'


def document_answer(document: Any, code: int = 200) -> web.Response:
    """A JSON document."""
    return answer(gojson.encode_line(document), code=code)


def failure(error: ApiStatusError) -> web.Response:
    """A refusal as a response."""
    body = gojson.encode_line(error.body())
    return answer(body, code=error.code, headers=error.headers())


def text_answer(text: str, code: int = 200) -> web.Response:
    """Plain text."""
    return web.Response(text=text, status=code, headers={"Cache-Control": "no-cache, private"})
