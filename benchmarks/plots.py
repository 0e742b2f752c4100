"""Draw growth curves from what ``python -m benchmarks ... --json FILE`` has written.

    python -m benchmarks.plots FILE... --into docs/images

It needs matplotlib, which nothing else here does: ``pip install matplotlib``.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import orjson
from matplotlib import pyplot as plt

_LINES: Final = (
    ("this version", "CPU of the client", "controller"),
    ("this version", "CPU of the API server and etcd", "API server, with the controller"),
    ("null client", "CPU of the client", "null client"),
    ("null client", "CPU of the API server and etcd", "API server, with the null client"),
)
"""Contestant, figure, label."""


def growth(results: list[dict[str, Any]], file: Path) -> None:
    """CPU seconds of launch and finish by the number of Tasks: what a busy machine does not change much."""
    sizes: dict[int, list[dict[str, dict[str, float]]]] = {}
    for result in results:
        if result["scenario"] == "launch":
            sizes.setdefault(result["size"], []).extend(result["rounds"])
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for part, axis in zip(("launch", "finish"), axes, strict=True):
        for contestant, name, label in _LINES:
            points = sorted(
                (
                    size,
                    statistics.median([one[contestant][f"{part}: {name}, ms a Pod"] for one in rounds]) * size / 1000,
                )
                for size, rounds in sizes.items()
            )
            axis.plot(*zip(*points, strict=True), marker="o", label=label)
        axis.set(title=part, xlabel="Tasks of one Framework", xscale="log", yscale="log")
        axis.grid(visible=True, which="both", alpha=0.3)
        axis.legend(fontsize=8)
    axes[0].set_ylabel("CPU seconds")
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})


_SCALE: Final = (
    ("memory, MiB", {"idle: MiB": "when idle", "resync: peak MiB": "at most"}),
    (
        "CPU seconds",
        {
            "start: all synced, CPU": "start, until all are synced",
            "start: API server CPU": "API server meanwhile",
            "resync": "resync of all Frameworks",
        },
    ),
    (
        "longest turn of the event loop, CPU ms",
        {"start: longest turn, CPU ms": "start", "steady: longest turn, CPU ms": "steady load"},
    ),
)
"""What each part of the picture shows: figures, and their labels."""


def scale(results: list[dict[str, Any]], file: Path) -> None:
    """Memory, CPU and the longest turns of the event loop by the number of watched Pods."""
    found = sorted(
        (one["figures"] for one in results if one["scenario"] == "scale"), key=lambda one: float(one["Pods"])
    )
    for figures in found:
        # Beside the steady load, which goes on.
        a_second = figures["steady: controller CPU"] / figures["steady: seconds"]
        figures["resync"] = figures["resync: controller CPU"] - a_second * figures["resync: seconds"]
    figure, axes = plt.subplots(1, len(_SCALE), figsize=(13, 4))
    for axis, (title, lines) in zip(axes, _SCALE, strict=True):
        for name, label in lines.items():
            axis.plot([one["Pods"] / 1000 for one in found], [one[name] for one in found], marker="o", label=label)
        axis.set(title=title, xlabel="thousands of watched Pods", ylim=(0, None))
        axis.grid(visible=True, alpha=0.3)
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    """Run as asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--into", type=Path, default=Path("docs/images"))
    options = parser.parse_args()
    mpl.use("svg")
    results = [result for file in options.files for result in orjson.loads(file.read_bytes())]
    options.into.mkdir(parents=True, exist_ok=True)
    for scenario, draw, name in (("launch", growth, "growth.svg"), ("scale", scale, "scale.svg")):
        if any(result["scenario"] == scenario for result in results):
            draw(results, options.into / name)


if __name__ == "__main__":
    main()
