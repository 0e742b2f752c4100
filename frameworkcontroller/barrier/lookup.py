"""Looking up names of hosts."""

from __future__ import annotations

import socket
import threading

from frameworkcontroller.barrier.exits import reason


def problem_of(name: str, timeout: float) -> str:
    """Return why the name does not resolve, "" if it does. ``timeout``: seconds."""
    problems = [f"no answer within {timeout:.0f} s"]

    def resolve() -> None:
        try:
            socket.getaddrinfo(name, None)
            problems.append("")
        except (OSError, UnicodeError) as error:
            problems.append(reason(error))

    # The resolver has its own timeouts, and lets no signal through: it would outlast the deadline, and SIGTERM.
    thread = threading.Thread(target=resolve, daemon=True)
    thread.start()
    thread.join(timeout)
    return problems[-1]
