"""``kubectl framework history``: past attempts, from a folder of records and from an archive's server."""

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import orjson
import pytest

from frameworkcontroller.api.historyrecords import HistoryRecord, Trigger, encode_record, framework_attempt_id
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.commands.history import show
from frameworkcontroller.commands.parsers import build_plugin_parser
from frameworkcontroller.commands.program import CommandError, UsageError
from frameworkcontroller.history.archive import HistoryArchive
from frameworkcontroller.history.archiveaccess import TOKEN_FILE_VARIABLE, URL_VARIABLE
from frameworkcontroller.history.archiveapi import application
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from frameworkcontroller.webaccess.boundedserver import BoundedServer
from frameworkcontroller.webaccess.loopback_access import LoopbackAccess, token_in
from frameworkcontroller.webaccess.viewers import WebAccess
from tests.support.access import Everyone
from tests.support.archives import framework_record, pod_record, task_record, task_status
from tests.support.cli import Cli, run_offline
from tests.support.clusters import Cluster
from tests.support.frameworks import Frameworks, Json, policy, role
from tests.support.objects import read

offline: Final = partial(run_offline, "history")
FAILS = {"run-seconds": 0.2, "exit-code": 3, "message": "disk is full"}


def record(body: Json, *, trigger: Trigger = Trigger.FRAMEWORK_RETRY) -> bytes:
    """The record of a Framework as it is."""
    metadata = body["metadata"]
    made = HistoryRecord(
        id=framework_attempt_id(body),
        trigger=trigger,
        time="2026-01-31T12:00:00.000000Z",
        cluster="test",
        namespace=metadata["namespace"],
        name=metadata["name"],
        generation=1,
        object={"apiVersion": "frameworkcontroller.microsoft.com/v1", "kind": "Framework", **body},
    )
    return encode_record(made) + b"\n"


@pytest.fixture
async def frameworks(cluster: Cluster, pods: SimulatedRuntime, controller: Controller) -> Frameworks:
    return Frameworks(await cluster.client(), cluster.namespace)


@pytest.fixture
async def past(cluster: Cluster, frameworks: Frameworks, tmp_path: Path) -> tuple[Cli, Path]:
    """A Framework in its second attempt, a namesake that is gone, and the records of past attempts."""
    fails = role(number=2, simulate=FAILS, frameworkAttemptCompletionPolicy=policy(1))
    await frameworks.create("train", fails, retryPolicy={"maxRetryCount": 1})
    await frameworks.until_state("train", "Completed")
    client = await cluster.client()
    now = await read(client, FRAMEWORKS, "train", cluster.namespace)
    first = copy.deepcopy(now)
    first["status"]["attemptStatus"]["id"] = 0
    gone = copy.deepcopy(first)
    gone["metadata"] |= {"uid": "gone", "creationTimestamp": "2020-01-31T12:00:00Z"}
    other = copy.deepcopy(gone)
    other["metadata"] |= {"uid": "other", "name": "other", "creationTimestamp": "2019-01-31T12:00:00Z"}
    records = [record(first), record(gone, trigger=Trigger.FRAMEWORK_DELETION), record(other)]
    (tmp_path / "2026-01-31.ndjson").write_bytes(b"".join(records))
    return Cli(cluster, client), tmp_path


@asynccontextmanager
async def archive_of(folder: Path, access: WebAccess | None = None) -> AsyncIterator[str]:
    """The URL of an archive that has the records of the folder. ``access``: usually everyone's."""
    async with await HistoryArchive.open(f"sqlite:///{folder}/archive.db") as archive:
        for path in folder.glob("*.ndjson"):
            await archive.store(path.read_bytes().splitlines())
        app = application(archive, access or Everyone())
        async with BoundedServer(app, "127.0.0.1", 0) as server:
            yield server.url


async def test_both_sources_show_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roles = {"worker": [task_status(0, 1, code=7), task_status(1, code=0), task_status(2, code=9)]}
    records = [
        framework_record("u1", attempt=0, code=7, state="AttemptCompleted", trigger="OnFrameworkRetry", roles=roles),
        framework_record("u1", attempt=1, code=0, roles={"worker": [task_status(0, code=0, uid="t2")]}, time=5),
        framework_record("u0", code=7, created=-100, roles=roles),
        framework_record("u2", where="default/other", code=0),
        framework_record("u3", where="elsewhere/train", code=0),
        task_record("u1", 0, 0, code=8),
        pod_record("u1", 0, 0),
    ]
    (tmp_path / "2026-01-01.ndjson").write_bytes(b"".join(one + b"\n" for one in records))
    async with archive_of(tmp_path) as url:
        for arguments, lines in (
            ([], 4),
            (["-A"], 5),
            (["train"], 3),
            (["train", "--uid", "u1"], 3),
            (["train", "--attempt", "0"], 5),
            (["train", "--attempt", "0", "--failed"], 4),
            (["train", "--attempt", "1"], 2),
            (["train", "--task", "worker/0"], 13),
            (["train", "--task", "worker/0", "--attempt", "1"], 5),
            (["train", "--uid", "u1", "-o", "json"], None),
            (["train", "--attempt", "0", "-o", "yaml"], None),
        ):
            from_folder = await offline(*arguments, "--dir", str(tmp_path))
            assert lines is None or len(from_folder[0].splitlines()) == lines, (arguments, from_folder)
            assert await offline(*arguments, "--archive", url) == from_folder
        monkeypatch.setenv(URL_VARIABLE, url)
        assert (await offline())[0].splitlines()[-1].startswith("train ")


async def test_stopped_tasks_have_not_failed(tmp_path: Path) -> None:
    """One Task fails, the end of the attempt stops nine; a Framework with only Tasks in the archive has no result."""
    roles = {"worker": [task_status(0, code=7), *(task_status(index, code=-220) for index in range(1, 10))]}
    records = [
        framework_record("u1", code=7, roles=roles),
        task_record("u2", 0, where="default/young", code=-220, attempt=1),
    ]
    (tmp_path / "2026-01-01.ndjson").write_bytes(b"".join(one + b"\n" for one in records))
    out, _ = await offline("--dir", str(tmp_path), "-o", "json")
    items = {one["name"]: one for one in orjson.loads(out)["items"]}
    assert [items["train"][f"{name}Tasks"] for name in ("failed", "succeeded", "stopped")] == [1, 0, 9]
    assert {name: one["phase"] for name, one in items.items()} == {"train": "failed", "young": "running"}
    out, _ = await offline("train", "--attempt", "0", "--failed", "--dir", str(tmp_path))
    assert [line.split()[0] for line in out.splitlines()] == ["TASK", "worker[0]"]
    out, _ = await offline("train", "--dir", str(tmp_path))
    assert out.splitlines()[1].split()[-5:-3] == ["10", "1"], out


@pytest.mark.virtual_clock
async def test_stopped_tasks_of_the_cluster_have_not_failed(past: tuple[Cli, Path], cluster: Cluster) -> None:
    """The same of the current attempt, which is read from the cluster."""
    cli, folder = past
    client = await cluster.client()
    now = await read(client, FRAMEWORKS, "train", cluster.namespace)
    codes = [
        task["attemptStatus"]["completionStatus"]["code"]
        for role_status in now["status"]["attemptStatus"]["taskRoleStatuses"]
        for task in role_status["taskStatuses"]
    ]
    ended = await cli("history", "train", "--uid", now["metadata"]["uid"], "-o", "json", "--dir", str(folder))
    attempts = orjson.loads(ended.out)["attempts"]
    assert {one["id"]: one["failedTasks"] for one in attempts}[1] == sum(code not in (0, -220) for code in codes)


async def test_an_archive_on_loopback_gets_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "2026-01-01.ndjson").write_bytes(framework_record("u1", code=0) + b"\n")
    path = tmp_path / "history.db.token"
    async with archive_of(tmp_path, LoopbackAccess(token_in(path))) as url:
        monkeypatch.delenv(TOKEN_FILE_VARIABLE, raising=False)
        with pytest.raises(CommandError, match="this server needs its token"):
            await offline("-A", "--archive", url)
        assert len((await offline("-A", "--archive", url, "--token-file", str(path)))[0].splitlines()) == 2
        monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(path))
        assert len((await offline("-A", "--archive", url))[0].splitlines()) == 2
        path.write_text("")
        with pytest.raises(UsageError, match=r"\$FRAMEWORK_HISTORY_TOKEN_FILE .*: has no token"):
            await offline("-A", "--archive", url)


@pytest.mark.virtual_clock
async def test_the_current_attempt_is_marked(past: tuple[Cli, Path], cluster: Cluster) -> None:
    cli, folder = past
    uid = orjson.loads((folder / "2026-01-31.ndjson").read_bytes().splitlines()[0])["object"]["metadata"]["uid"]
    ended = await cli("history", "train", "--uid", uid, "--dir", str(folder))
    assert [line.split()[:3] for line in ended.lines] == [
        ["ATTEMPT", "CODE", "PHRASE"],
        ["0", "3", "ContainerUnrecognizedFailed"],
        ["1*", "3", "ContainerUnrecognizedFailed"],
    ]
    assert "* the current attempt, from the cluster" in ended.err
    ended = await cli("history", "train", "--uid", uid, "--task", "a/0", "--dir", str(folder))
    attempts = [line.split()[:2] for line in ended.lines if line[:1].isdigit()]
    assert attempts == [["0", "0"], ["1", "0*"]], ended
    assert sum("disk is full" in line for line in ended.lines) >= 1
    tasks = await cli.ok("history", "other", "--attempt", "0", "--dir", str(folder))
    assert [line.split()[0] for line in tasks] == ["TASK", "a[0]", "a[1]"]


@pytest.mark.virtual_clock
async def test_namesakes_are_listed_and_the_newest_is_first(past: tuple[Cli, Path]) -> None:
    cli, folder = past
    ended = await cli("history", "train", "--dir", str(folder))
    assert ended.err.strip() == "2 Frameworks had this name; --uid UID shows the attempts of one"
    assert [line.split()[0] for line in ended.lines] == ["NAME", "train", "train"]
    assert ended.lines[2].split()[7] == "gone"
    ended = await cli("history", "train", "--attempt", "1", "--dir", str(folder))
    assert "of 2 Frameworks of this name" in ended.err
    everything = await cli.ok("history", "-A", "--dir", str(folder))
    assert [line.split()[1] for line in everything] == ["NAME", "train", "train", "other"]
    ended = await cli("history", "--most", "1", "--dir", str(folder))
    assert ended.err.strip() == "older ones are not shown; --most N shows more than 1"
    assert len(ended.lines) == 2


@pytest.mark.virtual_clock
@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["none", "--dir", "."], 1, 'the history has no Framework "none" in namespace "'),
        (["other", "--uid", "x", "--dir", "."], 1, 'the history has no Framework "other" with UID x in namespace "'),
        (["other", "--attempt", "7", "--dir", "."], 1, "the history has no attempt 7 of other"),
        (["other", "--task", "a/9", "--dir", "."], 1, "the history has no Task a[9] of other"),
        (["other", "--task", "a", "--dir", "."], 2, "--task a: must be ROLE/INDEX, such as worker/3"),
        (["--attempt", "1", "--dir", "."], 2, "--attempt: needs the NAME of a Framework"),
        (["other", "-A", "--dir", "."], 2, "-A: is for the list"),
        (["other", "--failed", "--dir", "."], 2, "--failed: is for the Tasks of an attempt"),
        (["Other", "--dir", "."], 2, '"Other" is not the name of a Framework'),
        (["--most", "0", "--dir", "."], 2, "--most 0: must be at least 1"),
        (["--dir", "none"], 1, "none: cannot be read: No such file or directory"),
        (["--dir", ".", "--token-file", "x"], 2, "--dir: takes neither --token-file nor --ca-file"),
        ([], 2, "where is the history? name it: --archive URL, $FRAMEWORK_HISTORY_URL, the kubeconfig, or --dir PATH"),
        (["--archive", "ftp://x"], 2, '--archive: must be http://HOST:PORT or https://HOST:PORT, not "ftp://x"'),
        (["--archive", "http://u@x"], 2, "--archive: must have no user, no query and no fragment"),
        (["none", "--archive", "http://127.0.0.1:1"], 1, "http://127.0.0.1:1: cannot connect: [Errno 111]"),
        (["--archive", "https://x", "--ca-file", "none"], 2, "none: cannot be read as certificates"),
        (["--archive", "https://x", "--token-file", "none"], 2, "none: cannot be read: No such file or directory"),
    ],
)
async def test_errors_are_named(
    past: tuple[Cli, Path], monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, text: str
) -> None:
    cli, folder = past
    monkeypatch.chdir(folder)
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    ended = await cli("history", *arguments)
    assert (ended.code, text in ended.err) == (code, True), ended


def test_no_cluster_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBE_APISERVER_ADDRESS", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    options = build_plugin_parser().parse_args(["history", "--dir", str(tmp_path)])
    assert show.run_anywhere(options) == 0
    assert 'the history has no Frameworks in namespace "default"' in capsys.readouterr().err


async def test_failures_are_counted_and_each_number_leads_to_its_attempts(tmp_path: Path) -> None:
    words = '{"containers":[{"name":"main","code":7,"message":"lost rank %d"}]}'
    statuses = [task_status(index, code=7, node=f"node-{index % 2}") for index in range(3)]
    for index, status in enumerate(statuses):
        end = status["attemptStatus"]["completionStatus"]
        end["diagnostics"] = f"Pod failed: PodPattern unmatched: {words % index}"
    statuses += [task_status(3, code=0, node="node-0"), task_status(4, code=-220, node="node-1")]
    line = framework_record("u1", code=7, roles={"worker": statuses}, cause=("worker", 0))
    (tmp_path / "2026-01-01.ndjson").write_bytes(line + b"\n")

    async def shown(*arguments: str) -> list[str]:
        return (await offline(*arguments, "--dir", str(tmp_path)))[0].splitlines()

    header, row = await shown("--failures")
    assert header.split()[-1] == "CAUSE"
    key = "7 main exited with #: lost rank #"
    assert row.startswith("3 ")
    assert f"{key} (7 Phrase7: main exited with 7: lost rank " in row
    listed = await shown("--failures", "cause", "--key", key)
    assert [line.split()[:2] for line in listed[1:]] == [["default/train", f"worker[{n}]"] for n in (2, 1, 0)]
    assert listed[1].endswith("main exited with 7: lost rank 2")
    by_node = await shown("--failures", "node")
    assert [line.split()[:3] for line in by_node[1:]] == [["2", "3", "66.7%"], ["1", "2", "50.0%"]]
    assert orjson.loads("".join(await shown("--failures", "code", "-o", "json")))["items"][0]["taskAttempts"] == 3
    assert await shown("--failures", "--since", "1h") == []
    for wrong in (["train", "--failures"], ["--key", "7"], ["--since", "1h"]):
        with pytest.raises(UsageError):
            await shown(*wrong)
