"""A controller, and the archive as a process that is killed again and again: every attempt is in its database."""

from __future__ import annotations

import asyncio
import random
import re
import signal
import sqlite3
import sys
from pathlib import Path

import pytest

from frameworkcontroller.config.config import Config
from frameworkcontroller.config.historyconfig import History, HistorySinkKind
from frameworkcontroller.history.archive import HistoryArchive
from frameworkcontroller.history.reads import GetFramework, GetTaskAttempt, ListTasks
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster
from tests.support.eventually import eventually, until
from tests.support.frameworks import Frameworks, policy, role
from tests.support.ports import unused_port

KILLS = 3
RETRIES = 4
"""Of each of the three Tasks, in each of the two attempts of their Framework."""


class Server:
    """``frameworkcontroller history serve`` at the same address after each start."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "history.db"
        self._log = folder / "log"
        self._address = f"127.0.0.1:{unused_port()}"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> str:
        """Return its URL, once it listens."""
        program = str(Path(sys.executable).parent / "frameworkcontroller")
        options = ["--database", f"sqlite:///{self.database}", "--address", self._address]
        with self._log.open("wb") as output:
            # By the loop: it lets time flow while the process is there.
            self._process = await asyncio.create_subprocess_exec(program, "history", "serve", *options, stderr=output)

        async def listens() -> str:
            found = re.search(r"Serving the archive on http://(\S+)", self._log.read_text())
            assert found is not None, self._log.read_text()
            return found[1].rstrip("/")

        self._address = await eventually(listens, within=120)
        return f"http://{self._address}"

    async def end(self, number: signal.Signals) -> int:
        """Send it a signal, and return how it has ended."""
        assert self._process is not None
        self._process.send_signal(number)
        return await self._process.wait()

    async def until_stored(self, count: int) -> None:
        """Wait until its database has this number of Task attempts."""
        await until(lambda: self.stored() >= count, within=120, every=0.001)

    def stored(self) -> int:
        """Task attempts that are committed."""
        with sqlite3.connect(self.database) as connection:
            (found,) = connection.execute("SELECT count(*) FROM task_attempts WHERE own = 1").fetchone()
        connection.close()
        return int(found)


@pytest.mark.virtual_clock
async def test_every_attempt_is_in_an_archive_that_is_killed_again_and_again(
    cluster: Cluster, frameworks: Frameworks, tmp_path: Path
) -> None:
    rng = random.Random(16)
    worker = role(
        "a",
        3,
        task={"retryPolicy": {"maxRetryCount": RETRIES}},
        simulate={"run-seconds": 0.2, "exit-code": 1},
        frameworkAttemptCompletionPolicy=policy(3),
    )
    server = Server(tmp_path)
    url = await server.start()
    history = History(sink=HistorySinkKind.HTTP, url=f"{url}/v1/records", token_file=f"{server.database}.token")
    config = Config(history=history)
    async with Controller(config, await cluster.connection(), wall=cluster.wall):
        uid = (await frameworks.create("f", worker, retryPolicy={"maxRetryCount": 1}))["metadata"]["uid"]
        for _ in range(KILLS):
            # Right after a commit, before or after its acknowledgment, or when the next ones come.
            await server.until_stored(server.stored() + 1)
            for _ in range(rng.randrange(3)):
                await asyncio.sleep(0.002)
            assert await server.end(signal.SIGKILL) == -signal.SIGKILL
            await server.start()
        await frameworks.until_state("f", "Completed", within=300)
        await frameworks.delete("f")
        await frameworks.until_gone("f")
    assert await server.end(signal.SIGTERM) == 0

    async with await HistoryArchive.open(f"sqlite:///{server.database}") as archive:
        found = await archive.read(GetFramework(uid))
        assert found is not None
        assert found["deleted"] is not None
        assert [attempt["trigger"] for attempt in found["attempts"]] == ["OnFrameworkRetry", "OnFrameworkDeletion"]
        for number in range(2):
            page = await archive.read(ListTasks(uid, number))
            assert page is not None
            assert [(task["index"], task["attempt"]) for task in page["items"]] == [
                (index, attempt) for index in range(3) for attempt in range(RETRIES + 1)
            ]
            assert {task["code"] for task in page["items"]} == {1}
            for task in page["items"]:
                place = (task["role"], task["index"], task["taskUid"], task["attempt"])
                whole = await archive.read(GetTaskAttempt(uid, number, *place))
                assert whole is not None
                assert whole["object"]["status"]["attemptStatus"]["id"] == task["attempt"]
                assert task["trigger"] == "OnTaskRetry" or task["attempt"] == RETRIES
