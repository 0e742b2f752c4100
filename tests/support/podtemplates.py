"""Pod templates as plans make them, without a plan."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from frameworkcontroller.api.objects import Framework
from frameworkcontroller.api.spec import TaskRoleSpec
from frameworkcontroller.api.status import AdmissionStatus, FrameworkAttemptStatus, FrameworkStatus
from frameworkcontroller.config.config import shipped_config
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.manifests import PodTemplate
from frameworkcontroller.machine.kernel.model import Env, Observed
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.parts import PARTS

_LIMITS: Final = shipped_config().plan_limits()


def template_maker(
    framework: Framework, attempt: FrameworkAttemptStatus, admission: AdmissionStatus | None = None
) -> Callable[[TaskRoleSpec, str], PodTemplate]:
    """Return a function to the Pod template of a role and its UID. ``admission``: the status's."""
    status = FrameworkStatus(start_time=0, transition_time=0, attempt=attempt, admission=admission)
    env = Env(0.0, 0.0, random.Random(0), _LIMITS)
    ctx = Context(framework, Tracker(status), Observed(None, lambda _: None), env, PARTS)

    def make(role: TaskRoleSpec, role_uid: str) -> PodTemplate:
        shapes = [shape for part in PARTS.shape if (shape := part.shape(ctx, role)) is not None]
        return PodTemplate(framework, attempt, role, role_uid, shapes)

    return make


def pod_template(
    framework: Framework,
    attempt: FrameworkAttemptStatus,
    role: TaskRoleSpec,
    role_uid: str,
    admission: AdmissionStatus | None = None,
) -> PodTemplate:
    """The Pod template of a role, with the fields of all parts. ``admission``: the status's."""
    return template_maker(framework, attempt, admission)(role, role_uid)
