"""``kubectl framework logs`` of Pods that are gone: from an archive's server, and from a folder of records."""

from __future__ import annotations

import io
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.commands import mergedlogs
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.commands.logprinter import LinePrinter, for_terminal
from frameworkcontroller.commands.output import console
from frameworkcontroller.commands.parsers import build_plugin_parser
from frameworkcontroller.commands.program import CommandError
from frameworkcontroller.history.archive import HistoryArchive
from frameworkcontroller.history.archiveaccess import URL_VARIABLE
from frameworkcontroller.history.archiveapi import application
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from frameworkcontroller.views.loglines import Line, Source
from frameworkcontroller.webaccess.boundedserver import BoundedServer
from frameworkcontroller.webaccess.viewers import SimpleViewer, Viewer, WebAccess
from tests.support.access import Everyone
from tests.support.archives import framework_record, log_record
from tests.support.cli import Cli, Ended
from tests.support.clusters import Cluster
from tests.support.frameworks import Frameworks, Json, policy, role, states

pytestmark = pytest.mark.newest

FAILS = {"run-seconds": 0.2, "exit-code": 3}


@dataclass(frozen=True)
class Past:
    """A Framework ``train`` that has completed in its second attempt."""

    cli: Cli
    folder: Path
    body: Json

    def keep(self, *records: bytes) -> None:
        """Add records to the folder."""
        with (self.folder / "2026-01-01.ndjson").open("ab") as file:
            file.writelines(record + b"\n" for record in records)

    def log(self, index: int, data: bytes, **more: Any) -> bytes:
        metadata = self.body["metadata"]
        where = f"{metadata['namespace']}/{metadata['name']}"
        return log_record(metadata["uid"], index, data, role="a", where=where, **more)


@pytest.fixture
async def past(cluster: Cluster, pods: SimulatedRuntime, controller: Controller, tmp_path: Path) -> Past:
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    fails = role(number=2, simulate=FAILS, frameworkAttemptCompletionPolicy=policy(1))
    await frameworks.create("train", fails, retryPolicy={"maxRetryCount": 1})
    await frameworks.until_state("train", "Completed")
    client = await cluster.client()
    body: Json = orjson.loads(await client.get(FRAMEWORKS, "train", cluster.namespace))
    return Past(Cli(cluster, client), tmp_path, body)


@pytest.mark.virtual_clock
async def test_the_logs_of_the_last_attempt_are_printed_after_the_end(past: Past) -> None:
    past.keep(
        past.log(0, b"first\n"),
        past.log(0, b"one\ntwo", attempt=1),
        past.log(0, b"not shown\n", attempt=1, container="sidecar"),
        past.log(1, b"three\n", attempt=1, cut_start=True, why="only the last 64 KiB are kept"),
    )
    folder = ["--dir", str(past.folder)]
    for arguments in ([], ["-f"], ["--attempt", "1"]):
        ended = await past.cli("logs", "train", *arguments, *folder)
        assert (ended.code, ended.lines) == (0, ["a[0] | one", "a[0] | two", "a[1] | three"]), (arguments, ended)
        assert ended.err.splitlines() == [
            "logs of attempt 1 from the archive: the Pods are gone",
            "a[1] main: its beginning is not in the archive: only the last 64 KiB are kept",
        ]
    assert (await past.cli("logs", "train", "a/0", *folder)).lines == ["one", "two"]
    assert (await past.cli("logs", "train", "--task", "a/0", "--tail", "1", *folder)).lines == ["two"]
    assert (await past.cli("logs", "train", "--attempt", "0", *folder)).lines == ["a[0] | first"]
    every = await past.cli("logs", "train", "--all-attempts", "--all-containers", *folder)
    assert [line.replace(" ", "") for line in every.lines] == [
        "0:a[0]/main|first",
        "1:a[0]/main|one",
        "1:a[0]/main|two",
        "1:a[0]/sidecar|notshown",
        "1:a[1]/main|three",
    ]


@pytest.mark.virtual_clock
async def test_the_newest_attempt_and_run_of_a_task(past: Past) -> None:
    past.keep(
        past.log(0, b"old\n", attempt=1),
        past.log(0, b"before\n", attempt=1, number=1, time=1),
        past.log(0, b"after\n", attempt=1, number=1, run=1, time=1),
    )
    folder = ["--dir", str(past.folder)]
    assert (await past.cli("logs", "train", *folder)).lines == ["a[0]#1 | after"]
    assert (await past.cli("logs", "train", "-p", *folder)).lines == ["a[0]#1 | before"]
    every = await past.cli("logs", "train", "--all-attempts", *folder)
    assert [line.split("| ")[1] for line in every.lines] == ["old", "before", "after"]


@pytest.mark.virtual_clock
async def test_a_deleted_framework_has_its_logs_in_the_archive(past: Past, cluster: Cluster) -> None:
    where = f"{cluster.namespace}/gone"
    past.keep(framework_record("g", where=where), log_record("g", 0, b"said\n", where=where))
    assert (await past.cli("logs", "gone", "--dir", str(past.folder))).lines == ["worker[0] | said"]


@pytest.mark.virtual_clock
@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["train", "a/1"], 1, "a[1] main: its log is not in the archive: the node is gone"),
        (["train", "a/0"], 1, "train a[0]: neither a Pod nor the archive has a log of attempt 1; the archive has some "
         "of attempt 0 (--attempt N, --all-attempts)"),
        (["train", "a/1", "-c", "x"], 1, "train a[1]: neither a Pod nor the archive has a log of attempt 1 of "
         "container 'x'; the archive has some of container main (-c NAME, --all-containers)"),
        (["train", "a/7"], 1, "train: has no Task a[7]: role a has 2 Tasks"),
        (["train", "c"], 1, "train: has no role 'c', only a"),
        (["none"], 1, 'neither the cluster nor the archive has a Framework "none" in namespace "'),
        (["train", "--uid", "x"], 1, 'the archive has a Framework "train" with UID x in namespace "'),
        (["train", "-f", "--all-attempts"], 2, "-f: follows the current and later attempts"),
        (["train", "a/1", "--task", "a/1"], 2, "--task: is already named by ROLE/INDEX"),
    ],
)  # fmt: skip
async def test_missing_logs_have_a_reason(past: Past, arguments: list[str], code: int, text: str) -> None:
    past.keep(past.log(0, b"first\n"), past.log(1, b"", attempt=1, cut_end=True, why="the node is gone"))
    ended = await past.cli("logs", *arguments, "--dir", str(past.folder))
    assert (ended.code, text in ended.err) == (code, True), ended
    assert ended.out == ""


@pytest.mark.virtual_clock
async def test_logs_that_were_not_kept_have_a_reason(past: Past) -> None:
    past.keep(framework_record(past.body["metadata"]["uid"], where=f"{past.body['metadata']['namespace']}/train"))
    ended = await past.cli("logs", "train", "--dir", str(past.folder))
    assert (ended.code, ended.err) == (
        1,
        "train: neither a Pod nor the archive has a log of attempt 1; the controller keeps logs by history.logs.keep "
        "(None, Failed or All)",
    )


@pytest.mark.virtual_clock
async def test_a_live_framework_without_logs_is_not_blamed_on_the_archive(cluster: Cluster, past: Past) -> None:
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    waits = role("a", 2)
    waits["task"]["pod"]["spec"]["schedulerName"] = "hived"
    await frameworks.create("waits", waits)
    await frameworks.until("waits", lambda status: states(status) == ["AttemptPreparing"] * 2)
    for arguments, text in (
        ([], "waits: no container has started in its 2 Pods"),
        (["c"], "waits: has no role 'c', only a"),
        (["a/2"], "waits: has no Task a[2]: role a has 2 Tasks"),
    ):
        ended = await past.cli("logs", "waits", *arguments, "--dir", str(past.folder))
        assert (ended.code, ended.out, ended.err) == (1, "", text)


@pytest.mark.virtual_clock
async def test_without_an_archive_the_command_says_where_logs_may_be(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    ended = await past.cli("logs", "train")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.endswith(
        "An archive may have them: --archive URL, $FRAMEWORK_HISTORY_URL, the kubeconfig, or --dir PATH"
    )
    ended = await past.cli("logs", "train", "--attempt", "0")
    assert "is in attempt 1; an archive may have the logs of attempt 0: --archive URL" in ended.err


class FrameworksOnly(Everyone):
    """Admits everyone to Frameworks, and no one to logs."""

    async def identify(self, request: web.BaseRequest, token: str | None) -> Viewer:
        return _NoLogs("someone", reads=True)


class _NoLogs(SimpleViewer):
    async def may_read_logs(self, namespace: str) -> bool:
        del namespace
        return False


@asynccontextmanager
async def serving(folder: Path, access: WebAccess) -> AsyncIterator[str]:
    """The URL of an archive with the records of the folder."""
    async with await HistoryArchive.open(f"sqlite:///{folder}/archive.db") as archive:
        for path in folder.glob("*.ndjson"):
            await archive.store(path.read_bytes().splitlines())
        async with BoundedServer(application(archive, access), "127.0.0.1", 0) as server:
            yield server.url


async def offline(*arguments: str) -> Ended:
    """Run the command where there is no cluster."""
    options = build_plugin_parser().parse_args(["logs", *arguments])
    options.live = False
    out, err = io.StringIO(), io.StringIO()
    async with KubeClient(Connection.to_address("http://127.0.0.1:1")) as nowhere:
        invocation = Invocation(nowhere, "default", console(out), console(err))
        try:
            code = await mergedlogs.run(invocation, options)
        except CommandError as error:
            return Ended(error.code, out.getvalue(), err.getvalue() + str(error))
    return Ended(code, out.getvalue(), err.getvalue())


async def test_a_server_and_a_folder_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [
        framework_record("u", attempt=0, code=7, state="AttemptCompleted", trigger="OnFrameworkRetry"),
        framework_record("u", attempt=1, code=0),
        *(log_record("u", 0, b"one\ntwo\n" * 1000, attempt=attempt) for attempt in (0, 1)),
    ]
    (tmp_path / "2026-01-01.ndjson").write_bytes(b"".join(one + b"\n" for one in records))
    async with serving(tmp_path, Everyone()) as url:
        monkeypatch.setenv(URL_VARIABLE, url)
        for arguments in (["train"], ["train", "--all-attempts", "--tail", "3"], ["train", "worker/0", "--tail", "0"]):
            ended = await offline(*arguments)
            assert ended.code == 0, ended
            assert ended == await offline(*arguments, "--dir", str(tmp_path))
        assert len((await offline("train", "--all-attempts", "--tail", "3")).lines) == 6


async def test_logs_need_a_permission_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "2026-01-01.ndjson").write_bytes(log_record("u", 0, b"secret\n") + b"\n")
    async with serving(tmp_path, FrameworksOnly()) as url:
        ended = await offline("train", "--archive", url)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "logs need the permission to get pods/log in namespace default"


@pytest.mark.virtual_clock
async def test_live_pods_come_first(cluster: Cluster, past: Past) -> None:
    """Tasks whose Pods run are read from them, the others from the archive, and its faults do not matter."""
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    created = await frameworks.create("live", role("a", 2, simulate={"run-seconds": 10**8}))
    await frameworks.until_running("live", 2)
    uid = created["metadata"]["uid"]
    where = f"{cluster.namespace}/live"
    past.keep(*(log_record(uid, index, b"archived\n", role="a", where=where) for index in (0, 7)))
    ended = await past.cli("logs", "live", "--dir", str(past.folder))
    text = "container main is simulated and prints nothing"
    assert ended.lines == ["a[7] | archived", f"a[0] | {text}", f"a[1] | {text}"]
    assert ended.err == "1 log of attempt 0 from the archive: the Pods are gone\n"
    ended = await past.cli("logs", "live", "--archive", "http://127.0.0.1:1")
    assert (ended.code, ended.lines) == (0, [f"a[0] | {text}", f"a[1] | {text}"])
    assert "cannot connect" in ended.err


@pytest.mark.virtual_clock
async def test_following_ends_with_logs_of_pods_that_were_gone_too_soon(cluster: Cluster, past: Past) -> None:
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    created = await frameworks.create("quick", role("a", 1, simulate={"run-seconds": 5}))
    await frameworks.until_running("quick", 1)
    where = f"{cluster.namespace}/quick"
    past.keep(log_record(created["metadata"]["uid"], 3, b"gone\n", role="a", where=where))
    ended = await past.cli("logs", "quick", "-f", "--dir", str(past.folder))
    assert ended.lines == ["a[0] | container main is simulated and prints nothing", "a[3] | gone"]
    assert ended.err == "1 log from the archive: the Pods were gone too soon\n"


@pytest.mark.virtual_clock
async def test_history_shows_where_logs_are(past: Past) -> None:
    past.keep(past.log(0, b"x\n"), past.log(0, b"y\n", container="sidecar"))
    lines = (await past.cli("history", "train", "--dir", str(past.folder))).lines
    place = lines[0].index("LOGS")
    assert [line[place:].split()[0] for line in lines] == ["LOGS", "2", "-"]


HOSTILE = b"\x1b[31mred\x1b[0m\x1b[2J\x1b]0;owned\x07\ta\xff\r\xe2\x80\xae\x9b2J"


@pytest.mark.parametrize("long", [False, True])
def test_controls_are_neutralised_in_terminals(*, long: bool) -> None:
    text = (HOSTILE * (1 if not long else 30_000)).decode(errors="replace")
    shown = for_terminal(text)
    assert "\x1b[31mred\x1b[0m" in shown
    assert "\ta" in shown
    rest = shown.replace("\x1b[31m", "").replace("\x1b[0m", "").replace("\t", "")
    assert rest.isprintable()
    assert for_terminal("plain") == "plain"


@pytest.mark.parametrize(("terminal", "raw"), [(True, False), (True, True), (False, False)])
def test_pipes_get_the_bytes_that_the_container_wrote(*, terminal: bool, raw: bool) -> None:
    written = io.BytesIO()
    file = io.TextIOWrapper(written, encoding="utf-8")
    out = console(file)
    out._force_terminal = terminal
    printer = LinePrinter(out, label=True, attempt=False, container=False, raw=raw)
    printer.print(Line(Source("a", 0, 0, "d", "p", "u", "main", 0), "", HOSTILE))
    plain = HOSTILE + b"\n" in written.getvalue()
    assert plain == (raw or not terminal)
    assert sys.stdout is not file
