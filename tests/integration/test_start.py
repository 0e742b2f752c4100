"""The modules that a controller has loaded once it has completed a Framework: each costs time at start, and memory."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
import yaml

from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from tests.support.clusters import Cluster
from tests.support.frameworks import Frameworks, role
from tests.support.frontdoor import front_door

pytestmark = pytest.mark.newest

PROGRAM = """
import atexit, gc, sys
from frameworkcontroller.cli.main import main
atexit.register(lambda: print(gc.isenabled(), *sys.modules))
sys.exit(main(sys.argv[1:]))
"""

PACKAGES = {
    "aiohappyeyeballs", "annotated_types", "orjson", "pydantic", "pydantic_core", "tenacity",
    "typing_extensions", "typing_inspection", "uvloop", "yaml",
}  # fmt: skip
"""Of others. Their own dependencies vary with their versions: those of no use here are named below."""

UNWANTED = (
    "aiohttp", "alembic", "argcomplete", "asyncpg", "aiosqlite", "certifi", "ctypes", "dateutil", "jinja2",
    "kubernetes_asyncio", "multiprocessing", "prometheus_client", "pygments", "rich", "sqlalchemy", "sqlite3",
    "unittest", "urllib3", "webbrowser", "xml",
)  # fmt: skip

ROOMS = {
    "api", "backoff", "cli", "commands", "config", "controller", "deadlines", "depths", "extras", "kube", "kubeconfig",
    "logs", "lru", "machine", "manager", "tokenbucket",
}  # fmt: skip
COMMANDS = {"parsers", "program", "shellcompletion"}


async def test_a_started_controller_has_loaded_its_modules(
    cluster: Cluster, pods: SimulatedRuntime, tmp_path: Path
) -> None:
    async with front_door(await cluster.connection()) as door:
        config = {"kubeApiServerAddress": door.connection.server, "namespace": cluster.namespace, "webAddress": ":0"}
        file = tmp_path / "config.yaml"
        file.write_text(yaml.safe_dump(config))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PROGRAM, "--config", str(file)),
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            frameworks = Frameworks(await cluster.client(), cluster.namespace)
            await frameworks.create("f", role(simulate={"run-seconds": 0.1}))
            await frameworks.until_state("f", "Completed")
            process.send_signal(signal.SIGTERM)
            output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    collecting, *modules = output.decode().split()
    assert (process.returncode, collecting) == (0, "True")
    ours = [name.split(".")[1:] for name in modules if name.startswith("frameworkcontroller.")]
    assert {parts[0] for parts in ours} == ROOMS
    assert {parts[1] for parts in ours if parts[0] == "commands" and len(parts) > 1} == COMMANDS
    assert [parts for parts in ours if parts[-1].endswith("sink")] == []
    loaded = {name.partition(".")[0] for name in modules}
    assert loaded >= PACKAGES
    assert loaded.isdisjoint(UNWANTED)
