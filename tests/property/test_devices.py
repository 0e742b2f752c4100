"""Devices of a node under random histories: none is used twice at a time, and none is lost."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from frameworkcontroller.api.names import GPU
from frameworkcontroller.api.quantities import pod_requests
from frameworkcontroller.local.kubelet.devices import DeviceAllocator, DeviceRequest, device_requests, needed
from tests.support.pods import pod_manifest

CONTAINERS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["init", "sidecar", "main"])), min_size=1, max_size=5
)


def pod_of(drawn: list[tuple[int, str]]) -> dict[str, Any]:
    inits, mains = [], []
    for number, (gpus, kind) in enumerate(drawn):
        container = {"name": f"c{number}", "resources": {"limits": {GPU: gpus}}}
        if kind == "main":
            mains.append(container)
        else:
            inits.append({**container, "restartPolicy": "Always"} if kind == "sidecar" else container)
    return pod_manifest(*mains, inits=tuple(inits))


class DevicesMachine(RuleBasedStateMachine):
    """Pods come and go; the model knows which devices each container may use at the same time as others."""

    def __init__(self) -> None:
        super().__init__()
        self.allocator = DeviceAllocator(range(8))
        self.pods: dict[str, tuple[list[DeviceRequest], dict[str, list[str]]]] = {}

    @rule(uid=st.sampled_from("abcdef"), drawn=CONTAINERS)
    def allocate(self, uid: str, drawn: list[tuple[int, str]]) -> None:
        pod = pod_of(drawn)
        requests = device_requests(pod)
        # As the scheduler counts, so that a Pod that it has bound need not wait.
        assert needed(requests) == pod_requests(pod["spec"]).by_name.get(GPU, 0)
        free = self.allocator.free
        found = self.allocator.allocate(uid, requests)
        if uid in self.pods:
            requests, former = self.pods[uid]
            assert found is not None
            assert {name: list(filter(None, given.split(","))) for name, given in found.items()} == former
        elif found is None:
            assert needed(requests) > free
        else:
            given = {name: list(filter(None, given.split(","))) for name, given in found.items()}
            self.pods[uid] = requests, given

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.pods)))
        del self.pods[uid]
        self.allocator.release(uid)

    @rule(uid=st.sampled_from("abcdef"))
    def release_unknown(self, uid: str) -> None:
        if uid not in self.pods:
            self.allocator.release(uid)

    @invariant()
    def each_has_what_it_asked_for(self) -> None:
        for requests, given in self.pods.values():
            assert {name: len(set(devices)) for name, devices in given.items()} == {
                request.container: request.number for request in requests
            }

    @invariant()
    def none_is_used_twice_at_a_time(self) -> None:
        users: dict[str, str] = {}
        for uid, (requests, given) in self.pods.items():
            kept: set[str] = set()
            for request in requests:
                # An init container runs alone, except for the sidecars that were started before.
                assert not kept & set(given[request.container])
                if not request.initial:
                    kept |= set(given[request.container])
                for device in given[request.container]:
                    assert users.setdefault(device, uid) == uid
        assert set(users) <= set(map(str, range(8)))

    @invariant()
    def none_is_lost(self) -> None:
        used = sum(needed(requests) for requests, _ in self.pods.values())
        assert self.allocator.free == self.allocator.count - used == 8 - used


TestDevices = DevicesMachine.TestCase
