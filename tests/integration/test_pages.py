"""The pages as viewers of a cluster get them: their content, their updates, and the objects hidden from a viewer."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import orjson
import pytest
from aiohttp import web

from frameworkcontroller.api.historyrecords import HistoryRecord, RecordId, Trigger, encode_record
from frameworkcontroller.api.status import State
from frameworkcontroller.dashboard.eventstreams import MAX_STREAMS_OF_ONE, EventStreams
from frameworkcontroller.dashboard.live import LiveFrameworks
from frameworkcontroller.dashboard.pages import Pages
from frameworkcontroller.history.archive import HistoryArchive
from frameworkcontroller.history.archiveclient import ArchiveClient
from frameworkcontroller.history.reads import ArchiveSource
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.resources import NAMESPACES
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from frameworkcontroller.webaccess.boundedserver import BoundedServer
from frameworkcontroller.webaccess.middleware import SECURITY_HEADERS, protect
from frameworkcontroller.webaccess.viewers import AuthenticationRequired, Viewer, WebAccess
from tests.support import pagesamples as samples
from tests.support.archives import framework_record, log_record, task_record, task_status
from tests.support.clusters import Cluster
from tests.support.eventually import eventually, read_until
from tests.support.frameworks import Frameworks, role, states
from tests.support.frontdoor import FrontDoor
from tests.support.virtual_clock import VirtualClockLoop

pytestmark = pytest.mark.newest

REVOKED: set[str] = set()
"""Tokens that are no longer valid."""


class Named(Viewer):
    """May read the namespaces in its token; all, if that is ``all``."""

    def __init__(self, token: str) -> None:
        self.name = self.token = token
        self._readable = frozenset(token.split("+"))

    async def may_read(self, namespace: str) -> bool:
        self._require_valid()
        return "all" in self._readable or namespace in self._readable

    async def readable(self, namespaces: Iterable[str]) -> frozenset[str] | None:
        self._require_valid()
        return None if "all" in self._readable else self._readable & frozenset(namespaces)

    def _require_valid(self) -> None:
        if self.name in REVOKED:
            raise AuthenticationRequired("the token is revoked")

    async def may_read_logs(self, namespace: str) -> bool:
        return "nologs" not in self._readable

    async def may_write_history(self, namespaces: Iterable[str]) -> bool:
        return False

    async def may_get(self, path: str) -> bool:
        return False


class ByToken(WebAccess):
    """Takes a viewer's namespaces from its token."""

    def check_address(self, request: web.BaseRequest) -> None:
        pass

    async def identify(self, request: web.BaseRequest, token: str | None) -> Viewer:
        if token is None or token in REVOKED:
            raise AuthenticationRequired("a valid token is required")
        return Named(token)


@dataclass
class Visit:
    """The pages as one viewer gets them."""

    session: aiohttp.ClientSession
    url: str
    token: str = "all"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    async def get(self, path: str, code: int = 200) -> str:
        """The text of a page."""
        async with self.session.get(self.url + path, headers=self.headers) as answer:
            text = await answer.text()
            assert answer.status == code, text
            return text

    async def shows(self, path: str, *texts: str) -> str:
        """Wait until the page has the texts; return it."""

        async def look() -> str:
            page = await self.get(path)
            for text in texts:
                assert text in page
            return page

        return await eventually(look)

    @asynccontextmanager
    async def events(self, query: str, **headers: str) -> AsyncIterator["Stream"]:
        """A stream of events."""
        async with self.session.get(f"{self.url}events?{query}", headers=self.headers | headers) as answer:
            assert answer.status == 200
            yield Stream(answer)


@dataclass
class Stream:
    """Reads server-sent events."""

    answer: aiohttp.ClientResponse

    async def next(self) -> tuple[Mapping[str, str], str]:
        """The fields of the next event, or a comment."""
        fields: dict[str, str] = {}
        while True:
            line = (await self.answer.content.readline()).decode().rstrip("\n")
            if line.startswith(":"):
                return {}, line
            if line:
                key, _, value = line.partition(": ")
                fields[key] = value
            elif "event" in fields:
                return fields, ""

    async def changed(self) -> Mapping[str, str]:
        """The next event that is no heartbeat."""
        while True:
            fields, _ = await self.next()
            if fields:
                assert fields["event"] == "changed"
                return fields


@asynccontextmanager
async def pages(
    client: KubeClient,
    namespace: str | None,
    past: ArchiveSource | None = None,
    *,
    heartbeat: float = 15.0,
    archive_sec: float = 60.0,
) -> AsyncIterator[Visit]:
    """The pages of a cluster, to a viewer who may read everything."""
    live = LiveFrameworks(client, namespace)
    streams = EventStreams(live, heartbeat=heartbeat)
    app = Pages(live, past, streams=streams, archive_sec=archive_sec).application()
    protect(app, ByToken())
    watch = asyncio.create_task(live.run())
    try:
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            BoundedServer(app, "127.0.0.1", 0) as server,
            aiohttp.ClientSession(connector=connector) as session,
        ):
            yield Visit(session, f"{server.url}/")
    finally:
        watch.cancel()
        await asyncio.wait([watch])


@pytest.fixture
async def client(cluster: Cluster) -> KubeClient:
    return await cluster.client()


@pytest.fixture
async def frameworks(client: KubeClient, cluster: Cluster) -> Frameworks:
    return Frameworks(client, cluster.namespace)


@pytest.fixture
async def visit(client: KubeClient, cluster: Cluster) -> AsyncIterator[Visit]:
    async with pages(client, cluster.namespace) as visit:
        yield visit


async def test_states_of_the_world_reach_the_pages(
    frameworks: Frameworks, visit: Visit, pods: SimulatedRuntime, controller: Controller
) -> None:
    await visit.shows("", "There are no Frameworks.")
    await frameworks.create("f", role("a", 2, simulate={"exit-code": 7, "run-seconds": 1}), role("b", 1))
    await frameworks.until("f", lambda status: states(status)[:2] == ["Completed"] * 2)
    uid = (await frameworks.get("f"))["metadata"]["uid"]
    await visit.shows("", ">f<", "AttemptRunning")
    here = f"frameworks/{frameworks.namespace}/f"
    page = await visit.shows(here, "7 ContainerUnrecognizedFailed", "kubectl framework status f --watch -n")
    assert uid in page
    task = await visit.shows(f"{here}/{uid}/tasks/a/0", "7 ContainerUnrecognizedFailed")
    assert f'{frameworks.namespace}/f/{uid}/tasks/a/1"' in task
    waiting = await visit.shows(f"{here}/{uid}/tasks/b/0", "f-b-0")
    assert "kubectl framework logs f b/0" in waiting
    await visit.get(f"{here}/{uid}", 200)
    for missing in (
        f"{here}/{uid}/tasks/a/2",
        f"{here}/{uid}/tasks/c/0",
        f"{here}/{uid}/tasks/a/x",
        f"{here}/other",
        f"{here}?attempt=3",
    ):
        await visit.get(missing, 404)
    await frameworks.delete("f")
    await frameworks.until_gone("f")
    await visit.shows("", "There are no Frameworks.")
    await visit.get(here, 404)


@pytest.mark.virtual_clock
async def test_a_change_is_an_event_and_a_quiet_stream_a_heartbeat(client: KubeClient, frameworks: Frameworks) -> None:
    async with pages(client, frameworks.namespace, heartbeat=0.2) as visit:
        await visit.shows("", "There are no Frameworks.")
        async with visit.events("") as all_of_them:
            seen = (await all_of_them.changed())["id"]
            assert await all_of_them.next() == ({}, ": heartbeat")
            uid = (await frameworks.create("f", role()))["metadata"]["uid"]
            event = await all_of_them.changed()
            assert orjson.loads(event["data"]) == {"changed": [uid]}
            assert event["id"] != seen
            one = f"namespace={frameworks.namespace}&uid={uid}"
            async with visit.events(one) as stream:
                known = (await stream.changed())["id"]
                await frameworks.create("g", role())
                await all_of_them.changed()
                # Not of this page.
                assert await stream.next() == ({}, ": heartbeat")
                await frameworks.set("f", retryPolicy={"maxRetryCount": 3})
                assert (await stream.changed())["id"] != known
        async with visit.events(one, **{"Last-Event-ID": known}) as again:
            # All missed changes make one event; a seen change makes none.
            latest = (await again.changed())["id"]
        async with visit.events(f"{one}&seen={latest}") as again:
            assert await again.next() == ({}, ": heartbeat")


@pytest.mark.virtual_clock
async def test_changes_elsewhere_delay_no_heartbeat(client: KubeClient, frameworks: Frameworks) -> None:
    async with pages(client, frameworks.namespace, heartbeat=1.0) as visit:
        uid = (await frameworks.create("f", role()))["metadata"]["uid"]
        await visit.shows("", ">f<")

        async def change_others() -> None:
            for number in range(10_000):
                await frameworks.create(f"other{number}", role())
                await asyncio.sleep(0.1)

        others = asyncio.create_task(change_others())
        try:
            async with visit.events(f"namespace={frameworks.namespace}&uid={uid}") as stream:
                await stream.changed()
                async with asyncio.timeout(60):
                    assert await stream.next() == ({}, ": heartbeat")
        finally:
            others.cancel()
            await asyncio.wait([others])


@pytest.mark.virtual_clock
async def test_a_revoked_token_ends_its_stream(client: KubeClient, frameworks: Frameworks) -> None:
    """It contains no second response, which a proxy would pass on as an answer to another viewer."""
    async with pages(client, frameworks.namespace, heartbeat=0.05) as visit:
        port = int(visit.url.rstrip("/").rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /events HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer all+revoked\r\n\r\n")
        received = await reader.readuntil(b": heartbeat")
        REVOKED.add("all+revoked")
        try:
            received += await reader.readuntil(b"\r\n0\r\n\r\n")
            writer.write(b"GET /events HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer all+revoked\r\n\r\n")
            assert b" 401 " in await reader.readline()
        finally:
            REVOKED.clear()
            writer.close()
    assert received.count(b"HTTP/1.1 ") == 1


async def test_the_pages_are_ready_once_frameworks_are_listed(cluster: Cluster, door: FrontDoor) -> None:
    async with KubeClient(door.connection) as client:
        with door.answering(lambda _request: web.Response(status=503, text="away")):
            async with pages(client, cluster.namespace) as visit:
                assert await visit.get("healthz") == "ok\n"
                assert await visit.get("readyz", 503) == "[-]frameworks not listed yet\nfailed\n"
        async with pages(client, cluster.namespace) as visit:
            await visit.shows("readyz", "[+]frameworks ok")


async def test_one_viewer_cannot_take_all_streams(client: KubeClient, frameworks: Frameworks) -> None:
    async with pages(client, frameworks.namespace) as visit, AsyncExitStack() as opened:
        await visit.shows("", "There are no Frameworks.")
        greedy = Visit(visit.session, visit.url, f"{frameworks.namespace}+greedy")
        await asyncio.gather(
            *(opened.enter_async_context(greedy.events("")) for _ in range(MAX_STREAMS_OF_ONE)),
        )
        assert "too many pages are open" in await greedy.get("events", 503)
        async with visit.events("") as stream:
            await stream.changed()


@pytest.mark.parametrize("path", ["frameworks/default/a%2Fb%2F..%2Fc", "frameworks/a%2Fb/c", "nosuch%2F%2F", "a/b/c/d"])
async def test_links_of_any_path_stay_below_the_prefix(visit: Visit, path: str) -> None:
    await visit.shows("", "There are no Frameworks.")
    page = await visit.get(path, 404)
    root = "../" * path.count("/") or "./"
    assert f'href="{root}static/pages.css"' in page


@pytest.mark.virtual_clock
async def test_a_storm_is_a_few_events(client: KubeClient, frameworks: Frameworks) -> None:
    async with pages(client, frameworks.namespace) as visit:
        await visit.shows("", "There are no Frameworks.")
        async with visit.events("") as stream:
            await stream.changed()
            for number in range(150):
                await frameworks.create(f"f{number}", role())
            await read_until(lambda: visit.get("?sort=name&order=desc&q=f149"), lambda found: ">f149<" in found)
            events = 0

            async def take() -> None:
                nonlocal events
                data = orjson.loads((await stream.changed())["data"])
                assert len(data["changed"]) <= 100
                events += 1

            # However late a busy machine sends it.
            await take()
            try:
                async with asyncio.timeout(2):
                    while True:
                        await take()
            except TimeoutError:
                pass
            assert events < 150


async def test_a_forbidden_namespace_does_not_exist(client: KubeClient, frameworks: Frameworks) -> None:
    hidden = f"{frameworks.namespace}-hidden"
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": hidden}}
    await client.create(NAMESPACES, orjson.dumps(manifest))
    others = Frameworks(client, hidden)
    uid = (await others.create("secret", role("r")))["metadata"]["uid"]
    await frameworks.create("open", role())
    try:
        async with pages(client, None, heartbeat=0.2) as visit:
            await visit.shows("?q=secret", ">secret<")
            viewer = Visit(visit.session, visit.url, frameworks.namespace)
            page = await viewer.shows("", ">open<")
            for path in ("", "?q=secret", f"?namespace={hidden}", "?sort=name&order=desc", "failures"):
                text = await viewer.get(path)
                assert "secret" not in text.replace('value="secret"', "")
                assert hidden not in text.replace(f"namespace={hidden}", "")
            for path in (
                f"{hidden}/secret",
                f"{hidden}/secret/{uid}",
                f"{hidden}/secret/{uid}/tasks/r/0",
                f"{frameworks.namespace}/secret/{uid}",
            ):
                forbidden = await viewer.get(f"frameworks/{path}", 404)
                unknown = await viewer.get(f"frameworks/{path.replace('secret', 'nosuch')}", 404)
                assert _same(forbidden, unknown)
            for query in (f"namespace={hidden}", f"namespace={hidden}&uid={uid}", f"uid={uid}"):
                await viewer.get(f"events?{query}", 404)
            marks = []
            for other in (uid, "nosuch"):
                async with viewer.events(f"namespace={frameworks.namespace}&uid={other}") as stream:
                    marks.append((await stream.changed())["id"])
            assert marks[0] == marks[1]
            assert "data-events" in page
            async with viewer.events("") as stream:
                first = await stream.changed()
                assert orjson.loads(first["data"]) == {"changed": []}
                await others.set("secret", retryPolicy={"maxRetryCount": 3})
                await visit.shows(f"frameworks/{hidden}/secret", "maxRetryCount: 3")
                # Not even that there was a change.
                assert await stream.next() == ({}, ": heartbeat")
                await frameworks.set("open", retryPolicy={"maxRetryCount": 3})
                event = await stream.changed()
                assert orjson.loads(event["data"]) == {"changed": [(await frameworks.get("open"))["metadata"]["uid"]]}
    finally:
        await client.delete(NAMESPACES, hidden)


def _same(one: str, other: str) -> bool:
    """Whether two pages are equal except for their time."""

    def without_time(text: str) -> list[str]:
        return [line for line in text.splitlines() if "data-now" not in line and "datetime" not in line]

    return without_time(one) == without_time(other)


async def test_every_answer_has_the_headers(frameworks: Frameworks, visit: Visit) -> None:
    uid = (await frameworks.create("f", role()))["metadata"]["uid"]
    here = f"frameworks/{frameworks.namespace}/f"
    await visit.shows(here, uid)
    found = {"": 200, here: 200, "failures": 200, "nosuch": 404, "static/pages.css": 200, "static/..%2fviews.py": 404}
    for path, code in {**found, "events": 200, "healthz": 200}.items():
        async with visit.session.get(visit.url + path, headers=visit.headers) as answer:
            assert answer.status == code, path
            for name, value in SECURITY_HEADERS.items():
                assert answer.headers[name] == value, path
            assert answer.headers["Cache-Control"] == ("no-cache" if "pages.css" in path else "no-store")
    async with visit.session.get(visit.url, headers={}) as answer:
        assert answer.status == 401
        assert "f" not in (await answer.text()).split()


@pytest.mark.virtual_clock
async def test_pages_say_since_when_they_are_stale(cluster: Cluster, door: FrontDoor) -> None:
    async with KubeClient(door.connection) as client:
        frameworks = Frameworks(await cluster.client(), cluster.namespace)
        with door.answering(lambda _request: web.Response(status=503, text="away")):
            async with pages(client, cluster.namespace) as visit:
                page = await visit.shows("", "have not been listed yet")
                assert "There are no Frameworks" not in page
                await visit.get(f"frameworks/{cluster.namespace}/f", 503)
        async with pages(client, cluster.namespace) as visit:
            uid = (await frameworks.create("f", role()))["metadata"]["uid"]
            here = f"frameworks/{cluster.namespace}/f"
            await visit.shows(here, uid)
            assert "Not current" not in await visit.shows("", ">f<")
            async with visit.events("") as stream:
                await stream.changed()
                with door.answering(lambda _request: web.Response(status=503, text="away")):
                    await eventually(lambda: _is_stale(visit), within=600)
                    await stream.changed()
                    # The last known state is still shown.
                    assert uid in await visit.get(here)
                await visit.shows("", ">f<")


async def _is_stale(visit: Visit) -> None:
    assert "Not current for" in await visit.get("")


# --- past ones ---


def record(trigger: Trigger, uid: str, body: samples.Json, attempt: int = 0) -> bytes:
    """The record of a Framework."""
    metadata = body["metadata"]
    return encode_record(
        HistoryRecord(
            id=RecordId(framework_uid=uid, attempt=attempt),
            trigger=trigger,
            time="2026-11-20T00:00:00.000000Z",
            cluster="",
            namespace=metadata["namespace"],
            name=metadata["name"],
            generation=1,
            object={**body, "metadata": {**metadata, "uid": uid}},
        )
    )


@pytest.fixture
async def archive(tmp_path: Path) -> AsyncIterator[HistoryArchive]:
    loop = asyncio.get_running_loop()
    # The database works in a thread of its own.
    with loop.outside() if isinstance(loop, VirtualClockLoop) else nullcontext():
        async with await HistoryArchive.open(f"sqlite:///{tmp_path}/history.db") as archive:
            yield archive


async def test_past_frameworks_follow_live_ones(
    client: KubeClient, frameworks: Frameworks, archive: HistoryArchive
) -> None:
    namespace = frameworks.namespace
    live_uid = (await frameworks.create("mnist", role()))["metadata"]["uid"]
    ended = {"worker": [samples.task(0, State.COMPLETED, samples.NO_DATA)]}
    retried = samples.framework("mnist", ended, State.ATTEMPT_COMPLETED, namespace=namespace, end=samples.TRANSIENT)
    bad = samples.framework("mnist", ended, State.COMPLETED, namespace=namespace, end=samples.NO_DATA, retries=1)
    hidden = samples.framework("topsecret", ended, State.COMPLETED, namespace="elsewhere", end=samples.NO_DATA)
    lines = [
        record(Trigger.FRAMEWORK_RETRY, "past", retried),
        record(Trigger.FRAMEWORK_DELETION, "past", bad, 1),
        record(Trigger.FRAMEWORK_COMPLETION, "hidden", hidden),
        # An earlier attempt of one that exists: it is no past one.
        record(Trigger.FRAMEWORK_RETRY, live_uid, retried),
    ]
    await archive.store(lines)
    async with pages(client, namespace, archive) as visit:
        viewer = Visit(visit.session, visit.url, namespace)
        page = await viewer.shows("", f'id="f-{live_uid}"', 'id="f-past"')
        assert page.count(f'id="f-{live_uid}"') == 1
        assert "topsecret" not in page
        here = f"frameworks/{namespace}/mnist"
        # The live one has the name; the past one is found by its UID, and linked.
        assert f"{here}/past" in await viewer.shows(here, live_uid)
        past = await viewer.get(f"{here}/past")
        assert "from the archive" in past
        assert "FileNotFoundError" in past
        assert "200 ContainerTransientFailed" in await viewer.get(f"{here}/past?attempt=0")
        assert "7 ContainerUnrecognizedFailed" in await viewer.get(f"{here}/past/tasks/worker/0")
        await viewer.get(f"{here}/past?attempt=2", 404)
        await viewer.get("frameworks/elsewhere/topsecret/hidden", 404)
        await viewer.get(f"frameworks/{namespace}/topsecret/hidden", 404)
        failures = await viewer.get("failures?since=")
        assert "ContainerUnrecognizedFailed" in failures
        assert "elsewhere" not in failures
        for wrong in ("?after=nonsense", "failures?by=code&key=none", "failures?by=day&key=today"):
            assert "Cannot understand this link" in await viewer.get(wrong, 400)
        await frameworks.delete("mnist")
        await frameworks.until_gone("mnist")
        await read_until(lambda: viewer.get(here), lambda found: "from the archive" in found)


async def test_a_past_framework_with_only_archived_tasks_runs(
    client: KubeClient, frameworks: Frameworks, archive: HistoryArchive
) -> None:
    """Also one attempt of a Framework: each link that the pages have leads somewhere."""
    where = f"{frameworks.namespace}/train"
    await archive.store(
        [
            task_record("only-tasks", 3, where=where, code=77, attempt=1),
            framework_record("lacks-one", where=f"{frameworks.namespace}/serve", attempt=2, code=7),
            task_record("lacks-one", 3, where=f"{frameworks.namespace}/serve", code=77, attempt=1),
        ]
    )
    async with pages(client, frameworks.namespace, archive) as visit:
        page = await visit.get("?which=past")
        row = page[page.index('id="f-only-tasks"') :].partition("</tr>")[0]
        assert 'class="phase running"' in row
        assert "failed" not in row
        for path in (
            f"frameworks/{where}",
            f"frameworks/{where}/only-tasks",
            f"frameworks/{where}/only-tasks?attempt=1",
            f"frameworks/{frameworks.namespace}/serve/lacks-one?attempt=1",
        ):
            found = await visit.get(path)
            assert "only attempts of its Tasks are archived yet" in found, path
            assert "77 Phrase77" in found, path
            assert "worker[3]" in found, path
            assert "Cannot be read" not in found, path
        assert "77 Phrase77" in await visit.get(f"frameworks/{where}/only-tasks/tasks/worker/3")
        await visit.get(f"frameworks/{where}/only-tasks?attempt=0", 404)


def _ended_with_a_log(namespace: str) -> list[bytes]:
    """A Framework whose Task 1 failed and ended it, and logs of its Tasks."""
    where = f"{namespace}/train"
    tasks = [task_status(0, code=-220), task_status(1, code=7, completed=20)]
    said = b"".join(b"line %d\n" % n for n in range(30))
    hostile = b"\x1b[2J<script>alert(1)</script>\xff & \x00\"'\tend\n"
    return [
        framework_record("u", where=where, code=7, roles={"worker": tasks}, cause=("worker", 1)),
        log_record("u", 0, b"of another\n", where=where),
        log_record("u", 1, said + hostile, where=where),
        log_record("u", 1, b"sidecar\n", container="proxy", run=1, where=where),
        log_record("u", 1, b"", container="init", where=where, why="the node is <gone>"),
    ]


async def test_the_last_lines_of_the_failing_task_are_on_the_first_page(
    client: KubeClient, frameworks: Frameworks, archive: HistoryArchive
) -> None:
    namespace = frameworks.namespace
    await archive.store(_ended_with_a_log(namespace))
    here = f"frameworks/{namespace}/train/u"
    async with pages(client, namespace, archive) as visit:
        page = await visit.get(here)
        part = page[page.index('id="last-words"') :].partition("</section>")[0]
        assert "worker[1]" in part
        assert "line 11\n" in part
        assert "line 10\n" not in part
        assert "&lt;script&gt;alert(1)&lt;/script&gt;\ufffd &amp; " in part
        for text in (page, await visit.get(f"{here}/tasks/worker/1")):
            assert "<script>alert" not in text
            assert "\x1b" not in text
            assert "\x00" not in text
        assert page.count("of another") == 0
        # The text of its bar in the picture.
        assert "then 7 Phrase7:" in page
        task = await visit.get(f"{here}/tasks/worker/1")
        assert "its log is not in the archive: the node is &lt;gone&gt;" in task
        (whole, proxy) = (
            re.findall(rf'href="[./]*({here}/logs/\d+)"><bdi>{name}', task)[0] for name in ("main", "proxy")
        )
        log = await visit.get(whole)
        assert "line 0\n" in log
        assert "<script>alert" not in log
        assert "proxy (restart 1)" in log
        assert "sidecar" in await visit.get(proxy)
        async with visit.session.get(f"{visit.url}{whole}/text", headers=visit.headers) as answer:
            assert (await answer.read()).endswith(b"\xff & \x00\"'\tend\n")
            assert answer.headers["Content-Disposition"] == 'attachment; filename="train-worker-1-main-0.log"'
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
        await visit.get(f"{here}/logs/999", 404)
        await visit.get(f"frameworks/{namespace}/other/u/logs/1", 404)


async def test_pages_show_no_logs_to_those_who_may_not_get_them(
    client: KubeClient, frameworks: Frameworks, archive: HistoryArchive
) -> None:
    namespace = frameworks.namespace
    await archive.store(_ended_with_a_log(namespace))
    here = f"frameworks/{namespace}/train/u"
    async with pages(client, namespace, archive) as visit:
        number = re.findall(r"/logs/(\d+)", await visit.get(here))[0]
        viewer = Visit(visit.session, visit.url, f"{namespace}+nologs")
        page = await viewer.get(here)
        assert f"Logs are not shown: logs need the permission to get pods/log in namespace {namespace}." in page
        task = await viewer.get(f"{here}/tasks/worker/1")
        assert "Logs are not shown" in task
        for text in (page, task):
            assert "script" not in text.partition("last-words")[2].partition("</section>")[0]
            assert "line 29" not in text
        await viewer.get(f"{here}/logs/{number}", 403)
        await viewer.get(f"{here}/logs/{number}/text", 403)


async def test_a_long_log_is_shown_in_part(client: KubeClient, frameworks: Frameworks, archive: HistoryArchive) -> None:
    where = f"{frameworks.namespace}/train"
    lines = b"".join(b"n%d\n" % n for n in range(5000))
    one = b"y" * 2**20
    await archive.store([log_record("u", 0, lines, where=where), log_record("u", 1, one, where=where)])
    async with pages(client, frameworks.namespace, archive) as visit:
        here = f"frameworks/{where}/u/logs/1"
        page = await visit.get(here)
        assert "n3000\n" in page
        assert "n2999\n" not in page
        assert "n0\n" in await visit.get(f"{here}?lines=all")
        assert "yyy" in await visit.get(f"frameworks/{where}/u/logs/2")


async def test_past_frameworks_are_found_by_the_text_of_their_rows(
    client: KubeClient, frameworks: Frameworks, archive: HistoryArchive
) -> None:
    namespace = frameworks.namespace
    ends = {"good": 0, "bad": 7, "halted": -210}
    await archive.store(
        [framework_record(f"u-{name}", where=f"{namespace}/{name}", code=code) for name, code in ends.items()]
    )

    async with pages(client, namespace, archive) as visit:

        async def found(query: str) -> set[str]:
            page = await visit.get(f"?which=past&{query}")
            return {name for name in ends if f'id="f-u-{name}"' in page}

        assert await found("") == set(ends)
        assert await found("phase=failed") == {"bad"}
        assert await found("phase=stopped") == {"halted"}
        assert await found("phase=stalled") == set()
        assert await found(f"q={namespace}") == set(ends)
        assert await found("q=Phrase7") == {"bad"}
        assert await found("q=-210") == {"halted"}
        assert await found("q=BAD+ended+with") == {"bad"}
        assert await found("q=u-good") == {"good"}
        assert await found(f"q=phrase&phase=succeeded&namespace={namespace}") == {"good"}
        assert "ended with 7" in await visit.get("?which=past")


async def test_without_the_archive_live_ones_are_shown(client: KubeClient, frameworks: Frameworks) -> None:
    uid = (await frameworks.create("f", role()))["metadata"]["uid"]
    async with (
        ArchiveClient("http://127.0.0.1:1") as away,
        pages(client, frameworks.namespace, away) as visit,
    ):
        await visit.shows("", ">f<", "Past Frameworks are missing")
        here = f"frameworks/{frameworks.namespace}"
        assert "archive cannot be read" in await visit.get(f"{here}/f")
        await visit.get(f"{here}/f/{uid}")
        # It may be in the archive.
        await visit.get(f"{here}/gone", 503)
        await visit.get("failures", 503)


@pytest.mark.parametrize(
    "garbage", ["{}", '{"items": [{"uid": 5}], "next": null}', '{"items": 5, "attempts": {}}', None]
)
async def test_a_broken_or_silent_archive_hides_no_live_framework(
    client: KubeClient, frameworks: Frameworks, garbage: str | None
) -> None:
    uid = (await frameworks.create("f", role("r")))["metadata"]["uid"]
    ended = asyncio.Event()

    async def answer(_request: web.Request) -> web.Response:
        if garbage is None:
            await ended.wait()
        return web.Response(text=garbage or "{}", content_type="application/json")

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with (
        BoundedServer(app, "127.0.0.1", 0) as server,
        ArchiveClient(server.url) as archive,
        pages(client, frameworks.namespace, archive, archive_sec=0.2) as visit,
    ):
        try:
            await visit.shows("", ">f<", "no answer within" if garbage is None else "unexpected response")
            here = f"frameworks/{frameworks.namespace}"
            for path in (f"{here}/f", f"{here}/f/{uid}"):
                assert "the archive cannot be read" in await visit.get(path)
            await visit.get(f"{here}/gone", 503)
            if garbage is not None:
                await visit.get("failures", 503)
        finally:
            ended.set()
