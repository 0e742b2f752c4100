"""The parts in their order, which is a rule: docs/lifecycle.md, "The parts"."""

from typing import Final

from frameworkcontroller.machine.kernel.part import Parts
from frameworkcontroller.machine.kernel.reasons import RequestReason
from frameworkcontroller.machine.lifereasons import LifeReason
from frameworkcontroller.machine.parts.claims.volumeclaims import ClaimPart
from frameworkcontroller.machine.parts.dependencies.dependencies import DependencyPart
from frameworkcontroller.machine.parts.gangs.gangs import GangPart
from frameworkcontroller.machine.parts.history.archiving import HistoryPart
from frameworkcontroller.machine.parts.kueue.kueue import KueuePart
from frameworkcontroller.machine.parts.logs.podlogs import LogPart
from frameworkcontroller.machine.parts.service.hostservice import ServicePart

PARTS: Final = Parts(ClaimPart(), ServicePart(), DependencyPart(), GangPart(), KueuePart(), LogPart(), HistoryPart())

REASONS: Final = (*RequestReason, *LifeReason, *(reason for part in PARTS for reason in part.reasons))
"""The reasons of records. tests/unit/test_names.py checks that their names are unique."""
