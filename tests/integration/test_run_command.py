"""``run``: the Frameworks that it creates, and its arrays."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import orjson
import pytest

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.kube.resources import CONFIGMAPS
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support.cli import Cli
from tests.support.clusters import Cluster
from tests.support.eventually import until
from tests.support.frameworks import Frameworks

ARRAY = "frameworkcontroller.microsoft.com/array"
Finish = Callable[..., Coroutine[Any, Any, None]]
RUN = ("--image", "none", "--", "work")


@pytest.fixture
async def frameworks(unattended: Frameworks, pods: SimulatedRuntime, controller: Controller) -> Frameworks:
    return unattended


@pytest.fixture
def finish(cluster: Cluster, pods: SimulatedRuntime) -> Finish:
    """Ends the Task of a Framework with a code, once it runs."""

    async def end(name: str, code: int = 0) -> None:
        pod = f"{cluster.namespace}/{name}-worker-0"
        await until(lambda: pod in pods.running(), within=60)
        pods.fail(pod, code)

    return end


async def test_it_creates_a_framework_with_its_code(
    cluster: Cluster, unattended: Frameworks, cli: Cli, tmp_path_factory: pytest.TempPathFactory
) -> None:
    code = tmp_path_factory.mktemp("code") / "train.py"
    code.write_text("print(1)")
    ended = await cli("run", "train", "--code", str(code), "--queue", "team", *RUN)
    assert (ended.code, ended.out) == (0, "train: created\n")
    assert "kubectl framework logs train -f\n" in ended.err
    made = await unattended.get("train")
    assert made["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "team"}
    (shipped,) = (
        volume["configMap"]["name"]
        for volume in made["spec"]["taskRoles"][0]["task"]["pod"]["spec"]["volumes"]
        if "configMap" in volume
    )
    client = await cluster.client()
    configmap = orjson.loads(await client.get(CONFIGMAPS, shipped, cluster.namespace))
    assert [owner["uid"] for owner in configmap["metadata"]["ownerReferences"]] == [made["metadata"]["uid"]]
    again = await cli("run", "train", *RUN)
    assert again[:2] == (1, "")
    assert again.err == f'a Framework "train" exists already in namespace "{cluster.namespace}"'


async def test_a_generated_name_is_printed(unattended: Frameworks, cli: Cli) -> None:
    (line,) = (await cli("run", *RUN)).lines
    name = line.removesuffix(": created")
    assert name.startswith("command")
    assert (await unattended.get(name))["metadata"]["generateName"] == "command"


async def test_a_missing_namespace_is_named(cli: Cli) -> None:
    ended = await cli("run", "train", *RUN, namespace="absent")
    assert ended.code == 1
    assert 'namespaces "absent" not found' in ended.err


@pytest.mark.parametrize("option", ["--wait", "-f"])
@pytest.mark.parametrize(("task", "code", "phase"), [(0, 0, "Succeeded"), (3, 1, "Failed")])
async def test_its_exit_code_is_the_frameworks(
    frameworks: Frameworks,
    cli: Cli,
    finish: Finish,
    option: str,
    task: int,
    code: int,
    phase: str,
) -> None:
    ended, _ = await asyncio.gather(cli("run", "train", option, *RUN), finish("train", task))
    assert ended.code == code
    assert ended.lines[0] == "train: created"
    assert any(line.partition("/")[2].startswith(f"train: {phase} after ") for line in ended.lines)
    assert (await frameworks.status("train"))["phase"] == phase


async def test_a_framework_that_is_deleted_meanwhile_did_not_succeed(frameworks: Frameworks, cli: Cli) -> None:
    async def delete() -> None:
        await until(lambda: "train: created" in cli.out.getvalue())
        await frameworks.until_running("train", 1)
        await frameworks.delete("train", "Background")

    ended, _ = await asyncio.gather(cli("run", "train", "--wait", *RUN), delete())
    assert ended.code == 1
    assert ended.lines[-1].endswith("train: was deleted before it completed")


async def test_an_interrupted_wait_says_how_to_stop_the_framework(frameworks: Frameworks, cli: Cli) -> None:
    command = asyncio.create_task(cli("run", "train", "--wait", *RUN))
    await until(lambda: "train: created" in cli.out.getvalue())
    await frameworks.until_running("train", 1)
    command.cancel()
    await asyncio.wait([command])
    assert cli.err.getvalue() == "train continues; to stop it: kubectl framework stop train\n"
    assert (await frameworks.status("train"))["phase"] == "Running"


# --- arrays ---


async def existing(frameworks: Frameworks) -> list[str]:
    """The names of the array's Frameworks."""
    found = orjson.loads(await frameworks.client.list(FRAMEWORKS, frameworks.namespace, label_selector=f"{ARRAY}=s"))
    return [body["metadata"]["name"] for body in found["items"]]


async def test_an_array_is_created_at_once_and_only_once(unattended: Frameworks, cli: Cli) -> None:
    ended = await cli("run", "s", "--array", "0-2", *RUN)
    assert (ended.code, ended.lines) == (0, ["s0: created", "s1: created", "s2: created"])
    assert f"kubectl framework list -l {ARRAY}=s\n" in ended.err
    await unattended.delete("s1", "Background")
    again = await cli("run", "s", "--array", "0-3", *RUN)
    assert (again.code, again.lines) == (0, ["s1: created", "s3: created"])
    assert "2 of 4 exist already" in again.err
    assert await existing(unattended) == ["s0", "s1", "s2", "s3"]


def created(cli: Cli) -> int:
    return cli.out.getvalue().count("created")


async def test_an_array_starts_the_next_one_when_one_ends(frameworks: Frameworks, cli: Cli, finish: Finish) -> None:
    command = asyncio.create_task(cli("run", "s", "--array", "0-4", "--at-most", "2", "--wait", *RUN))
    # Out of order; one fails, and one is deleted.
    for known, (name, code) in enumerate((("s1", 0), ("s0", 1), ("s3", 0)), 2):
        await until(partial(lambda number: created(cli) == number, known))
        await frameworks.until_running(name, 1)
        assert await existing(frameworks) == [f"s{index}" for index in range(known)]
        await finish(name, code)
    await until(lambda: created(cli) == 5)
    await frameworks.delete("s2", "Background")
    await finish("s4")
    result = await command
    assert result.code == 1
    assert result.lines[-1] == "3 of 5 Frameworks succeeded"
    ends = [line.rpartition("/")[2] for line in result.lines[:-1] if not line.endswith(": created")]
    assert [line.partition(" after ")[0].partition(" before ")[0] for line in ends] == [
        "s1: Succeeded",
        "s0: Failed",
        "s3: Succeeded",
        "s2: was deleted",
        "s4: Succeeded",
    ]


async def test_an_interrupted_array_is_continued_by_another_command(
    cluster: Cluster, frameworks: Frameworks, cli: Cli, finish: Finish
) -> None:
    command = asyncio.create_task(cli("run", "s", "--array", "0-3", "--at-most", "2", *RUN))
    await until(lambda: created(cli) == 2)
    await frameworks.until_running("s1", 1)
    command.cancel()
    await asyncio.wait([command])
    assert "2 of 4 are not created; to continue: the same command with --array 2-3\n" in cli.err.getvalue()

    other = Cli(cluster, await cluster.client())
    command = asyncio.create_task(other("run", "s", "--array", "0-3", "--at-most", "2", *RUN))
    await until(lambda: "2 of 4 exist already" in other.err.getvalue())
    for index in (0, 1):
        # The two that the first command created count.
        assert created(other) == index
        await finish(f"s{index}")
        await until(partial(lambda number: created(other) == number, index + 1))
    assert (await command).code == 0
    assert await existing(frameworks) == ["s0", "s1", "s2", "s3"]


async def test_a_framework_of_another_user_stops_an_array(unattended: Frameworks, cli: Cli) -> None:
    await cli("run", "s1", *RUN)
    ended = await cli("run", "s", "--array", "0-2", *RUN)
    assert (ended.code, ended.lines) == (1, ["s0: created"])
    assert "2 of 3 are not created; to continue: the same command with --array 1-2" in ended.err
    assert 'a Framework "s1" exists already' in ended.err


async def test_all_ends_of_an_array_count(frameworks: Frameworks, cli: Cli, finish: Finish) -> None:
    await cli("run", "s", "--array", "0-1", *RUN)
    await finish("s0", 1)
    await frameworks.until_state("s0", "Completed")
    ended, _ = await asyncio.gather(cli("run", "s", "--array", "0-1", "--wait", *RUN), finish("s1"))
    assert (ended.code, ended.lines[-1]) == (1, "1 of 2 Frameworks succeeded")
