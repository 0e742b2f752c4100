"""The parts in their order, which is a rule: docs/lifecycle.md, "The parts"."""

from typing import Final

from frameworkcontroller.machine.kernel.part import Parts
from frameworkcontroller.machine.parts.claims.volumeclaims import Claims
from frameworkcontroller.machine.parts.dependencies.dependencies import Dependencies
from frameworkcontroller.machine.parts.gangs.gangs import Gangs
from frameworkcontroller.machine.parts.history.archiving import History
from frameworkcontroller.machine.parts.kueue.kueue import Kueue
from frameworkcontroller.machine.parts.service.hostservice import Service

PARTS: Final = Parts(Claims(), Service(), Dependencies(), Gangs(), Kueue(), History())
