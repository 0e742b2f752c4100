"""The order of parts and their hooks (docs/lifecycle.md, "The parts")."""

from dataclasses import replace
from typing import Any

from frameworkcontroller.machine.kernel.model import KeepLogs, Limits
from frameworkcontroller.machine.parts import PARTS
from tests.support.bench import Bench, Body, limits, role


def active(limit: Limits, *roles: Body, held: bool = False, **spec: Any) -> list[str]:
    """The parts in the plans of a Framework."""
    bench = Bench(*(roles or (role(),)), **spec)
    bench.held = held
    return [type(part).__name__ for part in PARTS.active(bench.framework, bench.tracker, limit)]


def test_a_part_that_nothing_uses_is_not_in_the_plans() -> None:
    assert active(limits()) == ["ClaimPart"]


def test_a_part_is_in_the_plans_once_spec_or_configuration_uses_it() -> None:
    dependent = {**role("b"), "dependsOn": [{"name": "a", "status": "Complete"}]}
    assert "KueuePart" in active(replace(limits(), kueue=True))
    assert "HistoryPart" in active(replace(limits(), history_blocks=True))
    assert "HistoryPart" in active(limits(), held=True)
    assert "LogPart" in active(replace(limits(), keep_logs=KeepLogs.FAILED))
    assert "DependencyPart" in active(limits(), role(), dependent)
    assert "ServicePart" in active(limits(), network={})
    assert "ProgressPart" in active(limits(), progress={})
    assert "ProgressPart" in active(limits(), checkpointGraceSeconds=60)
    assert "GangPart" in active(limits(), scheduling={"schedulingPolicy": {"gang": {}}})
