"""Turns listed objects and watch events into changes of a store, and tells handlers what changed. Synchronous."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final, Generic, NamedTuple, TypeVar, TypeVarTuple

from frameworkcontroller.kube.indexer import Indexer, Item

T = TypeVar("T", bound=Item)
Ts = TypeVarTuple("Ts")

_log: Final = logging.getLogger(__name__)


class MalformedObject(ValueError):
    """What should be a Kubernetes object has no name or no resourceVersion: not an answer of an API server."""


class Identity(NamedTuple):
    """Which object, and which state of it. ``key`` is ``namespace/name``, or ``name`` if cluster-scoped."""

    key: str
    uid: str
    resource_version: str


def identify(obj: Any) -> Identity:
    """Who a parsed object is. Raises MalformedObject."""
    try:
        metadata = obj["metadata"]
        name = metadata["name"]
        version = metadata["resourceVersion"]
        namespace = metadata.get("namespace")
        uid = metadata.get("uid", "")
    except (TypeError, KeyError, AttributeError):
        raise MalformedObject("not an object with metadata.name and metadata.resourceVersion") from None
    if not (isinstance(name, str) and name and isinstance(version, str) and version and isinstance(uid, str)):
        raise MalformedObject("metadata.name, metadata.resourceVersion or metadata.uid is not text")
    return Identity(f"{namespace}/{name}" if namespace else name, uid, version)


class Replica(Generic[T]):
    """A store, and the rules by which it follows the API server.

    * One object's trouble is its own: if ``decode`` or an indexer cannot take it, that is reported to
      ``on_unreadable(key, error, object)``, what was known of it before stays, and the rest goes on. When it can be
      read again, or is gone, ``on_unreadable_over(key)`` follows.
    * A name that is found with another uid is another object: the former is deleted, then the new one added.
    * An object in exactly the state that is known already is no news, and not even decoded.
    * Handlers are told after the store has changed. They run within the change, so they must be quick; one that raises
      is logged and does not keep the others from it.
    """

    def __init__(
        self,
        decode: Callable[[dict[str, Any]], T],
        indexer: Indexer[T],
        *,
        on_unreadable: Callable[[str, Exception, dict[str, Any]], None] | None = None,
        on_unreadable_over: Callable[[str], None] | None = None,
    ) -> None:
        self.indexer = indexer
        self.on_add: list[Callable[[T], None]] = []
        self.on_update: list[Callable[[T, T], None]] = []
        self.on_delete: list[Callable[[T, T | None], None]] = []
        self._decode = decode
        self._on_unreadable = on_unreadable or _log_unreadable
        self._on_unreadable_over = on_unreadable_over
        self._unreadable: dict[str, Identity] = {}

    @property
    def unreadable(self) -> Collection[str]:
        """The keys of the objects that exist and cannot be read in their present state."""
        return self._unreadable.keys()

    def observe(self, identity: Identity, obj: dict[str, Any]) -> None:
        """The object exists, in this state."""
        key, uid, version = identity
        known = self.indexer.get(key)
        if self._unreadable and self._unreadable.get(key) == identity:
            return
        if known is not None and known.resource_version == version and known.uid == uid:
            # Unreadable in between, and then back in this very state: the server was restored from a backup.
            self._readable_or_gone(key)
            return
        known = self._same(key, uid)
        try:
            item = self._decode(obj)
            if item.key != key:
                raise ValueError(f"decoded to another key: {item.key!r}")
            self.indexer.put(item)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this one object's trouble
            self._reject(identity, error, obj)
            return
        if self._unreadable:
            self._readable_or_gone(key)
        if known is None:
            for added in self.on_add:
                self._call(added, item)
        else:
            for updated in self.on_update:
                self._call(updated, known, item)

    def reject(self, identity: Identity, error: Exception, obj: dict[str, Any]) -> None:
        """The object exists in this state, which is known to be unreadable."""
        if self._unreadable.get(identity.key) != identity:
            self._same(identity.key, identity.uid)
            self._reject(identity, error, obj)

    def remove(self, identity: Identity, obj: dict[str, Any]) -> None:
        """The object is gone; ``obj`` is its last state."""
        key, uid, _ = identity
        known = self.indexer.get(key)
        final: T | None = None
        if known is not None and known.uid == uid:
            # A last state that cannot be read is as good as none: the object is gone all the same.
            with suppress(Exception):
                final = self._decode(obj)
        self._drop(key, final)
        self._readable_or_gone(key)

    def retain(self, keys: Collection[str]) -> int:
        """Whatever is not among these keys is gone, its last state unknown. Returns how many objects those were."""
        gone = [key for key in self.indexer if key not in keys]
        for key in gone:
            self._drop(key, None)
        for key in [key for key in self._unreadable if key not in keys]:
            self._readable_or_gone(key)
        return len(gone)

    def clear(self) -> None:
        """Forget everything, telling nobody."""
        self.indexer.clear()
        self._unreadable.clear()

    def _same(self, key: str, uid: str) -> T | None:
        """What is known of this very object. If another one of its name is known, that one is gone."""
        known = self.indexer.get(key)
        if known is not None and known.uid != uid:
            self._drop(key, None)
            return None
        return known

    def _reject(self, identity: Identity, error: Exception, obj: dict[str, Any]) -> None:
        self._unreadable[identity.key] = identity
        self._call(self._on_unreadable, identity.key, error, obj)

    def _drop(self, key: str, final: T | None) -> None:
        known = self.indexer.remove(key)
        if known is not None:
            for deleted in self.on_delete:
                self._call(deleted, known, final)

    def _readable_or_gone(self, key: str) -> None:
        if self._unreadable.pop(key, None) is not None and self._on_unreadable_over is not None:
            self._call(self._on_unreadable_over, key)

    def _call(self, handler: Callable[[*Ts], None], *args: *Ts) -> None:
        try:
            handler(*args)
        except Exception:  # noqa: BLE001 - it is logged, and must not stop the informer that all others live on
            _log.exception("Handler failed")


def _log_unreadable(key: str, error: Exception, _obj: dict[str, Any]) -> None:
    _log.warning("Object cannot be read: %s: %s: %s", key, type(error).__name__, error)
