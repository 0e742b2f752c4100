"""Plays: tests on the nodes. Many run at once, since each of them mostly waits for kubelets.

A play is a coroutine function that is marked with `play`. When pytest comes to the first one selected,
the stage starts all of them, by their tracks.
"""

import asyncio
import os
import shutil
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any, Final, Protocol, cast, runtime_checkable

import orjson

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.kube.client import STRATEGIC_PATCH, KubeClient
from frameworkcontroller.kube.connection import connect
from frameworkcontroller.kube.crd import ensure_crd
from frameworkcontroller.kube.errors import NotFound
from frameworkcontroller.kube.resources import NAMESPACES, PODS, SERVICEACCOUNTS, Resource
from frameworkcontroller.local.queues.kueue_crds import definitions
from tests.e2e import clusterdns
from tests.e2e.recorder import Recorder
from tests.e2e.witness import Instance, outlived, overlaps, read_instances
from tests.support.eventually import eventually
from tests.support.frameworks import Frameworks, is_ready, states
from tests.support.images import image_store
from tests.support.kubectl import Kubectl
from tests.support.nodes import Nodes
from tests.support.objects import items, read
from tests.support.othercontrollers import crd_of
from tests.support.realcluster import ROOT

Json = dict[str, Any]

BUSYBOX: Final = "busybox:1.37"
PYTHON: Final = "python:3.12-slim"

CONTROLLER: Final = "frameworkcontroller"
"""The namespace, the StatefulSet and its container."""

WITHIN: Final = 300.0
"""Seconds for what takes two or three on an idle machine. Only a play that fails waits for so long."""

GRACE: Final = 600
"""Seconds of grace for containers that end by themselves when they are asked to: nothing waits for so long."""

MANIFESTS: Final = ROOT / "manifests"

_OVERLAY: Final = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [{shipped}]
components: [{components}]
configMapGenerator:
  - name: frameworkcontroller-config
    namespace: frameworkcontroller
    behavior: replace
    files: [frameworkcontroller.yaml]
patches:
  - patch: |
      $patch: delete
      apiVersion: policy/v1
      kind: PodDisruptionBudget
      metadata: {{name: frameworkcontroller, namespace: frameworkcontroller}}
"""
"""Without the disruption budget, of which Kubernetes before 1.21 does not know this version."""

_MORE_CONFIGURATION: Final = """
kueue:
  mode: enabled
"""

COMPONENTS: Final = ("components/kueue", "components/gang", "components/disruption-budgets")

_AT_ONCE: Final = 12

_TAINT: Final = {"key": "plays", "value": "node", "effect": "NoSchedule"}

ENDED_PODS_KEPT: Final = 100
"""The threshold above which the cluster's garbage collector of Pods deletes the oldest that have ended."""


class Track(Enum):
    """With which others a play runs."""

    TOGETHER = "many at once"
    NODE = "one after the other, beside those that run together: they take the last node away"
    TRAINING = "one after the other, beside those that run together: each takes both processors"
    CONTROLLER = "alone, after all others: they take the controller away"


class Play:
    """The cluster as a play sees it, and a namespace of its own."""

    def __init__(self, stage: "Stage", namespace: str) -> None:
        self.nodes = stage.nodes
        self.client = stage.client
        self.recorder = stage.recorder
        self.namespace = namespace
        self.folder = stage.shared / namespace
        self.folder.mkdir(parents=True)
        shutil.copy(Path(__file__).with_name("witness.sh"), self.folder)
        self.frameworks = Frameworks(stage.client, namespace)
        self.kubectl = stage.kubectl(namespace)
        self.excused: set[str] = set()
        """Names of Frameworks of which the play breaks a condition of the guarantees on purpose."""
        self.stage = stage

    async def create(self, name: str, *roles: Json, **spec: Any) -> None:
        """Create a Framework."""
        await self.frameworks.create(name, *roles, **spec)

    async def until(self, name: str, holds: Callable[[Json], Any], *, within: float = WITHIN) -> Json:
        """Wait until the Framework's status is such; the status then."""

        def probe() -> Json:
            status: Json = self.recorder.frameworks(self.namespace).get(name, {}).get("status") or {}
            assert "attemptStatus" in status, f"{name} has no status yet"
            assert holds(status), f"{name} is not as awaited: {told(status)}"
            return status

        found: Json = await self.recorder.until(probe, within=within)
        return found

    async def until_completed(self, name: str, *, within: float = WITHIN) -> Json:
        """Wait until the Framework is Completed, and check that it has left nothing behind; the status then."""
        status = await self.until(name, lambda status: status["state"] == "Completed", within=within)
        await self.frameworks.assert_nothing_left(name)
        return status

    async def until_gone(self, name: str, *, within: float = WITHIN) -> None:
        """Wait until the Framework is gone, and check that it has left nothing behind."""
        await self.recorder.until(lambda: name not in self.recorder.frameworks(self.namespace), within=within)
        await self.frameworks.assert_nothing_left(name)

    async def until_running(
        self, name: str, count: int, *, attempts: list[int] | None = None, within: float = WITHIN
    ) -> Json:
        """Wait until this number of Tasks run, and all are in these attempts if any are named. Return the status."""

        def run(status: Json) -> bool:
            return states(status).count("AttemptRunning") == count and attempts in (None, attempts_of(status))

        return await self.until(name, run, within=within)

    async def until_attempts(self, name: str, attempts: list[int], *, within: float = WITHIN) -> Json:
        """Wait until the Tasks of the one role are in these attempts; the status then."""
        return await self.until(name, lambda status: attempts_of(status) == attempts, within=within)

    def instances(self, framework: str | None = None) -> list[Instance]:
        """The instances that have written until now, in the order of their first lines."""
        return [one for one in read_instances(self.folder) if framework in (None, one.framework)]

    async def until_said(self, framework: str, word: str, count: int = 1, *, within: float = WITHIN) -> list[Instance]:
        """Wait until this number of instances have written a word. Return them."""

        def probe() -> list[Instance]:
            found = [one for one in self.instances(framework) if one.said(word)]
            assert len(found) >= count, f"{len(found)} of {count} instances of {framework} have said {word}"
            return found

        said: list[Instance] = await self.recorder.until(probe, within=within)
        return said

    def say_over(self) -> None:
        """Tell the containers that wait for it."""
        (self.folder / ".over").touch()

    def violations(self) -> list[str]:
        """The violations of C1 to C4 in the files written so far."""
        instances = [one for one in self.instances() if one.framework not in self.excused]
        return overlaps(instances) + outlived(instances, self.recorder.statuses[self.namespace])

    def role(self, name: str = "a", number: int = 1, *, script: str, task: Json | None = None, **spec: Any) -> Json:
        """A TaskRole of one container that writes a line a second and runs a script. `spec` is of the Pod."""
        containers = spec.pop("containers", None) or [self.container(script)]
        completion = spec.pop("frameworkAttemptCompletionPolicy", None)
        pod: Json = {"restartPolicy": "Never", "containers": containers, **spec}
        pod["volumes"] = [
            {"name": "witness", "hostPath": {"path": str(self.folder)}},
            *spec.get("volumes", ()),
        ]
        found: Json = {"name": name, "taskNumber": number, "task": {"pod": {"spec": pod}, **(task or {})}}
        return found if completion is None else {**found, "frameworkAttemptCompletionPolicy": completion}

    def saving(self, name: str = "a", number: int = 1, *, seconds: int = 3, **spec: Any) -> Json:
        """A TaskRole that saves its state, for ``seconds``, after SIGTERM. It writes `holds` before."""
        return self.role(
            name,
            number,
            **{
                "script": f"trap 'checkpoint {seconds} 0' TERM; hold",
                "terminationGracePeriodSeconds": GRACE,
                **spec,
            },
        )

    @staticmethod
    def container(script: str, name: str = "main", **container: Any) -> Json:
        """A container that writes a line a second and runs a script."""
        return {
            "name": name,
            "image": BUSYBOX,
            "command": ["sh", "-c", f". /witness/witness.sh\n{script}"],
            "env": [{"name": "CONTAINER", "value": name}],
            "volumeMounts": [{"name": "witness", "mountPath": "/witness"}],
            # Some of them run on a busy machine, and none needs more.
            "resources": {"requests": {"cpu": "5m", "memory": "8Mi"}},
            **container,
        }

    def keep_output(self, pod: Json, container: Json) -> None:
        """Let a container of a Pod template write to a file of its own, which outlasts the Pod, instead of its log."""
        pod["volumes"] = [*pod.get("volumes", ()), {"name": "output", "hostPath": {"path": str(self.folder)}}]
        container["volumeMounts"] = [*container.get("volumeMounts", ()), {"name": "output", "mountPath": "/output"}]
        container["command"] = ["sh", "-c", 'exec "$0" "$@" >>/output/$FC_POD_NAME.log 2>&1', *container["command"]]

    def outputs(self) -> dict[str, str]:
        """The output that `keep_output` kept, by the name of the Pod."""
        return {file.stem: file.read_text() for file in sorted(self.folder.glob("*.log"))}

    async def has_token(self, account: str) -> None:
        """Wait until the service account has a token: until then every Pod with it is refused."""

        async def probe() -> None:
            try:
                body = await read(self.client, SERVICEACCOUNTS, account, self.namespace)
            except NotFound:
                body = {}
            assert body.get("secrets"), f"service account {account} has no token"

        await eventually(probe, within=WITHIN, every=0.2)

    async def node_is(self, node: str, status: str, *, within: float = WITHIN) -> None:
        """Wait until the node's condition Ready has that status."""

        async def probe() -> None:
            nodes = {one["metadata"]["name"]: one for one in await items(self.client, NODE)}
            assert node in nodes, f"there is no Node {node}"
            ready = {one["type"]: one["status"] for one in nodes[node]["status"]["conditions"]}
            assert ready.get("Ready") == status, f"{node} is Ready={ready.get('Ready')}, awaited is {status}"

        await eventually(probe, within=within, every=0.5)

    async def bring_back(self, node: str) -> None:
        """Start the node's kubelet, and wait until the node is ready, and only for Pods that tolerate it."""
        for last in (False, False, True):
            self.nodes.kill_kubelet(node)
            self.nodes.start_kubelet(node)
            try:
                await self._is_back(node, within=WITHIN if last else WITHIN / 2)
            except AssertionError:
                # On a busy machine a kubelet may give up as it starts; a machine of its own would start it again.
                if last:
                    raise
            else:
                return

    async def _is_back(self, node: str, *, within: float) -> None:
        async def kept_free() -> None:
            try:
                taints = (await read(self.client, NODE, node))["spec"].get("taints", ())
            except NotFound:
                raise AssertionError(f"there is no Node {node}") from None
            if _TAINT not in taints:
                await self.stage.keep_free(node)

        # A Node that was deleted is new. This comes before it is ready: then Pods of other plays would go there.
        await eventually(kept_free, within=within, every=0.2)
        await self.node_is(node, "True", within=within)

    async def takes_pods(self, node: str) -> None:
        """Wait until the scheduler puts a Pod that tolerates the node there: it learns late that a node is back."""
        spec = {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "tolerations": [{"key": "plays", "operator": "Exists"}],
            "containers": [{"name": "main", "image": BUSYBOX, "command": ["true"]}],
            "restartPolicy": "Never",
        }
        name = "scout"
        await self.has_token("default")
        await self.client.create(PODS, orjson.dumps({"metadata": {"name": name}, "spec": spec}), self.namespace)
        await self.recorder.until(
            lambda: self.recorder.pods(self.namespace).get(name, {}).get("spec", {}).get("nodeName"), within=WITHIN
        )
        await self.client.delete(PODS, name, self.namespace, grace_period_seconds=0)
        await self.recorder.until(lambda: name not in self.recorder.pods(self.namespace), within=WITHIN)

    async def controllers(self, count: int = 1, *, within: float = WITHIN) -> dict[str, Json]:
        """Wait until exactly this number of Pods of the controller exist, and are ready. Return them."""

        def probe() -> dict[str, Json]:
            pods = self.recorder.pods(CONTROLLER)
            ready = [is_ready(pod) for pod in pods.values()]
            assert ready == [True] * count, [(name, pod["status"]) for name, pod in pods.items()]
            return pods

        found: dict[str, Json] = await self.recorder.until(probe, within=within)
        return found

    async def kill_controller(self, name: str = f"{CONTROLLER}-0") -> str:
        """End the controller's process in that Pod as `kill -9` does; the id that its container had."""
        pod = self.recorder.pods(CONTROLLER)[name]
        (container,) = pod["status"]["containerStatuses"]
        killed: str = container["containerID"]
        await asyncio.to_thread(self.nodes.kill_container, pod["spec"]["nodeName"], killed)
        return killed

    async def restart_controller(self) -> str:
        """Kill the one controller, and wait until it is ready again; the id of its container then."""
        killed = await self.kill_controller()

        def restarted() -> str | None:
            (pod,) = self.recorder.pods(CONTROLLER).values()
            (container,) = pod["status"]["containerStatuses"]
            started: str = container["containerID"]
            return started if container["ready"] and started != killed else None

        found: str = await self.recorder.until(restarted, within=WITHIN)
        return found


NODE: Final = Resource("", "v1", "nodes", "Node", namespaced=False)


@runtime_checkable
class PlayFunction(Protocol):
    """The test that `play` makes of a coroutine function."""

    track: Track
    coroutine: Callable[..., Coroutine[Any, Any, None]]

    def __call__(self, stage: "Stage", request: Any) -> None: ...


def play(track: Track = Track.TOGETHER) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], PlayFunction]:
    """Make a play of a coroutine function."""

    def mark(coroutine: Callable[..., Coroutine[Any, Any, None]]) -> PlayFunction:
        def test(stage: Stage, request: Any) -> None:
            stage.result(request.node.nodeid)

        test.__name__ = coroutine.__name__
        test.__doc__ = coroutine.__doc__
        test.__module__ = coroutine.__module__
        made = cast(PlayFunction, test)
        made.track, made.coroutine = track, coroutine
        return made

    return mark


class Stage:
    """Runs plays on an event loop in a thread of its own."""

    def __init__(self, nodes: Nodes, shared: Path, kubectl: Path, home: Path) -> None:
        self.nodes = nodes
        self.shared = shared
        self.client: KubeClient
        self.recorder: Recorder
        self._dns: asyncio.BaseTransport
        self._kubectl = kubectl
        self._home = home
        self._images: set[str] = set()
        self._results: dict[str, Future[None]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="stage", daemon=True)
        self._tasks: list[asyncio.Task[None]] = []
        self._plays: list[Play] = []
        self._thread.start()

    def kubectl(self, namespace: str) -> Kubectl:
        """kubectl about that namespace."""
        return Kubectl(self._kubectl, self.nodes.kubeconfig, namespace, self._home)

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the stage's loop to its end."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def open(self) -> None:
        """Connect to the cluster, and serve names to it."""
        self.client = KubeClient(await connect(kubeconfig=str(self.nodes.kubeconfig), environ={}))
        self.recorder = Recorder(self.client)
        self._dns = await clusterdns.serve(self.client, self.recorder)

    async def define_queues(self) -> None:
        """Let the API server serve the resources of Kueue, by its own schemas if they are here."""
        for manifest in definitions():
            spec = manifest["spec"]
            body = {"apiVersion": f"{spec['group']}/{spec['versions'][0]['name']}", "kind": spec["names"]["kind"]}
            await ensure_crd(self.client, crd_of(body) or manifest)

    async def install(self, folder: str, *more: str, configuration: str = "") -> None:
        """Apply the shipped manifests in that folder, with all components and queues, as docs/operations.md says for an
        API server of this age. ``more``: further components. ``configuration``: their settings in it.
        """
        overlay = self._home / "overlays" / folder.replace("/", "-")
        overlay.mkdir(parents=True, exist_ok=True)
        paths = (folder, *COMPONENTS, *more)
        shipped, *components = (os.path.relpath(MANIFESTS / one, overlay.resolve()) for one in paths)
        text = _OVERLAY.format(shipped=shipped, components=", ".join(components))
        overlay.joinpath("kustomization.yaml").write_text(text)
        text = (MANIFESTS / "base/frameworkcontroller.yaml").read_text() + _MORE_CONFIGURATION + configuration
        overlay.joinpath("frameworkcontroller.yaml").write_text(text)
        await self.kubectl(CONTROLLER).ok("apply", "--validate=false", "-k", str(overlay))

        async def served() -> None:
            try:
                await self.client.list(FRAMEWORKS)
            except NotFound:
                raise AssertionError("the API server does not serve Frameworks") from None

        # Some time after their definition was applied.
        await eventually(served, within=WITHIN, every=0.5)

    async def put_image(self, name: str, folder: Path) -> None:
        """Build the image of the Dockerfile in a folder, and put it as NAME:1 on all nodes except the last one."""
        if name not in self._images:
            await asyncio.to_thread(self._put_image, name, folder)
            self._images.add(name)

    def _put_image(self, name: str, folder: Path) -> None:
        archive = self._home / f"{name}.tar"
        with image_store() as images:
            images.build_other(name, folder)
            images.export({name: f"docker.io/library/{name}:1"}, archive)
        self.nodes.import_images(archive, self.nodes.names[:-1])
        archive.unlink()

    async def keep_free(self, node: str) -> None:
        """Keep Pods off the node but those that tolerate it."""
        patch = orjson.dumps({"spec": {"taints": [_TAINT]}})
        await self.client.patch(NODE, node, patch, content_type=STRATEGIC_PATCH)

    async def start(self, plays: Sequence[tuple[str, Track, Callable[[Play], Awaitable[None]]]]) -> None:
        """Begin to record, and start all plays, each with the id by which `result` is asked for."""
        self._results = {key: Future() for key, _, _ in plays}
        self._tasks = [asyncio.create_task(self.recorder.run()), asyncio.create_task(self._run(plays))]

    def result(self, key: str) -> None:
        """Wait until the play has ended; raises its exception."""
        self._results[key].result()

    def violations(self) -> list[str]:
        """The violations of C1 to C4 in the files that all plays have written so far."""
        return [violation for play in self._plays for violation in play.violations()]

    def close(self) -> None:
        """Cancel all running plays."""

        async def end() -> None:
            while left := {task for task in self._tasks if not task.done()}:
                # Repeated: the nodes discard a repair that a play would make at its end.
                for task in left:
                    task.cancel()
                await asyncio.wait(left, timeout=1)
            self._dns.close()
            await self.client.close()

        self.wait(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _run(self, plays: Sequence[tuple[str, Track, Callable[[Play], Awaitable[None]]]]) -> None:
        seats = asyncio.Semaphore(_AT_ONCE)

        async def seated(key: str, perform: Callable[[Play], Awaitable[None]]) -> None:
            async with seats:
                await self._perform(key, perform)

        async def serially(track: Track) -> None:
            for key, wanted, perform in plays:
                if wanted is track:
                    await self._perform(key, perform)

        together = [seated(key, perform) for key, track, perform in plays if track is Track.TOGETHER]
        await asyncio.gather(serially(Track.NODE), serially(Track.TRAINING), *together)
        await serially(Track.CONTROLLER)

    async def _perform(self, key: str, perform: Callable[[Play], Awaitable[None]]) -> None:
        result = self._results[key]
        try:
            async with self._namespace() as play:
                try:
                    await perform(play)
                    assert play.violations() == []
                except Exception as error:
                    error.add_note(await self._scene(play))
                    raise
        except BaseException as error:
            result.set_exception(error)
            if not isinstance(error, Exception):
                raise
        else:
            result.set_result(None)

    @asynccontextmanager
    async def _namespace(self) -> AsyncIterator[Play]:
        name = f"play-{len(self._plays)}"
        play = Play(self, name)
        self._plays.append(play)
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await self.client.create(NAMESPACES, orjson.dumps(body))
        await play.has_token("default")
        try:
            yield play
        finally:
            self.recorder.over.add(name)
            with suppress(NotFound):
                await self.client.delete(NAMESPACES, name)

    async def _scene(self, play: Play) -> str:
        """The state of a play that failed, for its report."""
        namespace = play.namespace
        parts = [f"namespace {namespace}:"]
        for name, framework in self.recorder.frameworks(namespace).items():
            parts.append(f"  Framework {name}: {told(framework.get('status') or {})}")
        for name, pod in self.recorder.pods(namespace).items():
            parts.append(
                f"  Pod {name} on {pod['spec'].get('nodeName')}: {orjson.dumps(pod['status']).decode()[:1500]}"
            )
        warnings = [event for event in self.recorder.events(namespace).values() if event["type"] == "Warning"]
        parts += [f"  {one['involvedObject'].get('name')}: {one.get('reason')}: {one['message']}" for one in warnings]
        parts += [f"  {one}" for one in play.instances()]
        parts += [f"  {pod} wrote:\n{text[-3000:]}" for pod, text in play.outputs().items()]
        for controller in self.recorder.pods(CONTROLLER):
            logged = await self.kubectl(CONTROLLER)("logs", controller, "--tail=2000")
            lines = [line for line in logged.out.splitlines() if f"[{namespace}/" in line and "Snapshot" not in line]
            parts += [f"  {controller}: {line[:400]}" for line in lines[-60:]]
        parts += [f"  {node}: {line}" for node in self.nodes.names for line in self.nodes.warnings(node)]
        return "\n".join(parts)


def attempts_of(status: Json) -> list[int]:
    """The ids of the Tasks' attempts."""
    return [
        task["attemptStatus"]["id"]
        for role in status["attemptStatus"]["taskRoleStatuses"]
        for task in role["taskStatuses"]
    ]


def told(status: Json) -> str:
    """A status in a line."""
    if not status:
        return "no status"
    attempt = status["attemptStatus"]
    completion = attempt["completionStatus"] or {}
    text = (
        f"attempt {attempt['id']} {status['state']} {completion.get('code', '')} {completion.get('diagnostics') or ''}"
    )
    for role in attempt["taskRoleStatuses"]:
        for task in role["taskStatuses"]:
            number, ended = task["attemptStatus"]["id"], task["attemptStatus"]["completionStatus"] or {}
            text += f"\n    {role['name']}[{task['index']}] attempt {number} {task['state']} {ended.get('code', '')}"
            text += f" {(ended.get('diagnostics') or '')[:300]}"
    return text
