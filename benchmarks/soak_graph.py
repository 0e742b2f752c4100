"""Draws what `benchmarks.soak` has written: `python -m benchmarks.soak_graph soak.csv docs/images/soak.png`.

Needs matplotlib, which nothing else here does: `.venv/bin/python -m pip install matplotlib`.
"""

import argparse
import csv
from pathlib import Path

_PANELS = (
    ("memory (RSS), MiB", {"rss_mib": "RSS"}),
    ("tasks and file descriptors", {"tasks": "asyncio tasks", "fds": "file descriptors"}),
    ("Frameworks", {"reconcilers": "with a reconciler", "frameworks": "in the cache", "queued": "in the queue"}),
    ("Pods and ConfigMaps in the caches", {"pods": "Pods", "configmaps": "ConfigMaps"}),
)


def main() -> None:
    """Run as asked."""
    from matplotlib.figure import Figure

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("samples", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    with options.samples.open(newline="") as file:
        rows = list(csv.DictReader(file))
    minutes = [float(row["seconds"]) / 60 for row in rows]
    full = next((minute for minute, row in zip(minutes, rows, strict=True) if row["full"] == "True"), None)
    figure = Figure(figsize=(9, 9), layout="constrained")
    for axes, (title, curves) in zip(figure.subplots(len(_PANELS), sharex=True), _PANELS, strict=True):
        for name, label in curves.items():
            axes.plot(minutes, [float(row[name]) for row in rows], label=label, linewidth=1)
        if full is not None:
            axes.axvline(full, color="gray", linestyle=":", linewidth=1, label="memory of Events is full")
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_ylim(0, axes.get_ylim()[1] * 1.1)
        axes.grid(alpha=0.3)
        if len(curves) > 1:
            axes.legend(loc="lower right", fontsize=8)
    axes.set_xlabel("minutes")
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.picture, dpi=100)


if __name__ == "__main__":
    main()
