"""The SDK without asyncio, on a local cluster in a child process: real containers in real time."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

import frameworkcontroller as fc

HELPER = """
import os

def answer(*args, **kwargs):
    print("called with", args, flush=True)
    return {"args": args, "kwargs": kwargs, "index": os.environ["FC_TASK_INDEX"]}

def fails():
    print("about to fail", flush=True)
    raise ValueError("no data")
"""


@pytest.fixture(scope="module")
def here() -> Iterator[fc.Cluster]:
    """A local cluster for all tests of this file."""
    with fc.local() as cluster:
        yield cluster


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module with functions."""
    (tmp_path / "sdkhelper.py").write_text(HELPER)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("sdkhelper")
    sys.modules.pop("sdkhelper", None)


# --- programs ---


def test_a_function_returns_a_value(here: fc.Cluster, module: Any, capsys: pytest.CaptureFixture[str]) -> None:
    framework = fc.function(module.answer, name="answer", tasks=2, args=[1, "ü$(A)$$"], kwargs={"a": None})
    result = here.run(framework)
    assert result.value == {"args": [1, "ü$(A)$$"], "kwargs": {"a": None}, "index": "0"}
    assert [one["index"] for one in result.values["worker"]] == ["0", "1"]
    assert sorted(capsys.readouterr().out.splitlines()) == [
        f"worker[{index}]: called with (1, 'ü$(A)$$')" for index in (0, 1)
    ]
    run = here.get("answer")
    assert run.result().value == result.value
    # Its Pods are gone: the archive has the lines.
    assert [line.text for line in run.logs(role="worker", task=1)] == ["called with (1, 'ü$(A)$$')"]
    assert [line.text for line in run.logs(task=1, attempt=0, tail=1)] == ["called with (1, 'ü$(A)$$')"]
    assert [one.number for one in run.attempts()] == [0]
    assert "answer" in run.explain()
    assert "answer" in run._repr_html_()
    run.delete()


def test_an_exception_is_raised_here(here: fc.Cluster, module: Any) -> None:
    with here.submit(fc.function(module.fails, name="fails", retry=fc.Retry(1, base_seconds=0))) as run:
        with pytest.raises(fc.FrameworkFailed) as caught:
            run.result()
        error = caught.value
        assert isinstance(error.__cause__, fc.RemoteError)
        assert str(error.__cause__) == "ValueError: no data"
        assert 'raise ValueError("no data")' in error.__cause__.traceback
        failure = error.result.first_failure
        assert failure is not None
        assert failure.log_tail[0] == "about to fail"
        assert error.result.retries == 1
        assert [(one.number, one.code) for one in run.attempts()] == [(0, 1), (1, 1)]
        assert next(line.text for line in run.logs(attempt=0)) == "about to fail"
        # No frame of the SDK's thread.
        assert {frame.name for frame in caught.traceback} <= {
            "test_an_exception_is_raised_here", "result", "_call", "call"
        }  # fmt: skip


@pytest.mark.parametrize("kind", ["folder", "git"])
def test_code_in_folders_reaches_the_pods(here: fc.Cluster, tmp_path: Path, kind: str) -> None:
    (tmp_path / "code" / "package").mkdir(parents=True)
    (tmp_path / "code" / "package" / "train.py").write_text("print('trained')\n")
    if kind == "folder":
        code = fc.Code.files(tmp_path / "code" / "package")
    else:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        for words in (["init", "-q", "-b", "main"], ["add", "."], [*identity, "commit", "-q", "-m", "x"]):
            subprocess.run(["git", *words], cwd=tmp_path / "code", check=True)
        code = fc.Code.git(str(tmp_path / "code"), commit="main")
    words = ["python3", "-m", "package.train"]
    with here.submit(fc.command(words, name=f"code{kind}", code=code)) as run:
        run.result(timeout=120)
        assert [line.text for line in run.logs()] == ["trained"]


def test_a_framework_without_words_of_its_own(here: fc.Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    run = here.submit(fc.command(["sh", "-c", "exit 3"], name="shown"))
    run.show()
    assert capsys.readouterr().out.splitlines()[-1].startswith("shown: Failed: ")
    run.delete()


# --- one thread for all ---


def test_threads_share_a_cluster(here: fc.Cluster) -> None:
    def play(number: int) -> str:
        with here.submit(fc.command(["true"], name=f"thread{number}")) as run:
            return str(run.result(timeout=120).phase)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(play, range(4))) == ["Succeeded"] * 4


async def test_below_a_running_loop(here: fc.Cluster) -> None:
    with here.submit(fc.command(["true"], name="loop")) as run:
        assert run.wait(timeout=120).phase == "Succeeded"


def test_in_the_thread_itself_the_way_out_is_named(here: fc.Cluster) -> None:
    async def inside() -> str:
        try:
            here.list()
        except RuntimeError as error:
            return str(error)
        return ""

    assert here._thread.call(inside()) == "coroutines must use frameworkcontroller.aio"


def tasks_of(cluster: fc.Cluster) -> set[str]:
    async def names() -> set[str]:
        return {repr(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()}

    return cluster._thread.call(names())


def test_iterators_that_are_closed_early_leave_no_task(here: fc.Cluster) -> None:
    with here.submit(fc.command(["sh", "-c", "echo one; sleep 1000"], name="early")) as run:
        run.wait("Running")
        assert next(iter(run.logs(follow=True))).text == "one"
        before = tasks_of(here)
        for iterator in (run.logs(follow=True), run.watch()):
            assert isinstance(iterator, Generator)
            next(iterator)
            assert tasks_of(here) != before
            iterator.close()
            assert tasks_of(here) == before


def test_a_closed_cluster_may_be_closed_again(kubeconfig: Path) -> None:
    other = fc.connect(kubeconfig=str(kubeconfig))
    with other:
        assert other.namespace == "default"
    other.close()
    with pytest.raises(RuntimeError, match="the cluster is not open"):
        other.list()


# --- in programs ---


@pytest.fixture
def kubeconfig(here: fc.Cluster, tmp_path: Path) -> Path:
    """A kubeconfig of the local cluster."""
    config = {
        "clusters": [{"name": "c", "cluster": {"server": here._cluster.connection.server}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],
        "current-context": "c",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


_numbers = itertools.count()

SLEEP = f"1000.{os.getpid()}"
"""The argument of ``sleep`` in Tasks, whose environment is their own."""


@dataclass
class Programs:
    """Programs in processes of their own. Their processes have a mark in their environment."""

    folder: Path
    kubeconfig: str = ""
    mark: str = field(default_factory=lambda: f"{os.getpid()}-{next(_numbers)}")

    def start(self, text: str) -> subprocess.Popen[str]:
        (self.folder / "tmp").mkdir(exist_ok=True)
        (self.folder / "program.py").write_text(BEGIN + text)
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder / "tmp"),
            "KUBECONFIG": self.kubeconfig,
            "SDK_TEST": self.mark,
            "SDK_SLEEP": SLEEP,
        }
        return subprocess.Popen(
            [sys.executable, "program.py"],
            cwd=self.folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, text: str) -> list[str]:
        """Run it to its end, without a word on stderr. Return its lines."""
        with self.start(text) as process:
            out, err = process.communicate(timeout=300)
        assert (process.returncode, err) == (0, "")
        return out.splitlines()

    def left(self) -> Sequence[int]:
        """The processes that are left."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                texts = [(entry / name).read_bytes().split(b"\0") for name in ("environ", "cmdline")]
                if f"SDK_TEST={self.mark}".encode() in texts[0] or SLEEP.encode() in texts[1]:
                    found.append(int(entry.name))
        return found

    def wait_for_the_end(self) -> None:
        """Wait until no process is left, nor a file of one."""
        deadline = time.monotonic() + 120
        while left := [*self.left(), *(self.folder / "tmp").iterdir()]:
            assert time.monotonic() < deadline, left
            time.sleep(0.05)


BEGIN = """
import os, signal, sys
import frameworkcontroller as fc

def interrupt_soon(seconds=0.5):
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)

"""


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    made = Programs(tmp_path)
    yield made
    for number in made.left():
        os.kill(number, signal.SIGKILL)


@pytest.fixture
def clients(programs: Programs, kubeconfig: Path) -> Programs:
    """Programs that find the local cluster."""
    programs.kubeconfig = str(kubeconfig)
    return programs


def test_after_a_fork_a_cluster_is_opened_again(clients: Programs) -> None:
    told, listed, parent = clients.run("""
with fc.connect() as cluster:
    if not os.fork():
        try:
            cluster.list()
        except RuntimeError as error:
            print(error)
        with fc.connect() as again:
            print(len(again.list()), flush=True)
        sys.exit()
    os.wait()
    print(os.getpid())
""")
    assert told == f"this cluster was opened by process {parent}: after a fork, connect again"
    assert listed.isdecimal()


def test_an_interrupt_leaves_the_framework_and_says_how_to_find_it(clients: Programs, here: fc.Cluster) -> None:
    lines = clients.run("""
with fc.connect() as cluster:
    run = cluster.submit(fc.command(["sh", "-c", "echo one; sleep 1000"], name="interrupted", image="none"))
    run.wait("Running")
    for use in (run.wait, run.result, lambda: list(run.logs(follow=True)), lambda: list(run.watch()), run.show):
        interrupt_soon()
        try:
            use()
        except KeyboardInterrupt as error:
            print(error.__notes__)
    second = cluster.submit(fc.command(["sleep", "1000"], name="second", image="none"))
    try:
        with second:
            interrupt_soon()
            second.wait()
    except KeyboardInterrupt as error:
        print(getattr(error, "__notes__", None))
    print([one.name for one in cluster.list()])
""")
    note = "interrupted continues: kubectl framework status interrupted -n default, or connect().get('interrupted')"
    notes = [line for line in lines if not line.startswith("interrupted: ")]
    assert notes == [*[str([note])] * 5, "None", "['interrupted']"]
    run = here.get("interrupted")
    assert run.status.phase == "Running"
    run.delete()


def test_a_program_may_end_in_the_middle(clients: Programs, here: fc.Cluster) -> None:
    assert clients.run("""
cluster = fc.connect()
run = cluster.submit(fc.command(["sh", "-c", "echo one; sleep 1000"], name="left", image="none"))
run.wait("Running")
lines, changes = run.logs(follow=True), run.watch()
print(next(lines))
next(changes)
""") == ["worker[0]: one"]
    here.get("left").delete()


def test_a_local_cluster_ends_with_its_program(programs: Programs) -> None:
    assert programs.run("""
cluster = fc.local()
run = cluster.submit(fc.command(["sleep", os.environ["SDK_SLEEP"]], name="f"))
run.wait("Running")
print(run.status)
""") == ["Running"]
    programs.wait_for_the_end()


def test_a_local_cluster_ends_with_a_killed_program(programs: Programs) -> None:
    with programs.start("""
cluster = fc.local()
run = cluster.submit(fc.command(["sleep", os.environ["SDK_SLEEP"]], name="f"))
run.wait("Running")
print("runs", flush=True)
signal.pause()
""") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        assert len(programs.left()) >= 3
        process.kill()
    programs.wait_for_the_end()


def test_an_interrupted_start_leaves_nothing(programs: Programs) -> None:
    assert programs.run("""
# An interrupt of an import may crash the libraries.
start = fc.local
interrupt_soon()
try:
    start()
except KeyboardInterrupt:
    print("interrupted")
""") == ["interrupted"]
    programs.wait_for_the_end()


def test_a_start_that_fails_is_reported(programs: Programs) -> None:
    (line,) = programs.run("""
try:
    fc.local(capacity={"cpu": "many"})
except fc.Unreachable as error:
    print(repr(str(error)))
""")
    assert "the local cluster cannot start: " in line
    assert "--capacity: " in line
    programs.wait_for_the_end()


def test_a_local_cluster_that_dies_is_reported(programs: Programs) -> None:
    (line,) = programs.run("""
with fc.local() as cluster:
    process = cluster._cluster._closed.__self__._process
    process.kill()
    process.wait()
    try:
        cluster.list()
    except fc.Unreachable as error:
        print(error)
""")
    assert "cannot connect" in line


def test_a_kept_local_cluster_outlives_its_program(programs: Programs) -> None:
    (number,) = programs.run("""
cluster = fc.local(keep=True)
print(cluster._cluster._closed.__self__._process.pid)
""")
    assert int(number) in programs.left()
    os.kill(int(number), signal.SIGTERM)
    programs.wait_for_the_end()
