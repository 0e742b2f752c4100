"""Room on the node, and who gets it."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

import pytest

from frameworkcontroller.local.kubelet.placement import Room, decode_pod_group
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
    room, candidates = Room(FOUR), pods(*cpus)
    assert room.take(candidates, at_least) == ([candidates[i] for i in taken], lacking)
    left = 4 - sum(candidates[i].requests["cpu"] for i in taken)
    probe = Pod("probe", {"cpu": Decimal(left)})
    assert room.lacking(probe) == []
    assert room.lacking(Pod("probe", {"cpu": left + Decimal("0.001")})) == ["cpu"]


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
