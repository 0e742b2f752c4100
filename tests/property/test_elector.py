"""Electors of several processes on one Lease, with everything that can go wrong: never two leaders at once.

Real time is the test's own; a process only has its clocks, which start anywhere, jump, and (the monotonic
one) stand still while its machine is suspended. A process may be stopped between any two of its steps, a request may be
executed late or not at all, and its answer may be lost. A watch may show changes late, not at all, or end at any time.
Where a process is known to take the place of one that has ended, it does not wait for that one's lease.
"""

import random
from collections.abc import Mapping
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from frameworkcontroller.kube.elector import (
    AcquireOrRenew,
    ClockReading,
    Elector,
    LeaderElectionRecord,
    Pause,
    ReadLease,
    Timing,
    WatchLease,
)

TIMING = Timing(duration=15, renew_deadline=10, retry_period=2)
NAMES = ("a", "b", "c")


class Server:
    """One Lease, under optimistic locking."""

    def __init__(self) -> None:
        self.document: dict[str, Any] | None = None
        self.version = 0
        self.versions: list[dict[str, Any]] = []

    def write(self, update: AcquireOrRenew) -> dict[str, Any] | None:
        """Execute a update; None: conflict."""
        if update.lease is None:
            if self.document is not None:
                return None
        elif self.document is None or self.document["metadata"] != update.lease["metadata"]:
            return None
        self.version += 1
        self.document = {"metadata": {"resourceVersion": str(self.version)}, "spec": dict(update.spec)}
        self.versions.append(self.document)
        return self.document


class Process:
    """One candidate and its clocks."""

    def __init__(self, name: str, offset: float, ended: frozenset[str] = frozenset()) -> None:
        self.ended = ended
        """Identities of processes whose place it has taken."""
        self.elector = Elector(name, TIMING, random.Random(name), has_ended=ended.__contains__)
        self.monotonic = offset
        self.boottime = offset * 2
        self.wall = 1.7e9 + offset
        self.rests_until: float | None = None
        """By its monotonic clock."""
        self.watched: tuple[int, float] | None = None
        """The last version that its watch has shown, and the monotonic time at which the watch began."""
        self.request: tuple[ReadLease | AcquireOrRenew, ClockReading] | None = None
        self.answer: tuple[str, Mapping[str, Any] | None] | None = None

    def now(self) -> ClockReading:
        return ClockReading(self.monotonic, self.boottime, self.wall)

    def pass_time(self, seconds: float, *, suspended: bool) -> None:
        self.boottime += seconds
        self.wall += seconds
        if not suspended:
            self.monotonic += seconds


class Electing(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.server = Server()
        self.processes: dict[str, Process] = {}
        self.terms: dict[int, str] = {}
        self.born = 0

    @initialize(offsets=st.tuples(*[st.floats(0, 1e6)] * len(NAMES)))
    def start(self, offsets: tuple[float, ...]) -> None:
        for name, offset in zip(NAMES, offsets, strict=True):
            self.processes[name] = Process(name, offset)

    @rule(name=st.sampled_from(NAMES), steps=st.integers(1, 6))
    def step(self, name: str, steps: int) -> None:
        """Let it run for some steps without any time passing."""
        process = self.processes[name]
        for _ in range(steps):
            self.advance(process)

    @rule(seconds=st.sampled_from([0.1, 1.0, 2.0, 2.5, 5.0, 10.0, 16.0]), suspended=st.sets(st.sampled_from(NAMES)))
    def wait(self, seconds: float, suspended: set[str]) -> None:
        """Time passes; some machines are asleep meanwhile."""
        for name, process in self.processes.items():
            process.pass_time(seconds, suspended=name in suspended)

    @rule(
        seconds=st.sampled_from([0.5, 2.0, 2.5]),
        names=st.permutations(NAMES),
        turns=st.integers(1, 12),
        stopped=st.sets(st.sampled_from(NAMES), max_size=2),
        suspended=st.booleans(),
    )
    def live(self, seconds: float, names: list[str], turns: int, stopped: set[str], suspended: bool) -> None:
        """Time passes, and requests are answered; some processes are stopped, or asleep with their machine."""
        for _ in range(turns):
            self.wait(seconds, stopped if suspended else set())
            for name in names:
                if name not in stopped:
                    self.run(name)

    def run(self, name: str) -> None:
        """Do all that there is to do at this moment, and have requests answered."""
        for _ in range(4):
            self.show_to(name)
            self.advance(self.processes[name])
            self.deliver(name, executed=True, answered=True)
            self.check()

    @rule(name=st.sampled_from(NAMES), executed=st.booleans(), answered=st.booleans())
    def deliver(self, name: str, executed: bool, answered: bool) -> None:
        """A request in flight arrives, or does not; its answer comes back, or is lost."""
        process = self.processes[name]
        if process.request is None or process.answer is not None:
            return
        instruction, _ = process.request
        if not executed:
            process.answer = ("failed", None)
            return
        if isinstance(instruction, ReadLease):
            process.answer = ("found", self.server.document)
        else:
            written = self.server.write(instruction)
            process.answer = ("conflict", None) if written is None else ("written", written)
        if not answered:
            process.answer = ("failed", None)

    @rule(name=st.sampled_from(NAMES), seconds=st.sampled_from([-3600.0, -5.0, 5.0, 3600.0]))
    def set_wall_clock(self, name: str, seconds: float) -> None:
        self.processes[name].wall += seconds

    @precondition(lambda self: any(process.elector.term is not None for process in self.processes.values()))
    @rule(name=st.sampled_from(NAMES), arrives=st.booleans())
    def stop(self, name: str, arrives: bool) -> None:
        """A process ends in order, and another one takes its place."""
        process = self.processes[name]
        update = process.elector.release(process.wall)
        if update is not None and arrives:
            self.server.write(update)
        self.replace(name)

    @rule(name=st.sampled_from(NAMES), known=st.booleans())
    def kill(self, name: str, known: bool) -> None:
        """A process is killed, and another one takes its place; it may know that."""
        self.replace(name, known=known)

    @precondition(lambda self: self.watching)
    @rule(data=st.data(), ends=st.booleans())
    def show(self, data: st.DataObject, ends: bool) -> None:
        """A watch shows the next change, or ends."""
        self.show_to(data.draw(st.sampled_from(self.watching)), ends=ends)

    @property
    def watching(self) -> list[str]:
        """The processes that watch."""
        return [name for name, process in self.processes.items() if process.watched is not None]

    def show_to(self, name: str, *, ends: bool = False) -> None:
        process = self.processes[name]
        if process.watched is None:
            return
        seen, began = process.watched
        if ends:
            process.watched = process.rests_until = None
            process.elector.on_watch_over(process.now(), lived=process.monotonic - began)
        elif seen < self.server.version:
            record = LeaderElectionRecord.of(self.server.versions[seen], TIMING)
            process.watched = seen + 1, began
            process.elector.on_get(record, process.now())
            instruction = process.elector.instruction(process.wall)
            if isinstance(instruction, WatchLease):
                process.rests_until = process.monotonic + instruction.seconds
            else:
                process.watched = process.rests_until = None

    def replace(self, name: str, *, known: bool = False) -> None:
        self.born += 1
        old = self.processes[name]
        fresh = Process(f"{name}{self.born}", 0.0, old.ended | {old.elector.identity} if known else frozenset())
        fresh.monotonic, fresh.boottime, fresh.wall = old.now()
        self.processes[name] = fresh

    def advance(self, process: Process) -> None:
        elector = process.elector
        if process.request is not None:
            if process.answer is None:
                return
            (sent_instruction, sent), (kind, document) = process.request, process.answer
            process.request = process.answer = None
            if kind == "failed":
                elector.on_failure()
            elif kind == "conflict":
                elector.on_conflict()
            elif isinstance(sent_instruction, ReadLease):
                elector.on_get(None if document is None else LeaderElectionRecord.of(document, TIMING), process.now())
            else:
                assert document is not None
                elector.on_written(LeaderElectionRecord.of(document, TIMING), sent)
            return
        instruction = elector.instruction(process.wall)
        if isinstance(instruction, WatchLease):
            if process.watched is None:
                process.watched = int(instruction.resource_version), process.monotonic
                process.rests_until = process.monotonic + instruction.seconds
            elif process.rests_until is not None and process.monotonic >= process.rests_until:
                _, began = process.watched
                process.watched = process.rests_until = None
                elector.on_watch_over(process.now(), lived=process.monotonic - began)
            return
        if isinstance(instruction, Pause):
            if process.rests_until is None:
                process.rests_until = process.monotonic + instruction.seconds
            if process.monotonic >= process.rests_until - 1e-6:
                process.rests_until = None
                elector.on_wait_over()
            return
        process.request = (instruction, process.now())

    @invariant()
    def check(self) -> None:
        leaders = [name for name, process in self.processes.items() if process.elector.is_leader(process.now())]
        assert len(leaders) <= 1, f"{leaders} lead at once"
        for process in self.processes.values():
            term = process.elector.term
            if term is not None:
                # No other process ever has this number of a leadership.
                assert self.terms.setdefault(term, process.elector.identity) == process.elector.identity

    def teardown(self) -> None:
        """Without faults, one soon leads, and continues to."""
        if not self.processes:
            return
        for _ in range(60):
            self.wait(1.0, set())
            for name in NAMES:
                self.run(name)
        leading = {name for name, process in self.processes.items() if process.elector.is_leader(process.now())}
        assert len(leading) == 1


TestElecting = Electing.TestCase
TestElecting.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
