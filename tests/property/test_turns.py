"""Turns under random histories: the least work first, bounded waits, alternating namespaces; and mutants."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.kube.turns import AGED_TURN, NamespaceTurns

Step = tuple[str, int, int] | None
"""Namespace, key and work of one that begins to wait; None: a turn."""

STEPS = st.lists(st.none() | st.tuples(st.sampled_from("xyz"), st.integers(0, 40), st.integers(0, 9)), max_size=250)


class History:
    """The keys that wait, and the promise to each."""

    def __init__(self) -> None:
        self.turns: NamespaceTurns[str] = NamespaceTurns()
        self.work: dict[str, OrderedDict[str, int]] = {}
        self.left: dict[str, int] = {}
        """By key, the turns of its namespace within which it is to be served."""
        self.namespaces: list[str] = []
        """Those with waiting keys, in the order of their turns."""
        self.aged = 0
        """Number of keys that were served for their age alone."""
        self.since_aged: dict[str, int] = {}
        """By namespace, the turns since its last one by age."""

    def add(self, namespace: str, name: str, work: int) -> None:
        key = f"{namespace}/{name}"
        line = self.work.setdefault(namespace, OrderedDict())
        if not line:
            self.namespaces.append(namespace)
        if key not in line:
            self.left[key] = (len(line) + 1) * AGED_TURN
        line[key] = work
        self.turns.add(namespace, key, work)

    def pop(self) -> None:
        turn = self.turns.pop()
        if turn is None:
            assert not self.namespaces
            return
        namespace, key = turn
        assert namespace == self.namespaces.pop(0), "a namespace is passed over"
        line = self.work[namespace]
        oldest = next(iter(line))
        for one in line:
            self.left[one] -= 1
            assert one == key or self.left[one], f"{one} waits for too long"
        work = line.pop(key)
        if work > min(line.values(), default=work):
            assert key == oldest, "neither the oldest nor the least work"
            assert self.since_aged.get(namespace, 0) == AGED_TURN - 1, "served by age too soon"
            self.aged += 1
        self.since_aged[namespace] = (self.since_aged.get(namespace, 0) + 1) % AGED_TURN
        del self.left[key]
        if line:
            self.namespaces.append(namespace)
        else:
            del self.since_aged[namespace]

    def play(self, steps: list[Step]) -> None:
        for step in steps:
            if step is None:
                self.pop()
            else:
                self.add(step[0], str(step[1]), step[2])
            assert sorted(self.turns) == sorted(self.left)
            assert len(self.turns) == len(self.left)
        while self.left:
            self.pop()
        assert self.turns.pop() is None


@given(steps=STEPS)
def test_least_work_first_and_no_key_waits_for_too_long(steps: list[Step]) -> None:
    History().play(steps)


STREAM: Final[list[Step]] = [
    ("x", 0, 9),
    ("y", 0, 9),
    *(step for number in range(1, 40) for step in (("x", number, 1), ("y", number, 1), None, None)),
]
"""Two large ones, each among small ones that keep coming as fast as they are served."""


def test_large_ones_in_a_steady_stream_of_small_ones() -> None:
    history = History()
    history.play(STREAM)
    assert history.aged == 2


@given(waiting=st.integers(0, 30))
def test_the_bound_is_reached_and_no_smaller_one_holds(waiting: int) -> None:
    """The last of this number of large keys is served in its last promised turn."""
    found: NamespaceTurns[str] = NamespaceTurns()
    for number in range(waiting + 1):
        found.add("x", f"large{number}", 9)
    served: list[str] = []
    while f"large{waiting}" not in served:
        found.add("x", f"small{len(served)}", 1)
        turn = found.pop()
        assert turn is not None
        served.append(turn[1])
    assert len(served) == (waiting + 1) * AGED_TURN


def test_keys_of_the_same_work_take_turns() -> None:
    found: NamespaceTurns[str] = NamespaceTurns()
    for name in "abc":
        found.add("x", name, 5)
    served: list[str] = []
    for _ in range(30):
        turn = found.pop()
        assert turn is not None
        served.append(turn[1])
        found.add("x", turn[1], 5)
    assert "".join(served) == "abc" * 10


def test_a_key_that_waits_keeps_its_age_but_not_its_work() -> None:
    found: NamespaceTurns[str] = NamespaceTurns()
    found.add("x", "a", 5)
    found.add("x", "b", 4)
    found.add("x", "a", 3)
    assert (list(found), len(found)) == (["a", "b"], 2)
    assert [found.pop(), found.pop(), found.pop()] == [("x", "a"), ("x", "b"), None]
