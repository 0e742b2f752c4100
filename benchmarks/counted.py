"""The controller as its users start it, and a count of what it asks of the API server.

    python -m benchmarks.counted FILE [arguments of frameworkcontroller]

On SIGUSR1 it writes to FILE: requests and bytes sent by verb and resource, and CPU seconds.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from frameworkcontroller import app, cli
from frameworkcontroller.kube.client import Exchange, KubeClient

_requests: Counter[str] = Counter()
_bytes: Counter[str] = Counter()


def _observe(exchange: Exchange) -> None:
    what = f"{exchange.verb} {exchange.resource.partition('.')[0]}"
    if "/" in exchange.resource:
        what += "/" + exchange.resource.rpartition("/")[2]
    _requests[what] += 1
    _bytes[what] += exchange.sent_bytes


class _CountedClient(KubeClient):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "observe": _observe})


def _dump(file: Path) -> None:
    counts = {"requests": dict(_requests), "bytes": dict(_bytes), "cpu": time.process_time()}
    scratch = file.with_suffix(".new")
    scratch.write_text(json.dumps(counts))
    scratch.replace(file)


def main(file: Path, arguments: list[str]) -> int:
    """Run the controller."""
    signal.signal(signal.SIGUSR1, lambda *_: _dump(file))
    setattr(app, "KubeClient", _CountedClient)  # noqa: B010 - it is no part of what the module exports
    return cli.main(arguments)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
