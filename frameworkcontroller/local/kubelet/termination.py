"""The end of a container as reported: exit code, reason, and message."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

from frameworkcontroller.local.kubelet.containerlog import last_output
from frameworkcontroller.local.kubelet.supervisor import Failed

START_ERROR: Final = "StartError"
START_ERROR_CODE: Final = 128
"""containerd's exit code for a container whose process could not be started."""

_MAX_MESSAGE_BYTES: Final = 4096
_FALLBACK_BYTES: Final = 2048
_FALLBACK_LINES: Final = 80


def exit_code(status: int) -> int:
    """The exit code of a container: 128 + n for a process ended by signal n, for which ``status`` is -n."""
    return status if status >= 0 else 128 - status


def termination_message(file: Path, log: Path, *, fallback: bool) -> str:
    """The content of the container's termination message file, cut to 4096 bytes.

    If it is empty and ``fallback`` (FallbackToLogsOnError after an error): the end of the log, at most 80 lines and
    2048
    bytes.
    """
    try:
        with file.open("rb") as stream:
            data = stream.read(_MAX_MESSAGE_BYTES)
    except OSError:
        data = b""
    if not data and fallback:
        data = last_output(log, lines=_FALLBACK_LINES, limit=_FALLBACK_BYTES)
    return data.decode(errors="replace")


def start_failure(failure: Failed, argv: list[str], directory: str) -> str:
    """Why a container could not be started, similar to a container runtime's message."""
    if failure.what == "directory":
        return f"workingDir {failure.message}"
    if failure.what == "user":
        return f"cannot become the user that securityContext names: {failure.message}"
    if failure.what != "command":
        return f"{failure.what}: {failure.message}"
    name = argv[0]
    if failure.number in (errno.ENOENT, errno.ENOTDIR):
        if "/" not in name:
            return f'exec: "{name}": executable file not found in $PATH'
        return f'exec: "{name}": stat {Path(directory) / name}: no such file or directory'
    return f'exec: "{name}": {failure.message.lower()}'
