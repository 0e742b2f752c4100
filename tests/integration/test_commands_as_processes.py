"""The commands as a person runs them: processes of their own, on a cluster that runs real processes, in real time."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import islice
from pathlib import Path

import pytest
import yaml

from frameworkcontroller.cli.main import kubectl_main, main
from frameworkcontroller.commands.archivesource import HOW_TO_NAME
from tests.support.cli import Ended, run_program
from tests.support.frameworks import manifest
from tests.support.kubectl import find_kubectl

BIN = Path(sys.executable).parent


def framework(name: str, script: str, *, tasks: int = 1, retries: int = 0) -> dict[str, object]:
    container = {"name": "main", "image": "none", "command": ["sh", "-c", script]}
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    role = {"name": "w", "taskNumber": tasks, "task": {"retryPolicy": {"maxRetryCount": retries}, "pod": pod}}
    return manifest(name, role)


class Shell:
    """Runs commands where a cluster runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "HOME": str(folder),
            "KUBECONFIG": str(folder / "kubeconfig"),
        }

    def start(self, *arguments: str, **more: str) -> subprocess.Popen[str]:
        """Start it, its output to be read."""
        return subprocess.Popen(
            arguments,
            cwd=self.folder,
            env=self.environment | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **more: str) -> tuple[int, str, str]:
        """Its exit code, output and errors."""
        with self.start(*arguments, **more) as process:
            out, err = process.communicate(timeout=600)
        return process.returncode, out, err

    def create(self, *frameworks: dict[str, object]) -> None:
        """Create them through the API."""
        import asyncio

        import orjson

        from frameworkcontroller.api.resources import FRAMEWORKS
        from frameworkcontroller.kube.client import KubeClient
        from frameworkcontroller.kube.connection import connect

        async def create() -> None:
            async with KubeClient(await connect(kubeconfig=self.environment["KUBECONFIG"], environ={})) as client:
                for body in frameworks:
                    await client.create(FRAMEWORKS, orjson.dumps(body), "default")

        asyncio.run(create())


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("commands")
    made = Shell(folder)
    with made.start("frameworkcontroller", "local", "up", "--kubeconfig", str(folder / "kubeconfig")) as process:
        try:
            assert process.stdout is not None
            assert any("Ctrl-C" in line for line in process.stdout)
            yield made
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=600)


def test_logs_are_followed_into_the_attempts_to_come(shell: Shell) -> None:
    go = shell.folder / "go"
    script = (
        "echo attempt $FC_TASK_ATTEMPT_ID of $FC_TASK_INDEX; "
        f"until [ -e {go}$FC_TASK_ATTEMPT_ID ]; do sleep 0.1; done; "
        'printf "last words"; exit $FC_TASK_INDEX'
    )
    shell.create(framework("logs", script, tasks=2, retries=1))
    lines: list[str] = []
    with shell.start("frameworkcontroller", "logs", "logs", "-f") as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip("\n").replace("  ", ""))
            if len(lines) == 2:
                go.with_name("go0").touch()
            if lines[-1] == "w[1]#1 | attempt 1 of 1":
                go.with_name("go1").touch()
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert process.returncode == 0
    assert [line for line in lines if line.startswith("w[0]")] == ["w[0] | attempt 0 of 0", "w[0] | last words"]
    assert [line for line in lines if line.startswith("w[1]")] == [
        "w[1] | attempt 0 of 1",
        "w[1] | last words",
        "w[1]#1 | attempt 1 of 1",
        "w[1]#1 | last words",
    ]


def test_logs_of_one_task(shell: Shell) -> None:
    shell.create(framework("one", "for i in 1 2 3; do echo line $i; done; exec sleep 600"))
    assert shell.run("frameworkcontroller", "wait", "one", "--for", "running", "--timeout", "10m")[0] == 0
    deadline = time.monotonic() + 300
    while (ended := shell.run("frameworkcontroller", "logs", "one", "w/0"))[1] != "line 1\nline 2\nline 3\n":
        assert time.monotonic() < deadline, ended
    assert shell.run("frameworkcontroller", "logs", "one", "w[0]", "--tail", "1") == (0, "line 3\n", "")
    code, out, err = shell.run("frameworkcontroller", "logs", "one", "--previous")
    assert (code, out) == (1, "")
    assert 'previous terminated container "main" in pod "one-w-0" not found' in err


def test_a_command_is_run_with_its_code_and_all_of_its_log_is_printed(shell: Shell) -> None:
    script = """
import os, sys
for number in range(200):
    print(sys.argv[1:], os.environ["FC_FRAMEWORK_ATTEMPT_ID"], number)
sys.exit(int(os.environ["CODE"]))
"""
    (shell.folder / "train.py").write_text(script)
    run = ("kubectl-framework", "run", "trained", "--image", "none", "--code", "train.py", "--env", "CODE=3")
    code, out, err = shell.run(*run, "--retries", "1", "-f", "--", sys.executable, "train.py", "--lr", "1")
    assert code == 1, (out, err)
    first, *lines = out.splitlines()
    assert first == "trained: created"
    printed = [line for line in lines if line.startswith("worker[0] ")]
    assert printed == [f"worker[0] | ['--lr', '1'] {attempt} {number}" for attempt in (0, 1) for number in range(200)]
    assert lines[len(printed)].startswith("trained: Failed after ")
    error = 'error: a Framework "trained" exists already in namespace "default"\n'
    assert shell.run(*run, "--", "true")[::2] == (1, error)


def test_kubectl_takes_the_manifest_of_a_dry_run(shell: Shell) -> None:
    program = find_kubectl()
    if isinstance(program, str):
        pytest.skip(program)
    (shell.folder / "dry.py").write_text("print(7)")
    words = ("framework", "run", "dry", "--image", "none", "--code", "dry.py", "--dry-run", "--", "python3", "dry.py")
    code, manifest, err = shell.run(str(program), *words)
    assert (code, err) == (0, "")
    (shell.folder / "dry.yaml").write_text(manifest)
    assert shell.run(str(program), "apply", "-f", "dry.yaml")[0] == 0
    assert shell.run("frameworkcontroller", "wait", "dry", "--for", "succeeded", "--timeout", "10m")[0] == 0


def test_events_are_shown_as_they_come(shell: Shell) -> None:
    with shell.start("frameworkcontroller", "events", "told", "--watch", PYTHONUNBUFFERED="1") as process:
        wait_until_it_waits(process.pid)
        shell.create(framework("told", "exit 3"))
        assert process.stdout is not None
        told = [line.split(": ")[:2] for line in islice(process.stdout, 3)]
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=600)
    assert told[0] == ["Framework/told", "FrameworkAttemptStarted"]
    assert ["Framework/told", "TaskFailed"] in told[1:]
    assert process.returncode == 128 + signal.SIGTERM


def test_an_interrupted_command_ends_in_silence(shell: Shell) -> None:
    shell.create(framework("long", "exec sleep 600"))
    commands = (["wait", "long"], ["status", "long", "--watch"], ["logs", "long", "-f"], ["events", "-w"])
    processes = [shell.start("frameworkcontroller", *arguments) for arguments in commands]
    for process in processes:
        with process:
            wait_until_it_waits(process.pid)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=600)
        assert (process.returncode, err) == (130, ""), process.args


def wait_until_it_waits(pid: int) -> None:
    """Until the process is connected to the API server and uses no CPU: it waits in vain."""
    deadline = time.monotonic() + 300
    before, quiet = -1, 0
    while quiet < 3:
        assert time.monotonic() < deadline
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used = int(fields[11]) + int(fields[12])
        quiet = quiet + 1 if used - before <= 1 and is_connected(pid) else 0
        before = used
        time.sleep(0.2)


def is_connected(pid: int) -> bool:
    """Whether the process has a TCP connection."""
    sockets = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            sockets.add(link.readlink().name)
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[3] == "01" and f"socket:[{row[9]}]" in sockets for row in rows)


@pytest.mark.parametrize(
    "arguments",
    [("decompress", "long"), ("events", "long", "--watch"), ("logs", "long", "-f"), ("wait", "long"), ("local", "up")],
)
def test_a_pipe_without_reader_is_no_trouble(shell: Shell, arguments: tuple[str, ...]) -> None:
    with shell.start("frameworkcontroller", *arguments) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert process.returncode == 141


@pytest.mark.parametrize(
    ("options", "script", "tasks"), [([], "exec sleep 1000", 40), (["--logs"], "seq 5000; exec sleep 1000", 1)]
)
def test_local_run_ends_quietly_when_its_reader_goes(shell: Shell, options: list[str], script: str, tasks: int) -> None:
    file = shell.folder / "left.json"
    file.write_text(json.dumps(framework("left", script, tasks=tasks)))
    with shell.start("frameworkcontroller", "local", "run", *options, str(file)) as process:
        assert process.stdout is not None
        assert any(line.startswith("left-") or not options for line in process.stdout)
        process.stdout.close()
        assert process.stderr is not None
        errors = [line for line in process.stderr if ": warning: " not in line]
    assert (process.returncode, errors) == (141, [])


def test_colors_are_for_terminals_and_for_those_who_want_them(shell: Shell) -> None:
    assert shell.run("frameworkcontroller", "wait", "long", "--for", "running", "--timeout", "10m")[0] == 0
    assert "\x1b[" in shell.run("frameworkcontroller", "status", "long", FORCE_COLOR="1")[1]
    plain = shell.run("frameworkcontroller", "status", "long", FORCE_COLOR="1", NO_COLOR="1")[1]
    assert "\x1b[3" not in plain
    code, out, err = shell.run("frameworkcontroller", "status", "long", PYTHONIOENCODING="ascii")
    assert (code, err) == (0, "")
    assert "[0]  Running" in out


@pytest.mark.usefixtures("logging_as_before")
def test_the_namespace_is_the_contexts_unless_another_is_named(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", shell.environment["KUBECONFIG"])
    config = yaml.safe_load(Path(shell.environment["KUBECONFIG"]).read_text())
    config["contexts"][0]["context"]["namespace"] = "kube-system"
    other = shell.folder / "other"
    other.write_text(yaml.safe_dump(config))
    hint = "if it was deleted: kubectl framework history long -n kube-system"
    absent = f'error: there is no Framework "long" in namespace "kube-system"; {hint}\n'
    empty = 'there are no Frameworks in namespace "kube-system"\n'
    options = ("--kubeconfig", str(other))
    assert run_program(*options, "status", "long", program=kubectl_main) == (1, "", absent)
    assert run_program("status", "long", *options, "-n", "default").code == 0
    assert run_program(*options, "list", program=kubectl_main) == (0, "", empty)
    assert run_program("list", "-n", "kube-system") == (0, "", f"frameworkcontroller: {empty}")
    ended = run_program("list", "--context", "none")
    assert (ended.code, "there is no context 'none'" in ended.err) == (2, True)


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logging_as_before: None) -> Callable[..., Ended]:
    """Runs commands in this process, where no cluster runs."""
    for name, value in {"HOME": str(tmp_path), "KUBECONFIG": "/nowhere"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return run_program


@pytest.mark.parametrize(
    ("environment", "code", "said"),
    [
        ({"KUBECONFIG": "/nowhere"}, 2, "kubeconfig /nowhere: no such file"),
        ({"KUBECONFIG": ""}, 2, "no cluster: set $KUBECONFIG or --kubeconfig"),
        ({"KUBECONFIG": "", "KUBE_APISERVER_ADDRESS": "http://127.0.0.1:1"}, 1, "GET /apis/frameworkcontroller"),
    ],
)
@pytest.mark.parametrize(("program", "name"), [(kubectl_main, "error"), (main, "frameworkcontroller")])
def test_a_missing_cluster_is_reported_in_a_line(
    offline: Callable[..., Ended],
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    code: int,
    said: str,
    program: Callable[..., int],
    name: str,
) -> None:
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    ended = offline("list", program=program)
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith(f"{name}: {said}")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(("kubeconfig", "said"), [("", "no cluster: set $KUBECONFIG"), ("/nowhere", "kubeconfig /now")])
@pytest.mark.parametrize("options", [(), ("-f",), ("--attempt", "1"), ("--all-attempts",)])
def test_logs_name_both_places_where_there_is_neither_cluster_nor_archive(
    offline: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, kubeconfig: str, said: str, options: tuple[str, ...]
) -> None:
    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    ended = offline("logs", "long", *options, program=kubectl_main)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {said}")
    assert f"; or name an archive: {HOW_TO_NAME}" in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("kubeconfig", "said"),
    [("/nowhere", "kubeconfig /nowhere: no such file"), ("", "no cluster: set $KUBECONFIG or --kubeconfig")],
)
@pytest.mark.parametrize("words", ["logs long", "history show", "dashboard"])
def test_other_commands_report_a_missing_cluster_in_the_same_words(
    offline: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, words: str, kubeconfig: str, said: str
) -> None:
    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    ended = offline(*words.split())
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"frameworkcontroller: {said}")


class Unauthorized(BaseHTTPRequestHandler):
    """An API server that accepts no credentials."""

    def do_GET(self) -> None:
        body = json.dumps({"kind": "Status", "code": 401, "reason": "Unauthorized", "message": "Unauthorized"}).encode()
        self.send_response(401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Print nothing."""


def test_refused_credentials_are_reported_with_server_and_context(
    offline: Callable[..., Ended], tmp_path: Path
) -> None:
    with HTTPServer(("127.0.0.1", 0), Unauthorized) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        config = {
            "current-context": "prod",
            "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {"token": "old"}}],
        }
        (tmp_path / "k").write_text(yaml.safe_dump(config))
        ended = offline("list", "--kubeconfig", str(tmp_path / "k"), program=kubectl_main)
        server.shutdown()
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        f"error: {url} (kubeconfig {tmp_path}/k, context prod) does not accept the credentials: Unauthorized. Log in "
        "again, or choose another context: kubectl config get-contexts\n"
    )


def test_kubectl_finds_it_and_completes_it(shell: Shell) -> None:
    program = find_kubectl()
    if isinstance(program, str):
        pytest.skip(program)
    code, out, err = shell.run(str(program), "framework", "list")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["NAME", "PHASE", "TASKS", "RETRIES", "AGE"]
    told = shell.run(str(program), "__complete", "framework", "status", "lon")[1]
    assert told.splitlines() == ["long", ":4"]
    told = shell.run(str(program), "__complete", "framework", "sta")[1]
    assert told.splitlines() == ["status", "start", ":4"]


def test_bash_completes_it(shell: Shell) -> None:
    asked = "frameworkcontroller scale long "
    script = (
        "source <(frameworkcontroller completion bash); "
        f"COMP_LINE='{asked}' COMP_POINT={len(asked)} COMP_TYPE=9; _python_argcomplete frameworkcontroller; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    assert shell.run("bash", "--norc", "-c", script) == (0, "w=\n", "")


@pytest.mark.parametrize("kind", ["zsh", "fish"])
def test_scripts_for_other_shells(offline: Callable[..., Ended], kind: str) -> None:
    ended = offline("completion", kind)
    assert (ended.code, ended.err) == (0, "")
    assert "frameworkcontroller" in ended.out
    assert "kubectl-framework" in ended.out


def test_lint_needs_no_cluster(offline: Callable[..., Ended]) -> None:
    Path("good.yaml").write_text(yaml.safe_dump(framework("f", "true")))
    Path("bad.yaml").write_text("apiVersion: frameworkcontroller.microsoft.com/v1\nkind: Framework\n")
    assert offline("lint", "good.yaml").code == 0
    assert offline("lint", "good.yaml", "bad.yaml").code == 1
    said = "frameworkcontroller: absent.yaml: cannot be read: No such file or directory\n"
    assert offline("lint", "absent.yaml") == (2, "", said)


def test_decompress_of_a_file(offline: Callable[..., Ended]) -> None:
    Path("f.yaml").write_text(yaml.safe_dump(framework("f", "true")))
    ended = offline("decompress", "-f", "f.yaml", "-o", "yaml")
    assert (ended.code, ended.err) == (0, "")
    assert yaml.safe_load(ended.out) == framework("f", "true")
