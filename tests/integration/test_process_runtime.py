"""Runtime "process": real processes in real time, without an API server, with mounts and without."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
import uvloop

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import NotFound
from frameworkcontroller.kube.resources import Resource
from frameworkcontroller.local.kubelet.images import LocalImage
from frameworkcontroller.local.kubelet.podaccess import ApiAccess
from frameworkcontroller.local.kubelet.process import ProcessRuntime
from tests.support.pods import Hosting, pod_manifest
from tests.support.users import passable_directory

Json = dict[str, Any]


class Objects:
    """ConfigMaps and Secrets, in place of an API server."""

    def __init__(self) -> None:
        self.bodies: dict[tuple[str, str], Json] = {}

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> bytes:
        try:
            return orjson.dumps(self.bodies[resource.plural, name])
        except KeyError:
            raise NotFound(f'{resource.plural} "{name}" not found', code=404, reason="NotFound") from None


class Node:
    """A process runtime with a kubelet's surroundings."""

    def __init__(self, directory: Path, *, mounts: bool = True, **options: Any) -> None:
        self.objects = Objects()
        self.directory = directory
        self.runtime = ProcessRuntime(
            cast(KubeClient, self.objects),
            ApiAccess("http://127.0.0.1:1", token="secret"),
            directory,
            mounts=mounts,
            images={"example.com/hello": LocalImage(("echo", "hello"))},
            **options,
        )
        self.pods = Hosting(self.runtime, wall=time.time)

    async def run(self, manifest: Json) -> str:
        """Run a Pod to its end; its uid."""
        uid = self.pods.admit(manifest)
        await self.until(lambda: self.pods.phase(uid) in ("Succeeded", "Failed"))
        return uid

    async def until(self, condition: Callable[[], object], within: float = 300.0) -> None:
        deadline = time.monotonic() + within
        while not condition():
            assert time.monotonic() < deadline, [self.pods.workers.status(pod) for pod in self.pods.workers]
            await asyncio.sleep(0.01)

    async def output(self, container: str = "main", name: str = "f-r-0", **options: Any) -> str:
        defaults: Json = {
            "follow": False,
            "tail_lines": None,
            "since_seconds": None,
            "limit_bytes": None,
            "timestamps": False,
            "previous": False,
        }
        chunks = self.runtime.read("default", name, container, **{**defaults, **options})
        return b"".join([chunk async for chunk in chunks]).decode()

    def terminated(self, uid: str, container: str = "main") -> Json:
        state: Json = self.pods.container(uid, container)["state"]["terminated"]
        return state


@pytest.fixture(params=[True, False], ids=["mounts", "plain"])
async def node(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Node]:
    node = Node(tmp_path / "node", mounts=request.param)
    await node.runtime.open()
    if request.param and not node.runtime.mounts_work:
        await node.runtime.close()
        pytest.skip("mount namespaces do not work here")
    yield node
    await node.runtime.close()
    assert list(node.directory.iterdir()) == []


def sh(script: str, **fields: Any) -> Json:
    """A container that runs a shell script. Kubernetes makes one ``$`` of two, so a shell's ``$$`` must be four."""
    return {"name": "main", "command": ["sh", "-c", script.replace("$$", "$$$$")], **fields}


ONE_GPU = {"local": range(1)}
A_GPU = {"limits": {"nvidia.com/gpu": 1}}
VISIBLE = "echo gpus=$CUDA_VISIBLE_DEVICES ${CUDA_VISIBLE_DEVICES-all}"


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_a_command_runs_and_ends(node: Node) -> None:
    uid = await node.run(pod_manifest(sh("echo out; echo err >&2; exit 3")))
    assert node.pods.phase(uid) == "Failed"
    terminated = node.terminated(uid)
    assert (terminated["exitCode"], terminated["reason"]) == (3, "Error")
    assert sorted((await node.output()).splitlines()) == ["err", "out"]


def test_files_of_the_shell_are_not_handed_down(tmp_path: Path) -> None:
    async def files() -> list[str]:
        node = Node(tmp_path / "node")
        await node.runtime.open()
        try:
            await node.run(pod_manifest(sh("ls /proc/self/fd")))
            return (await node.output()).split()
        finally:
            await node.runtime.close()

    # On the loop of the product, which passes inheritable descriptors on.
    with Path(os.devnull).open() as file, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        os.dup2(file.fileno(), 251, inheritable=True)
        try:
            found = runner.run(files())
        finally:
            os.close(251)
    assert "1" in found
    assert "251" not in found


async def test_exit_by_signal(node: Node) -> None:
    uid = await node.run(pod_manifest(sh("kill -11 $$")))
    assert node.terminated(uid)["exitCode"] == 139
    assert "signal" not in node.terminated(uid)


async def test_environment_and_command(node: Node) -> None:
    node.objects.bodies["configmaps", "settings"] = {"data": {"COLOR": "blue", "SIZE": "9"}}
    node.objects.bodies["secrets", "key"] = {"data": {"word": "c2VzYW1l"}}
    env = [
        {"name": "FC_TASK_ATTEMPT_ID", "value": "2"},
        {"name": "FC_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": "FC_TASK_ATTEMPT_INSTANCE_UID", "value": "$(FC_TASK_ATTEMPT_ID)_$(FC_POD_UID)"},
        {"name": "EARLY", "value": "$(LATE) $$(FC_TASK_ATTEMPT_ID) $(PATH)"},
        {"name": "LATE", "value": "late"},
        {"name": "ROLE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['FC_TASKROLE_NAME']"}}},
        {"name": "INDEX", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['FC_TASK_INDEX']"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
        {"name": "ACCOUNT", "valueFrom": {"fieldRef": {"fieldPath": "spec.serviceAccountName"}}},
        {"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu"}}},
        {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "key", "key": "word"}}},
        {"name": "NONE", "valueFrom": {"configMapKeyRef": {"name": "no", "key": "no", "optional": True}}},
        {"name": "SIZE", "value": "$(SIZE)0"},
    ]
    container = {
        "name": "main",
        "command": ["env"],
        "args": ["-u", "LATE", "sh", "-c", "env; echo arg=$(ROLE) $0 $1", "$(WORD)", "$$(WORD) $(LATER)"],
        "env": env,
        "envFrom": [{"configMapRef": {"name": "settings"}}, {"prefix": "K_", "secretRef": {"name": "key"}}],
        "resources": {"limits": {"memory": "64Mi"}, "requests": {"cpu": "1500m"}},
    }
    os.environ["FC_TEST_LEAK"] = "1"
    try:
        uid = await node.run(
            pod_manifest(container, labels={"FC_TASKROLE_NAME": "r"}, annotations={"FC_TASK_INDEX": "4"})
        )
    finally:
        del os.environ["FC_TEST_LEAK"]
    lines = (await node.output()).splitlines()
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    assert values["FC_TASK_ATTEMPT_INSTANCE_UID"] == f"2_{uid}"
    assert values["EARLY"] == "$(LATE) $(FC_TASK_ATTEMPT_ID) $(PATH)"
    assert "LATE" not in values
    assert (values["ROLE"], values["INDEX"], values["NODE"]) == ("r", "4", "local")
    assert (values["ADDRESS"], values["HOST"]) == (node.pods.status(uid)["podIP"], "127.0.0.1")
    assert values["ACCOUNT"] == "default"
    assert (values["MEMORY"], values["CPU"]) == ("64", "2")
    assert (values["WORD"], values["K_word"]) == ("sesame", "sesame")
    assert "NONE" not in values
    assert (values["COLOR"], values["SIZE"]) == ("blue", "90")
    assert values["HOSTNAME"] == "f-r-0"
    assert values["KUBERNETES_SERVICE_HOST"] == "127.0.0.1"
    assert values["KUBE_APISERVER_ADDRESS"] == "http://127.0.0.1:1"
    assert "FC_TEST_LEAK" not in values
    assert lines[-1] == "arg=r sesame $(WORD) $(LATER)"


async def test_missing_objects_are_waited_for(node: Node) -> None:
    uid = node.pods.admit(
        pod_manifest(sh("echo $X", envFrom=[{"configMapRef": {"name": "late"}}]), restartPolicy="OnFailure")
    )
    await node.until(lambda: node.pods.container(uid)["state"].get("waiting", {}).get("message"))
    assert node.pods.container(uid)["state"]["waiting"] == {
        "reason": "CreateContainerConfigError",
        "message": 'configmap "late" not found',
    }
    node.objects.bodies["configmaps", "late"] = {"data": {"X": "here"}}
    await node.until(lambda: node.pods.phase(uid) == "Succeeded")
    assert await node.output() == "here\n"


async def test_the_barrier_flow(node: Node) -> None:
    """The main container sources a file of an init container in a shared volume; neither path exists on the machine."""
    mount = [{"name": "barrier", "mountPath": "/mnt/frameworkbarrier"}]
    uid = await node.run(
        pod_manifest(
            sh(". /mnt/frameworkbarrier/injector.sh; echo $FB_ROLE_ADDRESSES; pwd", volumeMounts=mount),
            inits=(
                sh(
                    "echo export FB_ROLE_ADDRESSES=1.2.3.4:80 > injector.sh",
                    name="init",
                    workingDir="/mnt/frameworkbarrier",
                    volumeMounts=mount,
                ),
            ),
            volumes=[{"name": "barrier", "emptyDir": {}}],
        )
    )
    assert node.pods.phase(uid) == "Succeeded", node.pods.status(uid)
    addresses, directory = (await node.output()).splitlines()
    assert addresses == "1.2.3.4:80"
    assert directory.startswith(str(node.directory))
    assert not Path("/mnt/frameworkbarrier").exists()


async def test_volumes(node: Node, tmp_path: Path) -> None:
    host = tmp_path / "host"
    host.mkdir()
    (host / "in").write_text("from the machine\n")
    node.objects.bodies["configmaps", "c"] = {"data": {"a.conf": "A\n", "b.conf": "B\n"}}
    node.objects.bodies["secrets", "s"] = {"data": {"key": "S0VZ"}}
    volumes = [
        {"name": "work", "emptyDir": {}},
        {"name": "host", "hostPath": {"path": str(host), "type": "Directory"}},
        {"name": "config", "configMap": {"name": "c", "items": [{"key": "a.conf", "path": "sub/a"}]}},
        {
            "name": "all-in-one",
            "projected": {
                "sources": [
                    {"configMap": {"name": "c"}},
                    {"secret": {"name": "s"}},
                    {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
                ]
            },
        },
    ]
    mounts = [
        {"name": "work", "mountPath": "/work-here"},
        {"name": "work", "mountPath": "/var/lib/part", "subPath": "part"},
        {"name": "host", "mountPath": "/on/host"},
        {"name": "config", "mountPath": "/etc/config-here"},
        {"name": "all-in-one", "mountPath": "/etc/all", "readOnly": True},
    ]
    script = (
        "echo x > /work-here/file; echo y > /var/lib/part/file; cat /work-here/part/file /on/host/in;"
        " echo out > /on/host/out; cat /etc/config-here/sub/a; ls /etc/all; cat /etc/all/key /etc/all/labels;"
        ' echo; cat "$FC_LOCAL_VOLUME_ALL_IN_ONE/b.conf"; cat $FROM'
    )
    container = sh(script, volumeMounts=mounts, env=[{"name": "FROM", "value": "/work-here/file"}])
    uid = await node.run(pod_manifest(container, volumes=volumes, labels={"l": "v"}))
    assert node.pods.phase(uid) == "Succeeded", await node.output()
    assert (await node.output()).splitlines() == [
        *("y", "from the machine", "A", "a.conf", "b.conf", "key", "labels", 'KEYl="v"', "B", "x"),
    ]
    assert (host / "out").read_text() == "out\n"
    for path in ("/work-here", "/var/lib/part", "/on", "/etc/config-here", "/etc/all"):
        assert not Path(path).exists()


@pytest.mark.parametrize(
    ("script", "policy", "message"),
    [
        ("printf reason > /dev/termination-log; exit 1", "File", "reason"),
        ("printf reason > $FC_LOCAL_TERMINATION_LOG", "File", "reason"),
        ("echo from the log; exit 1", "FallbackToLogsOnError", "from the log\n"),
        ("echo from the log; exit 1", "File", None),
        ("echo from the log", "FallbackToLogsOnError", None),
        ("printf both > /dev/termination-log; echo log; exit 1", "FallbackToLogsOnError", "both"),
        ("seq 1000; exit 1", "FallbackToLogsOnError", "".join(f"{n}\n" for n in range(921, 1001))),
        (f"{sys.executable} -c 'print(\"x\" * 9999)'; exit 1", "FallbackToLogsOnError", "x" * 2047 + "\n"),
        (f'{sys.executable} -c \'print("x" * 9999, end="")\' > /dev/termination-log', "File", "x" * 4096),
    ],
)
async def test_termination_message(node: Node, script: str, policy: str, message: str | None) -> None:
    uid = await node.run(pod_manifest(sh(script, terminationMessagePolicy=policy)))
    assert node.terminated(uid).get("message") == message


async def test_programs_that_cannot_be_started(node: Node) -> None:
    for name, command, message in [
        ("a", ["no-such-program"], 'exec: "no-such-program": executable file not found in $PATH'),
        ("b", ["/no/such"], 'exec: "/no/such": stat /no/such: no such file or directory'),
        ("c", ["/etc/passwd"], 'exec: "/etc/passwd": permission denied'),
    ]:
        uid = await node.run(pod_manifest({"name": "main", "command": command}, name=name))
        terminated = node.terminated(uid)
        assert (terminated["exitCode"], terminated["reason"], terminated["message"]) == (128, "StartError", message)


async def test_images_are_not_pulled(node: Node) -> None:
    uid = await node.run(
        pod_manifest(
            {"name": "main", "image": "example.com/web:1"}, inits=(sh("exit 0", name="i"),), restartPolicy="Always"
        )
    )
    status = node.pods.status(uid)
    assert (status["phase"], status["reason"]) == ("Failed", "NoCommand")
    assert 'does not pull its image "example.com/web:1"' in status["message"]
    assert node.terminated(uid)["exitCode"] == 128
    uid = await node.run(pod_manifest({"name": "main", "image": "example.com/hello:1", "args": ["you"]}, name="known"))
    assert await node.output(name="known") == "hello you\n"
    uid = await node.run(pod_manifest({"name": "main", "args": ["echo", "args"]}, name="args"))
    assert await node.output(name="args") == "args\n"


async def test_a_volume_that_cannot_be_had_fails_the_pod(node: Node) -> None:
    uid = await node.run(pod_manifest(sh("true"), volumes=[{"name": "n", "nfs": {"server": "x", "path": "/"}}]))
    status = node.pods.status(uid)
    assert (status["phase"], status["reason"]) == ("Failed", "UnsupportedVolume")
    assert 'volume "n" is a nfs' in status["message"]


async def test_graceful_end(node: Node, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    trap = f"trap 'echo bye; exit 7' TERM; touch {mark}; while :; do sleep 0.05; done"
    uid = node.pods.admit(pod_manifest(sh(trap)))
    await node.until(mark.exists)
    node.pods.delete(uid, 600)
    await node.until(lambda: node.pods.pod(uid).life.dead)
    assert node.terminated(uid)["exitCode"] == 7
    # A shell that says before it that its sleep was terminated: the signal is for the whole process group.
    assert (await node.output()).endswith("bye\n")


async def test_an_end_that_comes_with_the_start(node: Node) -> None:
    """To be asked to end is not lost on a container that is only being started."""
    uids = [node.pods.admit(pod_manifest(sh("sleep 1000"), name=f"f-r-{number}")) for number in range(20)]
    for number, uid in enumerate(uids):
        for _ in range(number % 5):
            await asyncio.sleep(0)
        # Were it lost, the end would come after that.
        node.pods.delete(uid, 3600)
    await node.until(lambda: all(node.pods.pod(uid).life.dead for uid in uids))


async def test_forced_end_after_the_grace_period(node: Node, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = f"trap '' TERM; touch {mark}; while :; do sleep 0.05; done"
    uid = node.pods.admit(pod_manifest(sh(script), terminationGracePeriodSeconds=3600))
    await node.until(mark.exists)
    began = time.monotonic()
    node.pods.delete(uid, 1)
    await node.until(lambda: node.pods.pod(uid).life.dead)
    # Not after the hour that it would have had by default.
    assert time.monotonic() - began > 0.9
    assert node.terminated(uid)["exitCode"] == 137


async def test_pre_stop_hook(node: Node, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo $NAME > /notes/hook"]}}}
    trap = f"trap 'cat /notes/hook; exit 0' TERM; touch {mark}; while :; do sleep 0.05; done"
    container = sh(
        trap,
        lifecycle=hook,
        env=[{"name": "NAME", "value": "hooked"}],
        volumeMounts=[{"name": "notes", "mountPath": "/notes"}],
    )
    if not node.runtime.mounts_work:
        hook["preStop"]["exec"]["command"][2] = "echo $NAME > $FC_LOCAL_VOLUME_NOTES/hook"
    uid = node.pods.admit(pod_manifest(container, volumes=[{"name": "notes", "emptyDir": {}}]))
    await node.until(mark.exists)
    node.pods.delete(uid, 600)
    await node.until(lambda: node.pods.pod(uid).life.dead)
    assert (await node.output()).endswith("hooked\n")
    assert node.terminated(uid)["exitCode"] == 0


async def test_a_container_takes_all_its_processes_along(node: Node, tmp_path: Path) -> None:
    """Also one that became a daemon, and ignores signals."""
    pids = tmp_path / "pids"
    daemon = rf"trap '' TERM HUP; echo \$\$ >> {pids}; sleep 1000 & echo \$! >> {pids}; wait"
    uid = await node.run(
        pod_manifest(sh(f'setsid sh -c "{daemon}" & while [ "$(wc -l < {pids})" != 2 ]; do sleep 0.01; done'))
    )
    assert node.pods.phase(uid) == "Succeeded"
    assert [alive(int(pid)) for pid in pids.read_text().split()] == [False, False]


async def test_pods_find_each_other(node: Node) -> None:
    server = (
        "import os, socket; s = socket.create_server((os.environ['POD_IP'], 7777)); c, a = s.accept();"
        " c.sendall(b'hello from ' + os.environ['HOSTNAME'].encode()); c.close()"
    )
    env = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    command = [sys.executable, "-c", server]
    first = node.pods.admit(pod_manifest({"name": "main", "command": command, "env": env}, name="f-server-0"))
    second = node.pods.admit(pod_manifest({"name": "main", "command": command, "env": env}, name="f-server-1"))
    await node.until(lambda: node.pods.phase(first) == node.pods.phase(second) == "Running")
    for number, uid in enumerate((first, second)):
        address = node.pods.status(uid)["podIP"]
        assert address.startswith("127.")
        client = (
            "import socket, time\n"
            "for _ in range(6000):\n"
            "    try: s = socket.create_connection(('ADDRESS', 7777)); break\n"
            "    except OSError: time.sleep(0.05)\n"
            "print(s.makefile().read())"
        ).replace("ADDRESS", address)
        name = f"f-worker-{number}"
        worker = await node.run(pod_manifest({"name": "main", "command": [sys.executable, "-c", client]}, name=name))
        assert node.pods.phase(worker) == "Succeeded"
        assert await node.output(name=name) == f"hello from f-server-{number}\n"
        await node.until(lambda uid=uid: node.pods.phase(uid) == "Succeeded")  # type: ignore[misc]


async def test_restarts_keep_the_last_log(node: Node) -> None:
    uid = node.pods.admit(pod_manifest(sh("echo $$ | tee run; exit 1"), restartPolicy="OnFailure"))
    await node.until(lambda: node.pods.container(uid)["restartCount"] >= 1)
    await node.until(lambda: node.pods.container(uid)["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff")
    last, before = await node.output(), await node.output(previous=True)
    assert last
    assert before
    assert last != before
    with pytest.raises(LookupError, match="container other is not valid for pod f-r-0"):
        await node.output("other")
    with pytest.raises(LookupError, match='pod "none"'):
        await node.output(name="none")


async def test_a_log_is_followed_to_the_end(node: Node) -> None:
    uid = node.pods.admit(pod_manifest(sh("for n in 1 2 3; do echo $n; sleep 0.2; done")))
    await node.until(lambda: node.pods.phase(uid) != "Pending")
    assert await node.output(follow=True) == "1\n2\n3\n"
    stamped = await node.output(timestamps=True, tail_lines=1)
    assert stamped.endswith("Z 3\n")
    assert await node.output(limit_bytes=3) == "1\n2"
    assert await node.output(since_seconds=3600) == "1\n2\n3\n"
    assert await node.output(since_seconds=-3600) == ""


async def test_names_of_the_pod(node: Node) -> None:
    if not node.runtime.mounts_work:
        pytest.skip("needs namespaces")
    uid = await node.run(
        pod_manifest(
            sh("hostname; getent hosts f-r-0 friend; cat /var/run/secrets/kubernetes.io/serviceaccount/namespace"),
            hostAliases=[{"ip": "127.0.0.9", "hostnames": ["friend"]}],
        )
    )
    lines = (await node.output()).splitlines()
    assert lines[0] == "f-r-0"
    assert [line.split() for line in lines[1:3]] == [[node.pods.status(uid)["podIP"], "f-r-0"], ["127.0.0.9", "friend"]]
    assert lines[3] == "default"


async def test_other_users(node: Node) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    mount = [{"name": "v", "mountPath": "/vol"}]
    container = sh(
        "id -u; id -g; id -G; echo mine > file; echo too > /vol/file; echo said > /dev/termination-log",
        securityContext={"runAsUser": 1234, "runAsGroup": 2345},
        volumeMounts=mount,
    )
    uid = await node.run(
        pod_manifest(
            container,
            securityContext={"runAsUser": 1, "supplementalGroups": [3456], "fsGroup": 4567},
            volumes=[{"name": "v", "emptyDir": {}}],
        )
    )
    if node.runtime.mounts_work:
        assert node.pods.phase(uid) == "Succeeded", await node.output()
        assert node.terminated(uid)["message"] == "said\n"
    assert (await node.output()).splitlines()[:3] == ["1234", "2345", "2345 3456 4567"]
    uid = await node.run(pod_manifest(sh("true"), name="r", securityContext={"runAsNonRoot": True}))
    status = node.pods.status(uid)
    assert (status["phase"], status["reason"]) == ("Failed", "RootRefused")
    assert "set runAsUser" in status["message"]
    pid = node.pods.admit(pod_manifest(sh("sleep 1000", securityContext={"runAsUser": 1234}), name="s"))
    await node.until(lambda: node.pods.phase(pid) == "Running")


@pytest.mark.parametrize("mounts", [True, False], ids=["mounts", "plain"])
async def test_a_token_is_for_the_containers_user_alone(mounts: bool) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    read = 'cat /var/run/secrets/kubernetes.io/serviceaccount/token /token/it; grep -o secret "$KUBECONFIG"; id -u'
    projected = {"projected": {"defaultMode": 0o644, "sources": [{"serviceAccountToken": {"path": "it"}}]}}
    with passable_directory() as directory:
        node = Node(directory, mounts=mounts)
        await node.runtime.open()
        for user in (0, 1234):
            pod = pod_manifest(
                sh(read, volumeMounts=[{"name": "t", "mountPath": "/token"}]),
                name=f"user-{user}",
                securityContext={"runAsUser": user},
                volumes=[{"name": "t", **projected}],
            )
            await node.run(pod)
            assert await node.output(name=f"user-{user}") == f"secretsecretsecret\n{user}\n"
        # The logs are the output of this test.
        files = [path for path in directory.rglob("*") if path.is_file() and path.suffix != ".log"]
        holding = {path: path.stat() for path in files if b"secret" in path.read_bytes()}
        assert {stat.S_IMODE(found.st_mode) for found in holding.values()} == {0o600}
        for user in (0, 1234):
            its = [path.name for path, found in holding.items() if found.st_uid == user]
            assert sorted(its) == ["it", "kubeconfig", "token"]
        await node.runtime.close()


async def test_it_can_be_interrupted_while_it_prepares(node: Node) -> None:
    """A deletion that comes while a ConfigMap is still being read, and one before the process is there."""
    gate = asyncio.Event()
    get = node.objects.get

    async def slow(resource: Resource, name: str, namespace: str | None = None) -> bytes:
        await gate.wait()
        return await get(resource, name, namespace)

    node.objects.get = slow  # type: ignore[method-assign]  # the point of the test
    starting = node.pods.admit(pod_manifest(sh("true", envFrom=[{"configMapRef": {"name": "c"}}]), name="f-a-0"))
    preparing = node.pods.admit(
        pod_manifest(sh("true"), name="f-a-1", volumes=[{"name": "c", "configMap": {"name": "c"}}])
    )
    await node.until(lambda: node.pods.status(starting).get("podIP"))
    for uid in (starting, preparing):
        node.pods.delete(uid)
        assert node.pods.pod(uid).life.dead
        await node.pods.workers.forget(uid)
    assert list((node.directory / "pods").iterdir()) == []
    gate.set()


async def test_a_sidecar(node: Node) -> None:
    uid = await node.run(
        pod_manifest(
            sh("cat /shared/ready", volumeMounts=[{"name": "s", "mountPath": "/shared"}]),
            inits=(
                sh(
                    "echo beside > /shared/ready; sleep 1000",
                    name="side",
                    restartPolicy="Always",
                    volumeMounts=[{"name": "s", "mountPath": "/shared"}],
                ),
                sh(
                    "until [ -s /shared/ready ]; do sleep 0.01; done",
                    name="wait",
                    volumeMounts=[{"name": "s", "mountPath": "/shared"}],
                ),
            ),
            volumes=[{"name": "s", "emptyDir": {}}],
        )
    )
    assert node.pods.phase(uid) == "Succeeded"
    assert await node.output() == "beside\n"
    assert node.terminated(uid, "side")["exitCode"] == 143


async def test_the_end_of_the_spawner_ends_the_containers_and_another_takes_over(node: Node) -> None:
    uid = node.pods.admit(pod_manifest(sh("echo $$; sleep 1000"), restartPolicy="OnFailure"))
    await node.until(lambda: node.pods.phase(uid) == "Running")
    pid = int(await node.output(follow=False) or "0")
    while not pid:
        await asyncio.sleep(0.01)
        pid = int(await node.output(follow=False) or "0")
    os.kill(node.runtime.spawner_pid, signal.SIGKILL)
    await node.until(lambda: node.pods.container(uid)["restartCount"] == 1 and node.pods.container(uid)["ready"])
    assert node.pods.container(uid)["lastState"]["terminated"]["exitCode"] == 137
    assert not alive(pid)


async def test_the_end_of_a_monitor_ends_its_container_and_no_other(node: Node) -> None:
    first = node.pods.admit(pod_manifest(sh("echo $$; sh -c 'echo $$; sleep 1000' & wait"), name="f-a-0"))
    second = node.pods.admit(pod_manifest(sh("sleep 1000"), name="f-a-1"))
    await node.until(lambda: node.pods.phase(first) == node.pods.phase(second) == "Running")
    pids: list[int] = []
    while len(pids) < 2:
        await asyncio.sleep(0.01)
        pids = [int(line) for line in (await node.output(name="f-a-0")).split()]
    monitor = int(Path(f"/proc/{pids[0]}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(monitor, signal.SIGKILL)
    await node.until(lambda: node.pods.phase(first) == "Failed")
    assert node.terminated(first)["exitCode"] == 137
    await node.until(lambda: not any(map(alive, pids)))
    assert node.pods.phase(second) == "Running"


def test_the_children_of_an_orphan_that_has_ended_end() -> None:
    """Of a container without a monitor, the first process may end before its children are looked for."""
    program = """
import os, signal, sys, time
from frameworkcontroller.local.kubelet.spawner import linux, mainloop

linux.reap_descendants()
spawner = mainloop._Server(0, 1, None)
reader, writer = os.pipe()
if os.fork() == 0:
    child = os.fork()
    if child == 0:
        signal.pause()
    os.write(writer, b"%d\\n" % child)
    os._exit(0)
child = int(os.read(reader, 100))
while os.path.exists(f"/proc/{child}"):
    spawner._reap()
    time.sleep(0.01)
"""
    subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], timeout=300, check=True)


async def test_nothing_outlives_a_controller_that_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = f"""
import asyncio, sys
from pathlib import Path
from tests.integration.test_process_runtime import A_GPU, ONE_GPU, Node, pod_manifest, sh

async def main() -> None:
    node = Node(Path({str(tmp_path / "node")!r}), mounts=sys.argv[1] == "mounts", gpus=ONE_GPU)
    await node.runtime.open()
    script = "echo $$ >> {pids}; setsid sh -c 'echo $$ >> {pids}; sleep 1000' & sleep 1000"
    node.pods.admit(pod_manifest(sh(script, resources=A_GPU)))
    await asyncio.sleep(1000)

asyncio.run(main())
"""
    for mode in ("mounts", "plain"):
        pids.unlink(missing_ok=True)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, mode, cwd=Path(__file__).parents[2], start_new_session=True
        )
        deadline = time.monotonic() + 300
        while not pids.exists() or len(pids.read_text().split()) < 2:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        process.kill()
        await process.wait()
        # The next one waits until all of the one before is gone, and so its GPU is free.
        node = Node(tmp_path / "node", gpus=ONE_GPU)
        await node.runtime.open()
        assert [alive(int(pid)) for pid in pids.read_text().split()] == [False, False]
        assert list((tmp_path / "node" / "pods").iterdir()) == []
        await node.run(pod_manifest(sh("echo $CUDA_VISIBLE_DEVICES", resources=A_GPU)))
        assert await node.output() == "0\n"
        await node.runtime.close()
        assert list((tmp_path / "node").iterdir()) == []


@asynccontextmanager
async def gpu_node(directory: Path, gpus: Mapping[str, Sequence[object]]) -> AsyncIterator[Node]:
    node = Node(directory / "node", gpus=gpus)
    await node.runtime.open()
    try:
        yield node
    finally:
        await node.runtime.close()


async def test_a_container_sees_its_own_gpus_only(tmp_path: Path) -> None:
    async with gpu_node(tmp_path, {"local": ["4", "6", "7"]}) as node:
        taken = {"env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "0,1,2,3"}]}
        init = sh(VISIBLE, resources={"limits": {"nvidia.com/gpu": 2}})
        none = sh(VISIBLE, **taken)
        main = sh(f"{VISIBLE}; echo $CUDA_DEVICE_ORDER", resources=A_GPU, **taken)
        await node.run(pod_manifest(main, {**none, "name": "none"}, inits=({**init, "name": "init"},)))
        assert await node.output("init") == "gpus=4,6 4,6\n"
        assert await node.output("main") == "gpus=4 4\nPCI_BUS_ID\n"
        assert await node.output("none") == "gpus=\n"


async def test_the_log_is_of_the_newest_pod_of_a_name(tmp_path: Path) -> None:
    async with gpu_node(tmp_path, {}) as node:
        for text in ("old", "new"):
            await node.run(pod_manifest(sh(f"echo {text}")))
        assert await node.output() == "new\n"


async def test_a_command_is_executed_in_a_container(node: Node) -> None:
    volume = {"volumeMounts": [{"name": "v", "mountPath": "/fc-volume"}]}
    manifest = pod_manifest(
        sh('echo x > "$FC_LOCAL_VOLUME_V/file"; sleep 1000', **volume), volumes=[{"name": "v", "emptyDir": {}}]
    )
    uid = node.pods.admit(manifest)
    await node.until(lambda: node.pods.phase(uid) == "Running")
    path = "/fc-volume/file" if node.runtime.mounts_work else '"$FC_LOCAL_VOLUME_V/file"'
    script = f"until cat {path}; do sleep 0.05; done 2> /dev/null; echo problem >&2; cat; exit 5"
    for _ in range(2):
        async with node.runtime.execute(
            "default", "f-r-0", "main", ["sh", "-c", script], stdin=True, tty=False
        ) as command:
            await command.write(b"given")
            command.close_input()
            out = b""
            while data := await command.read(1):
                out += data
            assert (out, await command.read(2)) == (b"x\ngiven", b"problem\n")
            assert await command.result() == 5
    # A command ends with its context, at the latest, and so does one whose container is stopped.
    async with node.runtime.execute("default", "f-r-0", "main", ["sleep", "1000"], stdin=True, tty=False):
        pass
    started = ["sh", "-c", "echo started; sleep 1000"]
    async with node.runtime.execute("default", "f-r-0", "main", started, stdin=False, tty=True) as command:
        assert await command.read(1)
        node.pods.delete(uid, grace=0)
        assert await command.result() == 137
    await node.until(lambda: node.pods.pod(uid).life.dead)
    with pytest.raises(LookupError, match='container "main" in pod "f-r-0" is not running'):
        async with node.runtime.execute("default", "f-r-0", "main", ["true"], stdin=False, tty=False):
            pass
    assert list(node.directory.glob("pods/*/exec-*")) == []


async def test_without_gpus_to_hand_out_all_are_seen(node: Node) -> None:
    await node.run(pod_manifest(sh(VISIBLE, resources=A_GPU)))
    assert await node.output() == "gpus= all\n"


async def test_a_pod_waits_for_the_gpu_of_one_that_has_not_ended(tmp_path: Path) -> None:
    async with gpu_node(tmp_path, ONE_GPU) as node:
        stubborn = sh("trap '' TERM; echo ready; while :; do sleep 0.05; done", resources=A_GPU)
        first = node.pods.admit(pod_manifest(stubborn, name="first", restartPolicy="Always"))
        await node.until(lambda: node.pods.phase(first) == "Running")
        second = node.pods.admit(pod_manifest(sh(VISIBLE, resources=A_GPU), name="second"))
        waiting = node.pods.container(second)["state"]["waiting"]
        assert waiting == {
            "reason": "ContainerCreating",
            "message": "InsufficientDevices: 1 of nvidia.com/gpu are needed, 0 of 1 are free",
        }
        # Its object is gone, and its processes are not.
        node.pods.workers.abandon(first)
        await node.until(lambda: node.pods.phase(second) == "Succeeded")
        assert node.pods.pod(first).life.dead
        assert await node.output(name="second") == "gpus=0 0\n"


async def test_a_pod_that_has_ended_needs_no_gpu_while_its_object_exists(tmp_path: Path) -> None:
    async with gpu_node(tmp_path, ONE_GPU) as node:
        for name in ("first", "second"):
            uid = await node.run(pod_manifest(sh(VISIBLE, resources=A_GPU), name=name))
            assert node.pods.phase(uid) == "Succeeded"
            assert await node.output(name=name) == "gpus=0 0\n"
        refused = node.pods.admit(pod_manifest({"name": "main", "resources": A_GPU}, name="refused"))
        await node.until(lambda: node.pods.phase(refused) == "Failed")
        deleted = node.pods.admit(pod_manifest(sh("sleep 1000", resources=A_GPU), name="deleted"))
        node.pods.delete(deleted, grace=0)
        await node.run(pod_manifest(sh(VISIBLE, resources=A_GPU), name="last"))
        assert await node.output(name="last") == "gpus=0 0\n"


async def test_a_restarted_container_keeps_its_gpu(tmp_path: Path) -> None:
    async with gpu_node(tmp_path, {"local": range(2)}) as node:
        script = f"{VISIBLE}; [ -e {tmp_path}/again ] || {{ touch {tmp_path}/again; exit 1; }}"
        crashing = pod_manifest(sh(script, resources=A_GPU), name="crashing", restartPolicy="OnFailure")
        other = node.pods.admit(pod_manifest(sh("sleep 1000", resources=A_GPU), name="other"))
        await node.run(crashing)
        assert [await node.output(name="crashing", previous=previous) for previous in (True, False)] == [
            "gpus=1 1\n",
            "gpus=1 1\n",
        ]
        assert node.pods.phase(other) in ("Pending", "Running")
