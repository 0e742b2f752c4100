"""Waiting until every Task has an IP, and then until names resolve."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from frameworkcontroller.barrier.exits import EXIT_TIMED_OUT, BarrierError, CheckFailed, WrongFramework
from frameworkcontroller.barrier.frameworkreader import Reader
from frameworkcontroller.barrier.lookup import problem_of
from frameworkcontroller.barrier.settings import Settings

_REQUEST_TIMEOUT_SEC = 30.0
_REPEAT_LOG_SEC = 60.0  # before an unchanged state is logged again
_MOST_TIME_READING = 0.1  # fraction of the time, to spare a slow server
_LONGEST_PAUSE_SEC = 60.0  # after a slow answer or a Retry-After
_LOOKUP_TIMEOUT_SEC = 30.0
_FIRST_LOOKUP_PAUSE_SEC = 1.0  # doubled up to the interval

_log = logging.getLogger("frameworkbarrier")


class Barrier:
    """Reads the Framework at intervals until every Task has an IP, and then looks up names until all resolve."""

    def __init__(
        self,
        reader: Reader,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
        lookup: Callable[[str, float], str] = problem_of,
    ) -> None:
        self._reader = reader
        self._settings = settings
        self._clock = clock
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._lookup = lookup
        self._logged = ""
        self._logged_at = float("-inf")
        self._waiting = ""

    def wait(self) -> tuple[dict[str, Any], dict[str, list[str]]]:
        """Return the Framework and the IPs of its Tasks, by role and ordered by index. Raises BarrierError."""
        deadline = self._clock() + self._settings.timeout
        passed = self._wait_for_tasks(deadline)
        self._wait_for_names(deadline)
        return passed

    def _wait_for_tasks(self, deadline: float) -> tuple[dict[str, Any], dict[str, list[str]]]:
        while True:
            began = self._clock()
            failed: CheckFailed | None = None
            try:
                passed = self._check(max(1.0, min(_REQUEST_TIMEOUT_SEC, deadline - began)))
                if passed is not None:
                    return passed
                self._log_state(self._waiting)
            except CheckFailed as error:
                failed = error
                self._log_state(f"the Framework could not be read, will try again: {error}")
            now = self._clock()
            if now >= deadline:
                if failed is not None:
                    raise BarrierError(f"timed out after {self._settings.timeout} s, at last because: {failed}")
                raise BarrierError(f"timed out after {self._settings.timeout} s: {self._waiting}", EXIT_TIMED_OUT)
            self._sleep(min(self._pause(now - began, failed), deadline - now))

    def _wait_for_names(self, deadline: float) -> None:
        # Names come after IPs. To ask earlier would put the answer that there are none into caches.
        awaited, total = list(self._settings.awaited_names), len(self._settings.awaited_names)
        pause = _FIRST_LOOKUP_PAUSE_SEC
        while True:
            problem = ""
            while awaited:
                problem = self._lookup(awaited[0], max(1.0, min(_LOOKUP_TIMEOUT_SEC, deadline - self._clock())))
                if problem:
                    break
                del awaited[0]
            if not awaited:
                return
            waiting = f"{total - len(awaited)} of {total} names resolve; not yet {awaited[0]}: {problem}"
            self._log_state(waiting)
            now = self._clock()
            if now >= deadline:
                raise BarrierError(f"timed out after {self._settings.timeout} s: {waiting}", EXIT_TIMED_OUT)
            self._sleep(min(pause * self._rng.uniform(0.8, 1.2), deadline - now))
            pause = min(pause * 2, self._settings.interval)

    def _check(self, timeout: float) -> tuple[dict[str, Any], dict[str, list[str]]] | None:
        try:
            if self._complete(self._reader.read(timeout, cached=True)) is None:
                return None
        except WrongFramework:
            # The API server's cache may be older than the Framework; only a consistent read ends the wait.
            pass
        return self._complete(self._reader.read(timeout, cached=False))

    def _complete(
        self, found: tuple[dict[str, Any], dict[str, list[str | None]]] | None
    ) -> tuple[dict[str, Any], dict[str, list[str]]] | None:
        if found is None:  # unchanged
            return None
        framework, by_role = found
        missing = {role: [index for index, ip in enumerate(ips) if ip is None] for role, ips in by_role.items()}
        total, lacking = sum(map(len, by_role.values())), sum(map(len, missing.values()))
        if lacking:
            where = ", ".join(f"{role} {_ranges(indexes)}" for role, indexes in missing.items() if indexes)
            self._waiting = f"{total - lacking} of {total} Tasks have an IP; still without: {where}"
            return None
        return framework, {role: [ip for ip in ips if ip is not None] for role, ips in by_role.items()}

    def _pause(self, reading: float, failed: CheckFailed | None) -> float:
        # The Pods of a Framework start at the same time; jitter spreads their requests.
        pause = self._settings.interval * self._rng.uniform(0.8, 1.2)
        # Thousands of barriers must not overload a server that already answers slowly.
        longer = reading / _MOST_TIME_READING
        if failed is not None:
            longer = max(longer, failed.retry_after * self._rng.uniform(1.0, 1.2))
        return max(pause, min(longer, _LONGEST_PAUSE_SEC))

    def _log_state(self, text: str) -> None:
        now = self._clock()
        if text != self._logged or now - self._logged_at >= _REPEAT_LOG_SEC:
            _log.info("%s", text)
            self._logged, self._logged_at = text, now


def _ranges(indexes: Sequence[int], most: int = 5) -> str:
    """Format sorted indexes as ranges: 0-3, 7."""
    ranges: list[list[int]] = []
    for index in indexes:
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    text = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges[:most])
    return text + ", ..." if len(ranges) > most else text
