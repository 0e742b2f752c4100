"""Draw the panels of a Grafana dashboard from a Prometheus, without Grafana.

    python scripts/draw_dashboard.py http://127.0.0.1:9090 dashboard.png --minutes 5

It sends the queries of manifests/monitoring/dashboard.json. It needs matplotlib: `pip install matplotlib`.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import urlopen

import matplotlib as mpl
from matplotlib import dates
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter

Json = dict[str, Any]

DASHBOARD: Final = Path(__file__).resolve().parents[1] / "manifests" / "monitoring" / "dashboard.json"

_COLUMNS: Final = 24
_POINTS: Final = 300
_MOST_IN_LEGEND: Final = 9
_INCHES: Final = (0.85, 0.42)  # of a grid cell
_GREY: Final = "#6b7280"
_CYCLE: Final = [
    "#73bf69", "#f2cc0c", "#5794f2", "#ff780a", "#f2495c", "#8ab8ff", "#b877d9", "#37872d", "#e0b400", "#1f60c4",
]  # fmt: skip


def ask(url: str, path: str, **query: object) -> list[Json]:
    """The result of a query."""
    with urlopen(f"{url}/api/v1/{path}?{urlencode(query)}") as answer:  # noqa: S310 - an address that its user gave
        found: list[Json] = json.load(answer)["data"]["result"]
        return found


def expression(target: Json, interval: str) -> str:
    """Expand Grafana's variables, with all jobs selected."""
    text: str = target["expr"]
    return text.replace("$__rate_interval", interval).replace("$job", ".+")


def legend(target: Json, labels: dict[str, str]) -> str:
    """Name a series in the legend."""
    text: str = target["legendFormat"]
    if text == "__auto":
        return ""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), text)


def said(value: float, unit: str) -> str:
    """Format a number with its unit, as Grafana does."""
    if unit == "percentunit":
        return f"{value * 100:g}%"
    if unit == "s":
        return f"{value * 1000:g} ms" if abs(value) < 1 else f"{value:g} s"
    if unit == "bytes":
        size = int(math.log(value, 1024)) if value >= 1 else 0
        return f"{value / 1024**size:.3g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[size]}"
    suffix = {"ops": "/s", "reqps": "/s"}.get(unit, "")
    return f"{value / 1000:g}k{suffix}" if abs(value) >= 10000 else f"{value:g}{suffix}"


def draw_stat(axes: Any, panel: Json, url: str, end: float) -> None:
    """Draw a single number."""
    found = ask(url, "query", query=expression(panel["targets"][0], "1m"), time=end)
    defaults = panel["fieldConfig"]["defaults"]
    value = float(found[0]["value"][1]) if found else math.nan
    steps = defaults["thresholds"]["steps"]
    color = [step["color"] for step in steps if step["value"] is None or value >= step["value"]][-1]
    axes.set_axis_off()
    axes.text(0.5, 0.8, panel["title"], ha="center", fontsize=10, color=_GREY, transform=axes.transAxes)
    shade = {"green": "#37872d", "red": "#c4162a", "blue": "#1f60c4"}[color]
    axes.text(0.5, 0.25, said(value, defaults["unit"]), ha="center", fontsize=26, color=shade, transform=axes.transAxes)


def draw_series(axes: Any, panel: Json, url: str, start: float, end: float, interval: str) -> None:
    """Draw lines over time, stacked if the panel is."""
    defaults = panel["fieldConfig"]["defaults"]
    step = max(1.0, (end - start) / _POINTS)
    count = int((end - start) / step) + 1
    times = [start + number * step for number in range(count)]
    lines: dict[str, list[float]] = {}
    for target in panel["targets"]:
        for one in ask(url, "query_range", query=expression(target, interval), start=start, end=times[-1], step=step):
            values = [math.nan] * count
            for when, value in one["values"]:
                values[min(count - 1, round((float(when) - start) / step))] = float(value)
            lines[legend(target, one["metric"])] = values
    shown = [dates.date2num(dates.num2date(when / 86400)) for when in times]
    names = sorted(lines, key=lambda name: -sum(0.0 if math.isnan(value) else value for value in lines[name]))
    if defaults["custom"]["stacking"]["mode"] == "normal":
        stacks = [[0.0 if math.isnan(value) else value for value in lines[name]] for name in names]
        if stacks:
            axes.stackplot(shown, *stacks, labels=names, colors=_CYCLE, alpha=0.75, linewidth=0)
    else:
        for name, color in zip(names, _CYCLE * (1 + len(names) // len(_CYCLE)), strict=False):
            axes.plot(shown, lines[name], label=name, color=color, linewidth=1.3)
            if len(names) == 1:
                axes.fill_between(shown, lines[name], color=color, alpha=0.15, linewidth=0)
    axes.set_title(panel["title"], fontsize=10, loc="left", color="#111827")
    axes.set_ylim(bottom=0)
    axes.set_xlim(shown[0], shown[-1])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: said(value, defaults["unit"])))
    axes.xaxis.set_major_formatter(dates.DateFormatter("%H:%M"))
    axes.xaxis.set_major_locator(dates.AutoDateLocator(maxticks=6))
    axes.tick_params(labelsize=8, colors=_GREY, length=0)
    axes.grid(visible=True, color="#e5e7eb", linewidth=0.6)
    for side in axes.spines.values():
        side.set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    kept = [(handle, label) for handle, label in zip(handles, labels, strict=True) if label][:_MOST_IN_LEGEND]
    if kept:
        columns = min(3, len(kept))
        axes.legend(
            *zip(*kept, strict=True), loc="upper left", bbox_to_anchor=(0, -0.1), ncols=columns, fontsize=7,
            frameon=False, labelcolor=_GREY, handlelength=1.2, columnspacing=1.0,
        )  # fmt: skip


def draw(url: str, output: Path, *, minutes: float, interval: str, panels: Sequence[Json]) -> None:
    """Draw the whole dashboard at the current time."""
    end = time.time()
    bottom = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    mpl.rcParams["font.family"] = "DejaVu Sans"
    mpl.rcParams["timezone"] = "UTC"
    figure = plt.figure(figsize=(_COLUMNS * _INCHES[0], bottom * _INCHES[1]), facecolor="#f4f5f5")
    for panel in panels:
        grid = panel["gridPos"]
        left, width = grid["x"] / _COLUMNS, grid["w"] / _COLUMNS
        top, height = 1 - grid["y"] / bottom, grid["h"] / bottom
        if panel["type"] == "row":
            figure.text(left + 0.012, top - height * 0.75, panel["title"], fontsize=13, weight="bold", color="#111827")
            continue
        card = Rectangle(
            (left + 0.003, top - height + 0.0015), width - 0.006, height - 0.003,
            transform=figure.transFigure, facecolor="white", edgecolor="#e5e7eb", linewidth=0.8, zorder=-1,
        )  # fmt: skip
        figure.add_artist(card)
        # Leave room for the numbers on the left, the title above and the legend below.
        room = [left + 0.034, top - height * 0.7, width - 0.045, height * 0.57]
        if panel["type"] == "stat":
            room = [left, top - height, width, height]
        axes = figure.add_axes(room)
        if panel["type"] == "stat":
            draw_stat(axes, panel, url, end)
        else:
            draw_series(axes, panel, url, end - minutes * 60, end, interval)
    figure.savefig(output, dpi=80)


def main() -> None:
    """Parse the command line and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="the Prometheus")
    parser.add_argument("output", type=Path, help="the picture, a PNG or SVG file")
    parser.add_argument("--minutes", type=float, default=60.0, help="time range (default: 60)")
    parser.add_argument("--interval", default="1m", help="of rates: four times the scrape interval (default: 1m)")
    options = parser.parse_args()
    panels = json.loads(DASHBOARD.read_text())["panels"]
    draw(options.url, options.output, minutes=options.minutes, interval=options.interval, panels=panels)


if __name__ == "__main__":
    main()
