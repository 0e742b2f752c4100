"""The deletion of all that runs of a Framework for which nothing can be decided. Nothing of it is persisted."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, Final

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import FrameworkRecord, PodRecord
from frameworkcontroller.machine.kernel.absence import is_of_framework
from frameworkcontroller.machine.kernel.actions import ConfirmGone, Delete, LookUp, carry_out
from frameworkcontroller.machine.kernel.exchanges import Exists, Gone
from frameworkcontroller.machine.kernel.requests import Answer, Kind, Request, Target

LOOK_SEC: Final = 5.0
"""Time until the Framework is looked at again while something of it may run. Mostly an event comes before."""

_PODS_AT_ONCE: Final = 50


def delete_all(live: FrameworkRecord, list_pods: Callable[[], Iterable[PodRecord]]) -> Generator[Request, Answer, bool]:
    """Delete all objects of the Framework. Return whether none exists."""
    configmap = Target(Kind.CONFIGMAP, names.configmap_name(live.name))
    result = yield from carry_out(LookUp(configmap, live.uid))
    if isinstance(result, Exists) and result.found is not None and not result.found.deleting:
        yield from carry_out(Delete(configmap, result.found.uid))
    if not isinstance(result, Gone):
        return False
    # A deletion that orphans has taken its owner away. The recorded one is of the Framework in any case.
    if (recorded := _recorded_configmap(live.status)) and not isinstance(
        (yield from carry_out(ConfirmGone(configmap, recorded))), Gone
    ):
        yield from carry_out(Delete(configmap, recorded))
        return False
    # The garbage collector does not reach Pods whose ConfigMap was deleted in another way.
    pods = [pod for pod in list_pods() if is_of_framework(live.uid, pod)]
    for pod in [pod for pod in pods if not pod.identity.deleting][:_PODS_AT_ONCE]:
        yield from carry_out(Delete(Target(Kind.POD, pod.name), pod.uid))
    return not pods


def _recorded_configmap(status: Any) -> str:
    """The UID of the ConfigMap of the attempt in a status, "" if there is none."""
    try:
        uid = status["attemptStatus"]["configMapUID"]
    except (KeyError, TypeError):
        return ""
    return uid if isinstance(uid, str) else ""
