"""Which taints a Pod tolerates, and for how long."""

import math
from typing import Any

import pytest

from frameworkcontroller.local.taints import first_untolerated, seconds_tolerated

LOST = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
OURS = {"key": "team", "value": "blue", "effect": "NoExecute"}


def exists(key: str, **more: Any) -> dict[str, Any]:
    return {"key": key, "operator": "Exists", **more}


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ([], 0),
        ([exists(LOST["key"])], math.inf),
        ([exists(LOST["key"], effect="NoExecute", tolerationSeconds=300)], 300),
        ([exists(LOST["key"], tolerationSeconds=-1)], 0),
        ([exists(LOST["key"], effect="NoSchedule")], 0),
        ([exists("other")], 0),
        ([{"operator": "Exists"}], math.inf),
        # The first that matches counts.
        ([exists(LOST["key"], tolerationSeconds=5), {"operator": "Exists"}], 5),
        ([{"operator": "Exists"}, exists(LOST["key"], tolerationSeconds=5)], math.inf),
    ],
)
def test_how_long_a_pod_stays_on_a_lost_node(tolerations: list[dict[str, Any]], seconds: float) -> None:
    assert seconds_tolerated(tolerations, [LOST]) == seconds


@pytest.mark.parametrize(
    ("toleration", "stays"),
    [
        ({"key": "team", "value": "blue"}, True),
        ({"key": "team", "operator": "Equal", "value": "blue"}, True),
        ({"key": "team", "value": "red"}, False),
        ({"key": "team"}, False),
    ],
)
def test_values_are_compared(toleration: dict[str, Any], stays: bool) -> None:
    assert (seconds_tolerated([toleration], [OURS]) == math.inf) is stays
    assert (first_untolerated([toleration], [OURS]) is None) is stays


def test_the_shortest_toleration_counts() -> None:
    both = [exists("team", tolerationSeconds=20), exists(LOST["key"], tolerationSeconds=10)]
    assert seconds_tolerated(both, [OURS, LOST]) == 10
    assert seconds_tolerated(both[:1], [OURS, LOST]) == 0
    assert seconds_tolerated(both, []) == math.inf


def test_a_preference_keeps_no_pod_away() -> None:
    soft, hard = {"key": "a", "effect": "PreferNoSchedule"}, {"key": "b", "effect": "NoSchedule"}
    assert first_untolerated([], [soft]) is None
    assert first_untolerated([], [soft, hard]) is hard
    assert first_untolerated([exists("b")], [soft, hard]) is None
