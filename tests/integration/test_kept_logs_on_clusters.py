"""Logs that outlive their Pods, on every API server, and of containers that run as processes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from frameworkcontroller.api.historyrecords import LogRecord, Trigger, decode_record
from frameworkcontroller.config.config import Config
from frameworkcontroller.config.historyconfig import History, HistorySinkKind, Logs
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.local.cluster import LocalCluster
from frameworkcontroller.machine.kernel.model import KeepLogs
from frameworkcontroller.manager.app import Controller
from tests.support.archiveserver import ArchiveServer
from tests.support.clusters import Cluster
from tests.support.eventually import eventually
from tests.support.frameworks import Frameworks, Json, policy, role
from tests.support.keptlogs import FAILS, SAYS, controller, logs_of, until_logs

SCRIPT: Final = """
trap 'echo stopping; exit 0' TERM
echo begins
if [ $FC_TASK_INDEX = 2 ]; then yes yyyyyyyyyyyyyyy | head -n 300; fi
touch {folder}/$FC_TASK_INDEX
if [ $FC_TASK_INDEX = 0 ]; then
  while [ ! -e {folder}/go ]; do sleep 0.05; done
  head -c 300000 /dev/zero | tr '\\000' x; echo; echo fails; exit 3
fi
if [ $FC_TASK_INDEX = 2 ]; then while true; do echo yyyyyyyyyyyyyyy; done; fi
while true; do sleep 0.1; done
"""


async def test_every_attempt_leaves_its_log_or_a_reason(
    cluster: Cluster, frameworks: Frameworks, archive: ArchiveServer
) -> None:
    async with controller(cluster, archive) as made:
        worker = role("a", 2, simulate=FAILS, task={"retryPolicy": {"maxRetryCount": 1}})
        worker["frameworkAttemptCompletionPolicy"] = policy(2)
        await frameworks.create("f", worker, role("b", 1), retryPolicy={"maxRetryCount": 1})
        await frameworks.until_state("f", "Completed")
        # Two attempts, each with two Tasks that are retried once, and one that is stopped.
        found = await until_logs(archive, 10)
        assert made.log_capture is not None
        assert made.log_capture.results.total() == 10
        # Its finalizer would stay for a controller without a history.
        await frameworks.delete("f")
        await frameworks.until_gone("f")
    assert len(found) == 10
    assert len(archive.ids(Trigger.POD_LOG)) == 10
    assert archive.ids(Trigger.POD_LOG) <= archive.ids(Trigger.POD_DELETION)
    for log in found:
        assert log.container == "main"
        if cluster.embedded:
            assert (log.data(), log.cut_start, log.cut_end, log.why) == (SAYS, False, False, "")
        else:
            # Its nodes are the test's own, which no API server can ask.
            assert (log.size, log.cut_end) == (0, True)
            assert log.why


async def test_containers_that_write_and_stop(tmp_path: Path) -> None:
    """Long lines, output that is faster than it is read, and the last words of containers that are stopped."""
    folder = tmp_path / "history"
    folder.mkdir()
    config = Config(
        history=History(sink=HistorySinkKind.FILE, path=str(folder), logs=Logs(keep=KeepLogs.ALL, tail_bytes=4096))
    )
    pod: Json = {
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "initContainers": [{"name": "pre", "image": "none", "command": ["sh", "-c", "echo initial"]}],
            "containers": [{"name": "main", "image": "none", "command": ["sh", "-c", SCRIPT.format(folder=tmp_path)]}],
        }
    }
    async with (
        LocalCluster(tmp_path / "cluster", runtime="process") as cluster,
        Controller(config, cluster.connect()),
        KubeClient(cluster.connect()) as client,
    ):
        frameworks = Frameworks(client, "default")
        one = role("a", 3)
        one["task"]["pod"], one["frameworkAttemptCompletionPolicy"] = pod, policy(1)
        await frameworks.create("f", one)
        await frameworks.until_running("f", 3)

        async def all_begun() -> None:
            assert all((tmp_path / str(index)).exists() for index in range(3))

        await eventually(all_begun, within=60)
        (tmp_path / "go").touch()
        await frameworks.until_state("f", "Completed", within=120)

        async def probe() -> dict[tuple[str, str], LogRecord]:
            lines = [line for file in folder.iterdir() for line in file.read_bytes().splitlines()]
            logs = {(log.pod_name, log.container): log for log in logs_of(list(map(decode_record, lines)))}
            assert len(logs) == 6, logs
            return logs

        found = await eventually(probe, within=60)
    assert {log.data() for (_, container), log in found.items() if container == "pre"} == {b"initial\n"}
    failed, stopped, writer = (found[f"f-a-{index}", "main"] for index in range(3))
    assert (failed.data()[-12:], failed.size, failed.cut_start, failed.why) == (b"xxxxx\nfails\n", 4096, True, "")
    assert (stopped.data().splitlines()[0], stopped.data().splitlines()[-1]) == (b"begins", b"stopping")
    assert (stopped.cut_start, stopped.cut_end, stopped.why) == (False, False, "")
    # The shortest lines: the window must still be full.
    assert (writer.size, set(writer.data().replace(b"stopping", b""))) == (4096, set(b"y\n"))
