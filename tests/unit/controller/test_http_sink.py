"""Records by HTTP: requests, and the meaning of answers."""

from __future__ import annotations

import asyncio
import gzip
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from frameworkcontroller import __version__
from frameworkcontroller.config.historyconfig import History, HistorySinkKind
from frameworkcontroller.controller.historysink import RecordsRefused, Unavailable
from frameworkcontroller.controller.httpsink import HttpDestination
from frameworkcontroller.history.apidocument import NAMESPACE_HEADER
from frameworkcontroller.manager.historysinks import open_sink
from tests.support.certificates import make_certificates
from tests.support.faulty_server import Answer, FaultyServer, answer, cut, drop, faulty_server, silence
from tests.support.virtual_clock import wall

pytestmark = pytest.mark.virtual_clock


@pytest.fixture
async def server() -> AsyncIterator[FaultyServer]:
    async with faulty_server() as server:
        server.otherwise = answer(b"")
        yield server


def destination(url: str, *, token_file: Path | None = None, ca_file: Path | None = None) -> HttpDestination:
    return HttpDestination(url, token_file=token_file, ca_file=ca_file, wall=wall)


@pytest.fixture
async def sink(server: FaultyServer) -> AsyncIterator[HttpDestination]:
    made = destination(f"{server.url}/v1/records?tenant=a")
    yield made
    await made.close()


@pytest.mark.parametrize("size", [1, 100_000, 3_000_000])
async def test_lines_are_sent_compressed(server: FaultyServer, sink: HttpDestination, size: int) -> None:
    lines = [b'{"n":1}', os.urandom(size).hex().encode()]
    await sink.send(lines)
    (seen,) = server.seen
    assert (seen.method, seen.path, seen.query) == ("POST", "/v1/records", {"tenant": "a"})
    headers = {name.lower(): value for name, value in seen.headers.items()}
    assert headers["content-type"] == "application/x-ndjson"
    assert headers["user-agent"] == f"frameworkcontroller/{__version__}"
    assert "authorization" not in headers
    # The server has decompressed it, by Content-Encoding.
    body = seen.body if seen.body.startswith(b"{") else gzip.decompress(seen.body)
    assert body == b"".join(line + b"\n" for line in lines)
    assert headers["content-encoding"] == "gzip"


@pytest.mark.parametrize("namespace", ["team-a", None])
async def test_a_controller_of_one_namespace_names_it(server: FaultyServer, namespace: str | None) -> None:
    """An archive asks for the permission before it reads the records, and a Role is for one namespace."""
    config = History(sink=HistorySinkKind.HTTP, url=f"{server.url}/v1/records")
    sink = open_sink(config, namespace=namespace, wall=wall, rng=random.Random(1))
    made = sink._destination
    try:
        await made.send([b"{}"])
    finally:
        await made.close()
    headers = {name.lower(): value for name, value in server.seen[0].headers.items()}
    assert headers.get(NAMESPACE_HEADER.lower()) == namespace


@pytest.mark.parametrize("code", [200, 201, 202, 204])
async def test_a_success_acknowledges(server: FaultyServer, sink: HttpDestination, code: int) -> None:
    server.then(answer(b"", code))
    await sink.send([b"{}"])


@pytest.mark.parametrize("body", [b"", "ok", {"stored": 2}, {"text": "Success"}, b"[]"])
async def test_answers_of_archives_and_collectors_acknowledge(
    server: FaultyServer, sink: HttpDestination, body: bytes | str | dict[str, Any]
) -> None:
    server.then(answer(body))
    await sink.send([b"{}", b"{}"])


@pytest.mark.parametrize(
    "body",
    [
        answer("<html>Log in</html>"),
        answer(b" \n<!doctype html>"),
        answer("Welcome!", Content_Type="text/html; charset=utf-8"),
        answer({"stored": 1}),
        answer({"stored": 3}),
        answer({"stored": None}),
    ],
)
async def test_a_success_of_another_server_does_not_acknowledge(
    server: FaultyServer, sink: HttpDestination, body: Answer
) -> None:
    server.then(body)
    with pytest.raises(Unavailable, match=r": 200 .*: not the answer of an archive that has stored 2$"):
        await sink.send([b"{}", b"{}"])


@pytest.mark.parametrize("code", [400, 413, 422])
async def test_answers_that_mean_the_records(server: FaultyServer, sink: HttpDestination, code: int) -> None:
    server.then(answer({"title": "Bad record", "detail": "line 2: no JSON"}, code))
    with pytest.raises(
        RecordsRefused, match=rf"^{server.url}/v1/records\?tenant=a: {code} Bad record: line 2: no JSON$"
    ):
        await sink.send([b"{}"])


@pytest.mark.parametrize("code", [401, 403, 404, 405, 408, 418, 429, 500, 502, 503])
async def test_answers_that_mean_the_server(server: FaultyServer, sink: HttpDestination, code: int) -> None:
    server.then(answer("<html>go\n away</html>", code))
    with pytest.raises(Unavailable, match=rf": {code} <html>go away</html>$") as caught:
        await sink.send([b"{}"])
    assert (caught.value.code, caught.value.retry_after_sec) == (code, 0)
    await sink.send([b"{}"])
    assert len(server.seen) == 2


async def test_long_words_are_cut(server: FaultyServer, sink: HttpDestination) -> None:
    server.then(answer(b"x" * 1_000_000, 500))
    with pytest.raises(Unavailable) as caught:
        await sink.send([b"{}"])
    assert len(str(caught.value)) < 400


async def test_a_redirect_is_not_followed(server: FaultyServer, sink: HttpDestination) -> None:
    server.then(answer(b"", 307, Location="http://elsewhere.example/"))
    with pytest.raises(Unavailable, match=r"307 redirect to 'http://elsewhere.example/', which is not followed"):
        await sink.send([b"{}"])
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7), ("0", 0), ("100000", 300), ("-1", 0), ("soon", 0), ("Thu, 01 Jan 2026 00:01:00 GMT", 60)],
)
async def test_retry_after(server: FaultyServer, sink: HttpDestination, value: str, seconds: float) -> None:
    server.then(answer(b"", 503, Retry_After=value))
    with pytest.raises(Unavailable) as caught:
        await sink.send([b"{}"])
    assert caught.value.retry_after_sec == pytest.approx(seconds, abs=2)


async def test_a_connection_that_the_server_has_just_closed_is_no_failure(
    server: FaultyServer, sink: HttpDestination
) -> None:
    server.then(answer(b""), drop())
    await sink.send([b"1"])
    await sink.send([b"2"])
    assert len(server.seen) == 3


async def test_a_server_that_always_drops_the_connection(server: FaultyServer, sink: HttpDestination) -> None:
    server.otherwise = drop()
    with pytest.raises(Unavailable, match="closed the connection without an answer"):
        await sink.send([b"1"])
    assert len(server.seen) == 2


async def test_an_answer_that_breaks_off(server: FaultyServer, sink: HttpDestination) -> None:
    server.then(cut(b"", announced=100))
    with pytest.raises(Unavailable, match="ClientPayloadError"):
        await sink.send([b"1"])


async def test_a_server_that_hangs(server: FaultyServer, sink: HttpDestination) -> None:
    server.then(silence())
    began = asyncio.get_running_loop().time()
    with pytest.raises(Unavailable, match="no answer in time"):
        await sink.send([b"1"])
    assert asyncio.get_running_loop().time() - began <= 36
    await sink.send([b"1"])


async def test_no_server() -> None:
    async with faulty_server() as server:
        url = server.url
    sink = destination(url)
    with pytest.raises(Unavailable, match=f"^{url}: cannot connect: "):
        await sink.send([b"1"])
    await sink.close()


# --- credentials and certificates -------------------------------------------------------------------------------------


async def test_the_token_is_read_again_when_it_changes(server: FaultyServer, tmp_path: Path) -> None:
    """The kubelet renews a projected token by a new target of a link."""
    for name, token in (("first", "one\n"), ("second", "another")):
        (tmp_path / name).write_text(token)
    link = tmp_path / "token"
    link.symlink_to(tmp_path / "first")
    sink = destination(server.url, token_file=link)
    await sink.send([b"1"])
    await sink.send([b"1"])
    link.unlink()
    with pytest.raises(Unavailable, match=f"^history.tokenFile {link}: No such file or directory$"):
        await sink.send([b"1"])
    link.symlink_to(tmp_path / "second")
    await sink.send([b"1"])
    tokens = [seen.headers["Authorization"] for seen in server.seen]
    assert tokens == ["Bearer one", "Bearer one", "Bearer another"]
    await sink.close()


@pytest.mark.parametrize("content", ["", "two words", "line\r\nX-Injected: 1", "gr\u00fcn"])
async def test_a_file_without_a_token(server: FaultyServer, tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    sink = destination(server.url, token_file=file)
    with pytest.raises(Unavailable, match=f"^history.tokenFile {file}: must hold a bearer token, without spaces$"):
        await sink.send([b"1"])
    assert server.seen == []
    await sink.close()


async def test_a_token_is_never_shown(server: FaultyServer, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "token"
    file.write_text("s3cr3t")
    server.otherwise = answer(b"", 401)
    sink = destination(server.url, token_file=file)
    with pytest.raises(Unavailable) as caught:
        await sink.send([b"1"])
    assert "s3cr3t" not in str(caught.value) + caplog.text
    await sink.close()


async def test_https_with_certificates_that_change(tmp_path: Path) -> None:
    for name in ("ours", "others"):
        (tmp_path / name).mkdir()
    ours, others = make_certificates(tmp_path / "ours"), make_certificates(tmp_path / "others")
    ca_file = tmp_path / "ca.pem"
    ca_file.write_bytes(others.ca.read_bytes())
    async with faulty_server(ssl_context=ours.server_context()) as server:
        server.otherwise = answer(b"")
        sink = destination(server.url, ca_file=ca_file)
        with pytest.raises(Unavailable, match="certificate"):
            await sink.send([b"1"])
        for content in ("none", ""):
            ca_file.write_text(content)
            for _ in range(2):
                with pytest.raises(Unavailable, match=f"^history.caFile {ca_file}: must hold certificates as PEM"):
                    await sink.send([b"1"])
        ca_file.write_bytes(ours.ca.read_bytes())
        await sink.send([b"1"])
        await sink.close()


async def test_the_environment_names_no_proxy(
    server: FaultyServer, sink: HttpDestination, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    await sink.send([b"1"])
    assert len(server.seen) == 1
