"""kubectl as a user's tool, on every API server alike."""

from __future__ import annotations

import asyncio
from typing import Any

import yaml

from frameworkcontroller.local.kubelet.agent import DEFAULT_NODE_NAME
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from tests.support.kubectl import Kubectl


def config_map(name: str, data: dict[str, str], **metadata: Any) -> str:
    return yaml.safe_dump(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": data}
    )


def pod(image: str, *, value: str = "1") -> str:
    container = {
        "name": "a",
        "image": image,
        "env": [{"name": "X", "value": value}],
        "ports": [{"containerPort": 80}],
    }
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "labels": {"app": "z"}},
            "spec": {"containers": [container], "automountServiceAccountToken": False},
        }
    )


async def data_of(kubectl: Kubectl, name: str) -> Any:
    return (await kubectl.json("get", "configmap", name))["data"]


async def test_apply_merges_three_ways(kubectl: Kubectl) -> None:
    said = await kubectl.ok("apply", "-f", "-", stdin=config_map("c", {"a": "1", "b": "1"}))
    assert said == "configmap/c created\n"
    await kubectl.ok("patch", "configmap", "c", "-p", '{"data":{"theirs":"kept"}}')
    said = await kubectl.ok("apply", "-f", "-", stdin=config_map("c", {"a": "2"}))
    assert said == "configmap/c configured\n"
    assert await data_of(kubectl, "c") == {"a": "2", "theirs": "kept"}
    said = await kubectl.ok("apply", "-f", "-", stdin=config_map("c", {"a": "2"}))
    assert said == "configmap/c unchanged\n"
    assert "a: " in await kubectl.ok("apply", "view-last-applied", "configmap", "c")


async def test_apply_changes_the_mutable_fields_of_a_pod(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=pod("one"))
    assert await kubectl.ok("apply", "-f", "-", stdin=pod("two")) == "pod/p configured\n"
    refused = await kubectl("apply", "-f", "-", stdin=pod("two", value="2"))
    assert refused.code == 1
    assert 'The Pod "p" is invalid: spec: Forbidden: pod updates may not change fields other than' in refused.err
    found = await kubectl.json("get", "pod", "p")
    assert found["spec"]["containers"][0]["image"] == "two"
    assert found["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP"}]


async def test_a_list_is_applied_item_by_item(kubectl: Kubectl) -> None:
    items = [yaml.safe_load(config_map(name, {"a": "1"}, labels={"set": "x"})) for name in ("l1", "l2")]
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items})
    assert await kubectl.ok("apply", "-f", "-", stdin=text) == "configmap/l1 created\nconfigmap/l2 created\n"
    names = await kubectl.ok("get", "configmaps", "-l", "set=x", "-o", "name")
    assert names == "configmap/l1\nconfigmap/l2\n"
    await kubectl.ok("delete", "-f", "-", stdin=text)
    assert await kubectl.ok("get", "configmaps", "-l", "set=x", "-o", "name") == ""


async def test_server_side_apply_shares_contests_and_releases_fields(kubectl: Kubectl) -> None:
    async def apply(data: dict[str, str], manager: str, *more: str) -> Any:
        options = ["--server-side", f"--field-manager={manager}", *more]
        return await kubectl("apply", *options, "-f", "-", stdin=config_map("s", data))

    assert (await apply({"a": "1", "b": "1"}, "one")).out == "configmap/s serverside-applied\n"
    assert (await apply({"a": "1", "c": "1"}, "two")).code == 0
    refused = await apply({"a": "2", "c": "1"}, "two")
    assert refused.code == 1
    assert 'Apply failed with 1 conflict: conflict with "one"' in refused.err
    assert ".data.a" in refused.err
    assert (await apply({"a": "2", "c": "1"}, "two", "--force-conflicts")).code == 0
    assert (await apply({}, "one")).code == 0
    assert await data_of(kubectl, "s") == {"a": "2", "c": "1"}


async def test_client_side_apply_can_move_to_the_server(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=config_map("m", {"a": "1", "b": "1"}))
    await kubectl.ok("apply", "--server-side", "-f", "-", stdin=config_map("m", {"a": "2", "b": "1"}))
    await kubectl.ok("apply", "--server-side", "-f", "-", stdin=config_map("m", {"a": "2"}))
    assert await data_of(kubectl, "m") == {"a": "2"}


async def test_create_makes_things_of_many_kinds(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "configmap", "c", "--from-literal=a=1")
    await kubectl.ok("create", "secret", "generic", "se", "--from-literal=p=q")
    await kubectl.ok("create", "quota", "q", "--hard=configmaps=50")
    await kubectl.ok("create", "role", "ro", "--verb=get,list", "--resource=pods")
    await kubectl.ok("create", "rolebinding", "rb", "--role=ro", "--user=u")
    await kubectl.ok("create", "serviceaccount", "sa")
    await kubectl.ok("create", "service", "clusterip", "sv", "--tcp=80:8080")
    assert await data_of(kubectl, "c") == {"a": "1"}
    assert await kubectl.ok("get", "secret", "se", "-o", "jsonpath={.type} {.data.p}") == "Opaque cQ=="
    assert await kubectl.ok("get", "role", "ro", "-o", "jsonpath={.rules[0].verbs}") == '["get","list"]'
    assert await kubectl.ok("get", "service", "sv", "-o", "jsonpath={.spec.ports[0].targetPort}") == "8080"
    again = await kubectl("create", "configmap", "c", "--from-literal=a=1")
    assert again.code == 1
    assert 'configmaps "c" already exists' in again.err


async def test_a_dry_run_leaves_nothing_behind(kubectl: Kubectl) -> None:
    said = await kubectl.ok("create", "configmap", "dry", "--from-literal=a=1", "--dry-run=server", "-o", "name")
    assert said == "configmap/dry\n"
    missing = await kubectl("get", "configmap", "dry")
    assert missing.err == 'Error from server (NotFound): configmaps "dry" not found\n'


async def test_diff_shows_the_changes_of_apply(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=config_map("d", {"a": "1"}))
    assert (await kubectl("diff", "-f", "-", stdin=config_map("d", {"a": "1"}))).code == 0
    different = await kubectl("diff", "-f", "-", stdin=config_map("d", {"a": "2"}))
    assert different.code == 1
    assert '+  a: "2"' in different.out
    assert await data_of(kubectl, "d") == {"a": "1"}


async def test_labels_and_annotations(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "configmap", "c")
    await kubectl.ok("label", "configmap", "c", "x=1")
    refused = await kubectl("label", "configmap", "c", "x=2")
    assert "'x' already has a value (1), and --overwrite is false" in refused.err
    await kubectl.ok("label", "configmap", "c", "x=2", "--overwrite")
    await kubectl.ok("annotate", "configmap", "c", "note=n")
    found = (await kubectl.json("get", "configmap", "c"))["metadata"]
    assert (found["labels"], found["annotations"]) == ({"x": "2"}, {"note": "n"})
    await kubectl.ok("label", "configmap", "c", "x-")
    assert await kubectl.ok("get", "configmaps", "-l", "x", "-o", "name") == ""
    wrong = await kubectl("label", "configmap", "c", "x=not a value", "--overwrite")
    assert wrong.code == 1


async def test_get_selects_and_prints(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=pod("one"))
    assert await kubectl.ok("get", "pods", "-l", "app in (z,q),app!=q", "-o", "name") == "pod/p\n"
    assert await kubectl.ok("get", "pods", "--field-selector", "status.phase=Pending", "-o", "name") == "pod/p\n"
    assert await kubectl.ok("get", "pods", "--field-selector", "metadata.name!=p", "-o", "name") == ""
    columns = "NAME:.metadata.name,IMAGE:.spec.containers[*].image"
    assert (await kubectl.ok("get", "pods", "-o", f"custom-columns={columns}")).split() == ["NAME", "IMAGE", "p", "one"]
    header, row = (await kubectl.ok("get", "pods", "--show-labels")).splitlines()
    assert (header.split()[0], header.split()[-1]) == ("NAME", "LABELS")
    assert (row.split()[0], row.split()[-1]) == ("p", "app=z")
    wrong = await kubectl("get", "pods", "--field-selector", "spec.bogus=1")
    assert "field label not supported: spec.bogus" in wrong.err


async def test_describe_shows_a_pod(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=pod("one"))
    said = await kubectl.ok("describe", "pod", "p")
    lines = [line.split() for line in said.splitlines()]
    assert ["Name:", "p"] in lines
    assert ["Status:", "Pending"] in lines
    assert ["Image:", "one"] in lines


async def test_replace_and_delete(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "-f", "-", stdin=config_map("r", {"a": "1", "b": "1"}))
    assert await kubectl.ok("replace", "-f", "-", stdin=config_map("r", {"a": "2"})) == "configmap/r replaced\n"
    assert await data_of(kubectl, "r") == {"a": "2"}
    await kubectl.ok("delete", "configmap", "r")
    gone = await kubectl("delete", "configmap", "r")
    assert gone.err == 'Error from server (NotFound): configmaps "r" not found\n'
    assert (await kubectl.ok("delete", "configmap", "r", "--ignore-not-found")) == ""


async def test_wait_for_a_condition_and_for_an_end(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=pod("one"))
    await kubectl.ok("wait", "--for=jsonpath={.status.phase}=Pending", "pod/p", "--timeout=300s")
    late = await kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=0s")
    assert late.code == 1
    ready = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    await kubectl.ok("patch", "pod", "p", "--subresource=status", "--type=strategic", "-p", ready)
    await kubectl.ok("wait", "--for=condition=Ready", "pod/p", "--timeout=300s")
    await kubectl.ok("delete", "pod", "p", "--wait=false")
    await kubectl.ok("wait", "--for=delete", "pod/p", "--timeout=300s")


async def test_an_unknown_field_is_refused_or_told(kubectl: Kubectl) -> None:
    text = pod("one").replace("spec:\n", "spec:\n  bogus: 1\n")
    refused = await kubectl("apply", "-f", "-", stdin=text)
    assert refused.code == 1
    assert "unknown field" in refused.err
    assert "bogus" in refused.err
    assert await kubectl.ok("apply", "--validate=ignore", "-f", "-", stdin=text) == "pod/p created\n"
    assert "bogus" not in (await kubectl.json("get", "pod", "p"))["spec"]


async def test_explain_knows_kinds_and_fields(kubectl: Kubectl) -> None:
    said = await kubectl.ok("explain", "pod.spec.containers.ports")
    assert "containerPort\t<integer>" in said
    assert "List of ports to expose from the container." in said
    unknown = await kubectl("explain", "pod.spec.nope")
    assert unknown.code == 1
    assert 'field "nope" does not exist' in unknown.err


async def test_permissions_are_listed(kubectl: Kubectl) -> None:
    assert await kubectl.ok("auth", "can-i", "create", "pods") == "yes\n"
    resources = await kubectl.ok("api-resources", "-o", "name")
    assert {"pods", "configmaps", "customresourcedefinitions.apiextensions.k8s.io"} <= set(resources.split())
    unknown = await kubectl("get", "nopes")
    assert unknown.err == 'error: the server doesn\'t have a resource type "nopes"\n'


async def test_a_watch_prints_changes_as_they_come(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "configmap", "w")
    watch = await kubectl.start("get", "configmaps", "--watch-only", "--field-selector=metadata.name=w", "-o", "name")
    assert watch.stdout is not None
    line = asyncio.ensure_future(watch.stdout.readline())
    try:
        # No client learns when the watch begins: changes continue until it has.
        number = 0
        while not line.done():
            number += 1
            await kubectl.ok("label", "configmap", "w", f"n={number}", "--overwrite")
        assert await line == b"configmap/w\n"
    finally:
        line.cancel()
        watch.terminate()
        await watch.communicate()


async def test_nodes_are_tainted(kubectl: Kubectl, pods: SimulatedRuntime) -> None:
    async def taints() -> Any:
        found = (await kubectl.json("get", "node", DEFAULT_NODE_NAME))["spec"].get("taints") or []
        return sorted((taint["key"], taint.get("value", ""), taint["effect"]) for taint in found)

    lost, off = "node.kubernetes.io/unreachable", "node.kubernetes.io/out-of-service"
    # Real API servers give new Nodes one.
    before = await taints()
    said = await kubectl.ok("taint", "nodes", DEFAULT_NODE_NAME, f"{lost}:NoExecute", f"{off}=nodeshutdown:NoExecute")
    assert said == f"node/{DEFAULT_NODE_NAME} tainted\n"
    assert await taints() == sorted([*before, (off, "nodeshutdown", "NoExecute"), (lost, "", "NoExecute")])
    await kubectl.ok("taint", "nodes", DEFAULT_NODE_NAME, f"{lost}-")
    assert await taints() == sorted([*before, (off, "nodeshutdown", "NoExecute")])
    said = await kubectl.ok("taint", "nodes", DEFAULT_NODE_NAME, f"{off}-")
    assert said == f"node/{DEFAULT_NODE_NAME} untainted\n"
    assert await taints() == before
