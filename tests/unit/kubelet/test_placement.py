"""Room on the node, and who gets it."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

import pytest

from frameworkcontroller.local.kubelet.placement import Room, Rooms, decode_pod_group, unavailable
from frameworkcontroller.local.resource_lists import parse_resources

FOUR = {"cpu": Decimal(4)}


@dataclass(frozen=True)
class Pod:
    uid: str
    requests: Mapping[str, Decimal]


def pods(*cpus: object, **more: object) -> list[Pod]:
    return [Pod(f"p{i}", parse_resources({"cpu": cpu, **more})) for i, cpu in enumerate(cpus)]


@pytest.mark.parametrize(
    ("cpus", "at_least", "taken", "lacking"),
    [
        ([1, 1, 1], 3, [0, 1, 2], []),
        ([2, 2, 1], 3, [], ["cpu"]),
        ([2, 2, 1], 2, [0, 1], ["cpu"]),
        ([3, 2, "500m", "500m"], 3, [0, 2, 3], ["cpu"]),
        ([5], 0, [], ["cpu"]),
        ([], 1, [], []),
    ],
)
def test_enough_are_taken_or_none(cpus: list[object], at_least: int, taken: list[int], lacking: list[str]) -> None:
    rooms, candidates = Rooms({"n": FOUR}), pods(*cpus)
    found = rooms.take(candidates, at_least, lambda _: ["n"])
    assert found == ([(candidates[i], "n") for i in taken], {"n": lacking} if lacking else {})
    left = 4 - sum(candidates[i].requests["cpu"] for i in taken)
    probe = Pod("probe", {"cpu": Decimal(left)})
    assert rooms.lacking(probe, "n") == []
    assert rooms.lacking(Pod("probe", {"cpu": left + Decimal("0.001")}), "n") == ["cpu"]


@pytest.mark.parametrize(
    ("cpus", "at_least", "taken"),
    [
        ([1, 1, 1, 1], 4, "abca"),
        ([4, 4, 4], 3, "abc"),
        ([4, 4, 4, 1], 4, ""),
        ([4, 4, 4, 1], 3, "abc"),
        ([3, 4, 4, 1], 4, "abca"),
        # A Pod is not moved to make room for another, as by kube-scheduler.
        ([3, 4, 1, 4], 4, ""),
        ([2, 3, 2, 2, 3], 5, ""),
    ],
)
def test_pods_spread_over_the_nodes_that_have_room(cpus: list[object], at_least: int, taken: str) -> None:
    rooms, candidates = Rooms(dict.fromkeys("abc", FOUR)), pods(*cpus)
    found, lacking = rooms.take(candidates, at_least, lambda _: list("abc"))
    assert "".join(node for _, node in found) == taken
    assert bool(lacking) == (len(taken) < len(cpus))
    for pod, node in found:
        assert rooms.lacking(pod, node) == []
    if not taken:
        assert rooms.take(pods(4, 4, 4), 3, lambda _: list("abc"))[1] == {}


def test_a_pod_goes_only_to_its_candidates() -> None:
    rooms, (first, second, third) = Rooms({"a": FOUR, "b": FOUR}), pods(3, 3, 2)
    assert rooms.take([first, second], 1, lambda _: ["b"]) == ([(first, "b")], {"b": ["cpu"]})
    assert [rooms.choose(second, nodes) for nodes in (["b"], ["a", "b"], [])] == [None, "a", None]
    # Another scheduler has bound it elsewhere.
    rooms.hold(first, "a")
    assert (rooms.choose(third, ["a"]), rooms.choose(third, ["a", "b"])) == (None, "b")
    assert (rooms.release(first.uid), rooms.release(first.uid)) == (True, False)
    assert rooms.choose(third, ["a"]) == "a"


def test_obstacles_are_counted_over_the_nodes() -> None:
    assert unavailable({}) == "no nodes available to schedule pods"
    found = unavailable({"a": ["Insufficient cpu", "Insufficient b"], "b": ["node(s) x"], "c": ["Insufficient cpu"]})
    assert found == "0/3 nodes are available: 1 Insufficient b, 1 node(s) x, 2 Insufficient cpu."


def test_used_resources_are_counted_once_and_released() -> None:
    room, (pod, other) = Room(FOUR), pods(3, 3)
    room.hold(pod)
    room.hold(pod)
    assert (room.lacking(other), room.lacking(pod)) == (["cpu"], [])
    assert (room.release(pod.uid), room.release(pod.uid)) == (True, False)
    assert room.lacking(other) == []


def test_a_resource_that_the_node_does_not_have_is_lacking() -> None:
    (pod,) = pods(1, **{"nvidia.com/gpu": 1})
    assert Room(FOUR).lacking(pod) == ["nvidia.com/gpu"]
    assert Room(None).lacking(pod) == []
    (none,) = pods(1, **{"nvidia.com/gpu": 0})
    assert Room(FOUR).lacking(none) == []


@pytest.mark.parametrize(("policy", "minimum"), [({"gang": {"minCount": 3}}, 3), ({"basic": {}}, 0)])
def test_the_minimum_of_a_group(policy: dict[str, object], minimum: int) -> None:
    body = {"metadata": {"namespace": "n", "name": "g", "uid": "u"}, "spec": {"schedulingPolicy": policy}}
    assert decode_pod_group(body).minimum == minimum
