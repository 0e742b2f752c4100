"""How every API server, with its garbage collector, treats deletes."""

from typing import Any

from tests.support.api import Api, bind, config_map, gone, owner, pod
from tests.support.clusters import Cluster
from tests.support.eventually import eventually, read_until

DELETED = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


async def make(api: Api, body: dict[str, Any]) -> dict[str, Any]:
    plural = {"Pod": "pods", "ConfigMap": "configmaps"}[body["kind"]]
    created: dict[str, Any] = (await api.post(api.path(plural), body)).ok()
    return created


# --- finalizers and preconditions -----------------------------------------------------------------------------------


async def test_preconditions_of_a_delete(api: Api) -> None:
    created = await make(api, config_map("c"))
    path, uid = api.path("configmaps", "c"), created["metadata"]["uid"]
    other = await api.delete(path, {"preconditions": {"uid": "other"}})
    assert (other.code, other.reason) == (409, "Conflict")
    assert f"the UID in the precondition (other) does not match the UID in record ({uid})" in other.message
    old = await api.delete(path, {"preconditions": {"resourceVersion": "1"}})
    assert (old.code, old.reason) == (409, "Conflict")
    assert "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record" in old.message
    preconditions = {"uid": uid, "resourceVersion": created["metadata"]["resourceVersion"]}
    done = await api.delete(path, {"preconditions": preconditions})
    assert (done.code, done.body) == (200, {**DELETED, "details": {"name": "c", "kind": "configmaps", "uid": uid}})
    again = await api.delete(path)
    assert (again.code, again.message) == (404, 'configmaps "c" not found')


async def test_options_that_make_no_sense(api: Api) -> None:
    path = api.path("configmaps", "c")
    policy = await api.delete(path, propagationPolicy="Bogus")
    assert (policy.code, policy.causes()[0][0]) == (422, "propagationPolicy")
    both = await api.delete(path, propagationPolicy="Orphan", orphanDependents="true")
    assert (both.code, both.causes()[0][0]) == (422, "propagationPolicy")
    assert (await api.delete(path, gracePeriodSeconds="x")).code == 400


async def test_a_finalizer_holds_a_deleted_object(api: Api) -> None:
    await make(api, config_map("c", finalizers=["example.com/f"]))
    path = api.path("configmaps", "c")
    async with api.watch(api.path("configmaps")) as events:
        marked = await api.delete(path)
        assert (marked.code, marked.body["kind"]) == (200, "ConfigMap")
        assert marked.body["metadata"]["deletionTimestamp"]
        assert marked.body["metadata"]["deletionGracePeriodSeconds"] == 0
        again = (await api.delete(path)).ok()
        assert again["metadata"]["resourceVersion"] == marked.body["metadata"]["resourceVersion"]
        more = await api.patch(path, {"metadata": {"finalizers": ["example.com/f", "example.com/g"]}})
        assert more.code == 422
        assert more.causes()[0][0] == "metadata.finalizers"
        assert "no new finalizers can be added if the object is being deleted" in more.message
        released = (await api.patch(path, {"metadata": {"finalizers": None}})).ok()
        assert "finalizers" not in released["metadata"]
        await gone(api, path)
        await events.reach(3)
        assert events.seen() == [("ADDED", "c"), ("MODIFIED", "c"), ("DELETED", "c")]
        # Nothing was written but the end: the last event shows the object as it was stored.
        assert events.all[-1]["object"]["metadata"]["finalizers"] == ["example.com/f"]


# --- Pods -----------------------------------------------------------------------------------------------------------


async def test_a_pod_that_no_node_runs_goes_at_once(api: Api) -> None:
    await make(api, pod("waiting"))
    await make(api, pod("ended"))
    await bind(api, "ended")
    (await api.patch(api.path("pods", "ended", "status"), {"status": {"phase": "Failed"}})).ok()
    # A watch without a version may begin with older states, which the API server's cache has.
    version = (await api.get(api.path("pods"))).ok()["metadata"]["resourceVersion"]
    async with api.watch(api.path("pods"), resourceVersion=version) as events:
        for name in ("waiting", "ended"):
            deleted = (await api.delete(api.path("pods", name))).ok()
            assert deleted["kind"] == "Pod"
            assert deleted["metadata"]["deletionGracePeriodSeconds"] == 0
            assert (await api.get(api.path("pods", name))).code == 404
        await events.reach(4)
        for name in ("waiting", "ended"):
            assert [one["type"] for one in events.of(name)] == ["MODIFIED", "DELETED"]


async def test_a_pod_on_a_node_has_its_grace_period(api: Api) -> None:
    await make(api, pod("p"))
    await bind(api, "p")
    path = api.path("pods", "p")
    first = (await api.delete(path)).ok()["metadata"]
    assert first["deletionGracePeriodSeconds"] == 30
    queries: list[dict[str, str | int]] = [{}, {"gracePeriodSeconds": 60}, {"gracePeriodSeconds": 30}]
    for query in queries:
        again = (await api.delete(path, **query)).ok()["metadata"]
        assert again["resourceVersion"] == first["resourceVersion"]
    shorter = (await api.delete(path, gracePeriodSeconds=10)).ok()["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 10
    assert shorter["deletionTimestamp"] < first["deletionTimestamp"]
    assert (await api.get(path)).code == 200
    last = (await api.delete(path, {"gracePeriodSeconds": 0})).ok()
    assert last["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await api.get(path)).code == 404


async def test_a_finalizer_holds_a_pod_beyond_its_grace_period(api: Api) -> None:
    await make(api, pod("p", finalizers=["example.com/f"]))
    await bind(api, "p")
    path = api.path("pods", "p")
    (await api.delete(path, gracePeriodSeconds=5)).ok()
    (await api.delete(path, gracePeriodSeconds=0)).ok()
    assert (await api.get(path)).ok()["metadata"]["deletionGracePeriodSeconds"] == 0
    (await api.patch(path, {"metadata": {"finalizers": None}})).ok()
    assert (await api.get(path)).code == 404


async def test_eviction(api: Api, cluster: Cluster) -> None:
    await make(api, pod("p"))
    await bind(api, "p")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": api.namespace}}
    answer = await api.post(api.path("pods", "p", "eviction"), {**eviction, "apiVersion": "policy/v1beta1"})
    if answer.code >= 400:
        answer = await api.post(api.path("pods", "p", "eviction"), eviction)
    assert answer.code == 201
    evicted = (await api.get(api.path("pods", "p"))).ok()
    assert evicted["metadata"]["deletionTimestamp"]
    found = [one["reason"] for one in evicted["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    # Kubernetes sets the condition since 1.25; the libraries that the 1.36 of the tests is built from do not.
    assert found == (["EvictionByEvictionAPI"] if cluster.embedded else [])


async def test_an_eviction_names_its_pod(api: Api) -> None:
    await make(api, pod("p"))
    await bind(api, "p")
    path = api.path("pods", "p", "eviction")
    for wrong, message in (
        ({"metadata": {"name": "q"}}, "name in URL does not match name in Eviction object"),
        ({"metadata": {}}, "name in URL does not match name in Eviction object"),
        ({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}}, "cannot be handled as a Eviction"),
        ({"kind": "Eviction", "apiVersion": "policy/v7", "metadata": {"name": "p"}}, "cannot be handled as a Eviction"),
    ):
        answer = await api.post(path, wrong)
        assert (answer.code, answer.reason) == (400, "BadRequest")
        assert message in answer.message
    assert (await api.post(path, [])).code == 400
    dry = await api.post(path, {"metadata": {"name": "p"}}, dryRun="All")
    assert dry.code == 201
    found = (await api.get(api.path("pods", "p"))).ok()
    assert "deletionTimestamp" not in found["metadata"]
    assert {one["type"] for one in found["status"]["conditions"]} == {"PodScheduled"}


async def test_deletecollection(api: Api) -> None:
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        await make(api, config_map(name, labels={"l": label}))
    answer = (await api.delete(api.path("configmaps"), labelSelector="l=x", propagationPolicy="Background")).ok()
    assert (answer["kind"], [one["metadata"]["name"] for one in answer["items"]]) == ("ConfigMapList", ["a", "b"])
    left = (await api.get(api.path("configmaps"), labelSelector="l")).ok()["items"]
    assert [one["metadata"]["name"] for one in left] == ["c"]


# --- the garbage collector ------------------------------------------------------------------------------------------


async def known_to_the_collector(api: Api) -> None:
    """Wait until the garbage collector has seen all objects made so far: its watch may be behind."""
    absent = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "no-such-uid"}
    for body in (config_map("later", ownerReferences=[absent]), pod("later", ownerReferences=[absent])):
        path = api.path("pods" if body["kind"] == "Pod" else "configmaps", "later")
        await make(api, body)
        await gone(api, path)


async def test_background_deletion(api: Api) -> None:
    root = await make(api, config_map("root"))
    middle = await make(api, config_map("middle", ownerReferences=[owner(root)]))
    await make(api, pod("leaf", ownerReferences=[owner(middle)]))
    answer = (await api.delete(api.path("configmaps", "root"), propagationPolicy="Background")).ok()
    assert answer["kind"] == "Status"
    await gone(api, api.path("configmaps", "middle"))
    await gone(api, api.path("pods", "leaf"))


async def test_foreground_deletion_waits_for_blocking_dependents(api: Api) -> None:
    root = await make(api, config_map("root"))
    await make(api, pod("slow", ownerReferences=[owner(root)]))
    await bind(api, "slow")
    await make(api, pod("quick", ownerReferences=[owner(root)]))
    await known_to_the_collector(api)
    marked = (await api.delete(api.path("configmaps", "root"), propagationPolicy="Foreground")).ok()
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
    await gone(api, api.path("pods", "quick"))
    await read_until(
        lambda: api.get(api.path("pods", "slow")), lambda found: found.ok()["metadata"].get("deletionTimestamp")
    )
    assert (await api.get(api.path("configmaps", "root"))).code == 200
    (await api.delete(api.path("pods", "slow"), gracePeriodSeconds=0)).ok()
    await gone(api, api.path("configmaps", "root"))


async def test_the_finalizer_alone_means_foreground(api: Api) -> None:
    root = await make(api, config_map("root", finalizers=["foregroundDeletion"]))
    await make(api, pod("p", ownerReferences=[owner(root)]))
    await bind(api, "p")
    await known_to_the_collector(api)
    (await api.delete(api.path("configmaps", "root"))).ok()
    await read_until(
        lambda: api.get(api.path("pods", "p")), lambda found: found.ok()["metadata"].get("deletionTimestamp")
    )
    assert (await api.get(api.path("configmaps", "root"))).code == 200
    (await api.delete(api.path("pods", "p"), gracePeriodSeconds=0)).ok()
    await gone(api, api.path("configmaps", "root"))


async def test_a_request_overrides_the_finalizer(api: Api) -> None:
    root = await make(api, config_map("root", finalizers=["foregroundDeletion"]))
    await make(api, pod("p", ownerReferences=[owner(root)]))
    answer = (await api.delete(api.path("configmaps", "root"), propagationPolicy="Background")).ok()
    assert answer["kind"] == "Status"
    await gone(api, api.path("pods", "p"))


async def test_foreground_deletion_goes_down_the_tree(api: Api) -> None:
    root = await make(api, config_map("root"))
    middle = await make(api, config_map("middle", ownerReferences=[owner(root)]))
    await make(api, pod("leaf", ownerReferences=[owner(middle)]))
    await bind(api, "leaf")
    await known_to_the_collector(api)
    (await api.delete(api.path("configmaps", "root"), propagationPolicy="Foreground")).ok()
    await read_until(
        lambda: api.get(api.path("pods", "leaf")), lambda found: found.ok()["metadata"].get("deletionTimestamp")
    )
    for name in ("root", "middle"):
        found = (await api.get(api.path("configmaps", name))).ok()
        assert found["metadata"]["finalizers"] == ["foregroundDeletion"]
    (await api.delete(api.path("pods", "leaf"), gracePeriodSeconds=0)).ok()
    await gone(api, api.path("configmaps", "root"))
    assert (await api.get(api.path("configmaps", "middle"))).code == 404


async def test_orphaning(api: Api) -> None:
    root = await make(api, config_map("root"))
    await make(api, config_map("child", ownerReferences=[owner(root)]))
    await known_to_the_collector(api)
    marked = (await api.delete(api.path("configmaps", "root"), propagationPolicy="Orphan")).ok()
    assert marked["metadata"]["finalizers"] == ["orphan"]
    await gone(api, api.path("configmaps", "root"))
    child = (await api.get(api.path("configmaps", "child"))).ok()
    assert "ownerReferences" not in child["metadata"]


async def test_dependents_stay_while_another_finalizer_holds_their_owner(api: Api) -> None:
    """In the background. A second request deletes them, in the foreground; one takes the other's finalizer away."""
    for name in ("held", "free"):
        root = await make(api, config_map(name, finalizers=["example.com/f"] if name == "held" else []))
        await make(api, config_map(f"{name}-child", ownerReferences=[owner(root)]))
    await known_to_the_collector(api)
    held, child = api.path("configmaps", "held"), api.path("configmaps", "held-child")
    marked = (await api.delete(held, propagationPolicy="Background")).ok()
    assert marked["metadata"]["finalizers"] == ["example.com/f"]
    (await api.delete(api.path("configmaps", "free"), propagationPolicy="Background")).ok()
    await gone(api, api.path("configmaps", "free-child"))
    assert "deletionTimestamp" not in (await api.get(child)).ok()["metadata"]
    again = (await api.delete(held, propagationPolicy="Foreground")).ok()
    assert again["metadata"]["finalizers"] == ["example.com/f", "foregroundDeletion"]
    await gone(api, child)
    await read_until(lambda: api.get(held), lambda found: found.ok()["metadata"]["finalizers"] == ["example.com/f"])
    (await api.patch(held, {"metadata": {"finalizers": None}})).ok()
    await gone(api, held)


async def test_a_later_request_takes_the_finalizer_of_an_earlier_one_away(api: Api) -> None:
    root = await make(api, config_map("root", finalizers=["example.com/f"]))
    await make(api, pod("p", ownerReferences=[owner(root)]))
    await bind(api, "p")
    await known_to_the_collector(api)
    path = api.path("configmaps", "root")
    (await api.delete(path, propagationPolicy="Foreground")).ok()
    marked = (await api.delete(path, propagationPolicy="Background")).ok()
    assert marked["metadata"]["finalizers"] == ["example.com/f"]
    (await api.patch(path, {"metadata": {"finalizers": None}})).ok()
    # Before its dependent.
    await gone(api, path)


async def test_orphaning_while_another_finalizer_holds_the_owner(api: Api) -> None:
    root = await make(api, config_map("root", finalizers=["example.com/f"]))
    await make(api, config_map("child", ownerReferences=[owner(root)]))
    await known_to_the_collector(api)
    path, child = api.path("configmaps", "root"), api.path("configmaps", "child")
    (await api.delete(path, propagationPolicy="Orphan")).ok()

    async def orphaned() -> None:
        assert (await api.get(path)).ok()["metadata"]["finalizers"] == ["example.com/f"]
        assert "ownerReferences" not in (await api.get(child)).ok()["metadata"]

    await eventually(orphaned)
    (await api.patch(path, {"metadata": {"finalizers": None}})).ok()
    await gone(api, path)
    assert "deletionTimestamp" not in (await api.get(child)).ok()["metadata"]


async def test_an_owner_that_never_was(api: Api) -> None:
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "no-such-uid"}
    await make(api, pod("p", ownerReferences=[reference]))
    await gone(api, api.path("pods", "p"))


async def test_one_living_owner_is_enough(api: Api) -> None:
    living = await make(api, config_map("living"))
    dying = await make(api, config_map("dying"))
    await make(api, config_map("child", ownerReferences=[owner(living), owner(dying)]))
    (await api.delete(api.path("configmaps", "dying"))).ok()

    async def freed() -> None:
        child = (await api.get(api.path("configmaps", "child"))).ok()
        assert [one["name"] for one in child["metadata"]["ownerReferences"]] == ["living"]

    await eventually(freed)


async def test_an_owner_of_an_api_version_that_is_not_served_leaves_its_dependents_alone(api: Api) -> None:
    root = await make(api, config_map("root"))
    unserved = {**owner(root), "apiVersion": "v7"}
    absent = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "no-such-uid"}
    await make(api, config_map("child", ownerReferences=[unserved]))
    await make(api, config_map("both", ownerReferences=[unserved, absent]))
    (await api.delete(api.path("configmaps", "root"))).ok()
    await gone(api, api.path("configmaps", "root"))
    # A later object that is collected shows that the collector has passed the others.
    for name in ("a", "b", "c"):
        await make(api, pod(name, ownerReferences=[absent]))
        await gone(api, api.path("pods", name))
    for name, references in (("child", 1), ("both", 2)):
        found = (await api.get(api.path("configmaps", name))).ok()
        assert len(found["metadata"]["ownerReferences"]) == references


# --- namespaces -----------------------------------------------------------------------------------------------------


async def test_a_namespace_takes_its_content_with_it(api: Api) -> None:
    name = f"{api.namespace}-x"
    path = f"/api/v1/namespaces/{name}"
    created = (await api.post("/api/v1/namespaces", {"metadata": {"name": name}})).ok()
    assert (created["spec"], created["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})
    (await api.post(api.path("configmaps", namespace=name), config_map("c"))).ok()
    (await api.post(api.path("configmaps", namespace=name), config_map("held", finalizers=["example.com/f"]))).ok()
    (await api.post(api.path("pods", namespace=name), pod("p"))).ok()
    marked = (await api.delete(path)).ok()
    assert (marked["kind"], marked["status"]["phase"]) == ("Namespace", "Terminating")
    late = await api.post(api.path("configmaps", namespace=name), config_map("late"))
    assert (late.code, late.reason) == (403, "Forbidden")
    why = f"unable to create new content in namespace {name} because it is being terminated"
    assert late.message == f'configmaps "late" is forbidden: {why}'
    assert late.causes() == [("metadata.namespace", f"namespace {name} is being terminated")]
    held = api.path("configmaps", "held", namespace=name)

    async def emptied() -> None:
        assert (await api.get(held)).ok()["metadata"].get("deletionTimestamp")
        assert (await api.get(api.path("pods", namespace=name))).ok()["items"] == []

    await eventually(emptied)
    assert (await api.get(path)).code == 200
    (await api.patch(held, {"metadata": {"finalizers": None}})).ok()
    await gone(api, path)


async def test_namespaces_that_stay(api: Api) -> None:
    answer = await api.delete("/api/v1/namespaces/kube-system")
    assert (answer.code, answer.reason) == (403, "Forbidden")
    assert answer.message == 'namespaces "kube-system" is forbidden: this namespace may not be deleted'
