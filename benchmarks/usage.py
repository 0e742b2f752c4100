"""What a process has used, as Linux counts it."""

from __future__ import annotations

from pathlib import Path


class Usage:
    """Of one process, read at any time while it is there."""

    def __init__(self, pid: int) -> None:
        self._proc = Path(f"/proc/{pid}")

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all its threads so far, to the nanosecond."""
        total = 0
        for task in self._proc.glob("task/*/schedstat"):
            try:
                total += int(task.read_text().split()[0])
            except FileNotFoundError:
                continue  # a thread that has just ended
        return total / 1e9

    @property
    def memory_bytes(self) -> int:
        """Resident now."""
        return self._status("VmRSS")

    @property
    def peak_memory_bytes(self) -> int:
        """Resident at most."""
        return self._status("VmHWM")

    def _status(self, field: str) -> int:
        for line in (self._proc / "status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) * 1024
        raise LookupError(field)


def load() -> str:
    """How busy the machine is: the load average of the last minute, and what runs or wants to run right now."""
    one, _, _, running, _ = Path("/proc/loadavg").read_text().split()
    return f"load {one}, runnable {running.partition('/')[0]}"
