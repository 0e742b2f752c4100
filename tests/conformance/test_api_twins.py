"""Random histories, done on a real API server and on the embedded one side by side: both must say the same.

These may differ, and are not compared: identities, times, versions, the ledger of managed fields (the real server
records each client, with a write where nothing else changed), and the wording of causes from one Kubernetes to
the next.
"""

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from frameworkcontroller.local.apiserver.restserver import ApiServer
from tests.support.api import CRDS, JSON_PATCH, MERGE_PATCH, Answer, Api, config_map, definition, open_api, pod
from tests.support.clusters import Cluster
from tests.support.eventually import eventually, until

SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {"n": {"type": "integer", "default": 3}, "s": {"type": "string"}},
        },
        "status": {"type": "object", "properties": {"state": {"type": "string"}, "phase": {"type": "string"}}},
    },
}
STEPS = 40
NAMES = "abc"
LAST = "last"
"""The name of the objects with which histories end."""
LAST_SPEC = {"things": {"spec": {"n": 1, "s": "a"}}}

Told = list[tuple[str, Any]]


@pytest.fixture
async def twin(cluster: Cluster, tmp_path: Path) -> AsyncIterator[tuple[Api, Api]]:
    """A real server and an embedded one, with a namespace of the same name on both."""
    if cluster.embedded:
        pytest.skip("compares the embedded API server with a real one: give one with --cluster")
    folder = tmp_path / "embedded"
    folder.mkdir()
    async with ApiServer(wall=time.time) as server, open_api(cluster.kubeconfig, cluster.namespace) as real:
        server.write_kubeconfig(folder / "kubeconfig")
        async with open_api(folder / "kubeconfig", cluster.namespace) as ours:
            (await ours.post("/api/v1/namespaces", {"metadata": {"name": cluster.namespace}})).ok()
            yield real, ours


@asynccontextmanager
async def defined_on_both(real: Api, ours: Api) -> AsyncIterator[str]:
    crd = definition(SCHEMA, subresources={"status": {}})
    things = f"/apis/{crd['spec']['group']}/v1/namespaces/{real.namespace}/things"
    for api in (real, ours):
        (await api.post(CRDS, crd)).ok()

    async def served() -> None:
        assert (await real.get(things)).code == 200

    try:
        await eventually(served)
        yield things
    finally:
        await real.delete(f"{CRDS}/{crd['metadata']['name']}")


class History:
    """One random history: its next step depends on its seed and on the servers' answers."""

    def __init__(self, real: Api, ours: Api, things: str, *, pods: bool, seed: int) -> None:
        self.real, self.ours = real, ours
        self.rng = random.Random(seed)
        self.paths = {"configmaps": real.path("configmaps"), "things": things}
        if pods:
            self.paths["pods"] = real.path("pods")
        self.group = things.split("/")[2]
        self.known: dict[tuple[str, str], list[tuple[Any, Any]]] = {}
        self.done: list[str] = []

    async def both(self, method: str, path: str, body: Any = None, *, ours: Any = None, **options: Any) -> Any:
        """Send a request to both servers. Return their answers, if these are objects."""
        self.done.append(f"{method} {path} {body or ''} {options or ''}")
        left = await self.real.call(method, path, body, **options)
        right = await self.ours.call(method, path, body if ours is None else ours, **options)
        if method == "PUT" and {left.code, right.code} == {404, 409}:
            # A missing object with a given uid is no longer a conflict in newer versions.
            return None
        assert normal(left) == normal(right), "\n".join(self.done[-8:])
        return (left.body, right.body) if left.code < 300 else None

    def object(self, kind: str, name: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
        if kind == "configmaps":
            return config_map(name, **metadata)
        if kind == "pods":
            return pod(name, **metadata)
        spec = {"n": self.rng.choice([1, 2, 3, "x"]), "s": "a"}
        version = f"{self.group}/v1"
        return {"apiVersion": version, "kind": "Thing", "metadata": {"name": name, **metadata}, "spec": spec}

    async def step(self) -> None:
        kind, name = self.rng.choice(sorted(self.paths)), self.rng.choice(NAMES)
        collection = self.paths[kind]
        path = f"{collection}/{name}"
        steps = [
            self.create,
            self.create,
            self.replace,
            self.patch,
            self.patch,
            self.json_patch,
            self.delete,
            self.delete,
            self.delete_exactly,
            self.list,
        ]
        if kind != "configmaps":
            steps.append(self.write_status)
        if kind == "pods":
            steps += [self.bind]
        await self.rng.choice(steps)(kind, name, collection, path)

    def learn(self, kind: str, name: str, answers: Any) -> None:
        if answers is not None:
            self.known.setdefault((kind, name), []).append(answers)

    async def create(self, kind: str, name: str, collection: str, path: str) -> None:
        metadata: dict[str, Any] = {}
        finalizers = self.rng.choice([None, None, ["x.y/z"], ["x.y/z", "a.b/c"]])
        if finalizers:
            metadata["finalizers"] = finalizers
        if self.rng.random() < 0.3:
            metadata["labels"] = self.rng.choice([{"l": "1"}, {"l": "2"}, {"bad key": "x"}, {}])
        self.learn(kind, name, await self.both("POST", collection, self.object(kind, name, metadata)))

    async def replace(self, kind: str, name: str, collection: str, path: str) -> None:
        if (kind, name) not in self.known:
            return
        known = self.rng.choice(self.known[kind, name])
        change: dict[str, Any] = self.rng.choice(
            [
                {},
                {"labels": {"l": "3"}},
                {"resourceVersion": None, "labels": {"l": "4"}},
                {"uid": "other"},
                {"finalizers": ["q.r/s"]},
                {"name": "z"},
                {"generation": 77},
            ]
        )
        left, right = ({**one, "metadata": changed(one["metadata"], change)} for one in known)
        self.learn(kind, name, await self.both("PUT", path, left, ours=right))

    async def patch(self, kind: str, name: str, collection: str, path: str) -> None:
        body = self.rng.choice(
            [
                {"metadata": {"labels": {"l": "1"}}},
                {"metadata": {"labels": {"l": None}}},
                {"metadata": {"labels": {"z": "-bad-"}}},
                {"metadata": {"finalizers": None}},
                {"metadata": {"finalizers": ["x.y/z"]}},
                {"metadata": {"finalizers": ["n.e/w"]}},
                {"spec": {"activeDeadlineSeconds": 5}} if kind == "pods" else {"spec": {"n": 9}},
                {"data": {"a": None, "q": "r"}} if kind == "configmaps" else {"status": {"state": "x"}},
                {"metadata": None},
            ][: -1 if kind == "things" else None]
        )
        query = self.rng.choice([{}, {}, {"dryRun": "All"}])
        answers = await self.both("PATCH", path, body, content_type=MERGE_PATCH, query=query)
        if not query:
            self.learn(kind, name, answers)

    async def json_patch(self, kind: str, name: str, collection: str, path: str) -> None:
        body = self.rng.choice(
            [
                [
                    {"op": "test", "path": "/metadata/name", "value": name},
                    {"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}},
                ],
                [{"op": "test", "path": "/metadata/name", "value": "other"}],
                [{"op": "remove", "path": "/metadata/labels/l"}],
                [{"op": "add", "path": "/metadata/finalizers/-", "value": "u.v/w"}],
            ]
        )
        await self.both("PATCH", path, body, content_type=JSON_PATCH)

    async def write_status(self, kind: str, name: str, collection: str, path: str) -> None:
        body = self.rng.choice(
            [
                {"status": {"phase": "Running"}},
                {"status": {"phase": "Failed"}},
                {"metadata": {"labels": {"st": "1"}}},
                {"metadata": {"finalizers": None}},
            ]
        )
        await self.both("PATCH", f"{path}/status", body, content_type=MERGE_PATCH)

    async def delete(self, kind: str, name: str, collection: str, path: str) -> None:
        query = self.rng.choice([{}, {"propagationPolicy": "Background"}, {"gracePeriodSeconds": "0"}])
        if kind == "pods" and self.rng.random() < 0.3:
            query = {"gracePeriodSeconds": self.rng.choice(["5", "60"])}
        await self.both("DELETE", path, query=query)

    async def delete_exactly(self, kind: str, name: str, collection: str, path: str) -> None:
        if (kind, name) in self.known:
            left, right = self.rng.choice(self.known[kind, name])
            field = "uid"
            await self.both(
                "DELETE",
                path,
                {"preconditions": {field: left["metadata"][field]}},
                ours={"preconditions": {field: right["metadata"][field]}},
            )

    async def list(self, kind: str, name: str, collection: str, path: str) -> None:
        selector = self.rng.choice(["", "l=1", "l", "!l", "l in (1,3)"])
        await self.both("GET", collection, query={"labelSelector": selector} if selector else {})

    async def bind(self, kind: str, name: str, collection: str, path: str) -> None:
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"name": "n1"}}
        await self.both("POST", f"{path}/binding", binding)

    async def told(self, api: Api, path: str, version: str) -> Told:
        """The events of a watch from ``version`` that change something."""
        found: Told = []
        last: dict[str, Any] = {}
        async with api.watch(path, resourceVersion=version) as events:
            await until(lambda: events.of(LAST))
        for event in events.all:
            name, shown = event["object"]["metadata"]["name"], plain(event["object"])
            if event["type"] != "MODIFIED" or last.get(name) != shown:
                found.append((event["type"], shown))
            last[name] = shown
        return found


def changed(metadata: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """``metadata`` with ``change``, in which None removes."""
    return {key: value for key, value in {**metadata, **change}.items() if value is not None}


def normal(answer: Answer) -> Any:
    """A response without the parts that may differ."""
    body = answer.body
    if isinstance(body, dict) and body.get("status") == "Failure":
        fields = sorted({cause.get("field", "") for cause in (body.get("details") or {}).get("causes", ())})
        message = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9]+", "#", body["message"]) if not fields else ""
        return answer.code, body.get("reason"), fields, message
    return answer.code, plain(body)


def plain(value: Any, key: str = "") -> Any:
    """A document without identities, times and versions, and without fields that not every Kubernetes has."""
    if isinstance(value, dict):
        hidden = {"managedFields", "observedGeneration", "lastProbeTime", "remainingItemCount"}
        return {name: plain(one, name) for name, one in sorted(value.items()) if name not in hidden}
    if isinstance(value, list):
        return [plain(one, key) for one in value]
    times = {"creationTimestamp", "deletionTimestamp", "lastTransitionTime"}
    return "#" if value and key in {"resourceVersion", "uid", *times} else value


@pytest.mark.parametrize("seed", range(4))
async def test_a_random_history_fares_alike(cluster: Cluster, twin: tuple[Api, Api], seed: int) -> None:
    real, ours = twin
    async with defined_on_both(real, ours) as things:
        # The 1.36 libraries are no trusted judge of Pods.
        history = History(real, ours, things, pods=cluster.name != "1.36", seed=seed)
        begun = {}
        for path in history.paths.values():
            for api in twin:
                begun[api, path] = (await api.get(path)).ok()["metadata"]["resourceVersion"]
        for _ in range(STEPS):
            await history.step()
        for kind, path in history.paths.items():
            await history.both("POST", path, history.object(kind, LAST, {}) | LAST_SPEC.get(kind, {}))
        for path in history.paths.values():
            theirs, ours_told = await asyncio.gather(*(history.told(api, path, begun[api, path]) for api in twin))
            assert theirs == ours_told, "\n".join(history.done)
            for name in NAMES:
                await real.patch(f"{path}/{name}", {"metadata": {"finalizers": None}})
