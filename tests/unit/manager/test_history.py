"""The sink that a controller opens, and that one without a sink knows nothing of sinks."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from frameworkcontroller.api.historyrecords import Trigger
from frameworkcontroller.config.historyconfig import History, HistorySinkKind, Logs
from frameworkcontroller.machine.kernel.model import KeepLogs
from frameworkcontroller.manager.historysinks import open_sink

WITHOUT = """
import asyncio, sys
from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.manager.app import Controller
from frameworkcontroller.manager.exposition import registry_of

async def main():
    controller = Controller(Config(), Connection.to_address("http://127.0.0.1:1"))
    assert controller.history_sink is None
    families = [family.name for family in registry_of(controller).collect()]
    assert not [name for name in families if "history" in name], families

asyncio.run(main())
unwanted = ("sqlalchemy", "alembic", "jinja2", "frameworkcontroller.history", "frameworkcontroller.dashboard",
            "frameworkcontroller.webaccess", "frameworkcontroller.manager.historysinks")
print([name for name in sys.modules if name.startswith(unwanted) or name.endswith("sink")])
"""


def test_without_a_sink_nothing_of_it_is_imported() -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert ran.stdout == "[]\n", ran.stderr


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (History(sink=HistorySinkKind.HTTP, url="http://h/v1/records", token_file="/token"), "http://h/v1/records"),
        (History(sink=HistorySinkKind.FILE, path="/history"), "/history"),
    ],
)
async def test_the_configured_sink(config: History, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    sink = open_sink(config, namespace=None, wall=lambda: 0.0, rng=random.Random(1))
    assert sink.triggers == {*config.triggers, Trigger.POD_LOG}
    assert caplog.messages[0].endswith(f"OnPodDeletion, OnPodLog (Failed) to {name}")
    none = config.model_copy(update={"logs": Logs(keep=KeepLogs.NONE)})
    assert open_sink(none, namespace=None, wall=lambda: 0.0, rng=random.Random(1)).triggers == set(config.triggers)
