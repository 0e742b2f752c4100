"""The scheduler of TorchX, with TorchX's own programs, of the release and of the newest nightly build on PyPI."""

import json
import os
import re
import site
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

import frameworkcontroller as fc
from tests.support.libraries import install

Json = dict[str, Any]

RELEASE: Final = "torchx==0.7.0"
NIGHTLY: Final = "torchx-nightly==2026.10.26"
PENDING, RUNNING, FAILED, CANCELLED = 2, 3, 5, 6
"""Values of its AppState."""

HANDLE: Final = "frameworkcontroller://torchx/"
ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class TorchX:
    """TorchX in an environment of its own, which finds the product and its libraries in this one."""

    wanted: str
    bin: Path
    variables: dict[str, str]

    def run(self, program: str, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.bin / program, *arguments],
            env=self.variables | variables,
            cwd=self.variables["HOME"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def ok(self, *arguments: str) -> str:
        """Return the standard output of `torchx`."""
        ran = self.run("torchx", *arguments)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def submit(self, *arguments: str) -> str:
        """Run an app, and return its id."""
        handle = self.ok("run", "--scheduler", "frameworkcontroller", "--workspace=", *arguments).strip()
        assert handle.startswith(f"{HANDLE}default:")
        return handle.removeprefix(HANDLE)

    def api(self, *arguments: str) -> Any:
        """Call a function of torchxapp.py."""
        ran = self.run("python", ROOT / "tests/support/torchxapp.py", *arguments)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of a local cluster."""
    path = tmp_path_factory.mktemp("cluster") / "kubeconfig"
    command = [sys.executable, "-m", "frameworkcontroller", "local", "up", "--kubeconfig", str(path)]
    command += ["--until-stdin-closes"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert any(line.startswith("A cluster runs at ") for line in process.stdout)
        yield path
        process.stdin.close()
        process.stdout.read()


@pytest.fixture(scope="module", params=[RELEASE, NIGHTLY])
def torchx(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kubeconfig: Path) -> TorchX:
    folder = tmp_path_factory.mktemp("torchx")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv/bin/python"
    install(request.param, python=python)
    (folder / "home").mkdir()
    variables = {
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *site.getsitepackages()]),
        "HOME": str(folder / "home"),
        "KUBECONFIG": str(kubeconfig),
    }
    return TorchX(request.param, python.parent, variables)


@pytest.fixture
def here(kubeconfig: Path) -> Iterator[fc.Cluster]:
    with fc.connect(kubeconfig=str(kubeconfig)) as found:
        yield found


def name_in(app_id: str) -> str:
    return app_id.partition(":")[2]


def test_it_is_found_once_besides_the_others(torchx: TorchX) -> None:
    """TorchX 0.7 knows no other scheduler as soon as there is a plug-in; docs/torchx.md says so."""
    listed = torchx.run("torchx", "runopts")
    assert listed.returncode == 0
    assert "registered via both" not in listed.stdout + listed.stderr
    schedulers = re.findall(r"^(\w+):", listed.stdout, re.MULTILINE)
    if torchx.wanted == RELEASE:
        assert schedulers == ["frameworkcontroller"]
    else:
        assert {"frameworkcontroller", "local_cwd", "kubernetes"} <= set(schedulers)
        without_entry_points = torchx.run("torchx", "runopts", "frameworkcontroller", TORCHX_PLUGINS_SOURCE="1")
        assert "[queue=QUEUE]" in without_entry_points.stdout


def test_a_dry_run_shows_the_same_framework_each_time(torchx: TorchX) -> None:
    first, second = torchx.api("dryrun")
    for one in (first, second):
        for role in one["manifest"]["spec"]["taskRoles"]:
            env = role["task"]["pod"]["spec"]["containers"][0]["env"]
            # TorchX's own, different in each process.
            env[:] = [variable for variable in env if not variable["name"].startswith("TORCHX_INTERNAL")]
    assert first == second
    assert first["namespace"] == "ml"
    metadata, spec = first["manifest"]["metadata"], first["manifest"]["spec"]
    assert metadata == {
        "generateName": "app3dtrain",
        "labels": {
            "torchx.pytorch.org/app-name": "3D-Train",
            "kueue.x-k8s.io/queue-name": "team",
            "kueue.x-k8s.io/priority-class": "high",
        },
        "annotations": {
            "torchx.pytorch.org/app-name": "3D-Train",
            "torchx.pytorch.org/role-names": '{"mytrainerv2": "my-trainer_v2", "mytrainerv22": "MyTrainer v2"}',
        },
    }
    trainer, reader = spec.pop("taskRoles")
    assert spec == {
        "network": {},
        "coordinator": {"taskRole": "mytrainerv2", "taskIndex": 0},
        "scheduling": {"schedulingPolicy": {"gang": {}}},
        "retryPolicy": {"fancyRetryPolicy": False, "maxRetryCount": 3},
    }
    pod = trainer["task"]["pod"]["spec"]
    container = pod["containers"][0]
    text = "train --index {{FC_TASK_INDEX}} --id {{FC_FRAMEWORK_NAME}} --root '' $$(date)"
    assert (container["image"], container["command"]) == ("train:1", ["sh", "-c", text])
    variables = {one["name"]: one["value"] for one in container["env"]}
    assert variables["RANK0"] == "TORCHX_RANK0_HOST"
    assert variables["TORCHX_RANK0_HOST"] == "{{FC_COORDINATOR_HOST}}"
    assert variables["PRICE"] == "$$(HOME)"
    assert variables["PYTHONPATH"] == container["workingDir"] == "/mnt/code"
    counted = {"nvidia.com/gpu": "2", "vpc.amazonaws.com/efa": "1"}
    assert container["resources"] == {"requests": {"cpu": "8.0", "memory": "1024M", **counted}, "limits": counted}
    assert container["ports"] == [{"name": "c10d", "containerPort": 29500}]
    assert container["securityContext"] == {"privileged": True}
    mounted = {one["name"]: (one["mountPath"], one.get("readOnly", False)) for one in container["volumeMounts"]}
    assert [mounted[f"mount-{number}"] for number in range(3)] == [
        ("/mnt/data", True),
        ("/mnt/claim", False),
        ("/dev/fuse", False),
    ]
    volumes = {one.pop("name"): one for one in pod["volumes"]}
    assert [volumes[f"mount-{number}"] for number in range(3)] == [
        {"hostPath": {"path": "/data"}},
        {"persistentVolumeClaim": {"claimName": "claim"}},
        {"hostPath": {"path": "/dev/fuse"}},
    ]
    assert pod["nodeSelector"] == {"node.kubernetes.io/instance-type": "large"}
    assert pod["serviceAccountName"] == "trainer"
    # Two of four nodes suffice: the third failure is the end.
    assert (trainer["taskNumber"], trainer["frameworkAttemptCompletionPolicy"]["minFailedTaskCount"]) == (4, 3)
    assert trainer["task"]["retryPolicy"]["maxRetryCount"] == 0
    assert (reader["taskNumber"], reader["task"]["retryPolicy"]["maxRetryCount"]) == (1, 2)
    assert "resources" not in reader["task"]["pod"]["spec"]["containers"][0]


def test_an_app_runs_to_its_end(torchx: TorchX, here: fc.Cluster) -> None:
    text = "hello $(HOME)\nbye"
    app_id = torchx.submit("utils.echo", "--msg", text, "--num_replicas", "2")
    handle = f"{HANDLE}{app_id}"
    lines = re.sub(r"\x1b\[\d+m", "", torchx.ok("log", "--tail", f"{handle}/echo")).splitlines()
    assert sorted(lines) == ["echo/0 bye", "echo/0 hello $(HOME)", "echo/1 bye", "echo/1 hello $(HOME)"]
    here.get(name_in(app_id)).wait()
    status = torchx.ok("status", handle)
    assert "State: SUCCEEDED" in status
    assert re.findall(r"echo\[\d\]:\w+", status) == ["echo[0]:SUCCEEDED", "echo[1]:SUCCEEDED"]
    assert re.search(rf"{re.escape(handle)} .*SUCCEEDED", torchx.ok("list", "--scheduler", "frameworkcontroller"))
    # The Pods are gone: from the archive.
    assert re.findall("hello|bye", torchx.ok("log", "--regex", "HOME", f"{handle}/echo")) == ["hello", "hello"]
    (role,) = torchx.api("describe", app_id)["roles"]
    assert (role["name"], role["entrypoint"], role["args"]) == ("echo", "echo", [text])
    assert (role["num_replicas"], role["resource"]["cpu"], role["resource"]["memMB"]) == (2, 1, 1024)


def test_a_failing_app_is_retried_and_says_why(torchx: TorchX, here: fc.Cluster) -> None:
    app_id = torchx.submit("utils.sh", "--max_retries", "1", "sh", "-c", "echo no luck; exit 3")
    here.get(name_in(app_id)).wait()
    found = torchx.api("describe", app_id)
    status, (role,) = found["status"], found["roles"]
    assert (status["state"], status["num_restarts"]) == (FAILED, 1)
    assert "sh[0] on local: main exited with 3: no luck" in status["msg"]
    assert (role["max_retries"], role["retry_policy"]) == (1, "APPLICATION")
    shown = torchx.ok("status", f"{HANDLE}{app_id}")
    assert "sh[0]:FAILED (exitcode: 3)" in shown
    assert "error_msg: main exited with 3: no luck" in shown


def test_a_handle_names_its_context(torchx: TorchX, here: fc.Cluster, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    config = yaml.safe_load(Path(torchx.variables["KUBECONFIG"]).read_text())
    config["contexts"][0]["name"], config["current-context"] = "arn:east/mine", "another"
    file.write_text(yaml.safe_dump(config))
    ran = torchx.run(
        *("torchx", "run", "--scheduler", "frameworkcontroller", "-cfg", "context=arn:east/mine", "utils.echo"),
        KUBECONFIG=str(file),
    )
    assert ran.returncode == 0, ran.stderr
    handle = ran.stdout.strip()
    assert handle.startswith(f"{HANDLE}arn%3Aeast%2Fmine:default:echo")
    here.get(handle.rpartition(":")[2]).wait()
    log = torchx.run("torchx", "log", f"{handle}/echo/0", KUBECONFIG=str(file))
    assert "hello world" in log.stdout, log.stderr


def test_a_cancelled_app_stays_and_a_deleted_one_is_gone(torchx: TorchX, here: fc.Cluster) -> None:
    app_id = torchx.submit("utils.sh", "sh", "-c", "echo hello; exec sleep 1000")
    handle, run = f"{HANDLE}{app_id}", here.get(name_in(app_id))
    run.wait("Running")
    next(run.logs(follow=True))
    assert torchx.api("describe", app_id)["status"]["state"] == RUNNING
    assert torchx.api("lines", app_id, "sh") == {"all": ["hello\n"], "both": ["hello\n"], "since": [], "until": []}
    run.suspend()
    run.wait("Suspended")
    assert torchx.api("describe", app_id)["status"]["state"] == PENDING
    run.resume()
    torchx.ok("cancel", handle)
    assert run.wait().phase is fc.Phase.STOPPED
    assert torchx.api("cancel", app_id) == [CANCELLED, CANCELLED]
    if torchx.wanted == RELEASE:
        run.delete()
    else:
        torchx.ok("delete", handle)
        run.delete()  # waits
    assert torchx.run("torchx", "status", handle).returncode == 1
