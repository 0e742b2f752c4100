"""Histories of Frameworks with rolling updates, and the checks of that guarantee (U).

``RollingHistory`` is ``tests.support.history`` with Pods of several images. Each decision to replace a Task is judged
by the cache of the deciding controller at that moment.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import decode_status
from frameworkcontroller.api.spec import TaskRoleSpec, parse_spec
from frameworkcontroller.api.status import FrameworkStatus, State, TaskRoleStatus, TaskStatus
from frameworkcontroller.machine.kernel.requests import Kind
from frameworkcontroller.machine.kernel.tracker import Tracker
from tests.support.driver import Controller
from tests.support.history import NAME, History
from tests.support.world import Body, name_of, uid_of

IMAGES: Final = ("v1", "v2", "v3")
_WITH_POD: Final = (State.PREPARING, State.RUNNING)


def template(image: str) -> Body:
    """A Pod template with that image."""
    return {"spec": {"containers": [{"name": "main", "image": image}]}}


class RollingHistory(History):
    """A history with several templates."""

    def __init__(self, seed: int = 0, **options: Any) -> None:
        super().__init__(seed, **options)
        self._at_end = False
        self._seen: set[str] = set()
        planned = self.guarantees.planned

        def check(before: bytes, tracker: Tracker, name: str) -> None:
            planned(before, tracker, name)
            self._check_plan(before, tracker)

        self.guarantees.planned = check  # type: ignore[method-assign]
        self.world.check_each(Kind.POD, self._check_pod)

    # --- users ---

    def set_role(self, role: str, what: str, change: Body) -> None:
        """The user edits fields of a role."""
        self.edit_role(role, f"{what} of {role}: {change}", lambda found: found.update(change))

    def set_image(self, role: str, image: str) -> None:
        """The user edits the template."""
        changed = {"pod": template(image)}
        self.edit_role(role, f"image of {role}: {image}", lambda found: found.setdefault("task", {}).update(changed))

    # --- decisions ---

    def _check_plan(self, before: bytes, tracker: Tracker) -> None:
        known = [one for one in self.controllers if one.reconciler is not None and one.reconciler.tracker is tracker]
        if not before or not known or tracker.status is None:
            return
        controller, old = known[0], decode_status(orjson.loads(before))
        framework = controller.reconciler.known.framework if controller.reconciler is not None else None
        if old is None or framework is None:
            return
        for role in tracker.status.attempt.roles:
            was = next((one for one in old.attempt.roles if one.name == role.name), None)
            spec = framework.spec.role(role.name)
            if was is not None and old.attempt.id == tracker.status.attempt.id:
                self._check_role(controller, was, role, spec)

    def _check_role(
        self, controller: Controller, before: TaskRoleStatus, after: TaskRoleStatus, spec: TaskRoleSpec | None
    ) -> None:
        olds = {task.attempt_key: task for task in before.tasks}
        found = [task for task in after.tasks if _code(task) == -242 and _code(olds.get(task.attempt_key)) is None]
        if not found:
            return
        rolling = None if spec is None else spec.rolling_update
        if spec is None or rolling is None:
            raise self.world.violation(f"U: {found[0].key} is replaced without RollingUpdate")
        limit, wanted = rolling.limit(spec.task_number), spec.task.template_hash
        up = {task.index for task in found if self._is_ready(controller, task)}
        down = {task.index for task in found} - up
        missing, between, left = set(), set(), set()
        for task in after.tasks:
            completion = task.attempt.completion_status
            gone = completion is not None and completion.succeeded and task.state is State.COMPLETED
            if task.is_leaving or gone or task.index in up:
                continue
            has_old = task.attempt.template_hash not in ("", wanted)
            if has_old and task.state in _WITH_POD and task.index >= rolling.partition:
                left.add(task.index)
            if not self._is_available(controller, task, spec):
                missing.add(task.index)
                if not (has_old and task.state in _WITH_POD):
                    between.add(task.index)
        for task in found:
            fits = task.attempt.template_hash not in ("", wanted)
            self._require(fits, f"U: {task.key} has the template already, and is replaced")
            self._require(task.index >= rolling.partition, f"U: {task.key} is below the partition {rolling.partition}")
        what = f"of {spec.name} are replaced, where {limit} may be unavailable, and {sorted(missing)} are"
        self._require(not up or len(missing) + len(up) <= limit, f"U: {sorted(up)} {what}")
        self._require(not down or len(between | up) <= limit, f"U: {sorted(down)}, not ready, {what}")
        lower = [index for index in up for other in left if other > index]
        self._require(not lower, f"U: {lower} of {spec.name} before {sorted(left)}, which are old, too")

    def _is_ready(self, controller: Controller, task: TaskStatus) -> bool:
        pod = controller.cache.pods.get(names.pod_name(NAME, *task.key))
        return pod is not None and pod.uid == task.attempt.pod_uid and pod.ready and not pod.identity.deleting

    def _is_available(self, controller: Controller, task: TaskStatus, spec: TaskRoleSpec) -> bool:
        pod = controller.cache.pods.get(names.pod_name(NAME, *task.key))
        if pod is None or task.state is not State.RUNNING or not self._is_ready(controller, task):
            return False
        return pod.ready_time is not None and self.world.now - pod.ready_time >= spec.min_ready_seconds

    def _check_pod(self, pod: Body) -> None:
        """The label of a new Pod is the hash of its template."""
        label = pod["metadata"].get("labels", {}).get(names.TEMPLATE_HASH)
        if uid_of(pod) in self._seen or not label:
            return
        self._seen.add(uid_of(pod))
        images = {parse_spec(_with(image)).task_roles[0].task.template_hash: image for image in IMAGES}
        found = pod["spec"]["containers"][0]["image"]
        self._require(images[label] == found, f"U: the label of {name_of(pod)} is that of {images[label]}, not {found}")

    def _require(self, holds: bool, text: str) -> None:
        if not holds:
            raise self.world.violation(text)

    # --- the fair end ---

    def _an_end_that_is_asked_for_comes(self) -> None:
        super()._an_end_that_is_asked_for_comes()
        self._at_end = True

    def _is_running(self) -> bool:
        return super()._is_running() and (not self._at_end or self._is_rolled_out())

    def _is_rolled_out(self) -> bool:
        """Each Task from the partition on has the last template, unless failed ones have stopped it."""
        status, spec = self.status, self.spec
        if status is None or spec is None or status.state is State.COMPLETED:
            return True
        for role in status.attempt.roles:
            found = spec.role(role.name)
            rolling = None if found is None else found.rolling_update
            if found is None or rolling is None:
                continue
            failed = [task for task in role.tasks if task.state is State.COMPLETED and not _has_succeeded(task)]
            if len(failed) >= rolling.limit(found.task_number):
                continue
            for task in role.tasks[rolling.partition :]:
                if task.state is not State.COMPLETED and not self._has_last(status, task, found.task.template_hash):
                    return False
        return True

    def _has_last(self, status: FrameworkStatus, task: TaskStatus, wanted: str) -> bool:
        pod = self.world.objects[Kind.POD].get(names.pod_name(NAME, *task.key))
        label = "" if pod is None else pod["metadata"].get("labels", {}).get(names.TEMPLATE_HASH, wanted)
        return task.attempt.template_hash == label == wanted


def _with(image: str) -> Body:
    return {"taskRoles": [{"name": "a", "task": {"pod": template(image)}}]}


def _code(task: TaskStatus | None) -> int | None:
    completion = None if task is None else task.attempt.completion_status
    return None if completion is None else completion.code


def _has_succeeded(task: TaskStatus) -> bool:
    completion = task.attempt.completion_status
    return completion is not None and completion.succeeded
