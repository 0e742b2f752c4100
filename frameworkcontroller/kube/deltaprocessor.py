"""Applies listed objects and watch events to an indexer, and calls event handlers. Synchronous."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final, Generic, NamedTuple, TypeVar, TypeVarTuple

from frameworkcontroller.kube.indexer import Indexer, Item

T = TypeVar("T", bound=Item)
Ts = TypeVarTuple("Ts")

_log: Final = logging.getLogger(__name__)


class ObjectState(NamedTuple):
    """One state of one object. ``key`` is ``namespace/name``, or ``name`` if cluster-scoped."""

    key: str
    uid: str
    resource_version: str


def identify(obj: Any) -> ObjectState:
    """Return the identity of a parsed object. Raises ValueError if it is not a Kubernetes object."""
    try:
        metadata = obj["metadata"]
        name = metadata["name"]
        version = metadata["resourceVersion"]
        namespace = metadata.get("namespace")
        uid = metadata.get("uid", "")
    except (TypeError, KeyError, AttributeError):
        raise ValueError("not an object with metadata.name and metadata.resourceVersion") from None
    if not (isinstance(name, str) and name and isinstance(version, str) and version and isinstance(uid, str)):
        raise ValueError("metadata.name, metadata.resourceVersion or metadata.uid is not text")
    return ObjectState(f"{namespace}/{name}" if namespace else name, uid, version)


class DeltaProcessor(Generic[T]):
    """Keeps an indexer equal to the collection of an API server.

    * A failure of ``decode`` or of an index function concerns one object: ``on_undecodable(key, error, object)`` is
      called, the indexer keeps the last decodable state, and processing continues.
    * A known name with another UID is another object: first the old one is deleted, then the new one added.
    * An object in a known state is neither decoded again nor passed to handlers.
    * Handlers run after the change of the indexer, and must be quick. Their exceptions are logged.
    """

    def __init__(
        self,
        decode: Callable[[dict[str, Any]], T],
        indexer: Indexer[T],
        on_undecodable: Callable[[str, Exception, dict[str, Any]], None],
        on_deleted_object: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        """``on_deleted_object`` gets the final state of each deleted object, before the handlers."""
        self.indexer = indexer
        self.on_add: list[Callable[[T], None]] = []
        self.on_update: list[Callable[[T, T], None]] = []
        self.on_delete: list[Callable[[T, T | None], None]] = []
        self.on_listed: list[Callable[[], None]] = []
        self._decode = decode
        self._on_undecodable = on_undecodable
        self._on_deleted_object = on_deleted_object
        self.undecodable: dict[str, ObjectState] = {}
        """The objects whose current state cannot be decoded, by key."""
        self._outdated: set[str] = set()

    def decode_again(self) -> None:
        """Take the known objects for changed when they come next: their schema on the API server has changed."""
        self._outdated = set(self.indexer)

    def upsert(self, identity: ObjectState, obj: dict[str, Any]) -> None:
        key, uid, version = identity
        known = self.indexer.get(key)
        if self.undecodable and self.undecodable.get(key) == identity:
            return
        if key in self._outdated:
            self._outdated.discard(key)
        elif known is not None and known.resource_version == version and known.uid == uid:
            # Undecodable in between, and now in this state again: the server was restored from a backup.
            self.undecodable.pop(key, None)
            return
        known = self._same(key, uid)
        try:
            item = self._decode(obj)
            if item.key != key:
                raise ValueError(f"decoded to another key: {item.key!r}")
            self.indexer.put(item)
        except Exception as error:  # noqa: BLE001 - must not affect other objects
            self.reject(identity, error, obj)
            return
        self.undecodable.pop(key, None)
        if known is None:
            for added in self.on_add:
                self._call(added, item)
        else:
            for updated in self.on_update:
                self._call(updated, known, item)

    def reject(self, identity: ObjectState, error: Exception, obj: dict[str, Any]) -> None:
        """Record that the object exists in this state, which cannot be decoded."""
        if self.undecodable.get(identity.key) != identity:
            self._same(identity.key, identity.uid)
            self.undecodable[identity.key] = identity
            self._call(self._on_undecodable, identity.key, error, obj)

    def delete(self, identity: ObjectState, obj: dict[str, Any]) -> None:
        """Delete the object; ``obj`` is its final state."""
        if self._on_deleted_object is not None:
            self._call(self._on_deleted_object, obj)
        key, uid, _ = identity
        known = self.indexer.get(key)
        final: T | None = None
        if known is not None and known.uid == uid:
            # The object is deleted even if its final state cannot be decoded.
            with suppress(Exception):
                final = self._decode(obj)
        self._drop(key, final)
        self.undecodable.pop(key, None)

    def delete_except(self, keys: Collection[str]) -> None:
        """Delete all objects but these, whose keys a complete list has. Their final state is unknown."""
        for key in [key for key in self.indexer if key not in keys]:
            self._drop(key, None)
        for key in [key for key in self.undecodable if key not in keys]:
            self.undecodable.pop(key, None)

    def listed(self) -> None:
        for handler in self.on_listed:
            self._call(handler)

    def clear(self) -> None:
        """Remove all objects without calling handlers."""
        self._outdated.clear()
        self.indexer.clear()
        self.undecodable.clear()

    def _same(self, key: str, uid: str) -> T | None:
        """Return the known state of this object. A known object of the same name with another UID is deleted."""
        known = self.indexer.get(key)
        if known is not None and known.uid != uid:
            self._drop(key, None)
            return None
        return known

    def _drop(self, key: str, final: T | None) -> None:
        known = self.indexer.remove(key)
        if known is not None:
            for deleted in self.on_delete:
                self._call(deleted, known, final)

    def _call(self, handler: Callable[[*Ts], None], *args: *Ts) -> None:
        try:
            handler(*args)
        except Exception:  # noqa: BLE001 - must not stop the informer
            _log.exception("Handler failed")
