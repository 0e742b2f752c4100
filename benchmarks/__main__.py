"""Measure the controller on a real control plane, beside a null client that only sends the same necessary writes.

    python -m benchmarks archive --help
    python -m benchmarks scale --help
    python -m benchmarks [SCENARIO ...] [--size full] [--rounds 3] [--cluster 1.36] [--against REVISION]

Prints for each figure the median over the rounds, the least and the most, the ratio to the null client's in the same
round, and whether the target is reached. Times are only to be compared within a run: machines differ, and are shared.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson
import uvloop
import yaml

from benchmarks.scenarios import SCENARIOS, Figures, Scenario
from benchmarks.usage import load
from benchmarks.world import World, world
from tests.support.realcluster import ROOT, VERSIONS, ControlPlane, find_assets

_ROUND_SEC: Final = 300.0
"""A round that takes longer has stuck."""

_NULL: Final = "null client"
_THIS: Final = "this version"

Round = Mapping[str, Figures]
"""The figures of one round by contestant: revisions of the controller, and the null client."""


def table(rounds: Sequence[Round], contestants: Sequence[str], scenario: Scenario) -> str:
    """The figures of all rounds as a table in Markdown."""
    versions = [name for name in contestants if name != _NULL]
    with_null = len(versions) < len(contestants)
    heads = ["", *contestants, *(f"{name} / null" for name in versions if with_null), "target"]
    lines = [heads, ["---"] * len(heads)]
    for name in dict.fromkeys(name for figures in rounds for one in contestants for name in figures[one]):
        line = [
            name,
            *(_summary([figures[one][name] for figures in rounds if name in figures[one]]) for one in contestants),
        ]
        for version in versions if with_null else ():
            pairs = [(figures[version][name], figures[_NULL].get(name)) for figures in rounds]
            line.append(_summary([value / null for value, null in pairs if null]))
        measured = [figures[_THIS][name] for figures in rounds]
        for targets, factor in ((scenario.targets, ""), (scenario.ratios, " of null")):
            if name in targets:
                sign, bound = targets[name]
                if factor:
                    measured = [figures[_THIS][name] / figures[_NULL][name] for figures in rounds]
                median = statistics.median(measured)
                reached = median <= bound if sign == "<=" else median >= bound
                line.append(f"{sign} {bound:g}{factor}: {'reached' if reached else 'MISSED'}")
        lines.append(line + [""] * (len(heads) - len(line)))
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def _summary(values: Sequence[float]) -> str:
    """The median, and the range if it is one."""
    if not values:
        return ""
    median, least, most = (_text(value) for value in (statistics.median(values), min(values), max(values)))
    return median if least == most else f"{median} ({least} .. {most})"


def _text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"


async def _measure(options: argparse.Namespace, plane: ControlPlane, checkouts: Mapping[str, Path]) -> None:
    results = []
    async with world(
        plane, {"largeFrameworkCompression": True, **dict(options.set)}, options.profile, options.logs
    ) as here:
        for name in options.scenarios or SCENARIOS:
            scenario = SCENARIOS[name]
            contestants = [*checkouts, *([_NULL] if scenario.ratios else [])]
            for size in options.sizes or getattr(scenario, options.size):
                rounds: list[Round] = []
                for number in range(options.rounds):
                    print(f"{name} {size}, round {number + 1} of {options.rounds} ({load()})", file=sys.stderr)
                    # In turns: who comes later finds a larger etcd.
                    first = number % len(contestants)
                    turns = contestants[first:] + contestants[:first]
                    rounds.append({one: await _run(here, scenario, size, checkouts.get(one)) for one in turns})
                print(f"{name} {size} on {options.cluster}: median of {len(rounds)} (least .. most)\n")
                print(table(rounds, contestants, scenario) + "\n", flush=True)
                results.append({"scenario": name, "size": size, "cluster": options.cluster, "rounds": rounds})
    if options.json is not None:
        options.json.write_bytes(orjson.dumps(results, option=orjson.OPT_INDENT_2))


async def _run(here: World, scenario: Scenario, size: int, checkout: Path | None) -> Figures:
    """One round of the controller in ``checkout``, of the null client without one."""
    async with asyncio.timeout(_ROUND_SEC):
        if checkout is None:
            return await scenario.run(here, size, null=True)
        here.checkout = checkout
        return await scenario.run(here, size)


def _check_out(revision: str, folder: Path) -> Path:
    """The files of a revision, in a folder of its own."""
    path = folder / revision.replace("/", "_")
    path.mkdir()
    archive = subprocess.run(["git", "-C", ROOT, "archive", revision], stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-x", "-C", path], input=archive, check=True)
    return path


def _setting(text: str) -> tuple[str, Any]:
    key, _, value = text.partition("=")
    return key, yaml.safe_load(value)


def main() -> None:
    """Run as asked."""
    if sys.argv[1:2] == ["archive"]:
        # It needs no control plane.
        from benchmarks.archive import main as measure_archive

        measure_archive(sys.argv[2:])
        return
    if sys.argv[1:2] == ["scale"]:
        # It fills a control plane of its own.
        from benchmarks.scale import main as measure_scale

        measure_scale(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.partition("\n")[0])
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"{', '.join(SCENARIOS)} (default: all)")
    parser.add_argument("--size", choices=("small", "full"), default="small", help="default: small")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N", help="these sizes instead")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--cluster", choices=VERSIONS, default="1.36", help="control plane (default: 1.36)")
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="REVISION",
        help="run the controller of this git revision in turns with this version, with the same Python packages",
    )
    parser.add_argument("--profile", type=Path, metavar="FILE.svg", help="a flame graph by py-spy, which is on PATH")
    parser.add_argument(
        "--split-cores",
        action="store_true",
        help="give the control plane one half of the cores and all others the other one, as on machines of their own",
    )
    parser.add_argument("--json", type=Path, help="write every round's figures to this file")
    parser.add_argument(
        "--set",
        type=_setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="in the controller's configuration, which is else the default but for largeFrameworkCompression: true",
    )
    parser.add_argument(
        "--logs",
        choices=("None", "Failed", "All"),
        help="with a history in files, and these logs of containers in it, which the simulated node serves",
    )
    options = parser.parse_args()
    unknown = [name for name in options.scenarios if name not in SCENARIOS]
    if unknown:
        parser.error(f"unknown scenario {unknown[0]!r}; there are {', '.join(SCENARIOS)}")
    assets = find_assets(options.cluster)
    if assets is None:
        parser.exit(2, f"no control plane {options.cluster} on this machine\n")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        checkouts = {revision: _check_out(revision, Path(folder)) for revision in options.against} | {_THIS: ROOT}
        # What is started inherits them.
        cores = sorted(os.sched_getaffinity(0))
        middle = len(cores) // 2 if options.split_cores else len(cores)
        os.sched_setaffinity(0, cores[:middle])
        with ControlPlane(assets) as plane:
            os.sched_setaffinity(0, cores[middle:] or cores)
            uvloop.run(_measure(options, plane, checkouts))


if __name__ == "__main__":
    main()
