"""Distributed training with real libraries: the examples, in images of Debian's and PyPI's packages."""

import asyncio
import re
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.stage import WITHIN, Play, Track, play
from tests.e2e.test_examples import applied
from tests.support.examples import EXAMPLES
from tests.support.frameworks import codes, tasks

Json = dict[str, Any]

IMAGES: Final = Path(__file__).with_name("images")
FITTED: Final = r"y = (2\.9|3\.0)\d x \+ (0\.9|1\.0)\d"


async def ssh_key(play: Play, name: str) -> None:
    """Make one key for all Tasks, and a Secret of it, as examples/training/README.md says."""
    key = play.folder / "id_ed25519"
    made = await asyncio.create_subprocess_exec("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    assert await made.wait() == 0
    known_hosts = f"--from-literal=known_hosts=* {key.with_suffix('.pub').read_text().strip()}"
    files = f"--from-file={key}", f"--from-file={key}.pub"
    await play.kubectl.ok("create", "secret", "generic", name, *files, known_hosts)


async def succeeds(play: Play, name: str) -> Json:
    """The Framework succeeds in its first attempt; its status."""
    status = await play.until_completed(name, within=3 * WITHIN)
    completion = status["attemptStatus"]["completionStatus"]
    assert (status["attemptStatus"]["id"], completion["phrase"]) == (0, "Succeeded")
    return status


def said(play: Play, pattern: str) -> list[str]:
    """The lines of all containers that match, sorted."""
    return sorted(line for text in play.outputs().values() for line in text.splitlines() if re.fullmatch(pattern, line))


@play(Track.TRAINING)
async def test_mpi_starts_its_ranks_over_ssh(play: Play) -> None:
    await play.stage.put_image("mpi", EXAMPLES / "training/mpi")
    await ssh_key(play, "mpi")
    await applied(play, "mpi", "mpi:1")
    await succeeds(play, "mpi")
    assert said(play, "rank .*") == [f"rank {rank} of 4 is on mpi-worker-{rank}" for rank in range(4)]
    assert said(play, "pi is .*") == ["pi is 3.141593"]


@play(Track.TRAINING)
async def test_jax_trains_one_model_on_all_workers(play: Play) -> None:
    await play.stage.put_image("jax", IMAGES / "jax")
    await applied(play, "jax", "jax:1")
    assert codes(tasks(await succeeds(play, "jax"), "worker")) == [0, 0]
    assert len(said(play, rf"worker [01] of 2: {FITTED}")) == 2


@pytest.mark.training
@play(Track.TRAINING)
async def test_pytorch_trains_one_model_on_all_workers(play: Play) -> None:
    await play.stage.put_image("torch", IMAGES / "torch")
    await applied(play, "pytorchddp", "torch:1")
    assert codes(tasks(await succeeds(play, "pytorchddp"), "worker")) == [0, 0]
    assert len(said(play, rf"worker [01] of 2: {FITTED}")) == 2


@pytest.mark.training
@play(Track.TRAINING)
async def test_torchrun_trains_on_workers_that_meet_at_a_store(play: Play) -> None:
    await play.stage.put_image("torch", IMAGES / "torch")
    await applied(play, "pytorchelastic", "torch:1")
    await succeeds(play, "pytorchelastic")
    assert len(said(play, rf"worker 0 of [123]: {FITTED}")) == 1
