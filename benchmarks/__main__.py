"""Measure the controller on a real control plane, beside a null client that only sends the same necessary writes.

    python -m benchmarks archive --help
    python -m benchmarks [SCENARIO ...] [--size full] [--rounds 3] [--cluster 1.36]

Prints for each figure the median over the rounds, the least and the most, and whether the target is reached. Times are
only to be compared within a run: machines differ, and are shared.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
from pathlib import Path
from typing import Any

import orjson
import uvloop
import yaml

from benchmarks.scenarios import SCENARIOS, Figures, Targets
from benchmarks.usage import load
from benchmarks.world import world
from tests.support.realcluster import VERSIONS, ControlPlane, find_assets

_ROUND_SEC = 300.0
"""A round that takes longer has stuck."""


def table(rounds: list[Figures], targets: Targets) -> str:
    """The figures of all rounds as lines."""
    names = list(dict.fromkeys(name for figures in rounds for name in figures))
    width = max(len(name) for name in names)
    lines = []
    for name in names:
        values = [figures.get(name, 0.0) for figures in rounds]
        median = statistics.median(values)
        line = f"  {name:{width}}  {_text(median):>10}   {_text(min(values))} .. {_text(max(values))}"
        if name in targets:
            sign, bound = targets[name]
            reached = median <= bound if sign == "<=" else median >= bound
            line += f"   target {sign} {bound:g}: {'reached' if reached else 'MISSED'}"
        lines.append(line)
    return "\n".join(lines)


def _text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"


async def _measure(options: argparse.Namespace, plane: ControlPlane) -> None:
    results = []
    async with world(plane, {"largeFrameworkCompression": True, **dict(options.set)}, options.profile) as here:
        for name in options.scenarios or SCENARIOS:
            scenario = SCENARIOS[name]
            for size in options.sizes or getattr(scenario, options.size):
                rounds: list[Figures] = []
                for _ in range(options.rounds):
                    print(f"{name} {size}, round {len(rounds) + 1} of {options.rounds} ({load()})", file=sys.stderr)
                    async with asyncio.timeout(_ROUND_SEC):
                        rounds.append(await scenario.run(here, size))
                print(f"{name} {size} on {options.cluster}: median of {len(rounds)}, least .. most")
                print(table(rounds, scenario.targets), flush=True)
                results.append({"scenario": name, "size": size, "cluster": options.cluster, "rounds": rounds})
    if options.json is not None:
        options.json.write_bytes(orjson.dumps(results, option=orjson.OPT_INDENT_2))


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
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.partition("\n")[0])
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"{', '.join(SCENARIOS)} (default: all)")
    parser.add_argument("--size", choices=("small", "full"), default="small", help="default: small")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N", help="these sizes instead")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--cluster", choices=VERSIONS, default="1.36", help="control plane (default: 1.36)")
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
    options = parser.parse_args()
    unknown = [name for name in options.scenarios if name not in SCENARIOS]
    if unknown:
        parser.error(f"unknown scenario {unknown[0]!r}; there are {', '.join(SCENARIOS)}")
    assets = find_assets(options.cluster)
    if assets is None:
        parser.exit(2, f"no control plane {options.cluster} on this machine\n")
    # What is started inherits them.
    cores = sorted(os.sched_getaffinity(0))
    middle = len(cores) // 2 if options.split_cores else len(cores)
    os.sched_setaffinity(0, cores[:middle])
    with ControlPlane(assets) as plane:
        os.sched_setaffinity(0, cores[middle:] or cores)
        uvloop.run(_measure(options, plane))


if __name__ == "__main__":
    main()
