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

_SAID: Final = {
    "launch: controller CPU": ("launch", "controller"),
    "launch: API server CPU": ("launch", "API server, with the controller"),
    "null launch: API server CPU": ("launch", "API server, with the null client"),
    "null launch: CPU": ("launch", "null client"),
    "finish: controller CPU": ("finish", "controller"),
    "finish: API server CPU": ("finish", "API server, with the controller"),
    "null finish: API server CPU": ("finish", "API server, with the null client"),
}


def growth(results: list[dict[str, Any]], file: Path) -> None:
    """CPU seconds of launch and finish by the number of Tasks: what a busy machine does not change much."""
    sizes: dict[int, list[dict[str, float]]] = {}
    for result in results:
        if result["scenario"] == "launch":
            sizes.setdefault(result["size"], []).extend(result["rounds"])
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for part, axis in zip(("launch", "finish"), axes, strict=True):
        for name, (where, label) in _SAID.items():
            if where == part:
                points = sorted(
                    (size, statistics.median([figures[name] for figures in rounds])) for size, rounds in sizes.items()
                )
                axis.plot(*zip(*points, strict=True), marker="o", label=label)
        axis.set(title=part, xlabel="Tasks of one Framework", xscale="log", yscale="log")
        axis.grid(visible=True, which="both", alpha=0.3)
        axis.legend(fontsize=8)
    axes[0].set_ylabel("CPU seconds")
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
    growth(results, options.into / "growth.svg")


if __name__ == "__main__":
    main()
