"""The interface to Pod logs, implemented in process by the Pod runtime."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol


class PodLogs(Protocol):
    """Reads the output of containers."""

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
        """Yield the log in chunks of any size; with ``follow`` until the container has ended.

        Args:
            namespace: of the Pod.
            name: of the Pod.
            container: one of its containers or init containers.
            follow: continue with new output.
            tail_lines: the maximum number of last lines.
            since_seconds: the maximum age of the output.
            limit_bytes: the maximum size in all.
            timestamps: prefix each line with its time (RFC 3339).
            previous: read the previous instance of the container.

        Raises:
            LookupError: before the first chunk: there is no such log; the text is for the client.
        """
        ...
