"""Detects that the CRD has lost its status subresource or fields while the controller runs, and restores them.

This happens when another manifest is applied: the original's has no such subresource, and until it is restored, the API
server answers 404 to each write of a status. An older release's lacks fields, which the API server drops silently.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any, Final

import orjson

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.crd import missing_fields, updated
from frameworkcontroller.kube.discovery import answered, discovered
from frameworkcontroller.kube.errors import ApiError, Conflict, Forbidden, KubeError, NotFound, may_pass
from frameworkcontroller.kube.resources import CRDS

_log: Final = logging.getLogger(__name__)

PERIOD_SEC: Final = 600.0
"""Interval of checks: there may be no writes for hours."""

AGAIN_SEC: Final = 30.0
"""Interval while something is lost, and minimum interval after refused writes."""

_SETTLE_SEC: Final = 1.0
"""Most objects whose status answers 404 were deleted, which the cache shows after this time."""


def has_status(crd: Mapping[str, Any], manifest: Mapping[str, Any]) -> bool:
    """Return whether each served version of the CRD that is in ``manifest`` has a status subresource."""
    own = {version["name"] for version in manifest["spec"]["versions"]}
    return all(
        (version.get("subresources") or {}).get("status") is not None
        for version in crd["spec"].get("versions") or ()
        if version.get("served") and version.get("name") in own
    )


class CrdGuard:
    """Checks a CRD that ``ensure_crd`` has installed."""

    def __init__(
        self,
        client: KubeClient,
        manifest: Mapping[str, Any],
        *,
        exists: Callable[[str], bool],
        lost: Callable[[str, Set[str]], None],
        restored: Callable[[Set[str]], None],
        outdated: Callable[[Sequence[str]], None],
        current: Callable[[], None],
        rng: random.Random,
    ) -> None:
        """``exists(key)`` returns whether the object is in the cache.

        ``lost(problem, keys)`` is called with the objects whose status could not be written, once for each, and
        ``restored(keys)`` with all of them after the subresource is restored. ``outdated(fields)`` is called
        after each check by which the API server drops fields, and ``current()`` once it no longer does.
        """
        self.problem: str | None = None
        """Why statuses cannot be written; None while they can."""
        self.missing: tuple[str, ...] = ()
        """The fields that the CRD lacks, as far as it may be read."""
        self._client = client
        self._manifest = manifest
        self._name: str = manifest["metadata"]["name"]
        self._named = f"CustomResourceDefinition {self._name}"
        self._exists = exists
        self._lost = lost
        self._restored = restored
        self._outdated = outdated
        self._current = current
        self._rng = rng
        self._refused: set[str] = set()
        self._reported: set[str] = set()
        self._wanted = asyncio.Event()
        self._lacked = False
        """True if the CRD lacked fields at the last read."""

    def refused(self, key: str) -> None:
        """The API server answered 404 to a write of the status of this object, or has dropped fields of it."""
        self._refused.add(key)
        self._wanted.set()

    def start_with(self, crd: Mapping[str, Any]) -> None:
        """Check the CRD that ``ensure_crd`` returned."""
        if not has_status(crd, self._manifest):
            self._find("it has none, and may not be updated from here")
        self._miss(missing_fields(crd, self._manifest), "it may not be updated from here")

    async def is_current(self) -> bool:
        """Check now. Return whether the CRD had all fields before it."""
        await self._check()
        return not self._lacked

    async def run(self) -> None:
        """Check at intervals, and after refused writes of statuses; never returns."""
        while True:
            if self.problem is None and not self.missing:
                with suppress(TimeoutError):
                    async with asyncio.timeout(PERIOD_SEC * self._rng.uniform(0.9, 1.1)):
                        await self._wanted.wait()
                        await asyncio.sleep(_SETTLE_SEC)
            else:
                await asyncio.sleep(AGAIN_SEC)
            if await self._check():
                await asyncio.sleep(AGAIN_SEC)

    async def _check(self) -> bool:
        """Check the CRD. Return whether refused writes led to requests."""
        was_refused = self._wanted.is_set()
        keys = {key for key in self._refused if self._exists(key)}
        if self.problem is None and was_refused and not keys:
            self._refused.clear()
            self._wanted.clear()
            return False
        try:
            problem, repaired, missing = await self._inspect()
        except KubeError as error:
            _log.info("Cannot check %s: %s", self._named, error)
            return was_refused
        self._refused.clear()
        self._wanted.clear()
        self._miss(*missing)
        if problem is not None:
            self._find(problem, keys)
        elif repaired or self.problem is not None:
            if not repaired:
                _log.info("The status subresource of %s is restored", self._named)
            self.problem = None
            reported, self._reported = self._reported, set()
            self._restored(reported | keys)
        return was_refused

    def _find(self, problem: str, keys: Set[str] = frozenset()) -> None:
        text = f"{self._named} has no status subresource, so no status can be written: {problem}"
        if self.problem != text:
            self.problem = text
            _log.warning("%s", text)
        self._lost(text, keys - self._reported)
        self._reported |= keys

    def _miss(self, fields: Sequence[str], why: str) -> None:
        before, self.missing = self.missing, tuple(fields)
        if self.missing:
            if self.missing != before:
                _log.warning("The API server drops %s: %s lacks them, and %s", ", ".join(fields), self._named, why)
            self._outdated(self.missing)
        elif before:
            _log.info("%s has all fields of this release", self._named)
            self._current()

    async def _inspect(self) -> tuple[str | None, bool, tuple[Sequence[str], str]]:
        """Return the remaining problem with statuses, whether anything was repaired, and the missing fields with the
        reason for which they are. Raises KubeError.
        """
        try:
            crd = await answered(self._client.get(CRDS, self._name))
        except NotFound:
            # Its objects were deleted with it.
            return None, False, ((), "")
        except Forbidden as refused:
            problem = f"it may not be read from here: {refused}" if await self._is_unserved() else None
            return problem, False, (self.missing, "it may no longer be read from here")
        with_status, missing = has_status(crd, self._manifest), missing_fields(crd, self._manifest)
        self._lacked = bool(missing)
        wanted = updated(crd, self._manifest)
        if (with_status and not missing) or wanted is None or crd["metadata"].get("deletionTimestamp"):
            return None, False, ((), "")
        try:
            await answered(self._client.replace(CRDS, self._name, orjson.dumps(wanted)))
        except ApiError as refused:
            if may_pass(refused) or isinstance(refused, Conflict | NotFound):
                raise
            problem = f"another manifest was applied over it, and it could not be put back: {refused}"
            return None if with_status else problem, False, (missing, f"it could not be put back: {refused}")
        self.missing = self.missing or tuple(missing)
        lost = "the status subresource" if not with_status else ", ".join(missing)
        _log.warning("Restored %s of %s: another manifest was applied", lost, self._named)
        return None, True, ((), "")

    async def _is_unserved(self) -> bool:
        spec = self._manifest["spec"]
        plural = spec["names"]["plural"]
        for version in spec["versions"]:
            with suppress(Forbidden, NotFound):
                served = await discovered(self._client, spec["group"], version["name"])
                if plural in served and f"{plural}/status" not in served:
                    return True
        return False
