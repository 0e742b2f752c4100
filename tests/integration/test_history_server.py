"""``frameworkcontroller history serve`` as a process of its own: an acknowledged record is stored, in any case."""

import asyncio
import gzip
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from frameworkcontroller.history.apidocument import document
from frameworkcontroller.history.archive import HistoryArchive
from frameworkcontroller.history.reads import ListFrameworks
from tests.support.answerschema import faults
from tests.support.archives import framework_record, log_record, task_status
from tests.support.certificates import make_certificates
from tests.support.cli import run_program
from tests.support.eventually import eventually, read_until, until

PROGRAM = [str(Path(sys.executable).parent / "frameworkcontroller"), "history", "serve"]
HEADERS = {"Content-Type": "application/x-ndjson"}
TOKEN = "the-token-of-the-test"
BEARING = {"Authorization": f"Bearer {TOKEN}"}


def framework(number: int, padding: int = 0) -> bytes:
    """The record of a Framework that has failed after one attempt of one Task."""
    line = framework_record(
        f"u{number}",
        where=f"default/f{number}",
        trigger="OnFrameworkDeletion",
        code=1,
        roles={"w": [task_status(0, uid=f"0_t{number}")]},
        attempt_status={"padding": "x" * padding},
    )
    return line + b"\n"


class Process:
    """One server, on a free port, with its log in a file."""

    def __init__(self, database: str, log: Path, *options: str, **more: Any) -> None:
        self.log = log
        token = log.with_name(f"{log.name}.token")
        token.write_text(TOKEN)
        command = [*PROGRAM, "--database", database, "--address", "127.0.0.1:0", "--token-file", str(token), *options]
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=output, **more)

    async def url(self) -> str:
        """Its URL, once it listens."""

        async def probe() -> str:
            found = re.search(r"Serving the archive on (\S+)", self.log.read_text())
            assert found is not None or self.process.poll() is not None, self.log.read_text()
            if found is None:
                pytest.fail(self.log.read_text())
            return found[1]

        return await eventually(probe)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=120)


@contextmanager
def running(database: str, log: Path, *options: str, **more: Any) -> Iterator[Process]:
    made = Process(database, log, *options, **more)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
        made.process.wait()


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(headers=BEARING) as session:
        yield session


async def post(client: aiohttp.ClientSession, url: str, body: bytes, **headers: str) -> tuple[int, Any]:
    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 2**20):
            yield body[start : start + 2**20]

    async with client.post(f"{url}/v1/records", data=pieces(), headers=HEADERS | headers) as answer:
        return answer.status, await answer.json(content_type=None)


async def names(database: Path) -> set[str]:
    """The Frameworks in the archive, read without the server."""
    found: set[str] = set()
    async with await HistoryArchive.open(f"sqlite:///{database}") as archive:
        after = ""
        while True:
            page = await archive.read(ListFrameworks(limit=1000, after=after))
            found |= {one["name"] for one in page["items"]}
            if page["next"] is None:
                return found
            after = page["next"]


async def test_a_stop_answers_requests_in_progress(tmp_path: Path, client: aiohttp.ClientSession) -> None:
    with running(f"sqlite:///{tmp_path}/h.db", tmp_path / "log") as process:
        url = await process.url()
        results: list[int] = []

        async def send(worker: int) -> None:
            for batch in range(1000):
                first = (worker * 1000 + batch) * 20
                try:
                    status, _ = await post(client, url, b"".join(map(framework, range(first, first + 20))))
                except aiohttp.ClientConnectorError:
                    return  # it no longer listens
                except aiohttp.ClientError:
                    return  # an idle connection was closed
                results.append(status)

        senders = [asyncio.create_task(send(worker)) for worker in range(4)]
        await until(lambda: len(results) >= 8, every=0.01)
        assert await asyncio.to_thread(process.end) == 0
        await asyncio.gather(*senders)
    assert set(results) == {200}
    assert len(await names(tmp_path / "h.db")) >= 20 * len(results)


async def test_a_record_of_100_mb_is_refused_and_the_server_stays_small(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    with running(f"sqlite:///{tmp_path}/h.db", tmp_path / "log") as process:
        url = await process.url()
        large = framework(1, padding=100 * 2**20)
        for body, headers in ((large, {}), (gzip.compress(large, 1), {"Content-Encoding": "gzip"})):
            status, problem = await post(client, url, body, **headers)
            assert (status, problem["title"]) == (413, "Too large")
        answers = await asyncio.gather(*(post(client, url, framework(2, padding=30 * 2**20)) for _ in range(4)))
        assert answers == [(200, {"stored": 1})] * 4
        peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.process.pid}/status").read_text())
        assert peak is not None
        assert int(peak[1]) < 900_000
    assert await names(tmp_path / "h.db") == {"f2"}


async def test_a_file_system_without_room_refuses_until_there_is_some(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    """A limit on the size of files stands for it: the database's writes fail in the same way."""
    import resource

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3 * 2**20, resource.RLIM_INFINITY))

    acknowledged: set[str] = set()
    refused = None
    with running(f"sqlite:///{tmp_path}/h.db", tmp_path / "log", preexec_fn=limit) as process:
        url = await process.url()
        for number in range(100):
            body = framework(number).replace(b'"padding":""', b'"padding":"' + os.urandom(60_000).hex().encode() + b'"')
            status, problem = await post(client, url, body)
            if status != 200:
                refused = status, problem["title"]
                break
            acknowledged.add(f"f{number}")
        assert refused == (503, "Database unavailable")
        resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await read_until(lambda: post(client, url, framework(1000)), lambda found: found[0] == 200)
    assert await names(tmp_path / "h.db") == {*acknowledged, "f1000"}


async def test_a_database_that_goes_away_and_comes_back(tmp_path: Path, client: aiohttp.ClientSession) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    with running(f"sqlite:///{folder}/h.db", tmp_path / "log") as process:
        url = await process.url()
        assert (await post(client, url, framework(1)))[0] == 200
        folder.rename(tmp_path / "elsewhere")
        status, problem = await post(client, url, framework(2))
        assert (status, problem["title"]) == (503, "Database unavailable")
        async with client.get(f"{url}/readyz") as answer:
            assert answer.status == 503
        async with client.get(f"{url}/healthz") as answer:
            assert answer.status == 200
        (tmp_path / "elsewhere").rename(folder)
        await read_until(lambda: post(client, url, framework(3)), lambda found: found[0] == 200)
    assert await names(folder / "h.db") == {"f1", "f3"}


async def test_folders_are_followed_across_a_restart(tmp_path: Path, client: aiohttp.ClientSession) -> None:
    folder = tmp_path / "records"
    folder.mkdir()

    async def until_there_are(*wanted: str) -> None:
        async def probe() -> None:
            async with client.get(f"{url}/v1/frameworks") as answer:
                assert {one["name"] for one in (await answer.json())["items"]} == set(wanted)

        await eventually(probe)

    (folder / "2026-01-30.ndjson").write_bytes(framework(1) + b"no record\n" + framework(2))
    options = ("--follow", str(folder))
    with running(f"sqlite:///{tmp_path}/h.db", tmp_path / "log", *options) as process:
        url = await process.url()
        await until_there_are("f1", "f2")
        assert "2026-01-30.ndjson, line 2 is no record, skipped: no JSON" in process.log.read_text()
        process.end(signal.SIGKILL)
    with (folder / "2026-01-30.ndjson").open("ab") as file:
        file.write(framework(3))
    (folder / "2026-01-31.ndjson.gz").write_bytes(gzip.compress(framework(4)))
    with running(f"sqlite:///{tmp_path}/h.db", tmp_path / "log", *options) as process:
        url = await process.url()
        await until_there_are("f1", "f2", "f3", "f4")
        async with client.get(f"{url}/metrics") as answer:
            metrics = await answer.text()

        async def no_lag() -> None:
            async with client.get(f"{url}/metrics") as answer:
                assert "frameworkcontroller_archive_follower_lag_seconds 0.0" in await answer.text()

        await eventually(no_lag)
        assert process.end() == 0
    assert "frameworkcontroller_archive_database_up 1.0" in metrics


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A server that several tests share: it has the Frameworks f0, f1 and train."""
    folder = tmp_path_factory.mktemp("archive")
    with running(f"sqlite:///{folder}/h.db", folder / "log") as process:
        yield process


@pytest.fixture
async def url(server: Process, client: aiohttp.ClientSession) -> str:
    url = await server.url()
    body = b"".join(map(framework, range(3))).replace(b'"name":"f2"', b'"name":"train"')
    assert (await post(client, url, body + log_record("u1", 3, where="default/f1")))[0] == 200
    return url


async def test_every_answer_is_as_the_document_describes(url: str, client: aiohttp.ClientSession) -> None:
    made = document()
    task = "/v1/frameworks/u1/attempts/0/tasks/w/0/0_t1/0"
    paths = {
        "frameworks": ["/v1/frameworks?limit=2", "/v1/frameworks?name=none", "/v1/frameworks?limit=x"],
        "framework": ["/v1/frameworks/u1", "/v1/frameworks/none"],
        "attempt": ["/v1/frameworks/u1/attempts/0", "/v1/frameworks/u1/attempts/1", "/v1/frameworks/u1/attempts/x"],
        "tasks": ["/v1/frameworks/u1/attempts/0/tasks?failed=true", "/v1/frameworks/none/attempts/0/tasks"],
        "task_attempt": [task, f"{task}1"],
        "task_history": ["/v1/frameworks/u1/tasks/w/0", "/v1/frameworks/none/tasks/w/0"],
        "failures": [f"/v1/failures?by={by}" for by in ("code", "cause", "node", "role", "day", "none")],
        "failed_attempts": [
            f"/v1/failures/attempts{query}" for query in ("", "?by=code&key=1&limit=2", "?by=code&key=x", "?by=no")
        ],
        "logs": ["/v1/frameworks/u1/logs", "/v1/frameworks/u1/logs?index=x", "/v1/frameworks/none/logs"],
        "log": [
            "/v1/frameworks/u1/logs/1?tail=1",
            "/v1/frameworks/u1/logs/1?raw=true",
            "/v1/frameworks/u1/logs/1?tail=-1",
            "/v1/frameworks/u1/logs/2",
        ],
        "cost": [f"/v1/cost?by={by}" for by in ("framework", "node", "day", "none")],
        "namespaces": ["/v1/namespaces", "/v1/namespaces?x=y"],
        "openapi": ["/openapi.json"],
        "healthz": ["/healthz"],
        "readyz": ["/readyz"],
        "metrics": ["/metrics"],
    }
    operations = {one["get"]["operationId"]: one["get"] for one in made["paths"].values() if "get" in one}
    assert set(paths) == set(operations)
    seen: set[int] = set()
    for name, operation in operations.items():
        for path in paths[name]:
            async with client.get(f"{url}{path}") as answer:
                seen.add(answer.status)
                content = operation["responses"][str(answer.status)]["content"]
                assert list(content) == [answer.content_type], path
                if answer.content_type != "text/plain":
                    value = await answer.json(content_type=None)
                    assert list(faults(value, content[answer.content_type]["schema"], made)) == [], path
    assert seen == {200, 400, 404}
    async with client.get(f"{url}/v1/frameworks?limit=2") as answer:
        page = await answer.json()
    async with client.get(f"{url}/v1/frameworks", params={"limit": 2, "after": page["next"]}) as answer:
        rest = await answer.json()
    assert {one["name"] for one in page["items"] + rest["items"]} == {"f0", "f1", "train"}
    assert rest["next"] is None
    for bad in ("x", page["next"].replace(".", ""), page["next"] + "A"):
        async with client.get(f"{url}/v1/frameworks", params={"limit": 2, "after": bad}) as answer:
            problem = await answer.json(content_type=None)
            assert (answer.status, problem["field"]) == (400, "after")
            assert problem["detail"] == f'after: must be `next` of a page of the same list, not "{bad}"'


async def test_the_queries_of_the_page_are_answered(url: str, client: aiohttp.ClientSession) -> None:
    page = (Path(__file__).parents[2] / "docs/history.md").read_text()
    queries = re.findall(r"curl 'http://127\.0\.0\.1:10281(/\S+)'", page)
    assert len(queries) >= 5
    for query in queries:
        known = query.replace("UID", "u1").replace("/logs/17", "/logs/1")
        async with client.get(f"{url}{known}") as answer:
            assert answer.status == 200, query
            content = await answer.json()
            assert content.get("items") or content.get("text"), query


async def test_the_pages_and_the_api_share_a_server(url: str, client: aiohttp.ClientSession) -> None:
    for path in ("/", "/failures", "/frameworks/default/f1"):
        async with client.get(f"{url}{path}") as answer:
            text = await answer.text()
            assert (answer.status, answer.content_type) == (200, "text/html"), path
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert "f1" in text or path == "/failures"


@pytest.mark.parametrize("tls", [False, True])
async def test_the_token_next_to_the_database_and_the_printed_address_admit(tmp_path: Path, *, tls: bool) -> None:
    """Both also with TLS, under uvloop. Without them, even the own user gets nothing."""
    options, trusted = [], None
    if tls:
        certificates = make_certificates(tmp_path)
        certificate, key = certificates.pair("server")
        options = ["--tls-cert", str(certificate), "--tls-key", str(key)]
        trusted = ssl.create_default_context(cafile=str(certificates.ca))
    command = [*PROGRAM, "--database", "sqlite:///h.db", "--address", "127.0.0.1:0", *options]
    addresses: list[str] = []
    for _ in range(1 if tls else 2):
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:  # noqa: ASYNC220
            try:
                assert process.stdout is not None
                line = await asyncio.to_thread(process.stdout.readline)
                assert line.startswith(f"The pages: {'https' if tls else 'http'}://127.0.0.1:")
                link = line.split()[-1]
                url, _, token = link.partition("/login?token=")
                addresses.append(token)
                assert (tmp_path / "h.db.token").read_text().strip() == token
                jar = aiohttp.CookieJar(unsafe=True)
                async with aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(ssl=trusted or True), cookie_jar=jar
                ) as session:
                    for given, status in (("", 401), ("Bearer wrong", 401), (f"Bearer {token}", 200)):
                        headers = {"Authorization": given} if given else {}
                        async with session.get(f"{url}/v1/namespaces", headers=headers) as answer:
                            assert answer.status == status, await answer.text()
                    async with session.get(f"{url}/login?token=wrong") as answer:
                        assert (answer.status, len(jar)) == (401, 0)
                    async with session.get(link) as answer:
                        assert (answer.status, answer.headers["Refresh"]) == (200, "0; url=./")
                        assert "Secure" in answer.headers["Set-Cookie"] or not tls
                    async with session.get(f"{url}/") as answer:
                        assert (answer.status, "Frameworks" in await answer.text()) == (200, True)
            finally:
                process.terminate()
    # So bookmarks and tokenFile of controllers stay valid.
    assert len(set(addresses)) == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--database", "mysql://x"], "--database: mysql://x: must begin with sqlite:/// or postgresql://"),
        (["--database", "sqlite:////none/x.db"], "--database: sqlite:////none/x.db: there is no directory /none"),
        (["--address", "x"], "--address 'x': must be host:port, or :port for every address of this machine"),
        (["--follow", "/none"], "--follow /none: cannot be read: No such file or directory"),
        (["--retention-bytes", "3"], '--retention-bytes "3": must be at least 1Mi'),
        (["--retention-bytes", "much"], '--retention-bytes "much": must be a number of bytes, such as 50Gi'),
        (["--retention-logs-bytes", "3"], '--retention-logs-bytes "3": must be at least 1Mi'),
        (["--retention-logs-age", "x"], "argument --retention-logs-age: not a duration such as 90s, 5m or 1h30m: 'x'"),
        (["--retention-days", "0"], "--retention-days 0: must be at least 1"),
        (["--retention-days", "x"], "argument --retention-days: not a number: 'x'"),
        (["--tls-cert", "x"], "--tls-cert and --tls-key belong together"),
        (["--tls-cert", "x", "--tls-key", "y"], "--tls-cert x: cannot be read: No such file or directory"),
        (["--token-file", "/none/token"], "--token-file /none/token: cannot be used: No such file or directory"),
        (
            ["--address", ":0", "--token-file", "/none/token"],
            "--token-file /none/token: cannot be read: No such file or directory",
        ),
        (["--address", ":0", "--kubeconfig", "/none"], "kubeconfig /none: no such file"),
    ],
)
@pytest.mark.usefixtures("logging_as_before")
def test_a_bad_option_is_named_with_its_value(
    options: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = run_program("history", "serve", *options)
    assert (ended.code, text in ended.err) == (2, True), ended.err


@pytest.mark.usefixtures("logging_as_before")
def test_the_environment_names_the_database_without_an_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    """All users of the machine can read arguments."""
    monkeypatch.setenv("FRAMEWORK_HISTORY_DATABASE", "mysql://archive:topsecret@x")
    ended = run_program("history", "serve")
    assert ended.code == 2
    assert "$FRAMEWORK_HISTORY_DATABASE: mysql://archive:***@x: must begin with sqlite:///" in ended.err
    # An option has precedence.
    ended = run_program("history", "serve", "--database", "sqlite:////none/x.db")
    assert "--database: sqlite:////none/x.db: there is no directory /none" in ended.err


async def test_the_volume_of_sqlite_is_measured(url: str, client: aiohttp.ClientSession) -> None:
    async def measured() -> None:
        async with client.get(f"{url}/metrics") as answer:
            found = dict(
                re.findall(r"^frameworkcontroller_archive_volume_(\w+) (\S+)$", await answer.text(), re.MULTILINE)
            )
        assert float(found["bytes"]) > float(found["free_bytes"]) > 0

    await eventually(measured)
