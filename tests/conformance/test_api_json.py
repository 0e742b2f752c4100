"""The JSON of every API server: its bytes, where a client can see the difference, and the JSON that it reads."""

import re
from collections.abc import AsyncIterator

import orjson
import pytest

from tests.support.api import MERGE_PATCH, Api, config_map, defined, definition
from tests.support.eventually import eventually

TEXT = "<b> & \u2028 \u2029 \x7f \u00e9 \U0001f600 \u2027 \u202a"
WRITTEN = rb"\u003cb\u003e \u0026 \u2028 \u2029 " + "\x7f \u00e9 \U0001f600 \u2027 \u202a".encode()
ANYTHING = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"whole": {"type": "integer"}, "number": {"type": "number"}},
        }
    },
}


@pytest.fixture
async def things(api: Api) -> AsyncIterator[str]:
    async with defined(api, definition(ANYTHING)) as path:
        yield path


def thing(path: str, name: str, spec: bytes) -> bytes:
    names = {"apiVersion": f"{path.split('/')[2]}/v1", "kind": "Thing", "metadata": {"name": name}}
    return orjson.dumps(names)[:-1] + b',"spec":' + spec + b"}"


def spec_of(raw: bytes) -> bytes:
    found = re.search(rb'"spec":(\{[^{}]*\})', raw)
    assert found is not None, raw
    return found[1]


async def test_separators_of_lines_and_characters_of_html_are_escaped_everywhere(api: Api) -> None:
    created = await api.raw("POST", api.path("configmaps"), {**config_map("c"), "data": {"a": TEXT}})
    assert b'"a":"' + WRITTEN + b'"' in created
    assert WRITTEN in await api.raw("GET", api.path("configmaps", "c"))
    assert WRITTEN in await api.raw("GET", api.path("configmaps"))

    async def is_told() -> None:
        # A busy API server may have told nothing when the time is up.
        assert WRITTEN in await api.raw("GET", api.path("configmaps"), watch="true", timeoutSeconds="1")

    await eventually(is_told)
    assert b"a\\u003c\\u0026\\u003eb" in await api.raw("GET", api.path("configmaps", "a<&>b"))
    assert (await api.get(api.path("configmaps", "c"))).ok()["data"]["a"] == TEXT


async def test_keys_and_values_of_custom_resources_are_escaped_too(api: Api, things: str) -> None:
    spec = orjson.dumps({"<k>": [TEXT]})
    written = b'"\\u003ck\\u003e":["' + WRITTEN + b'"]'
    assert written in await api.raw("POST", things, thing(things, "t", spec))
    assert written in await api.raw("GET", f"{things}/t")


@pytest.mark.parametrize(
    ("sent", "written"),
    [
        (b'{"f":1.0}', b'{"f":1}'),
        (b'{"f":1e3}', b'{"f":1000}'),
        (b'{"f":-0.0}', b'{"f":0}'),
        (b'{"f":[1.0,2.50,-3.0]}', b'{"f":[1,2.5,-3]}'),
        (b'{"f":0.00001}', b'{"f":0.00001}'),
        (b'{"f":1e-7}', b'{"f":1e-7}'),
        (b'{"f":1e21}', b'{"f":1e+21}'),
        (b'{"f":"a 1.0, b [2.0] \\" 3.0,"}', b'{"f":"a 1.0, b [2.0] \\" 3.0,"}'),
        (b'{"whole":3.0}', b'{"whole":3}'),
        (b'{"number":3.0}', b'{"number":3}'),
    ],
)
async def test_a_whole_number_is_written_without_a_fraction(api: Api, things: str, sent: bytes, written: bytes) -> None:
    await api.raw("POST", things, thing(things, "t", sent))
    assert spec_of(await api.raw("GET", f"{things}/t")) == written


async def test_a_patch_that_brings_whole_numbers(api: Api, things: str) -> None:
    await api.raw("POST", things, thing(things, "t", b'{"f":0.5}'))
    await api.raw("PATCH", f"{things}/t", b'{"spec":{"f":2.0}}', content_type=MERGE_PATCH)
    assert spec_of(await api.raw("GET", f"{things}/t")) == b'{"f":2}'


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (b"bad \xff byte", "bad \ufffd byte"),
        (b"cut \xe2\x82 short", "cut \ufffd\ufffd short"),
        (b"half \\ud83d of a pair", "half \ufffd of a pair"),
        (b"whole \\ud83d\\ude00 pair", "whole \U0001f600 pair"),
        (b"\\\\ud83d \xff", "\\ud83d \ufffd"),
    ],
)
async def test_invalid_unicode_is_replaced(api: Api, sent: bytes, read: str) -> None:
    body = orjson.dumps({**config_map("c"), "data": {"a": "TEXT"}}).replace(b"TEXT", sent)
    answer = await api.post(api.path("configmaps"), body)
    assert answer.ok()["data"]["a"] == read
    assert (await api.get(api.path("configmaps", "c"))).ok()["data"]["a"] == read


async def test_invalid_json_is_refused_with_any_characters(api: Api) -> None:
    for text in (b'{"a":"\xff"', b'{"a":"\\ud800"]', b"{\xff}", b'{"a":NaN,"b":"\xff"}'):
        assert (await api.post(api.path("configmaps"), text)).code == 400
