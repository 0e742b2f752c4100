"""No output of the controller has the credentials that it gets, after any error."""

import asyncio
import logging
import random
from pathlib import Path

import pytest
import yaml

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.controller.recorder import EventRecorder
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection, connect
from frameworkcontroller.kube.errors import KubeError
from frameworkcontroller.kube.resources import PODS
from frameworkcontroller.logs import JsonFormatter, KlogFormatter
from frameworkcontroller.machine.kernel.model import Record
from frameworkcontroller.machine.lifereasons import LifeReason
from tests.support.faulty_server import Answer, FaultyServer, answer, cut, drop, faulty_server, status
from tests.support.virtual_clock import wall

pytestmark = pytest.mark.virtual_clock

TOKEN = "s3cret-t0ken"

TROUBLE: list[Answer] = [
    drop(),
    cut(b"{", 100),
    answer("no JSON"),
    answer(b"<html>gateway</html>", 502),
    status(401, "Unauthorized"),
    status(403, "Forbidden", 'User "system:anonymous" cannot'),
    status(409, "Conflict"),
    status(422, "Invalid"),
    status(429, "TooManyRequests"),
    status(500, "InternalError"),
    answer(b"", 302, Location="http://elsewhere/"),
]


async def connection(server: FaultyServer, folder: Path) -> Connection:
    """As a user with a token."""
    path = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": server.url}}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
    }
    path.write_text(yaml.safe_dump(config))
    return await connect(kubeconfig=str(path), environ={})


@pytest.mark.parametrize("trouble", TROUBLE)
async def test_a_token_is_in_no_error_and_no_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, trouble: Answer
) -> None:
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    async with faulty_server() as server:
        server.otherwise = trouble
        known = await connection(server, tmp_path)
        said += [repr(known), str(known)]
        async with KubeClient(known, wall=wall) as client:
            for request in (
                client.get(FRAMEWORKS, "f", "ns"),
                client.create(PODS, b"{}", "ns"),
                client.delete(PODS, "p", "ns"),
            ):
                try:
                    await request
                except KubeError as error:
                    logging.getLogger("frameworkcontroller").exception("Trouble: %r", error)
                    said += [str(error), repr(error)]
            recorder = EventRecorder(client, wall=wall, rng=random.Random(1))
            running = asyncio.create_task(recorder.run())
            recorder.record("ns/f", "u", [Record(LifeReason.FRAMEWORK_FAILED, "it failed", warning=True)])
            await asyncio.sleep(600)
            running.cancel()
        # It was sent, so that it could have appeared.
        assert all(seen.headers["Authorization"] == f"Bearer {TOKEN}" for seen in server.seen)
        assert server.seen
    for formatter in (KlogFormatter(), JsonFormatter()):
        said += [formatter.format(record) for record in caplog.records]
    assert [text for text in said if TOKEN in text] == []
