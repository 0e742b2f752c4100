"""`make chaos`: plays a number of histories, and prints the injected faults and the findings.

    python -m tests.chaos --histories 1000
    python -m tests.chaos --minutes 30 --seed 5000
    python -m tests.chaos --seed 17 --histories 1
    python -m tests.chaos --cluster 1.36 --histories 60
    python -m tests.chaos --break "C2: deletes any Pod of the name" --histories 40

Exit code 1: something was found. Each finding is printed with its seed; on the embedded cluster, where every run of a
history is the same, also with the shortest story that shows it. Of a controller that is broken on purpose (`--break`)
something must be found: exit code 1 if nothing was.
"""

import argparse
import asyncio
import logging
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from tests.chaos import real
from tests.chaos.embedded import failure_of, play
from tests.chaos.etcd import KEEPING_THE_RECORD
from tests.chaos.player import Outcome
from tests.chaos.shrink import shrink
from tests.chaos.story import Story, make_story
from tests.property.mutants import MUTANTS
from tests.support.realcluster import ControlPlane, find_assets

_AT_ONCE = 6
"""Histories that share a real control plane."""


def _embedded(seed: int, meet: Callable[[Story], Outcome]) -> Iterator[Outcome]:
    for number in count(seed):
        yield meet(make_story(number))


def _real(seed: int, assets: Path) -> Iterator[Outcome]:
    for first in count(seed, _AT_ONCE):
        stories = [make_story(first + more, length=real.LENGTH, virtual=False) for more in range(_AT_ONCE)]
        with (
            tempfile.TemporaryDirectory() as folder,
            ControlPlane(assets, api_args=KEEPING_THE_RECORD) as plane,
        ):
            yield from asyncio.run(real.play_all(stories, plane, Path(folder)))


def main() -> None:
    """Run as asked."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="the first history's (default: 0)")
    parser.add_argument("--histories", type=int, help="how many (default: 100, or as fit into --minutes)")
    parser.add_argument("--minutes", type=float, help="stop after so long")
    parser.add_argument("--cluster", default="embedded", help="embedded (the default), or a real control plane")
    parser.add_argument(
        "--break", choices=MUTANTS, dest="broken", metavar="MUTANT", help="have a controller in them that lacks this"
    )
    parser.add_argument("--no-shrink", action="store_true", help="do not shorten what fails")
    options = parser.parse_args()
    logging.lastResort = None  # controllers' logs are judged in their story
    outcomes = _embedded(options.seed, play if options.broken is None else MUTANTS[options.broken].play)
    if options.broken is not None and options.cluster != "embedded":
        parser.error("--break: only on the embedded cluster")
    if options.cluster != "embedded":
        assets = find_assets(options.cluster)
        if assets is None:
            parser.error(f"--cluster: no control plane {options.cluster} here")
        outcomes = _real(options.seed, assets)
    number = options.histories or (sys.maxsize if options.minutes else 100)
    end = time.monotonic() + (options.minutes * 60 if options.minutes else 10**9)
    injected: Counter[str] = Counter()
    failed: list[int] = []
    played = writes = 0
    recoveries: list[tuple[float, int]] = []
    began = time.monotonic()
    while played < number and time.monotonic() < end:
        outcome = next(outcomes)
        seed = outcome.story.seed
        played += 1
        writes += outcome.writes
        injected += outcome.injected
        recoveries.append((outcome.recovery, seed))
        if outcome.error is not None:
            failed.append(seed)
            said = str(outcome.error)
            if options.broken is not None:
                said = said.partition("\n")[0]
            print(f"seed {seed}: {said}\n", flush=True)
            if not options.no_shrink and options.cluster == "embedded" and options.broken is None:
                short, runs = shrink(outcome.story, failure_of)
                print(f"in short (found in {runs} runs):\n{short}\n{play(short).error}\n", flush=True)
        if played % 50 == 0:
            print(f"{played} histories, {len(failed)} failed, {time.monotonic() - began:.0f} s", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{played} histories from seed {options.seed} in {time.monotonic() - began:.0f} s, {writes} writes checked")
    print("faults met: " + ", ".join(f"{kind} {times}" for kind, times in injected.most_common()))
    slowest = ", ".join(f"{seconds:.0f} s (seed {seed})" for seconds, seed in sorted(recoveries, reverse=True)[:5])
    print(f"longest recoveries: {slowest}; memory at most {peak:.0f} MiB")
    print(f"failed: {failed or 'none'}")
    sys.exit(bool(failed) is (options.broken is None))


if __name__ == "__main__":
    main()
