"""Which container gets which device of a node."""

from typing import Any

import pytest

from frameworkcontroller.api.names import GPU
from frameworkcontroller.local.kubelet.devices import DeviceAllocator, device_requests, needed
from tests.support.pods import pod_manifest

Json = dict[str, Any]


def container(name: str, gpus: object = None, field: str = "limits", **fields: Any) -> Json:
    return {"name": name, **({} if gpus is None else {"resources": {field: {GPU: gpus}}}), **fields}


def sidecar(name: str, gpus: object = None) -> Json:
    return container(name, gpus, restartPolicy="Always")


def assigned(allocator: DeviceAllocator, pod: Json, uid: str = "p") -> dict[str, str] | None:
    found = allocator.allocate(uid, device_requests(pod))
    return None if found is None else dict(found)


def test_a_container_has_its_own_devices_and_none_if_it_requests_none() -> None:
    pod = pod_manifest(container("a", 2), container("b", "1", "requests"), container("c"), container("d", 0))
    assert assigned(DeviceAllocator(range(8)), pod) == {"a": "0,1", "b": "2", "c": "", "d": ""}


def test_the_main_containers_get_the_devices_of_init_containers_that_have_ended() -> None:
    inits = (container("first", 1), sidecar("beside", 1), container("second", 2))
    pod = pod_manifest(container("main", 1), inits=inits)
    assert assigned(DeviceAllocator(range(3)), pod) == {"first": "0", "beside": "0", "second": "1,2", "main": "1"}
    assert assigned(DeviceAllocator(range(2)), pod) is None


def test_devices_have_the_names_that_they_are_given() -> None:
    assert assigned(DeviceAllocator(["3", "GPU-5e", "1"]), pod_manifest(container("a", 2))) == {"a": "3,GPU-5e"}


def test_a_pod_gets_all_of_its_devices_or_none() -> None:
    allocator = DeviceAllocator(range(2))
    assert assigned(allocator, pod_manifest(container("a", 1)), "p") == {"a": "0"}
    assert assigned(allocator, pod_manifest(container("a", 2)), "q") is None
    assert (allocator.count, allocator.free) == (2, 1)
    allocator.release("p")
    allocator.release("p")
    assert assigned(allocator, pod_manifest(container("a", 2)), "q") == {"a": "0,1"}


def test_the_number_of_devices_costs_nothing() -> None:
    allocator = DeviceAllocator(range(2**63 - 1))
    assert assigned(allocator, pod_manifest(container("a", 1))) == {"a": "0"}


@pytest.mark.parametrize("amount", ["1500m", "1.5"])
def test_a_part_of_a_device_is_a_whole_one(amount: str) -> None:
    assert needed(device_requests(pod_manifest(container("a", amount)))) == 2
