"""Histories of one Framework in a queue, whose Pods may be a gang: ``tests.support.history`` with the stand-ins.

A story is data, made from a seed: it can be played again, and shortened by leaving steps out (``shrink``). Its steps
are methods of ``QueuedHistory``.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from frameworkcontroller.api.podgroups import GangScheduler as Scheduler
from frameworkcontroller.api.status import Condition, State
from frameworkcontroller.machine.kernel.actions import Create
from frameworkcontroller.machine.kernel.model import Limits
from frameworkcontroller.machine.kernel.requests import Kind
from tests.support.gangscheduler import Backend, GangScheduler, refuse_another_minimum
from tests.support.history import EXIT_CODES, LIMITS, NAME, WAKES_TO_END, History
from tests.support.kueue import EVICTIONS, PRIORITIES, QUEUES, Kueue, admission_of, is_owned, is_true, reserved_by
from tests.support.queueguarantees import QUEUE_LABEL
from tests.support.world import Body, Fate, is_deleting, name_of, uid_of

PRIORITY_LABEL: Final = "kueue.x-k8s.io/priority-class"
OWNED: Final = {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "stays", "uid": "stays"}]}
"""Metadata of a template with an owner that outlives every attempt."""
_CONTAINER: Final = {"name": "main", "image": "work"}
GREEDY: Final = {"containers": [{**_CONTAINER, "resources": {"requests": {"gpu": "{{FC_TASK_INDEX}}2"}}}]}
"""Fields of a template that Kueue cannot count."""
MODEST: Final = {"containers": [_CONTAINER]}
_ENOUGH: Final = 100
_SCHEDULERS: Final = {
    Backend.NATIVE_1_36: Scheduler.KUBERNETES,
    Backend.NATIVE_1_37: Scheduler.KUBERNETES,
    Backend.VOLCANO: Scheduler.VOLCANO,
    Backend.COSCHEDULING: Scheduler.COSCHEDULING,
}
_LENGTH: Final = 30
_AS_ADMITTED: Final = "until the next FrameworkAttempt"
_STEPS_TO_REACH: Final = 60
_WAKES_TO_GIVE_BACK: Final = 20
_KINDS: Final = (Kind.FRAMEWORK, Kind.CONFIGMAP, Kind.POD, Kind.WORKLOAD, Kind.PODGROUP)


class QueuedHistory(History):
    """``quota``: Pods of each flavor, None without Kueue. ``backend``: the gang scheduler, None for none."""

    def __init__(
        self,
        seed: int = 0,
        *,
        quota: dict[str, int] | None = None,
        backend: Backend | None = None,
        capacity: int = _ENOUGH,
        limits: Limits = LIMITS,
        **options: Any,
    ) -> None:
        kinds = (*_KINDS[:4], _KINDS[4] if backend is None else backend.kind)
        limits = replace(limits, kueue=quota is not None)
        if backend is not None:
            limits = replace(limits, gang_scheduler=_SCHEDULERS[backend])
        super().__init__(seed, limits=limits, kinds=kinds)
        self.kueue: Kueue | None = None
        self.scheduler: GangScheduler | None = None
        if quota is not None:
            self.kueue = Kueue(self.world, quota, seed, is_loose=lambda: self.guarantees.loose, **options)
            self.others.append(self.kueue.step)
            self.wakes.append(lambda: None if self.kueue is None else self.kueue.due_at)
        if backend is not None:
            self.scheduler = GangScheduler(self.world, backend, capacity)
            self.others.append(self.scheduler.step)

    # --- users -------------------------------------------------------------------------------------------------------

    def create_in(self, queue: str | None, spec: Body) -> None:
        """The user creates the Framework, if there is none, with the label of that queue."""
        if self.framework is None:
            self.world.tell(f"user: create in {queue} {spec}")
            labels = {} if queue is None else {QUEUE_LABEL: queue}
            self.world.create(Kind.FRAMEWORK, {"metadata": {"name": NAME, "labels": labels}, "spec": spec})

    def label(self, key: str, value: str | None) -> None:
        """The user changes a label."""
        if self.framework is not None:
            self.world.tell(f"user: label {key}: {value}")
            labels = {**(self.framework["metadata"].get("labels") or {}), key: value}
            kept = {key: value for key, value in labels.items() if value is not None}
            self.world.edit(Kind.FRAMEWORK, NAME, lambda body: body["metadata"].update(labels=kept))

    def select(self, role: str, zone: str | None) -> None:
        """The user changes the node selector of a role, and so the request to Kueue."""
        wanted = {} if zone is None else {"zone": zone}
        self.edit_role(
            role, f"{role} selects {zone}", lambda found: found["task"]["pod"]["spec"].update(nodeSelector=wanted)
        )

    def alter(self, role: str, part: str, fields: Body) -> None:
        """The user sets fields in the metadata or the spec of a role's template."""

        def change(found: Body) -> None:
            found["task"]["pod"].setdefault(part, {}).update(copy.deepcopy(fields))

        self.edit_role(role, f"{role} has {fields}", change)

    def rescale(self, role: str, number: int) -> None:
        if self.framework is not None and all(one["name"] != role for one in self.framework["spec"]["taskRoles"]):
            added = {"name": role, "taskNumber": number, "task": {"pod": _pod()}}
            self.edit(f"add {role} of {number}", lambda spec: spec["taskRoles"].append(added))
        else:
            super().rescale(role, number)

    def set_minimum(self, number: int | None) -> None:
        """The user changes the minimum of the gang."""

        def change(spec: Body) -> None:
            if "scheduling" in spec:
                spec["scheduling"] = {"schedulingPolicy": {"gang": {} if number is None else {"minCount": number}}}

        self.edit(f"minCount {number}", change)

    # --- neighbours --------------------------------------------------------------------------------------------------

    def reach(self, which: int, kind: Kind) -> None:
        """Kueue and a controller work, step by step, until a controller has created such an object."""
        controller = self.controllers[which % len(self.controllers)]
        for _ in range(_STEPS_TO_REACH):
            if any(self.guarantees.is_ours(body) for body in self.world.objects[kind].values()) or not controller.due:
                break
            self.step_kueue(1)
            self.follow(which, 1)

    def lose_answer(self, which: int, kind: Kind) -> None:
        """Likewise, and the answer to the creation is lost."""
        for _ in range(_STEPS_TO_REACH):
            action = self.controllers[which % len(self.controllers)].next_action
            if isinstance(action, Create) and action.target.kind is kind:
                self.world.fates[:0] = [("create", Fate.ANSWER_LOST)]
                self.run(which, 1)
                break
            self.step_kueue(1)
            self.follow(which, 1)

    def grope(self, which: int, steps: int) -> None:
        """A controller sees Frameworks and Workloads alone, and works."""
        controller = self.controllers[which % len(self.controllers)]
        for _ in range(steps):
            for kind in (Kind.FRAMEWORK, Kind.WORKLOAD):
                controller.deliver(kind, 50)
            self.run(which, 1)

    def step_kueue(self, steps: int) -> None:
        """Kueue takes some steps."""
        for _ in range(steps):
            if self.kueue is not None and not self.kueue.step():
                break

    def play(self, what: str, which: int) -> None:
        """Something happens to Workloads or flavors (``Kueue.play``)."""
        if self.kueue is not None:
            self.kueue.play(what, which)

    def check_idle_quota(self) -> None:
        """At rest, quota is reserved for no more Pods than there are Tasks to run."""
        self.settle()
        left = sum(self._tasks_to_run().values())
        for workload in () if self.kueue is None or self.admission is None else self.kueue.of_frameworks():
            if (reserved := sum(reserved_by(workload).values())) > left:
                raise self.world.violation(f"idle quota: for {reserved} Pods, and {left} Tasks are to run")

    def rival(self, count: int, priority: str) -> None:
        """Another Workload wants quota."""
        if self.kueue is not None:
            self.world.tell(f"a rival wants {count} Pods")
            self.kueue.rival(count, priority)

    def end_rivals(self) -> None:
        """The others have done their work."""
        if self.kueue is not None:
            self.kueue.end_rivals()

    def step_scheduler(self, steps: int) -> None:
        """The scheduler binds some groups."""
        for _ in range(steps):
            if self.scheduler is not None and not self.scheduler.step():
                break

    def resize(self, capacity: int) -> None:
        """The Nodes hold more or fewer Pods."""
        if self.scheduler is not None:
            self.world.tell(f"the Node holds {capacity} Pods")
            self.scheduler.capacity = dict.fromkeys(self.scheduler.capacity, capacity)

    def delete_group(self, which: int) -> None:
        """A user deletes a PodGroup."""
        if self.scheduler is not None:
            kind = self.scheduler.backend.kind
            groups = sorted(self.world.objects[kind])
            if groups and not is_deleting(self.world.objects[kind][groups[which % len(groups)]]):
                self.world.tell(f"somebody deletes the PodGroup {groups[which % len(groups)]}")
                self.world.delete(kind, groups[which % len(groups)])

    def take_group(self, name: str) -> None:
        """Another client has a PodGroup of that name."""
        if self.scheduler is not None and name not in self.world.objects[self.scheduler.backend.kind]:
            self.world.tell(f"somebody creates the PodGroup {name}")
            self.world.create(self.scheduler.backend.kind, {"metadata": {"name": name}, "spec": {"minMember": 1}})

    def fix_minimums(self) -> None:
        """From now on, the API server refuses another minimum."""
        self.world.webhooks[Kind.PODGROUP] = refuse_another_minimum

    def protect_groups(self, *, works: bool) -> None:
        """The controller that releases native PodGroups works, or not."""
        self.world.protects_groups = works

    # --- the nodes ---------------------------------------------------------------------------------------------------

    def _fare(self, pod: Body, what: str, code: int) -> None:
        gated = bool(pod["spec"].get("schedulingGates"))
        unbound = self.scheduler is not None and not pod["spec"].get("nodeName")
        if what == "remove" or not (gated or unbound or (what == "bind" and self.scheduler is not None)):
            super()._fare(pod, what, code)

    # --- the end -----------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        super().settle()
        if self.kueue is not None:
            self.kueue.check()

    def _whatever_stands_in_the_way_is_told(self, *, alone: bool) -> None:
        if not self._node_is_lost:
            self._quota_is_given_back()
        # Kubernetes reports a full Node.
        self.resize(_ENOUGH)
        super()._whatever_stands_in_the_way_is_told(alone=alone)
        self._mend_neighbours()

    def _quota_is_given_back(self) -> None:
        """With all obstacles in place, each evicted or deleted Workload releases its quota in the end."""
        for _ in range(_WAKES_TO_GIVE_BACK):
            self.settle()
            asked = [one for one in self.world.objects[Kind.WORKLOAD].values() if is_owned(one)]
            asked = [one for one in asked if is_true(one, "Evicted") or is_deleting(one)]
            if not any(admission_of(one) for one in asked) or self._runs_without_queue():
                return
            self._go_to_next_wake()
        raise self.world.violation("G3: an evicted Workload keeps its quota")

    def _runs_without_queue(self) -> bool:
        """Whether an attempt continues that began before the Framework was in a queue: it runs to its end."""
        status = self.status
        waits = status is None or status.state in (State.CREATION_PENDING, State.ATTEMPT_COMPLETED, State.COMPLETED)
        return not waits and self.admission is None

    def _says_what_is_awaited(self, told: Condition) -> bool:
        is_of_queue = told.type in ("QuotaReserved", "Admitted") and told.status == "False" and told.message != ""
        of_others = any(words in told.message for words in (_AS_ADMITTED, "PodGroup"))
        return is_of_queue or of_others or super()._says_what_is_awaited(told)

    def _all_start(self) -> None:
        super()._all_start()
        told = () if self.status is None else self.status.conditions
        if any(_AS_ADMITTED in one.message for one in told):
            # Those that were added since the admission wait for others to complete.
            self._all_pods_succeed()

    def _mend_neighbours(self) -> None:
        if self.kueue is not None:
            self.kueue.end_rivals()
            self.kueue.quota = dict.fromkeys(self.kueue.quota, _ENOUGH)
            for flavor in self.kueue.quota:
                self.kueue.serve(flavor)
            self.kueue.activates = True
        if self.framework is not None and not self.framework["spec"]["taskRoles"]:
            self.rescale("a", 1)
        for role in () if self.framework is None else list(self.framework["spec"]["taskRoles"]):
            if role["task"]["pod"]["spec"]["containers"] == GREEDY["containers"]:
                self.alter(role["name"], "spec", MODEST)
        labels = {} if self.framework is None else self.framework["metadata"].get("labels") or {}
        if labels.get(QUEUE_LABEL, QUEUES[0]) not in QUEUES:
            self.label(QUEUE_LABEL, QUEUES[0])
        if labels.get(PRIORITY_LABEL, "high") not in PRIORITIES:
            self.label(PRIORITY_LABEL, "high")
        self.world.protects_groups = True

    def _until(
        self, what: str, holds: Callable[[], bool], *, step: Callable[[], None], wakes: int = WAKES_TO_END
    ) -> None:
        super()._until(what, holds, step=step, wakes=wakes)
        if self.kueue is not None and self._is_running():
            self._readiness_is_told()
        is_fixed = Kind.PODGROUP in self.world.webhooks
        if self.scheduler is not None and not is_fixed and self._is_running():
            self.guarantees.queues.check_groups(self.scheduler.backend.kind, self._tasks_to_run())

    def _readiness_is_told(self) -> None:
        """A Workload whose Tasks all run has the condition PodsReady, soon."""
        for _ in range(_WAKES_TO_GIVE_BACK):
            status = self.status
            if status is None or status.attempt.completion_status is not None or self.admission is None:
                return
            workload = self.world.find(Kind.WORKLOAD, self.admission["workloadUID"])
            if workload is None or is_true(workload, "Evicted") or is_true(workload, "PodsReady"):
                return
            self._go_to_next_wake()
            self.settle()
        raise self.world.violation("all Tasks run, and PodsReady is not told")

    @property
    def admission(self) -> Body | None:
        """The stored admission."""
        return None if self.framework is None else self.guarantees.queues.admission(uid_of(self.framework))

    def _tasks_to_run(self) -> Counter[str]:
        """Tasks of each group that are still to run."""
        status, spec = self.status, self.spec
        found: Counter[str] = Counter()
        if status is not None and spec is not None:
            for role in status.attempt.roles:
                of_spec = spec.role(role.name)
                group = NAME if of_spec is None else spec.group_of(NAME, of_spec)
                tasks = [task for task in role.tasks if task.state is not State.COMPLETED and not task.is_leaving]
                found[group] += len(tasks)
        return found

    def retreat(self) -> None:
        super().retreat()
        for kind in (Kind.PODGROUP, Kind.VOLCANO_PODGROUP, Kind.COSCHEDULING_PODGROUP):
            for body in list(self.world.objects[kind].values()):
                if not self.guarantees.is_ours(body):
                    self.world.tell(f"the foreign {kind} {name_of(body)} goes")
                    self.world.remove(kind, name_of(body))

    def _nothing_is_left(self) -> None:
        super()._nothing_is_left()
        if self.framework is None:
            left = [name_of(one) for one in self.world.objects[Kind.WORKLOAD].values() if is_owned(one)]
            if left:
                raise self.world.violation(f"Left over: {left}")


# --- stories -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One thing that happens: a method of the history, and its arguments."""

    act: str
    args: tuple[Any, ...] = ()
    more: Body = field(default_factory=dict)

    def take(self, history: QueuedHistory) -> None:
        """Have it happen."""
        getattr(history, self.act)(*self.args, **self.more)


@dataclass(frozen=True)
class Story:
    """A history of a Framework with this spec in a queue."""

    seed: int
    queue: str | None
    spec: Body
    options: Body
    steps: tuple[Step, ...]

    def without(self, dropped: Iterable[int]) -> Story:
        """The story without the steps at these positions."""
        gone = set(dropped)
        return replace(self, steps=tuple(step for at, step in enumerate(self.steps) if at not in gone))

    def begin(self) -> QueuedHistory:
        """The history right after the Framework was created."""
        history = QueuedHistory(self.seed, **self.options)
        history.create_in(self.queue, self.spec)
        return history

    def play(self) -> QueuedHistory:
        """Take all steps, and come to the fair end.

        Raises:
            Violation: something promised was not kept.
        """
        history = self.begin()
        for step in self.steps:
            step.take(history)
        history.finish()
        return history

    def __str__(self) -> str:
        steps = (f"    {step.act} {step.args} {step.more or ''}" for step in self.steps)
        return "\n".join([f"seed {self.seed}: {self.options} {self.queue} {self.spec}", *steps])


def make_story(seed: int, *, gang: bool = False) -> Story:
    """The story of that seed. ``gang``: its Pods are one, mostly without a queue."""
    rng = random.Random(seed)
    quota = {"a100": rng.randint(2, 5), "spot": rng.randint(0, 4)} if not gang or rng.random() < 0.4 else None
    options: Body = {"quota": quota, "backend": rng.choice(list(Backend)) if gang else None}
    if gang:
        options["capacity"] = rng.choice([2, 4, _ENOUGH])
    if quota is not None:
        options["checks"] = rng.random() < 0.4
        options["topology"] = rng.random() < 0.2
        options["pods_ready_sec"] = rng.choice([None, None, 200.0])
    queue = None if quota is None else rng.choice([*QUEUES, QUEUES[0], QUEUES[0], None, "nobody"])
    steps = [Step("follow", (0, 14)), Step("step_kueue", (1,)), Step("follow", (0, 14))] * rng.choice([0, 1])
    steps += [step for _ in range(rng.randint(3, _LENGTH)) for step in _steps(rng, gang)]
    return Story(seed, queue, _spec(rng, gang), options, tuple(steps))


def _spec(rng: random.Random, gang: bool) -> Body:
    roles: list[Body] = []
    for name in "ab"[: rng.choice([1, 1, 2] if gang else [1, 1, 1, 2, 2, 0])]:
        retry: Body = {"maxRetryCount": rng.choice([0, 1, 3, -1]), "fancyRetryPolicy": rng.random() < 0.3}
        if rng.random() < 0.2:
            retry["backoff"] = {"baseSeconds": 5, "maxSeconds": 20}
        item: Body = {
            "name": name,
            "taskNumber": rng.randint(1, 3),
            "task": {"retryPolicy": retry, "pod": _pod(OWNED if not gang and rng.random() < 0.2 else None)},
        }
        if roles and rng.random() < 0.5:
            item["dependsOn"] = [{"name": "a", "status": rng.choice(["Ready", "Complete"])}]
        if rng.random() < 0.3:
            limits = {"minFailedTaskCount": rng.choice([1, -1]), "minSucceededTaskCount": rng.choice([1, -1, 2])}
            item["frameworkAttemptCompletionPolicy"] = limits
        roles.append(item)
    spec: Body = {"taskRoles": roles, "retryPolicy": {"maxRetryCount": rng.choice([0, 1, -1])}}
    spec["executionType"] = rng.choice(["Start", "Start", "Start", "Create"])
    if rng.random() < 0.15:
        spec["suspend"] = True
    if gang:
        minimum = rng.choice([{}, {}, {"minCount": rng.randint(1, 3)}])
        spec["scheduling"] = {"schedulingPolicy": {"gang": minimum}}
    return spec


def _pod(metadata: Body | None = None) -> Body:
    pod: Body = {"spec": copy.deepcopy(MODEST)}
    return pod if metadata is None else {"metadata": metadata, **pod}


def _steps(rng: random.Random, gang: bool) -> list[Step]:
    """A few steps that belong together."""
    which, role = rng.randint(0, 5), rng.choice("ab")
    ordinary: list[tuple[int, Any]] = [
        (8, lambda: [Step("follow", (which, rng.randint(1, 14)))]),
        (4, lambda: [Step("run", (which, rng.randint(1, 10)))]),
        (3, lambda: [Step("deliver", (which, rng.randint(0, 4), rng.choice([1, 2, 50])))]),
        (5, lambda: [Step("settle")]),
        (8, lambda: [Step("step_kueue", (rng.randint(1, 3),))]),
        (7, lambda: [Step("play", (rng.choice(EVICTIONS), which))]),
        (7, lambda: [Step("play", (rng.choice(HAPPENINGS), which))]),
        (3, lambda: [Step("rival", (rng.randint(1, 4), rng.choice(["low", "high"])))]),
        (1, lambda: [Step("end_rivals")]),
        (3, lambda: [Step("rescale", (role, rng.randint(0, 4)))]),
        (2, lambda: [Step("select", (role, rng.choice(["x", "y", None])))]),
        (2 * (not gang), lambda: [Step("alter", (role, "spec", rng.choice([GREEDY, MODEST])))]),
        (2, lambda: [Step("label", (QUEUE_LABEL, rng.choice([*QUEUES, "nobody", None])))]),
        (1, lambda: [Step("label", (PRIORITY_LABEL, rng.choice(["low", "high", "absent", None])))]),
        (3, lambda: [Step("suspend", (), {"wanted": True}), Step("follow", (which, rng.randint(0, 12)))]),
        (3, lambda: [Step("suspend", (), {"wanted": False}), Step("follow", (which, rng.randint(0, 12)))]),
        (1, lambda: [Step("execute", (rng.choice(["Start", "Start", "Stop"]),))]),
        (2, lambda: _spoil(rng, which)),
        (2, lambda: [Step("break_spec", (), {"broken": False}), Step("follow", (which, rng.randint(0, 12)))]),
        (6, lambda: [Step("crash", (which,))]),
        (6, lambda: _reach(rng, which)),
        (3, lambda: [Step("stand_by")]),
        (3, lambda: [Step("take_over"), Step(rng.choice(["follow", "grope"]), (0, rng.randint(0, 20)))]),
        (3, lambda: _ask_for_more(rng, which, role)),
        (3, lambda: [Step("settle"), *_end_pod(rng, which)]),
        (5, lambda: _complete_some(rng, which, role)),
        (3, lambda: [Step("step_kueue", (1,)), Step("follow", (which, rng.randint(4, 14)))]),
        (1, lambda: [Step("start_second")]),
        (5, lambda: [Step("fail", (rng.choice(_VERBS), rng.choice(_FATES)))]),
        (1, lambda: [Step("execute_late")]),
        (4, lambda: [Step("kubelet", (which, rng.choice(["Running", "Running", "end", "remove", "ready"]), 0))]),
        (4, lambda: [Step("kubelet", (which, "end", rng.choice(EXIT_CODES))), Step("settle")]),
        (2, lambda: [Step("delete_pod", (which,), {"force": rng.random() < 0.2})]),
        (1, lambda: [Step("delete_configmap", (rng.choice(["Foreground", "Background"]),))]),
        (1, lambda: [Step("drop", (role,))]),
        (
            1,
            lambda: [
                Step("delete", (), {"foreground": rng.random() < 0.6}),
                Step("follow", (which, rng.randint(0, 20))),
            ],
        ),
        (1, lambda: [Step("lose_node", (), {"lost": rng.random() < 0.6})]),
        (3, lambda: [Step("tick", (rng.choice([1, 15, 30, 400]),))]),
        (2, lambda: [Step("wait", (rng.choice([10, 100]),))]),
        (2, lambda: [Step("collect", (rng.randint(1, 4),))]),
        (1, lambda: [Step("rest", (which,))]),
        (1, lambda: [Step("breathe", (), {"lazy": rng.random() < 0.5, "actions": rng.choice([1, 2, 100])})]),
    ]
    of_gangs: list[tuple[int, Any]] = [
        (10, lambda: [Step("step_scheduler", (rng.randint(1, 3),))]),
        (3, lambda: [Step("resize", (rng.choice([0, 1, 3, 100]),))]),
        (2, lambda: [Step("delete_group", (which,))]),
        (1, lambda: [Step("take_group", (rng.choice([NAME, f"{NAME}-b"]),))]),
        (2, lambda: [Step("set_minimum", (rng.choice([None, 1, 2, 5]),))]),
        (1, lambda: [Step("fix_minimums")]),
        (1, lambda: [Step("protect_groups", (), {"works": rng.random() < 0.5})]),
    ]
    table = ordinary + of_gangs * gang
    (_, chosen) = rng.choices(table, [weight for weight, _ in table])[0]
    steps: list[Step] = chosen()
    return steps


def _reach(rng: random.Random, which: int) -> list[Step]:
    """Right after something is created, and perhaps before that is recorded, the reason for it is gone."""
    takes_back = [
        Step("suspend", (), {"wanted": True}),
        Step("play", (rng.choice(EVICTIONS), which)),
        Step("play", (rng.choice(["delete", "finish", "steal"]), which)),
        Step("label", (QUEUE_LABEL, rng.choice([*QUEUES, None]))),
        Step("delete_configmap", ("Background",)),
    ]
    created = rng.choice([Kind.CONFIGMAP, Kind.CONFIGMAP, Kind.POD])
    steps = [Step(rng.choice(["reach", "lose_answer"]), (which, created))]
    steps += rng.choice([[], [], [Step("crash", (which,))], [Step("take_over")]])
    steps += rng.sample(takes_back, rng.choice([1, 1, 2]))
    return [*steps, Step(rng.choice(["follow", "grope"]), (which, rng.randint(0, 20)))]


def _spoil(rng: random.Random, which: int) -> list[Step]:
    """The spec becomes invalid, perhaps with another controller, and perhaps an end is asked for."""
    ends = [
        [],
        [Step("play", (rng.choice(EVICTIONS), which))],
        [Step("suspend", (), {"wanted": True})],
        [Step("set_deadline", (rng.choice([1, 50]),))],
        [Step("label", (QUEUE_LABEL, None))],
    ]
    steps = [Step("break_spec", (), {"broken": True}), Step("follow", (which, rng.randint(0, 12)))]
    steps += rng.choice([[], [Step("crash", (which,))]])
    return [*steps, *rng.choice(ends), Step("follow", (which, rng.randint(0, 20)))]


def _ask_for_more(rng: random.Random, which: int, role: str) -> list[Step]:
    """More Tasks than were admitted, and a Task that ends, perhaps with the attempt."""
    steps = [Step("rescale", (role, 4)), Step("settle")]
    if rng.random() < 0.5:
        never = {"fancy": False, "limit": 0}
        steps += [Step("set_retry", (role,), never), Step("set_retry", (None,), {"fancy": False, "limit": -1})]
    return [*steps, *_end_pod(rng, which)]


def _complete_some(rng: random.Random, which: int, role: str) -> list[Step]:
    """Some Tasks complete while others run, whose quota others want; then the attempt ends, perhaps for a retry."""
    steps = [Step("rescale", (role, rng.randint(2, 4))), Step("settle")]
    steps += [Step("kubelet", (which + at, "end", 0)) for at in range(rng.randint(1, 2))]
    steps += [Step("settle"), Step("tick", (15,)), Step("rival", (rng.randint(1, 2), "low")), Step("step_kueue", (2,))]
    steps += rng.choice([[], [Step("crash", (which,))], [Step("rescale", (role, rng.randint(0, 5)))]])
    if rng.random() < 0.6:
        steps += [
            Step("set_retry", (None,), {"fancy": False, "limit": -1}),
            Step("set_retry", (role,), {"fancy": False, "limit": rng.choice([0, 1])}),
            Step("set_completion", (role, 1, -1)),
            *_end_pod(rng, which),
        ]
    return steps


def _end_pod(rng: random.Random, which: int) -> list[Step]:
    return [Step("kubelet", (which, "end", rng.choice(EXIT_CODES))), Step("settle")]


HAPPENINGS: Final = (
    "deactivate",
    "activate",
    "activate",
    "delete",
    "delete",
    "finish",
    "steal",
    "unadmit",
    "chatter",
    "hide",
    "serve",
)
_VERBS: Final = ("create", "delete", "write", "get", "patch", "patch", None)
_FATES: Final = (*list(Fate)[:3], *list(Fate)[:2], Fate.FORBIDDEN, Fate.INVALID, Fate.QUOTA, Fate.CONFLICT, Fate.CLASH)
