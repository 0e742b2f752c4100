"""The store's bounds and refusals; tests/property/test_apiserver_storage.py compares its content with a model."""

from typing import Any

import pytest

from frameworkcontroller.local.apiserver.object_records import Change, Origin
from frameworkcontroller.local.apiserver.storage import (
    MAX_OBJECT_BYTES,
    KeyTakenError,
    ObjectStorage,
    ObjectTooLargeError,
    StaleRecordError,
)
from frameworkcontroller.local.apiserver.watch_cache import CompactedError

TEST = Origin("test", agent="tester")


def body(**more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a"}, **more}


def test_a_document_can_be_modified_without_harm() -> None:
    storage = ObjectStorage()
    record = storage.create("r", "a", body(data={"x": 1}), TEST)
    record.document()["data"]["x"] = 2
    assert storage.get("r", "a") is record
    assert record.document() == {"metadata": {"resourceVersion": "2", "name": "a"}, "data": {"x": 1}}


def test_a_record_under_another_version_is_otherwise_the_same() -> None:
    record = ObjectStorage().create("r", "a", body(text='"resourceVersion":"5"'), TEST)
    later = record.at(1_000_000)
    assert later.revision == 1_000_000
    assert later.document() == {**record.document(), "metadata": {"resourceVersion": "1000000", "name": "a"}}


def test_writes_that_are_refused() -> None:
    storage = ObjectStorage()
    first = storage.create("r", "a", body(), TEST)
    with pytest.raises(KeyTakenError):
        storage.create("r", "a", body(), TEST)
    second = storage.update(first, body(), TEST)
    with pytest.raises(StaleRecordError):
        storage.update(first, body(), TEST)
    with pytest.raises(StaleRecordError):
        storage.delete(first, TEST)
    with pytest.raises(ObjectTooLargeError):
        storage.update(second, body(data="x" * MAX_OBJECT_BYTES), TEST)
    assert (storage.get("r", "a"), storage.revision) == (second, 3)


def test_an_observer_cannot_write() -> None:
    storage = ObjectStorage()
    refused: list[Exception] = []

    def write(change: Change) -> None:
        try:
            storage.delete(change.record, TEST)
        except RuntimeError as error:
            refused.append(error)

    stop = storage.observe(write)
    storage.create("r", "a", body(), TEST)
    assert len(refused) == 1
    assert storage.get("r", "a") is not None
    stop()
    storage.create("r", "b", body(), TEST)
    assert len(refused) == 1


def test_the_audit_keeps_every_write_and_who_made_it() -> None:
    storage = ObjectStorage(history=1, audit=True)
    record = storage.create("r", "a", body(), TEST)
    record = storage.update(record, body(x=1), Origin("patch", "status", "other"))
    storage.delete(record, TEST)
    storage.compact()
    assert storage.audit is not None
    assert [(one.type, one.revision, one.origin.verb, one.origin.agent) for one in storage.audit] == [
        ("ADDED", 2, "test", "tester"),
        ("MODIFIED", 3, "patch", "other"),
        ("DELETED", 4, "test", "tester"),
    ]
    old, new = storage.audit[1].old, storage.audit[1].new
    assert old is not None
    assert new is not None
    assert ("x" in old.document(), "x" in new.document()) == (False, True)
    assert storage.audit[2].new is None


def test_the_past_is_bounded_by_number() -> None:
    storage = ObjectStorage(history=3)
    for number in range(5):
        storage.create("r", f"k{number}", body(), TEST)
    with pytest.raises(CompactedError) as refused:
        storage.follow("r", 2, lambda: None)
    assert (refused.value.requested, refused.value.oldest) == (2, 3)
    changes = storage.follow("r", 3, lambda: None).take(10)
    assert changes is not None
    assert [change.revision for change in changes] == [4, 5, 6]


def test_the_past_is_bounded_by_size() -> None:
    storage = ObjectStorage(history_bytes=10_000)
    record = storage.create("r", "a", body(), TEST)
    for number in range(10):
        record = storage.update(record, body(data="x" * 3_000, number=number), TEST)
    changes = storage.follow("r", storage.revision - 3, lambda: None).take(10)
    assert changes is not None
    assert len(changes) == 3
    with pytest.raises(CompactedError):
        storage.follow("r", storage.revision - 4, lambda: None)
    storage.update(record, body(data="x" * 20_000), TEST)
    assert storage.follow("r", storage.revision - 1, lambda: None).take(10)


def test_each_resource_has_a_past_of_its_own() -> None:
    storage = ObjectStorage(history=3)
    storage.create("quiet", "a", body(), TEST)
    for number in range(50):
        storage.create("busy", f"k{number}", body(), TEST)
    changes = storage.follow("quiet", 1, lambda: None).take(10)
    assert changes is not None
    assert len(changes) == 1


def test_a_slow_watcher_is_cut_off() -> None:
    storage = ObjectStorage(history=3)
    cursor = storage.follow("r", 1, lambda: None)
    for number in range(4):
        storage.create("r", f"k{number}", body(), TEST)
    assert cursor.take(10) is None


def test_compaction_forgets_the_past_and_not_the_present() -> None:
    storage = ObjectStorage()
    storage.create("r", "a", body(), TEST)
    storage.create("r", "b", body(), TEST)
    storage.compact(2)
    assert len(storage.page("r", revision=2).records) == 1
    with pytest.raises(CompactedError):
        storage.page("r", revision=1)
    with pytest.raises(CompactedError):
        storage.follow("never-written", 1, lambda: None)
    storage.compact()
    assert len(storage.page("r").records) == 2


def test_a_reread_is_no_write() -> None:
    storage = ObjectStorage()
    record = storage.create("r", "a", body(), TEST)
    storage.reread("r", lambda obj: {**obj, "added": True})
    found = storage.get("r", "a")
    assert found is not None
    assert found.revision == record.revision == storage.revision
    assert found.document()["added"] is True
