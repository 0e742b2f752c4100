"""Where the logs of Pods come from: whoever runs them answers here, in process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol


class PodLogs(Protocol):
    """Reads what a container has written."""

    def read(
        self,
        namespace: str,
        name: str,
        container: str,
        *,
        follow: bool,
        tail_lines: int | None,
        since_seconds: float | None,
        limit_bytes: int | None,
        timestamps: bool,
        previous: bool,
    ) -> AsyncIterator[bytes]:
        """The log in chunks of any size; with ``follow`` until the container has ended. Best an async generator.

        Args:
            namespace: of the Pod.
            name: of the Pod.
            container: one of its containers or init containers.
            follow: go on with what is written from now on.
            tail_lines: no more than so many of the last lines.
            since_seconds: nothing older than that.
            limit_bytes: no more than so many bytes in all.
            timestamps: each line begins with the time (RFC 3339) at which it was written.
            previous: of the container's life before the present one.

        Raises:
            LookupError: instead of the first chunk: there is no such log; its text says why, in words for the client.
        """
        ...
