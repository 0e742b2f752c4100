"""Lines of the logs of containers, read from live Pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from frameworkcontroller.api import names
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import ApiError, TransportError, may_pass
from frameworkcontroller.kube.podlog import STAMP, NotALog
from frameworkcontroller.views.apiobjects import default_container
from frameworkcontroller.views.texts import clean_line

_RETRY_SEC: Final = 1.0
_BEGINNINGS: Final = 3
"""How often a log is asked for that its node cannot begin."""

_MAX_ANSWER_BYTES: Final = 2000


@dataclass(frozen=True, slots=True)
class Source:
    """One run of a container of the Pod of a Task's attempt."""

    role: str
    index: int
    attempt: int
    namespace: str
    pod: str
    pod_uid: str
    container: str
    restarts: int
    framework_attempt: int | None = field(default=None, compare=False)

    @property
    def place(self) -> tuple[str, str, int]:
        """The Pod's UID, the container and its run."""
        return self.pod_uid, self.container, self.restarts

    @property
    def label(self) -> str:
        """``worker[3]``; ``worker[3]#1`` in the Task's second attempt."""
        return f"{self.role}[{self.index}]{f'#{self.attempt}' if self.attempt else ''}"

    @property
    def origin(self) -> tuple[str, int, str]:
        """The Task and the container, which all attempts and runs have in common."""
        return self.role, self.index, self.container


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a log. ``stamp``: its time as RFC 3339 text; the texts of one container compare as the times do."""

    source: Source
    stamp: str
    text: bytes


def sources_of(pod: Mapping[str, Any], container: str | None, *, every: bool = False) -> list[Source]:
    """Return the containers of the Pod that have begun to run: the named or default one, or ``every`` one."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    place = names.split_pod_name(metadata["name"])
    if place is None:
        return []
    wanted = container or default_container(pod)
    attempt = (metadata.get("annotations") or {}).get(names.TASK_ATTEMPT_ID, "0")
    of_framework = (metadata.get("annotations") or {}).get(names.FRAMEWORK_ATTEMPT_ID, "")
    of_attempt = partial(
        Source,
        *place[1:],
        int(attempt) if attempt.isdigit() else 0,
        framework_attempt=int(of_framework) if of_framework.isdigit() else None,
    )
    found = []
    for one in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        state, restarts = one.get("state") or {}, one.get("restartCount") or 0
        if (restarts or "running" in state or "terminated" in state) and (every or one["name"] == wanted):
            found.append(of_attempt(metadata["namespace"], metadata["name"], metadata["uid"], one["name"], restarts))
    return found


async def read_lines(client: KubeClient, source: Source, *, follow: bool, **options: str | int) -> AsyncIterator[Line]:
    """Yield the lines. With ``follow``, continue over broken connections until the container has ended.

    Raises:
        KubeError: the log does not exist or cannot be read.
    """
    query: dict[str, str | int] = {"timestamps": "true", **options, **({"follow": "true"} if follow else {})}
    # The stamp of the last line, and the number of lines with it: the clocks of some container runtimes are coarse.
    last, of_last = "", 0
    failures = 0
    while True:
        resumed, seen_before = last, of_last
        try:
            async with client.log(source.pod, source.namespace, source.container, **query) as chunks:
                lines = _lines(chunks)
                async for raw in lines:
                    stamp, _, text = raw.partition(b" ")
                    if not STAMP.fullmatch(stamp):
                        raise NotALog(f"its node answers: {clean_line(await _whole(raw, lines))}")
                    line = Line(source, stamp.decode("ascii", "replace"), text)
                    if line.stamp < resumed:
                        continue
                    if line.stamp == resumed and seen_before:
                        seen_before -= 1
                        continue
                    of_last = of_last + 1 if line.stamp == last else 1
                    last = line.stamp
                    yield line
            return
        except (TransportError, ApiError, NotALog) as error:
            # A started log continues after an outage of its API server or its node. A busy node may fail to begin one.
            is_passing = not last if isinstance(error, NotALog) else may_pass(error)
            failures += not last
            may_come = isinstance(error, TransportError) or (is_passing and failures < _BEGINNINGS)
            if not follow or not may_come:
                raise
        if last:
            # The API takes whole seconds: the lines of that second that were printed are skipped above.
            query = {"timestamps": "true", "follow": "true", "sinceTime": f"{last[:19]}Z"}
        await asyncio.sleep(_RETRY_SEC)


async def _whole(first: bytes, rest: AsyncIterator[bytes]) -> str:
    text = first
    async for line in rest:
        if len(text) < _MAX_ANSWER_BYTES:
            text += b"\n" + line
    return text.decode("utf-8", "replace")


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    # In parts: a log may have one line, which is long.
    parts: list[bytes] = []
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        parts.append(first)
        for other in others:
            yield b"".join(parts)
            parts = [other]
    if rest := b"".join(parts):
        yield rest
