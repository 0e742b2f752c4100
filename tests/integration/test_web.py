"""The controller's web server as those who ask it see it; real sockets, in real time."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import aiohttp
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from frameworkcontroller.cli.runcontroller import web_of
from frameworkcontroller.config.bindaddress import BindAddress
from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.local.apiserver.restserver import ApiServer
from frameworkcontroller.manager import exposition, httpserver
from frameworkcontroller.manager.app import Controller
from frameworkcontroller.manager.httpserver import MAX_CONNECTIONS
from frameworkcontroller.manager.web import WebError, WebServer
from tests.support.eventually import eventually
from tests.support.frameworks import Frameworks, role
from tests.support.ports import unused_port

LOOPBACK = BindAddress("127.0.0.1", 0)
NOBODY = "http://127.0.0.1:1"
SECRET = "c2VjcmV0LW9mLXRoZS11c2Vy"


@asynccontextmanager
async def serving(*, debug: bool = False, url: str = NOBODY) -> AsyncIterator[WebServer]:
    """The web server of a controller that does not run."""
    async with WebServer(Controller(Config(), Connection.to_address(url)), LOOPBACK, debug=debug) as web:
        yield web


async def ask(web: WebServer, path: str, method: str = "GET", **headers: str) -> tuple[int, str, Mapping[str, str]]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, web.url + path, headers=headers, allow_redirects=False) as answer,
    ):
        return answer.status, await answer.text(), answer.headers


async def raw(web: WebServer, sent: bytes) -> bytes:
    """The response to these bytes until the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
    writer.write(sent)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        await close(writer)


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def test_metrics_in_both_formats() -> None:
    async with serving() as web:
        code, text, headers = await ask(web, "/metrics")
        assert (code, headers["Content-Type"].partition(";")[0]) == (200, "text/plain")
        plain = {family.name for family in parse_text(text)}
        code, text, headers = await ask(web, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
        assert (code, headers["Content-Type"].partition(";")[0]) == (200, "application/openmetrics-text")
        openmetrics = parse_openmetrics(text)  # type: ignore[no-untyped-call]
        assert {family.name for family in openmetrics} == plain
        assert "workqueue_depth" in plain
        assert "_created" not in text


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz"])
async def test_head_is_get_without_the_body(path: str) -> None:
    async with serving() as web:
        code, _, _ = await ask(web, path)
        assert (await ask(web, path, "HEAD"))[:2] == (code, "")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/metrics/",
        "/metrics/x",
        "/healthz/x",
        "/../etc/passwd",
        "/%2e%2e/etc/passwd",
        "/static/",
        "/debug",
        "/debug/",
        "/debug/tasks",
        "/debug/queue",
        "/debug/frameworks/default/f",
        "/debug/pprof/",
        "//metrics",
    ],
)
async def test_nothing_else_is_served(path: str) -> None:
    async with serving() as web:
        answer = await raw(web, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 404 ")
        assert answer.endswith(b"\r\n\r\n404: Not Found")


@pytest.mark.parametrize(
    "target", ["/healthz", "/healthz?verbose", "http://controller:10280/healthz", "https://[::1]/healthz?x=%20"]
)
async def test_a_path_is_served_with_a_query_and_behind_a_proxy(target: str) -> None:
    async with serving() as web:
        answer = await raw(web, f"GET {target} HTTP/1.0\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b"\nok\n")


async def test_a_request_may_come_in_pieces_and_have_a_body() -> None:
    async with serving() as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        for part in (b"G", b"ET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r", b"\nunread"):
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        writer.write(b"end")
        assert (await reader.read()).endswith(b"\nok\n")
        await close(writer)


async def test_an_error_concerns_one_request(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: object) -> None:
        raise RuntimeError(SECRET)

    async with serving() as web:
        monkeypatch.setattr(exposition, "choose_encoder", fail)
        code, text, _ = await ask(web, "/metrics")
        assert (code, text) == (500, "500: Internal Server Error")
        assert "Cannot serve /metrics" in caplog.text
        assert (await ask(web, "/healthz"))[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz"])
async def test_nothing_can_be_changed(path: str, method: str) -> None:
    async with serving() as web:
        code, _, headers = await ask(web, path, method)
        assert (code, headers["Allow"]) == (405, "GET, HEAD")


async def test_no_response_names_its_software() -> None:
    async with serving() as web:
        for path in ("/metrics", "/nothing"):
            _, _, headers = await ask(web, path)
            assert headers["Server"] == "frameworkcontroller"
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Connection"] == "close"


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"nonsense\r\n\r\n",
    ],
)
async def test_an_invalid_request_is_refused_and_leaves_no_trace(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as web:
        caplog.clear()
        answer = await raw(web, sent)
        assert answer == b"" or answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))
        assert b"Traceback" not in answer
        assert caplog.records == []
        assert (await ask(web, "/healthz"))[0] == 200


async def test_who_says_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(httpserver, "CONNECTION_SEC", 0.2)
    async with serving() as web:
        assert await asyncio.wait_for(raw(web, b"GET /metrics HT"), 300) == b""


async def test_idle_connections_do_not_keep_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(httpserver, "CONNECTION_SEC", 1000)
    async with serving() as web:
        idle = [await asyncio.open_connection("127.0.0.1", web.port) for _ in range(MAX_CONNECTIONS + 10)]
        assert (await ask(web, "/healthz"))[0] == 200
        assert await asyncio.wait_for(idle[0][0].read(), 300) == b""
        for _, writer in idle:
            await close(writer)


async def test_a_port_in_use_is_said_with_its_address() -> None:
    async with serving() as web:
        taken = BindAddress("127.0.0.1", web.port)
        controller = Controller(Config(), Connection.to_address(NOBODY))
        with pytest.raises(WebError, match=f"^{taken}: Address already in use$"):
            async with WebServer(controller, taken):
                raise AssertionError("it listens")


async def test_an_address_of_another_machine_is_said() -> None:
    controller = Controller(Config(), Connection.to_address(NOBODY))
    with pytest.raises(WebError, match=r"^192\.0\.2\.1:8080: "):
        async with WebServer(controller, BindAddress("192.0.2.1", 8080)):
            raise AssertionError("it listens")


async def test_it_listens_on_its_address_only_until_it_stops() -> None:
    async with serving() as web:
        port = web.port
        for family in (("127.0.0.2", port), ("::1", port)):
            with pytest.raises(OSError, match=r"(?i)refused|cannot assign|connect call failed"):
                await asyncio.open_connection(*family)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_probes_and_metrics_while_the_api_server_comes_and_goes() -> None:
    server = ApiServer()
    await server.start()
    controller = Controller(Config(), Connection.to_address(server.url))
    async with WebServer(controller, LOOPBACK) as web:
        code, text, _ = await ask(web, "/readyz")
        assert (code, text.splitlines()[0]) == (503, "[-]cache-frameworks not filled yet")
        assert text.endswith("\nfailed\n")
        assert (await ask(web, "/healthz"))[0] == 200
        async with controller:
            code, text, _ = await ask(web, "/readyz")
            assert (code, text) == (
                200,
                "[+]cache-frameworks ok\n[+]cache-configmaps ok\n[+]cache-pods ok\n[+]running ok\nok\n",
            )
            await server.stop()

            async def noticed() -> None:
                _, text, _ = await ask(web, "/metrics")
                assert 'watch_restarts_total{reason="broken",resource="pods"} 0.0' not in text

            await eventually(noticed)
            assert (await ask(web, "/healthz"))[0] == 200
            assert (await ask(web, "/readyz"))[0] == 200
            assert (await ask(web, "/metrics"))[0] == 200
        assert (await ask(web, "/readyz"))[0] == 503


async def test_debug_shows_tasks_queue_and_a_framework_but_no_secret() -> None:
    async with ApiServer() as server, KubeClient(Connection.to_address(server.url)) as client:
        controller = Controller(Config(), Connection.to_address(server.url))
        async with controller, WebServer(controller, LOOPBACK, debug=True) as web:
            frameworks = Frameworks(client, "default")
            worker = role("w", 2)
            worker["task"]["pod"]["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "value": SECRET}]
            await frameworks.create("f", worker)
            await frameworks.until_state("f", "AttemptPreparing")

            async def settled() -> None:
                code, text, headers = await ask(web, "/debug/frameworks/default/f")
                assert (code, headers["Content-Type"]) == (200, "application/json")
                told = json.loads(text)
                assert told["tasks"] == {"AttemptPreparing": 2} or told["tasks"] == {"AttemptCreationRequested": 2}
                assert told["persisted"]

            await eventually(settled)
            code, tasks, _ = await ask(web, "/debug/tasks")
            assert code == 200
            assert "informer of pods" in tasks
            assert "informer.py" in tasks

            async def at_rest() -> str:
                code, queue, _ = await ask(web, "/debug/queue")
                assert code == 200
                assert json.loads(queue)["counts"] == {"ready": 0, "processing": 0, "delayed": 0, "failing": 0}
                return queue

            queue = await eventually(at_rest)
            _, framework, _ = await ask(web, "/debug/frameworks/default/f")
            _, metrics, _ = await ask(web, "/metrics")
            for text in (tasks, queue, framework, metrics):
                assert SECRET not in text
            code, text, _ = await ask(web, "/debug/frameworks/default/other")
            assert (code, text) == (404, "Framework default/other not found\n")


# --- the command ----------------------------------------------------------------------------------------------------


def write_config(folder: Path, **keys: object) -> Path:
    file = folder / "config.yaml"
    file.write_text(json.dumps({"kubeApiServerAddress": NOBODY, **keys}))
    return file


@contextmanager
def command(config: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "frameworkcontroller", "--config", str(config)], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str], part: str) -> str:
    """The line of its log that has ``part``."""
    assert process.stderr is not None
    for line in process.stderr:
        if part in line:
            return line
    raise AssertionError(f"it ended and never said {part!r}")


def test_the_command_serves_without_an_api_server_until_it_is_stopped(tmp_path: Path) -> None:
    port = unused_port()
    with command(write_config(tmp_path, webAddress=f"127.0.0.1:{port}")) as process:
        assert f"Serving metrics and health on 127.0.0.1:{port}\n" in said(process, "Serving metrics")
        said(process, "Starting for the API server")
        with urlopen(f"http://127.0.0.1:{port}/healthz") as answer:
            assert answer.status == 200
        with pytest.raises(HTTPError, match="503"):
            urlopen(f"http://127.0.0.1:{port}/readyz")
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"http://127.0.0.1:{port}/debug/tasks")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=600) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_the_command_does_not_start_where_its_address_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with command(write_config(tmp_path, webAddress=address)) as process:
            line = said(process, "webAddress")
            assert line == f"frameworkcontroller: webAddress: {address}: Address already in use\n"
            assert process.wait(timeout=600) == 2


def test_the_command_serves_nothing_where_that_is_switched_off(tmp_path: Path) -> None:
    with command(write_config(tmp_path, webAddress="")) as process:
        assert process.stderr is not None
        before = []
        for line in process.stderr:
            before.append(line)
            if "Starting for the API server" in line:
                break
        assert not [line for line in before if "metrics" in line]


async def test_a_default_address_in_use_stops_no_controller(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as web:
        config = Config()
        assert "web_address" not in config.model_fields_set
        monkeypatch.setattr(Config, "web", BindAddress("127.0.0.1", web.port))
        async with web_of(Controller(config, Connection.to_address(NOBODY)), config):
            pass
    assert "Address already in use; set webAddress to have them elsewhere" in caplog.text
