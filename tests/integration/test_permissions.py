"""docs/permissions.md: the verbs of each command, and the ClusterRoles that have them."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.manager.app import Controller
from tests.support.cli import Cli
from tests.support.clusters import Cluster, embedded_cluster, simulated_node
from tests.support.frameworks import Frameworks, role
from tests.support.frontdoor import FrontDoor, front_door
from tests.support.realcluster import ROOT
from tests.support.virtual_clock import VirtualClockLoop

USERS: Final = ROOT / "manifests" / "users" / "clusterroles.yaml"

COMMANDS: Final = {
    "list": ["list"],
    "status": ["status", "b"],
    "events": ["events", "b"],
    "top": ["top"],
    "timeline": ["timeline", "b", "-o", "-"],
    "logs": ["logs", "b"],
    "suspend": ["suspend", "b"],
    "resume": ["resume", "b"],
    "scale": ["scale", "b", "a=2"],
    "stop": ["stop", "b"],
    "start": ["start", "c"],
    "logs -f": ["logs", "a", "-f"],
    "wait": ["wait", "a", "--timeout=90s"],
    "status --watch": ["status", "d", "--watch"],
    "run": ["run", "e", "--image", "x", "--", "work"],
    "run --array": ["run", "e", "--image", "x", "--array", "1-2", "--", "work"],
    "run --wait": ["run", "g", "--image", "x", "--deadline", "5", "--wait", "--", "work"],
    "run -f": ["run", "h", "--image", "x", "--deadline", "60", "-f", "--", "work"],
}
"""Arguments with which each command sends all of its requests."""


@pytest.fixture
async def embedded(clock: VirtualClockLoop, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with embedded_cluster(tmp_path) as cluster, simulated_node(cluster):
        yield cluster


def documented() -> dict[str, set[tuple[str, str]]]:
    """The verbs and resources of each command."""
    found: dict[str, set[tuple[str, str]]] = {}
    text = (ROOT / "docs" / "permissions.md").read_text()
    for line in re.findall(r"^\| (`.*) \|$", text.partition("## Commands")[2], flags=re.MULTILINE):
        commands, given = line.split(" | ")
        pairs = {
            (verb, resource)
            for resources, verbs in re.findall(r"((?:`[a-z/]+`(?:, )?)+): ([a-z, ]+)", given)
            for resource in re.findall(r"`([^`]+)`", resources)
            for verb in verbs.strip(", ").split(", ")
        }
        for command in re.findall(r"`([^`]+)`", commands):
            found[command] = pairs
    return found


async def asked(door: FrontDoor, cli: Cli, *arguments: str) -> set[tuple[str, str]]:
    """Run one command, and return the verbs and resources of its requests."""
    before = len(door.requests)
    ended = await cli(*arguments)
    assert ended.code in (0, 1), ended
    return {(one.verb, one.resource) for one in door.requests[before:]}


async def test_each_command_needs_the_permissions_that_are_documented(embedded: Cluster) -> None:
    cluster = embedded
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    async with (
        Controller(Config(), await cluster.connection(), wall=cluster.wall),
        front_door(await cluster.connection()) as door,
        KubeClient(door.connection) as client,
    ):
        cli = Cli(cluster, client)
        await frameworks.create("a", role(number=1, simulate={"run-seconds": 10}))
        await frameworks.create("b", role(number=1))
        await frameworks.create("c", role(number=1), executionType="Create")
        await frameworks.create("d", role(number=1, simulate={"run-seconds": 60}))
        await frameworks.until_running("a", 1)
        await frameworks.until_running("b", 1)
        found = {command: await asked(door, cli, *arguments) for command, arguments in COMMANDS.items()}
    assert found == {name: pairs for name, pairs in documented().items() if name in COMMANDS}


@pytest.mark.virtual_clock
def test_the_roles_of_users_have_these_verbs() -> None:
    made = {one["metadata"]["name"]: one for one in yaml.safe_load_all(USERS.read_text())}
    view, edit, admin = (made[f"frameworkcontroller-{name}"] for name in ("view", "edit", "admin"))
    needed = {
        command: {verb for verb, what in given if what == "frameworks"} for command, given in documented().items()
    }
    changes = {"create", "update", "patch", "delete"}
    assert {*view["rules"][0]["verbs"]} == {verb for verbs in needed.values() for verb in verbs} - changes
    assert {*edit["rules"][0]["verbs"]} == {*view["rules"][0]["verbs"], *changes, "deletecollection"}
    assert admin["rules"][0]["verbs"] == ["*"]
    for one, roles in ((view, {"view", "edit", "admin"}), (edit, {"edit", "admin"}), (admin, {"admin"})):
        assert {*one["metadata"]["labels"]} == {f"rbac.authorization.k8s.io/aggregate-to-{role}" for role in roles}
        # A writer of the status could send records to the archive.
        assert [rule["verbs"] for rule in one["rules"] if "frameworks/status" in rule["resources"]] == [["get"]]
