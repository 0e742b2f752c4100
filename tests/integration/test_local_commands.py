"""`frameworkcontroller local` as a person runs it: real processes in real time, and nothing left behind."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, OpenerDirector, Request, build_opener, urlopen

import pytest
import yaml

from frameworkcontroller.cli import local
from tests.support.cli import run_program
from tests.support.frameworks import manifest

COMMAND = [sys.executable, "-m", "frameworkcontroller", "local"]
MARK = f"87654.{os.getpid()}"
"""An argument of `sleep` that no other process has, of another run of the tests neither."""


def framework(name: str, script: str, *, tasks: int = 1, policy: dict[str, int] | None = None) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "command": ["sh", "-c", script]}
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    role = {
        "name": "w",
        "taskNumber": tasks,
        "frameworkAttemptCompletionPolicy": policy or {"minFailedTaskCount": 1},
        "task": {"pod": pod},
    }
    return manifest(name, role)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A working directory; afterwards, temporary files and processes of the test are all gone."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "work").mkdir()
    yield tmp_path / "work"
    assert list((tmp_path / "tmp").iterdir()) == []
    assert sleepers() == []


def sleepers() -> list[str]:
    found = []
    for process in Path("/proc").iterdir():
        try:
            line = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if line[:2] == [b"sleep", MARK.encode()]:
            found.append(process.name)
    return found


def environment(folder: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "TMPDIR": str(folder.parent / "tmp")}


def run(folder: Path, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment(folder),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@contextmanager
def running(
    folder: Path, *arguments: str, until: str, stderr: IO[str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """The command as a process that has printed a line with ``until``."""
    with subprocess.Popen(
        [*COMMAND, *arguments], cwd=folder, env=environment(folder), stdout=subprocess.PIPE, stderr=stderr, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert any(until in line for line in process.stdout)
            yield process
        finally:
            process.kill()


def test_without_namespaces_it_reports_once_the_missing_features(folder: Path) -> None:
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all "$@"'
    confined = ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh"]
    if subprocess.run([*confined, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("cannot take the permission away")
    (folder / "a.yaml").write_text(yaml.safe_dump(framework("a", "exit 0")))
    ended = subprocess.run(
        [*confined, *COMMAND, "run", "a.yaml"],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("Note: no namespaces (")
    assert ended.stdout.count("the names of Pods and Services do not resolve, and volumes are not mounted") == 1


def test_success(folder: Path) -> None:
    (folder / "a.yaml").write_text(
        yaml.safe_dump_all([framework("a", "exit 0", tasks=2), framework("b", "echo $FC_TASK_INDEX")])
    )
    (folder / "c.json").write_text(json.dumps(framework("c", "true")))
    ended = run(folder, "run", "a.yaml", "c.json", "--timeout", "500")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert " a w[0]: Pending (attempt 0)\n" in ended.stdout
    summary = ended.stdout.partition("\n\n")[2]
    assert [line.split(" after ")[0] for line in summary.splitlines() if not line.startswith(" ")] == [
        "a: Succeeded",
        "b: Succeeded",
        "c: Succeeded",
    ]
    assert "    w: 2 Tasks, 0 retries: 2 succeeded\n" in summary


def test_failure_says_why(folder: Path) -> None:
    manifest = json.dumps(framework("f", "echo disk :bomb: is full >&2; exit 7"))
    ended = run(folder, "run", "-", "--timeout", "500", stdin=manifest)
    assert (ended.returncode, ended.stderr) == (1, "")
    summary = ended.stdout.partition("\n\n")[2]
    assert re.match(r"f: Failed after \d+s: w\[0\] on \S+: main exited with 7: disk :bomb: is full\n", summary)
    # Words of a container are no emoji.
    assert ended.stdout.count("disk :bomb: is full") == ended.stdout.count("is full") > 1
    assert "7 ContainerUnrecognizedFailed, by w[0]: FailedTaskCount 1 has reached MinFailedTaskCount 1" in summary


ENDLESS = "warning: spec.taskRoles[0].task.pod.spec.restartPolicy: is missing, which is Always: containers that end"


def test_run_prints_the_findings_of_lint_before_anything_runs(folder: Path) -> None:
    endless = framework("f", "true")
    del endless["spec"]["taskRoles"][0]["task"]["pod"]["spec"]["restartPolicy"]
    (folder / "f.yaml").write_text(yaml.safe_dump_all([framework("sound", "true"), endless]))
    ended = run(folder, "run", "f.yaml", "--timeout", "2", "--runtime", "simulated")
    found, late = ended.stderr.splitlines()
    assert found.startswith(f"frameworkcontroller: f.yaml: document 2 (Framework f): {ENDLESS}")
    assert (ended.returncode, late) == (1, "frameworkcontroller: not all Frameworks completed within 2s")


@pytest.mark.parametrize("terminal", [False, True])
def test_run_says_why_a_framework_waits(folder: Path, *, terminal: bool) -> None:
    waits = framework("f", "true")
    waits["spec"]["taskRoles"][0]["task"]["pod"]["spec"]["schedulerName"] = "other"
    (folder / "f.yaml").write_text(yaml.safe_dump(waits))
    ended = subprocess.run(
        [*COMMAND, "run", "f.yaml", "--timeout", "6"],
        cwd=folder,
        env=environment(folder) | ({"FORCE_COLOR": "1", "TERM": "xterm"} if terminal else {}),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    live, _, result = ended.stdout.rpartition("f: Pending")
    assert ("waits for the scheduler other" in live) == terminal
    assert re.search(r"^    f-\w+-0: waits for the scheduler other$", result, re.MULTILINE)


def test_run_ends_at_a_framework_that_cannot_start(folder: Path) -> None:
    invalid, paused = framework("f", "true"), framework("g", "true")
    size = {"requests": {"storage": "1Gi"}}
    claim = {"metadata": {"name": "a"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": size}}
    invalid["spec"]["taskRoles"][0]["volumeClaimTemplates"] = [claim, claim]
    paused["spec"]["suspend"] = True
    (folder / "f.yaml").write_text(yaml.safe_dump_all([invalid, paused]))
    ended = run(folder, "run", "f.yaml")
    taken = (
        "spec.taskRoles[0].volumeClaimTemplates[1].metadata.name: 'a': is already the name of volumeClaimTemplates[0]"
    )
    first, *others = ended.stderr.splitlines()
    assert first == f"frameworkcontroller: f.yaml: document 1 (Framework f): error: {taken}"
    assert [line for line in others if ": error: " in line] == []
    assert ended.returncode == 1
    lines = ended.stdout.splitlines()
    assert f"f: Pending: {taken}" in lines
    # Suspended once it is known that nothing of it exists.
    assert any(re.match("g: (Pending|Suspended): spec.suspend is true", line) for line in lines)


@pytest.mark.usefixtures("logging_as_before")
def test_without_a_terminal_run_has_a_timeout(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_UNWATCHED_SEC", 2.0)
    monkeypatch.setenv("TMPDIR", str(folder))
    body = framework("f", "true")
    (folder / "f.yaml").write_text(yaml.safe_dump(body))
    ended = run_program("local", "run", str(folder / "f.yaml"), "--runtime", "simulated")
    assert ended.code == 1
    assert ended.err.splitlines()[-1] == (
        "frameworkcontroller: not all Frameworks completed within 2s (--timeout extends this default)"
    )


def test_up_prints_the_findings_of_lint_on_created_objects(folder: Path) -> None:
    endless = framework("f", "true")
    del endless["spec"]["taskRoles"][0]["task"]["pod"]["spec"]["restartPolicy"]
    told = folder / "told"
    with (
        told.open("w") as stderr,
        running(folder, "up", "--kubeconfig", "c", "--runtime", "simulated", until="Ctrl-C", stderr=stderr) as process,
    ):
        server = yaml.safe_load((folder / "c").read_text())["clusters"][0]["cluster"]["server"]
        path = f"{server}/apis/frameworkcontroller.microsoft.com/v1/namespaces/default/frameworks"
        for body in (framework("sound", "true"), endless):
            headers = {"Content-Type": "application/json"}
            with urlopen(Request(path, json.dumps(body).encode(), headers)) as answer:
                assert answer.status == 201
        while f"\nframeworkcontroller: f: {ENDLESS}" not in "\n" + told.read_text():
            time.sleep(0.05)
        assert "frameworkcontroller: sound:" not in told.read_text()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=600)


def test_logs(folder: Path) -> None:
    body = framework(
        "f", "echo attempt $FC_TASK_ATTEMPT_ID; echo down >&2; printf 'last words'; exit $FC_TASK_INDEX", tasks=2
    )
    pod = body["spec"]["taskRoles"][0]["task"]
    pod["retryPolicy"] = {"maxRetryCount": 1}
    body["spec"]["taskRoles"][0]["frameworkAttemptCompletionPolicy"] = {"minFailedTaskCount": -1}
    many = framework("g", "seq 5000")
    setup = {"name": "setup", "image": "none", "command": ["sh", "-c", "printf '\\033[31mred\\033[0m'"]}
    many["spec"]["taskRoles"][0]["task"]["pod"]["spec"]["initContainers"] = [setup]
    (folder / "f.yaml").write_text(yaml.safe_dump_all([body, many]))
    ended = run(folder, "run", "f.yaml", "--logs", "--timeout", "500")
    assert (ended.returncode, ended.stderr) == (0, "")
    printed: dict[str, list[str]] = {}
    for line in ended.stdout.splitlines():
        label, bar, text = line.partition(" | ")
        if bar:
            printed.setdefault(label.rstrip(), []).append(text)
    for task in ("f-w-0", "f-w-1", "f-w-1#1"):
        # The order of output to two pipes is unknown.
        printed[task].sort()
    assert printed == {
        "f-w-0": ["attempt 0", "down", "last words"],
        "f-w-1": ["attempt 0", "down", "last words"],
        "f-w-1#1": ["attempt 1", "down", "last words"],
        "g-w-0/setup": ["red"],
        "g-w-0/main": [str(number) for number in range(1, 5001)],
    }


def test_a_directory_in_place_of_a_network_volume(folder: Path) -> None:
    body = framework("f", 'cat "$FC_LOCAL_VOLUME_N/in" && echo done >"$FC_LOCAL_VOLUME_N/out"')
    pod = body["spec"]["taskRoles"][0]["task"]["pod"]["spec"]
    pod["volumes"] = [{"name": "n", "nfs": {"server": "s", "path": "/x"}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "n", "mountPath": "/n"}]
    (folder / "f.yaml").write_text(yaml.safe_dump(body))
    (folder / "nfs").mkdir()
    (folder / "nfs" / "in").write_text("given\n")
    refused = run(folder, "run", "f.yaml", "--timeout", "500")
    assert refused.returncode == 1
    assert "--map-volume nfs:s:/x=DIRECTORY" in refused.stdout
    ended = run(folder, "run", "f.yaml", "--logs", "--timeout", "500", "--map-volume", "nfs:s:/x=nfs")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "f-w-0 | given" in ended.stdout
    assert (folder / "nfs" / "out").read_text() == "done\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_leaves_nothing_behind(folder: Path, number: signal.Signals) -> None:
    (folder / "f.yaml").write_text(yaml.safe_dump(framework("f", f"trap '' INT TERM; sleep {MARK}; sleep {MARK}")))
    with running(folder, "run", "f.yaml", until="w[0]: Running") as process:
        while not sleepers():
            time.sleep(0.05)
        process.send_signal(number)
        process.communicate(timeout=600)
    assert process.returncode == 128 + number


@pytest.mark.parametrize("arguments", [("up",), ("run", "f.yaml")])
def test_the_leftovers_of_a_killed_one_are_removed_by_the_next_one(folder: Path, arguments: tuple[str, ...]) -> None:
    (folder / "f.yaml").write_text(yaml.safe_dump(framework("f", f"exec sleep {MARK}")))
    temporary = folder.parent / "tmp"
    foreign = temporary / "frameworkcontroller-foreign"
    foreign.mkdir()
    with running(folder, "up", until="Ctrl-C") as other:
        others = set(temporary.iterdir())
        with running(folder, *arguments, until="Ctrl-C" if arguments[0] == "up" else "w[0]: Running") as killed:
            killed.kill()
            killed.communicate(timeout=600)
        left = set(temporary.iterdir()) - others
        assert len(left) == 1
        ended = run(folder, "run", "-", "--timeout", "500", stdin=json.dumps(framework("g", "true")))
        assert (ended.returncode, ended.stderr) == (0, "")
        assert set(temporary.iterdir()) == others
        other.send_signal(signal.SIGTERM)
        other.communicate(timeout=600)
    assert other.returncode == 0
    foreign.rmdir()
    while sleepers():
        time.sleep(0.05)


@pytest.mark.parametrize("quota", ["", "cpu=8,nvidia.com/gpu=4"])
def test_up(folder: Path, quota: str) -> None:
    """It serves queues only on request."""
    arguments = ["up", "--kubeconfig", "k/config", "--runtime", "simulated", *(["--queue", quota] if quota else [])]
    with running(folder, *arguments, until="Ctrl-C") as process:
        config = yaml.safe_load((folder / "k" / "config").read_text())
        assert (folder / "k" / "config").stat().st_mode & 0o777 == 0o600
        server = config["clusters"][0]["cluster"]["server"]
        with urlopen(f"{server}/apis/frameworkcontroller.microsoft.com/v1") as answer:
            assert "frameworks" in {resource["name"] for resource in json.load(answer)["resources"]}
        with urlopen(f"{server}/apis") as answer:
            groups = {group["name"] for group in json.load(answer)["groups"]}
        assert ("kueue.x-k8s.io" in groups) == bool(quota)
        if quota:
            with urlopen(f"{server}/apis/kueue.x-k8s.io/v1beta2/clusterqueues/cluster-queue") as answer:
                (group,) = json.load(answer)["spec"]["resourceGroups"]
            (flavor,) = group["flavors"]
            assert flavor["resources"] == [
                {"name": "cpu", "nominalQuota": "8"},
                {"name": "nvidia.com/gpu", "nominalQuota": "4"},
            ]
        process.send_signal(signal.SIGTERM if quota else signal.SIGINT)
        process.communicate(timeout=600)
    assert process.returncode == 0
    assert not (folder / "k" / "config").exists()


def test_up_prints_where_kubectl_finds_its_plugin(folder: Path) -> None:
    place = Path(sys.executable).parent
    assert (place / "kubectl-framework").exists()
    with running(folder, "up", "--runtime", "simulated", until=f"    export PATH={place}:$PATH") as process:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=600)


def test_up_replaces_the_kubeconfig_of_a_local_cluster(folder: Path) -> None:
    ours = ("up", "--kubeconfig", "ours", "--runtime", "simulated")
    with running(folder, *ours, until="Ctrl-C") as first, running(folder, *ours, until="Ctrl-C") as second:
        newer = (folder / "ours").read_text()
        first.send_signal(signal.SIGTERM)
        first.communicate(timeout=600)
        assert (folder / "ours").read_text() == newer
        second.send_signal(signal.SIGTERM)
        second.communicate(timeout=600)
    assert not (folder / "ours").exists()


def create(folder: Path, body: dict[str, Any]) -> None:
    """Create a Framework on the cluster of the kubeconfig c."""
    server = yaml.safe_load((folder / "c").read_text())["clusters"][0]["cluster"]["server"]
    path = f"{server}/apis/frameworkcontroller.microsoft.com/v1/namespaces/default/frameworks"
    with urlopen(Request(path, json.dumps(body).encode(), {"Content-Type": "application/json"})) as answer:
        assert answer.status == 201


def test_up_prints_a_line_per_change_and_logs_to_a_file(folder: Path) -> None:
    told = folder / "told"
    with (
        told.open("w") as stderr,
        running(folder, "up", "--kubeconfig", "c", "--data", "d", until="Ctrl-C", stderr=stderr) as process,
    ):
        create(folder, framework("f", "exit 7"))
        while ": Failed" not in told.read_text():
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=600)
    lines = [re.sub(r"^ *[0-9.]+s ", "", line) for line in told.read_text().splitlines()]
    assert "f w[0]: attempt 0: main exited with 7" in lines
    assert re.fullmatch(r"f: Failed \(attempt 0\): w\[0\] on \S+: main exited with 7", lines[-1])
    assert "ObjectSnapshot" not in told.read_text()
    assert "OnPodDeletion: ObjectSnapshot: {" in (folder / "d" / "controller.log").read_text()


def test_data_directory_is_kept_and_used_again(folder: Path) -> None:
    for _ in range(2):
        with running(folder, "up", "--data", "data", until="Ctrl-C") as process:
            assert (folder / "data" / "kubeconfig").exists()
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=600)
        assert process.returncode == 0
        # Where Pods may run as other users, these may enter it.
        assert (folder / "data").stat().st_mode & 0o066 == 0
        assert not (folder / "data" / "kubeconfig").exists()


@pytest.mark.usefixtures("logging_as_before")
def test_port_in_use(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run_program("local", "up", "--port", str(port), "--runtime", "simulated")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == f"frameworkcontroller: cannot start a cluster: port {port}: Address already in use\n"


FOREIGN = "contexts: [{name: production}]\n"
BAD_SPEC = framework("f", "true") | {"spec": {"taskRoles": [{"name": "r-r", "taskNumber": -1}]}}


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "errors"),
    [
        (["run", "absent.yaml"], None, 2, ["absent.yaml: cannot be read: No such file or directory"]),
        (
            ["run", "-"],
            "a: b: c",
            2,
            ["standard input:1: document 1: is not YAML: mapping values are not allowed here"],
        ),
        (
            ["run", "-"],
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}",
            2,
            ["the files contain no Framework"],
        ),
        (["run", "-", "--config", "absent.yaml"], "{}", 2, ["absent.yaml: no such file"]),
        (["up", "--queue", "cpu=many"], None, 2, ["--queue: cpu: not a quantity: 'many'"]),
        (
            ["run", "-", "--runtime", "simulated"],
            json.dumps(BAD_SPEC),
            1,
            [
                "standard input: document 1 (Framework f): error: spec.taskRoles[0].name: 'r-r': must be lower case",
                "standard input: document 1 (Framework f): error: spec.taskRoles[0].taskNumber: -1: must be at least 0",
                "standard input: document 1 (Framework f): error: spec.taskRoles[0].task.pod: is required",
                'standard input: document 1 (Framework f): spec.taskRoles[0].name: Invalid value: "r-r"',
                "standard input: document 1 (Framework f): spec.taskRoles[0].taskNumber: Invalid value: -1",
            ],
        ),
        (["up", "--data", "/dev/null"], None, 2, ["--data /dev/null: is not a directory"]),
        (
            ["run", "f.yaml", "--logs", "--runtime", "simulated"],
            None,
            2,
            ["--logs: containers of --runtime simulated write nothing"],
        ),
        (
            ["up", "--kubeconfig", "foreign", "--runtime", "simulated"],
            None,
            2,
            ["--kubeconfig foreign: exists and is not of a local cluster; name another file"],
        ),
    ],
)
@pytest.mark.usefixtures("logging_as_before")
def test_an_impossible_request_is_reported_in_a_line(
    folder: Path, arguments: list[str], stdin: str | None, code: int, errors: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    Path("f.yaml").write_text(yaml.safe_dump(framework("f", "true")))
    Path("foreign").write_text(FOREIGN)
    ended = run_program("local", *arguments, stdin=stdin or "")
    assert (ended.code, ended.out, Path("foreign").read_text()) == (code, "", FOREIGN)
    lines = ended.err.splitlines()
    assert len(lines) == len(errors)
    for line, error in zip(lines, errors, strict=True):
        assert line.startswith(f"frameworkcontroller: {error}")


def test_up_shows_and_archives_deleted_frameworks(folder: Path) -> None:
    body = framework("f", "echo 'no such file' > /dev/termination-log; exit 7")
    command = [*COMMAND, "up", "--kubeconfig", "c"]
    with subprocess.Popen(command, cwd=folder, env=environment(folder), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith("The pages: http://127.0.0.1:")
        link = first.split()[-1]
        pages, _, _ = link.partition("/login?token=")
        with pytest.raises(HTTPError, match="401"):
            urlopen(pages)
        browser = build_opener(HTTPCookieProcessor(CookieJar()))
        assert browser.open(link).headers["Refresh"] == "0; url=./"
        server = yaml.safe_load((folder / "c").read_text())["clusters"][0]["cluster"]["server"]
        path = f"{server}/apis/frameworkcontroller.microsoft.com/v1/namespaces/default/frameworks"
        with urlopen(Request(path, json.dumps(body).encode(), {"Content-Type": "application/json"})) as answer:
            assert answer.status == 201
        here = f"{pages}/frameworks/default/f"
        while "7 ContainerUnrecognizedFailed" not in text_of(browser, here):
            time.sleep(0.05)
        with urlopen(Request(f"{path}/f", method="DELETE")) as answer:
            assert answer.status == 200
        while "from the archive" not in (page := text_of(browser, here)):
            time.sleep(0.05)
        assert "no such file" in page
        # Commands find the archive by the kubeconfig.
        past = [*COMMAND[:-1], "history", "show", "--kubeconfig", str(folder / "c")]
        shown = subprocess.run(past, capture_output=True, text=True, check=False)
        # A page that is open does not hold up the end.
        with browser.open(f"{pages}/events"):
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=600)
    assert process.returncode == 0
    assert [line.split()[:2] for line in shown.stdout.splitlines()[1:]] == [["f", "Failed"]]


def text_of(browser: OpenerDirector, url: str) -> str:
    """The page at a URL; "" if there is none."""
    try:
        with browser.open(url) as answer:
            return str(answer.read().decode())
    except HTTPError:
        return ""
