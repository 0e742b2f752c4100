"""Lists and watches of every API server."""

from typing import Any

import pytest

from tests.support.api import PARTIAL, TABLE, Api, config_map, pod
from tests.support.eventually import until


@pytest.fixture
async def maps(api: Api) -> str:
    """The path of five ConfigMaps, c0 to c4, labelled with their number and whether it is even."""
    for number in range(5):
        labels = {"number": str(number), "parity": "odd" if number % 2 else "even"}
        (await api.post(api.path("configmaps"), config_map(f"c{number}", labels=labels))).ok()
    return api.path("configmaps")


def names(body: Any) -> list[str]:
    return [one["metadata"]["name"] for one in body["items"]]


async def listed(api: Api, path: str, **query: str | int) -> list[str]:
    return names((await api.get(path, **query)).ok())


# --- selectors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("parity=even", ["c0", "c2", "c4"]),
        ("parity==odd,number!=3", ["c1"]),
        ("number in (1, 4)", ["c1", "c4"]),
        ("number notin (1,4)", ["c0", "c2", "c3"]),
        ("number,!absent", ["c0", "c1", "c2", "c3", "c4"]),
        ("!number", []),
        ("number>2", ["c3", "c4"]),
        ("number < 1", ["c0"]),
        ("absent!=x", ["c0", "c1", "c2", "c3", "c4"]),
        ("absent=", []),
    ],
)
async def test_label_selectors(api: Api, maps: str, selector: str, expected: list[str]) -> None:
    found = await listed(api, maps, labelSelector=selector, fieldSelector="metadata.name!=kube-root-ca.crt")
    assert found == expected


@pytest.mark.parametrize(
    "selector", ["a=b=c", "=", "a in", "a in (b", "a b", "a,,b", "-a=b", "a=-", "!", "a>x", "x/y/z=1"]
)
async def test_selectors_that_say_nothing(api: Api, maps: str, selector: str) -> None:
    queries: list[dict[str, str]] = [{}, {"watch": "true"}]
    for query in queries:
        refused = await api.get(maps, labelSelector=selector, **query)
        assert (refused.code, refused.reason) == (400, "BadRequest")


async def test_field_selectors(api: Api, maps: str) -> None:
    assert await listed(api, maps, fieldSelector="metadata.name=c1") == ["c1"]
    assert await listed(api, maps, fieldSelector=f"metadata.name=c1,metadata.namespace!={api.namespace}") == []
    (await api.post(api.path("pods"), pod("p"))).ok()
    assert await listed(api, api.path("pods"), fieldSelector="spec.nodeName=,status.phase!=Running") == ["p"]
    assert await listed(api, api.path("pods"), fieldSelector="spec.nodeName=n1") == []
    unknown = await api.get(api.path("pods"), fieldSelector="spec.foo=x")
    assert (unknown.code, unknown.message) == (400, "field label not supported: spec.foo")


# --- paging ---------------------------------------------------------------------------------------------------------


async def test_pages_show_one_moment(api: Api, maps: str) -> None:
    query: dict[str, str | int] = {"limit": 2, "fieldSelector": "metadata.name!=kube-root-ca.crt"}
    first = (await api.get(maps, **query)).ok()
    assert names(first) == ["c0", "c1"]
    (await api.delete(f"{maps}/c3")).ok()
    (await api.post(maps, config_map("c2a"))).ok()
    (await api.patch(f"{maps}/c4", {"data": {"a": "changed"}})).ok()
    second = (await api.get(maps, **query, **{"continue": first["metadata"]["continue"]})).ok()
    third = (await api.get(maps, **query, **{"continue": second["metadata"]["continue"]})).ok()
    assert names(second) + names(third) == ["c2", "c3", "c4"]
    assert third["items"][-1]["data"] == {"a": "b"}
    assert not third["metadata"].get("continue")
    versions = {page["metadata"]["resourceVersion"] for page in (first, second, third)}
    assert len(versions) == 1


async def test_how_much_is_left(api: Api, maps: str) -> None:
    total = len(await listed(api, maps))
    first = (await api.get(maps, limit=2)).ok()
    assert first["metadata"]["remainingItemCount"] == total - 2
    selected = (await api.get(maps, limit=1, labelSelector="number")).ok()
    assert selected["metadata"]["continue"]
    assert "remainingItemCount" not in selected["metadata"]


async def test_tokens_and_versions_that_cannot_be(api: Api, maps: str) -> None:
    assert (await api.get(maps, limit=2, **{"continue": "garbage"})).code == 400
    token = (await api.get(maps, limit=2)).ok()["metadata"]["continue"]
    both = await api.get(maps, limit=2, resourceVersion="5", **{"continue": token})
    assert (both.code, both.message) == (400, "specifying resource version is not allowed when using continue")
    match = await api.get(maps, resourceVersionMatch="Exact")
    assert (match.code, match.causes()[0][0]) == (422, "resourceVersionMatch")
    future = await api.get(maps, resourceVersion="999999999")
    assert (future.code, future.reason) == (504, "Timeout")
    assert future.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_a_list_at_a_version(api: Api, maps: str) -> None:
    then = (await api.get(maps)).ok()
    version = then["metadata"]["resourceVersion"]
    (await api.delete(f"{maps}/c0")).ok()
    exact = (await api.get(maps, resourceVersion=version, resourceVersionMatch="Exact")).ok()
    assert names(exact) == names(then)
    assert exact["metadata"]["resourceVersion"] == version
    newer = await listed(api, maps, resourceVersion=version)
    assert "c0" not in newer


async def test_a_namespace_need_not_exist_to_be_empty(api: Api) -> None:
    assert await listed(api, api.path("configmaps", namespace="nowhere")) == []


# --- watches --------------------------------------------------------------------------------------------------------


async def test_a_watch_continues_from_a_list(api: Api, maps: str) -> None:
    version = (await api.get(maps)).ok()["metadata"]["resourceVersion"]
    (await api.delete(f"{maps}/c3")).ok()
    (await api.post(maps, config_map("d"))).ok()
    async with api.watch(maps, resourceVersion=version) as events:
        (await api.patch(f"{maps}/d", {"data": {"a": "c"}})).ok()
        await events.reach(3)
        assert events.seen() == [("DELETED", "c3"), ("ADDED", "d"), ("MODIFIED", "d")]
        versions = [int(one["object"]["metadata"]["resourceVersion"]) for one in events.all]
        assert versions == sorted(set(versions))
        assert versions[0] > int(version)
        assert events.all[0]["object"]["data"] == {"a": "b"}


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}])
async def test_a_watch_without_a_version_begins_with_existing_objects(
    api: Api, maps: str, query: dict[str, str]
) -> None:
    async with api.watch(maps, labelSelector="number", **query) as events:
        await events.reach(5)
        assert sorted(events.seen()) == [("ADDED", f"c{number}") for number in range(5)]
        (await api.delete(f"{maps}/c1")).ok()
        await events.reach(6)
        assert events.seen()[5:] == [("DELETED", "c1")]


async def test_objects_come_and_go_as_they_match(api: Api, maps: str) -> None:
    version = (await api.get(maps)).ok()["metadata"]["resourceVersion"]
    async with api.watch(maps, resourceVersion=version, labelSelector="parity=even") as events:
        changed = (await api.patch(f"{maps}/c0", {"metadata": {"labels": {"parity": "odd"}}})).ok()
        (await api.patch(f"{maps}/c0", {"metadata": {"labels": {"parity": "even"}}})).ok()
        (await api.patch(f"{maps}/c1", {"metadata": {"labels": {"parity": "even"}}})).ok()
        (await api.patch(f"{maps}/c3", {"metadata": {"labels": {"new": "x"}}})).ok()
        (await api.patch(f"{maps}/c1", {"data": {"a": "c"}})).ok()
        (await api.delete(f"{maps}/c1")).ok()
        await events.reach(5)
        assert events.seen() == [
            ("DELETED", "c0"),
            ("ADDED", "c0"),
            ("ADDED", "c1"),
            ("MODIFIED", "c1"),
            ("DELETED", "c1"),
        ]
        left = events.all[0]["object"]["metadata"]
        assert left["labels"]["parity"] == "even"  # as it was when it last matched
        assert left["resourceVersion"] == changed["metadata"]["resourceVersion"]


async def test_an_update_without_changes_is_no_event(api: Api, maps: str) -> None:
    version = (await api.get(maps)).ok()["metadata"]["resourceVersion"]
    async with api.watch(maps, resourceVersion=version) as events:
        (await api.patch(f"{maps}/c0", {"data": {"a": "b"}})).ok()
        (await api.put(f"{maps}/c1", (await api.get(f"{maps}/c1")).ok())).ok()
        (await api.delete(f"{maps}/c2", dryRun="All")).ok()
        (await api.delete(f"{maps}/c3")).ok()
        await events.reach(1)
        assert events.seen() == [("DELETED", "c3")]


async def test_a_watch_ends_when_its_time_is_up(api: Api, maps: str) -> None:
    async with api.watch(maps, timeoutSeconds="1") as events:
        await until(events.ended.is_set)


async def test_versions_that_cannot_be_watched(api: Api, maps: str) -> None:
    match = await api.get(maps, watch="1", resourceVersion="5", resourceVersionMatch="Exact")
    assert (match.code, match.causes()[0][0]) == (422, "resourceVersionMatch")
    assert (await api.get(maps, watch="1", timeoutSeconds="x")).code == 400


async def test_other_forms(api: Api, maps: str) -> None:
    accept, query = PARTIAL.replace("Metadata;", "MetadataList;"), {"labelSelector": "number=1"}
    partial = (await api.call("GET", maps, accept=accept, query=query)).ok()
    assert (partial["kind"], names(partial)) == ("PartialObjectMetadataList", ["c1"])
    async with api.watch(maps, accept=PARTIAL, labelSelector="number=1") as events:
        await events.reach(1)
        assert events.all[0]["object"]["kind"] == "PartialObjectMetadata"
    rows = (await api.call("GET", maps, accept=TABLE, query=query)).ok()
    assert rows["kind"] == "Table"
    assert rows["columnDefinitions"][0]["name"] == "Name"
    assert [row["cells"][0] for row in rows["rows"]] == ["c1"]
    async with api.watch(maps, accept=TABLE, labelSelector="number in (1, 2)") as changes:
        await changes.reach(2)
        first, second = (one["object"] for one in changes.all)
        assert first["columnDefinitions"]
        assert not second["columnDefinitions"]
        assert (await api.call("GET", f"{maps}/c1", accept="application/xml")).code == 406
