"""GPUs of the local cluster: an nvidia-smi that stands in for the driver's, real processes in real time."""

import os
import time
from pathlib import Path

import pytest
import yaml

from frameworkcontroller.local.nvidiasmi import GpusUnknownError, find_gpus
from tests.support.cli import run_program
from tests.support.frameworks import manifest

FOUR = "".join(f"GPU {i}: NVIDIA H100 80GB HBM3 (UUID: GPU-{i}4b7c1f2-9d1e)\n" for i in range(4))


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in, first on PATH, yet to be written."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path / "bin" / "nvidia-smi"


def answer(smi: Path, script: str) -> None:
    smi.write_text(f"#!/bin/sh\n{script}\n")
    smi.chmod(0o755)


def lists(text: str) -> str:
    return f"[ \"$*\" = -L ] || exit 9\ncat <<'END'\n{text}END"


@pytest.mark.parametrize(
    ("own", "found"),
    [
        (None, ["0", "1", "2", "3"]),
        ("2, 1,2", ["2", "1"]),
        ("GPU-34b,0,7", ["GPU-34b", "0"]),
    ],
)
async def test_the_gpus_are_those_that_the_process_may_use(smi: Path, own: str | None, found: list[str]) -> None:
    answer(smi, lists(FOUR))
    assert await find_gpus({} if own is None else {"CUDA_VISIBLE_DEVICES": own}) == found


async def test_an_instance_of_a_gpu_is_used_only_if_it_is_named(smi: Path) -> None:
    answer(smi, lists(FOUR + "  MIG 1g.10gb     Device  0: (UUID: MIG-77c)\n"))
    assert await find_gpus({}) == ["0", "1", "2", "3"]
    assert await find_gpus({"CUDA_VISIBLE_DEVICES": "MIG-77c"}) == ["MIG-77c"]


@pytest.mark.parametrize("own", ["", "4", "NoDevFiles"])
async def test_a_process_that_may_use_no_gpu(smi: Path, own: str) -> None:
    answer(smi, lists(FOUR))
    with pytest.raises(GpusUnknownError, match="which names no GPU that nvidia-smi lists"):
        await find_gpus({"CUDA_VISIBLE_DEVICES": own})


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("echo; echo NVIDIA-SMI has failed; exit 9", "nvidia-smi failed with exit code 9: NVIDIA-SMI has failed"),
        ("kill -9 $$", "nvidia-smi failed with exit code -9: it printed nothing"),
        ("echo No devices were found", "nvidia-smi lists no GPU"),
    ],
)
async def test_it_says_why_there_is_no_list(smi: Path, script: str, text: str) -> None:
    answer(smi, script)
    with pytest.raises(GpusUnknownError) as caught:
        await find_gpus({})
    assert str(caught.value) == text


async def test_one_that_cannot_be_run(smi: Path) -> None:
    smi.mkdir()
    with pytest.raises(GpusUnknownError, match="nvidia-smi cannot be run: Permission denied"):
        await find_gpus({})


async def test_one_that_hangs_is_ended(smi: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    answer(smi, f"trap '' TERM\necho $$ >> {pids}\nsleep 1000 & echo $! >> {pids}\nwait")
    with pytest.raises(GpusUnknownError, match=r"nvidia-smi has not answered within 1\.5 s"):
        await find_gpus({}, timeout=1.5)
    deadline = time.monotonic() + 300
    while any(_runs(pid) for pid in pids.read_text().split()):
        assert time.monotonic() < deadline


def _runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize(
    ("capacity", "text"),
    [
        ("nvidia.com/gpu=auto", "--capacity nvidia.com/gpu=auto: nvidia-smi is not on PATH"),
        ("cpu=auto", "--capacity: cpu: not a quantity: 'auto'"),
        ("nvidia.com/gpu=1500m", "--capacity: nvidia.com/gpu: must be a whole number: '1500m'"),
    ],
)
def test_an_amount_that_the_node_cannot_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capacity: str, text: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "f.yaml").write_text(yaml.safe_dump(_framework("true", 1)))
    ended = run_program("local", "run", str(tmp_path / "f.yaml"), "--capacity", capacity)
    assert ended.code != 0
    assert ended.err == f"frameworkcontroller: {text}\n"


def _framework(script: str, tasks: int) -> dict[str, object]:
    resources = {"limits": {"nvidia.com/gpu": 1}}
    container = {"name": "main", "image": "none", "command": ["sh", "-c", script], "resources": resources}
    role = {
        "name": "w",
        "taskNumber": tasks,
        "frameworkAttemptCompletionPolicy": {"minFailedTaskCount": 1},
        "task": {"pod": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
    return manifest("f", role)


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize("nodes", ["1", "3"])
def test_each_task_has_a_gpu_of_its_own_and_the_next_one_waits(smi: Path, tmp_path: Path, nodes: str) -> None:
    """Five Tasks on four GPUs: a GPU is a directory, which only one can make at a time."""
    answer(smi, lists(FOUR))
    own = tmp_path / "own"
    own.mkdir()
    script = f"""
        cd {own} && mkdir $CUDA_VISIBLE_DEVICES || exit 1
        echo $CUDA_VISIBLE_DEVICES | tee -a ../order
        while [ $(cat ../order | wc -l) -lt 4 ]; do sleep 0.05; done
        rmdir $CUDA_VISIBLE_DEVICES
    """
    (tmp_path / "f.yaml").write_text(yaml.safe_dump(_framework(script, 5)))
    command = ("local", "run", str(tmp_path / "f.yaml"), "--capacity", "nvidia.com/gpu=auto", "--nodes", nodes)
    ended = run_program(*command, "--logs", "--timeout", "500")
    assert (ended.code, ended.err) == (0, "")
    order = (tmp_path / "order").read_text().split()
    assert (sorted(order[:4]), len(order)) == (["0", "1", "2", "3"], 5)
    assert order[4] in order[:4]
    printed = [line.rpartition("| ")[2] for line in ended.out.splitlines() if line.startswith("f-w-")]
    assert sorted(printed) == sorted(order)
