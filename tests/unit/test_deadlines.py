"""The priority queue of deadlines."""

from frameworkcontroller.deadlines import Deadlines


def due(deadlines: Deadlines[str], now: float) -> list[str]:
    keys = []
    while (key := deadlines.pop_due(now)) is not None:
        keys.append(key)
    return keys


def test_keys_come_in_the_order_of_their_last_deadlines() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for key, when in [("c", 3.0), ("a", 9.0), ("b", 2.0), ("a", 1.0), ("d", 2.5), ("e", 4.0), ("e", 6.0), ("f", 3.0)]:
        deadlines.set(key, when)
    deadlines.discard("d")
    deadlines.discard("unknown")
    assert deadlines.items() == [("a", 1.0), ("b", 2.0), ("c", 3.0), ("f", 3.0), ("e", 6.0)]
    assert (deadlines.get("e"), deadlines.get("d"), deadlines.next()) == (6.0, None, 1.0)
    assert due(deadlines, 5.0) == ["a", "b", "c", "f"]
    assert (len(deadlines), deadlines.next()) == (1, 6.0)
    deadlines.clear()
    assert (len(deadlines), deadlines.next(), due(deadlines, 10.0)) == (0, None, [])


def test_stale_entries_do_not_pile_up() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for number in range(10_000):
        deadlines.set("a", -number)
    assert len(deadlines._heap) < 100
