"""The garbage collector's less likely situations; the rest is in tests/conformance and tests/property."""

import pytest

from frameworkcontroller.local.apiserver.deletion import Propagation
from frameworkcontroller.local.apiserver.object_records import ObjectRecord
from tests.support.registry import Inside, owner_reference


@pytest.fixture
def inside() -> Inside:
    return Inside()


def child(
    inside: Inside, name: str, *owners: ObjectRecord, kind: str = "ConfigMap", block: bool = True
) -> ObjectRecord:
    references = [owner_reference(one, "ConfigMap", block=block) for one in owners]
    return inside.create(kind, name, metadata={"ownerReferences": references})


def test_owners_in_a_circle_do_not_wait_for_each_other(inside: Inside) -> None:
    first = inside.create("ConfigMap", "first")
    second = child(inside, "second", first)
    inside.change("ConfigMap", "first", {"metadata": {"ownerReferences": [owner_reference(second, "ConfigMap")]}})
    inside.delete("ConfigMap", "first", "Foreground")
    inside.settle()
    assert inside.find("ConfigMap", "first") is None
    assert inside.find("ConfigMap", "second") is None


@pytest.mark.parametrize("propagation", ["Background", "Orphan"])  # with Foreground it waits for itself, there as here
def test_an_object_that_owns_itself_can_go(inside: Inside, propagation: Propagation) -> None:
    itself = inside.create("ConfigMap", "itself")
    inside.change("ConfigMap", "itself", {"metadata": {"ownerReferences": [owner_reference(itself, "ConfigMap")]}})
    inside.settle()
    inside.delete("ConfigMap", "itself", propagation)
    inside.settle()
    assert inside.find("ConfigMap", "itself") is None


def test_a_non_blocking_dependent_is_deleted_after_its_owner(inside: Inside) -> None:
    root = inside.create("ConfigMap", "root")
    child(inside, "loose", root, block=False)
    inside.settle()
    changes = inside.changes()
    inside.delete("ConfigMap", "root", "Foreground")
    inside.settle()
    assert [change.record.name for change in changes if change.new is None] == ["root", "loose"]


def test_an_owner_in_another_namespace_is_none(inside: Inside) -> None:
    inside.create("Namespace", "other", "")
    root = inside.create("ConfigMap", "root", "other")
    child(inside, "child", root)
    inside.settle()
    assert inside.find("ConfigMap", "child") is None


def test_a_cluster_scoped_owner(inside: Inside) -> None:
    node = inside.create("Node", "node", "")
    reference = {"apiVersion": "v1", "kind": "Node", "name": "node", "uid": node.uid}
    inside.create("ConfigMap", "child", metadata={"ownerReferences": [reference]})
    inside.settle()
    assert inside.find("ConfigMap", "child") is not None
    inside.delete("Node", "node", namespace="")
    inside.settle()
    assert inside.find("ConfigMap", "child") is None


def test_a_late_collector_sees_existing_objects(inside: Inside) -> None:
    root = inside.create("ConfigMap", "root")
    child(inside, "child", root)
    inside.delete("ConfigMap", "root")
    again = Inside(type(inside.server)(wall=lambda: inside.now, storage=inside.storage))
    assert again.find("ConfigMap", "child") is None


def test_an_object_being_deleted_is_not_deleted_again(inside: Inside) -> None:
    root = inside.create("ConfigMap", "root")
    child(inside, "pod", root, kind="Pod")
    inside.bind("pod")
    inside.delete("Pod", "pod", grace=5)
    marked = inside.find("Pod", "pod")
    inside.delete("ConfigMap", "root")
    inside.settle()
    assert inside.find("Pod", "pod") is marked
