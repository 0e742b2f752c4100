"""The parts in their order, which is a rule: each step of a plan asks them in it."""

from typing import Final

from frameworkcontroller.machine.kernel.part import Parts
from frameworkcontroller.machine.kernel.reasons import RequestReason
from frameworkcontroller.machine.lifereasons import LifeReason
from frameworkcontroller.machine.parts.autoscaling.rolescalers import AutoscalingPart
from frameworkcontroller.machine.parts.budgets.disruptionbudgets import BudgetPart
from frameworkcontroller.machine.parts.claims.volumeclaims import ClaimPart
from frameworkcontroller.machine.parts.dependencies.dependencies import DependencyPart
from frameworkcontroller.machine.parts.firstfailure.firstfailures import FirstFailurePart
from frameworkcontroller.machine.parts.gangs.gangs import GangPart
from frameworkcontroller.machine.parts.hangs.hangs import HangPart
from frameworkcontroller.machine.parts.history.archiving import HistoryPart
from frameworkcontroller.machine.parts.kueue.kueue import KueuePart
from frameworkcontroller.machine.parts.logs.podlogs import LogPart
from frameworkcontroller.machine.parts.nodes.nodeavoidance import NodePart
from frameworkcontroller.machine.parts.notice.checkpointnotice import NoticePart
from frameworkcontroller.machine.parts.progress.reportedprogress import ProgressPart
from frameworkcontroller.machine.parts.rollout.rollingupdate import RolloutPart
from frameworkcontroller.machine.parts.service.hostservice import ServicePart

PARTS: Final = Parts(
    # Takes reported progress into the status before.
    ProgressPart(),
    # Takes numbers of Tasks into the status. Creates and deletes FrameworkRoleScalers before. Delays and ends nothing.
    AutoscalingPart(),
    # Adopts, marks and deletes volume claims before the Tasks are looked at. May delay a Pod.
    ClaimPart(),
    # Creates, changes and deletes Services before. May delay the ConfigMap.
    ServicePart(),
    # Counts ready Pods before; creates, changes and deletes disruption budgets. May delay the ConfigMap.
    BudgetPart(),
    # Counts ready Pods before. May delay a Pod and end the attempt.
    DependencyPart(),
    # Creates PodGroups and lowers their minimums before. May delay the ConfigMap and a Pod.
    GangPart(),
    # Keeps Pods off nodes on which their Task has failed. May end the attempt of a Task whose Pod then fits nowhere.
    NodePart(),
    # Counts ready Tasks. Ends attempts of Tasks whose Pod template has changed, a few at a time.
    RolloutPart(),
    # Enters the queue, takes and releases quota before. May delay the whole attempt and a Pod, and end the attempt.
    KueuePart(),
    # Reads the attempt's progress live after a deadline without any. May end the attempt.
    HangPart(),
    # Notifies Pods of an end. May delay the end.
    NoticePart(),
    # Notes ends of containers. Delays and ends nothing.
    FirstFailurePart(),
    # Has the logs of Pods read. May delay the deletion of a Pod and of the ConfigMap.
    LogPart(),
    # Adds and removes the finalizer before. May delay the ConfigMap, each retry and each deletion, and end the attempt
    # of a deleted Framework. Records when a Pod got its node.
    HistoryPart(),
)

REASONS: Final = (*RequestReason, *LifeReason, *(reason for part in PARTS for reason in part.reasons))
"""The reasons of records. tests/unit/test_names.py checks that their names are unique."""
