"""Notices that the CRD has lost its status subresource while the controller runs, and puts it back.

The original's manifest has no such subresource: to apply it over ours is enough. Until it is back, the API server
answers 404 to each write of a status.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from typing import Any, Final

import orjson

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.crd import Passing, answered, updated
from frameworkcontroller.kube.errors import ApiError, Conflict, Forbidden, KubeError, NotFound
from frameworkcontroller.kube.resources import CRDS

_log: Final = logging.getLogger(__name__)

PERIOD_SEC: Final = 600.0
"""The CRD is read this often, since nothing may be written for hours."""

AGAIN_SEC: Final = 30.0
"""While the subresource is lost, and at most this often after refused writes."""

_SETTLE_SEC: Final = 1.0
"""Most objects whose status answers 404 were deleted: the cache shows it after this."""


def has_status(crd: Mapping[str, Any], manifest: Mapping[str, Any]) -> bool:
    """Whether each version of ``manifest`` that the CRD serves has a status subresource."""
    own = {version["name"] for version in manifest["spec"]["versions"]}
    return all(
        (version.get("subresources") or {}).get("status") is not None
        for version in crd["spec"].get("versions") or ()
        if version.get("served") and version.get("name") in own
    )


class CrdGuard:
    """Watches over one CRD that ``ensure_crd`` has installed."""

    def __init__(
        self,
        client: KubeClient,
        manifest: Mapping[str, Any],
        *,
        exists: Callable[[str], bool],
        lost: Callable[[str, Set[str]], None],
        restored: Callable[[Set[str]], None],
        rng: random.Random,
    ) -> None:
        """``exists``: whether the cache has the object of that key.

        ``lost`` is told the problem, and the keys whose status could not be written for it, each once. ``restored`` is
        told all of them when the subresource is back.
        """
        self.problem: str | None = None
        """Why no status can be written; None while it can."""
        self._client = client
        self._manifest = manifest
        self._name: str = manifest["metadata"]["name"]
        self._exists = exists
        self._lost = lost
        self._restored = restored
        self._rng = rng
        self._refused: set[str] = set()
        self._told: set[str] = set()
        self._wanted = asyncio.Event()

    def refused(self, key: str) -> None:
        """The API server answered 404 to a write of that object's status."""
        self._refused.add(key)
        self._wanted.set()

    def start_with(self, crd: Mapping[str, Any]) -> None:
        """Take the CRD as ``ensure_crd`` left it."""
        if not has_status(crd, self._manifest):
            self._find("it has none, and may not be updated from here")

    async def run(self) -> None:
        """Look now and then, and when a write of a status was refused; never returns."""
        while True:
            if self.problem is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(PERIOD_SEC * self._rng.uniform(0.9, 1.1)):
                        await self._wanted.wait()
                        await asyncio.sleep(_SETTLE_SEC)
            else:
                await asyncio.sleep(AGAIN_SEC)
            if await self._check():
                await asyncio.sleep(AGAIN_SEC)

    async def _check(self) -> bool:
        """Whether a refusal has led to a request."""
        was_refused = self._wanted.is_set()
        keys = {key for key in self._refused if self._exists(key)}
        if self.problem is None and was_refused and not keys:
            self._refused.clear()
            self._wanted.clear()
            return False
        try:
            problem, mended = await self._look()
        except (KubeError, Passing) as error:
            _log.info("CustomResourceDefinition %s could not be checked: %s", self._name, error)
            return was_refused
        self._refused.clear()
        self._wanted.clear()
        if problem is not None:
            self._find(problem, keys)
        elif mended or self.problem is not None:
            if not mended:
                _log.info("CustomResourceDefinition %s has its status subresource again", self._name)
            self.problem = None
            told, self._told = self._told, set()
            self._restored(told | keys)
        return was_refused

    def _find(self, problem: str, keys: Set[str] = frozenset()) -> None:
        text = (
            f"CustomResourceDefinition {self._name} has no status subresource, so no status can be written: {problem}"
        )
        if self.problem != text:
            self.problem = text
            _log.warning("%s", text)
        self._lost(text, keys - self._told)
        self._told |= keys

    async def _look(self) -> tuple[str | None, bool]:
        """What is wrong and could not be mended; whether something was. Raises KubeError, Passing."""
        try:
            crd = await answered(self._client.get(CRDS, self._name))
        except NotFound:
            # Its objects are gone with it.
            return None, False
        except Forbidden as refused:
            return (f"it may not be read from here: {refused}" if await self._is_unserved() else None), False
        wanted = updated(crd, self._manifest)
        if has_status(crd, self._manifest) or wanted is None or crd["metadata"].get("deletionTimestamp"):
            return None, False
        try:
            await answered(self._client.replace(CRDS, self._name, orjson.dumps(wanted)))
        except (Conflict, NotFound) as changed:
            raise Passing(changed) from changed
        except ApiError as refused:
            return f"another manifest was applied over it, and it could not be put back: {refused}", False
        _log.warning(
            "CustomResourceDefinition %s had lost its status subresource, without which no status can be written: "
            "another manifest was applied over it. It was put back",
            self._name,
        )
        return None, True

    async def _is_unserved(self) -> bool:
        spec = self._manifest["spec"]
        plural = spec["names"]["plural"]
        for version in spec["versions"]:
            try:
                listing = await answered(
                    self._client.raw("GET", f"/apis/{spec['group']}/{version['name']}"), of_served=False
                )
            except (Forbidden, NotFound):
                continue
            served = {resource.get("name") for resource in listing.get("resources") or ()}
            if plural in served and f"{plural}/status" not in served:
                return True
        return False
