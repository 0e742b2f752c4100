"""The machine on a bench: one Framework, caches and clock moved by hand, plan by plan."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final, TypeVar

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import decode_status, encode_status
from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.failurespec import FailureClass
from frameworkcontroller.api.objectkinds import PODGROUPS
from frameworkcontroller.api.objects import (
    ClaimRecord,
    CompanionRecord,
    ConfigMapRecord,
    Framework,
    Identity,
    PodRecord,
    budget_record,
    claim_record,
    configmap_record,
    pod_record,
    scaler_record,
    service_record,
)
from frameworkcontroller.api.podgroups import (
    PodGroupRecord,
    coscheduling_podgroup_record,
    podgroup_record,
    volcano_podgroup_record,
)
from frameworkcontroller.api.spec import SpecError, parse_spec
from frameworkcontroller.api.status import FrameworkStatus, State, TaskStatus
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.machine.kernel.actions import (
    Action,
    ConfirmGone,
    ConfirmNone,
    Create,
    Delete,
    LookUp,
    Outcome,
    Patch,
)
from frameworkcontroller.machine.kernel.exchanges import Accepted, Created, Gone, Patched, Result
from frameworkcontroller.machine.kernel.failure import Classifier
from frameworkcontroller.machine.kernel.model import Env, Limits, NotListed, Observed, Plan, Urgency
from frameworkcontroller.machine.kernel.outcomes import drop
from frameworkcontroller.machine.kernel.requests import Kind, Refused, Target
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.parts import PARTS
from frameworkcontroller.machine.parts.claims.claimagenda import ClaimAgenda
from frameworkcontroller.machine.plan import fold, plan
from frameworkcontroller.machine.specreading import Ends, ends_in, ends_of, spec_to_end
from tests.support.invariants import check_status, check_step
from tests.support.world import merged

NOW: Final = 1_700_000_000
NO_TASK: Final = {"taskRole": "nobody"}
"""A coordinator that the schema of the CRD accepts, and that makes a spec invalid."""
UID: Final = "framework-uid"
Body = dict[str, Any]
_A = TypeVar("_A", bound=Action)


PODGROUP_RECORDS: Final[dict[Kind, Callable[[Body], PodGroupRecord]]] = {
    Kind.PODGROUP: podgroup_record,
    Kind.VOLCANO_PODGROUP: volcano_podgroup_record,
    Kind.COSCHEDULING_PODGROUP: coscheduling_podgroup_record,
}


def limits(*classes: FailureClass, minimum: int = 60, maximum: int = 900) -> Limits:
    """The default limits; ``minimum`` and ``maximum`` bound the delay after a transient conflict."""
    return Limits(
        object_local_cache_creation_timeout_sec=300,
        framework_completed_retain_sec=2_592_000,
        framework_min_retry_delay_sec_for_transient_conflict_failed=minimum,
        framework_max_retry_delay_sec_for_transient_conflict_failed=maximum,
        classifier=Classifier(classes),
    )


def role(name: str = "a", number: int = 1, *, failed: int = 0, succeeded: int = 0, **task: Any) -> Body:
    """A TaskRole; ``task`` are fields of its task spec."""
    return {
        "name": name,
        "taskNumber": number,
        "frameworkAttemptCompletionPolicy": {"minFailedTaskCount": failed, "minSucceededTaskCount": succeeded},
        "task": {"pod": {"spec": {"containers": [{"name": "main", "image": "none"}]}}, **task},
    }


REASONS: Final = {400: "BadRequest", 403: "Forbidden", 413: "RequestEntityTooLarge", 422: "Invalid"}
"""Those of API servers. Admission webhooks choose code and reason."""


def refused(code: int, message: str = "no", reason: str | None = None) -> Refused:
    """A refusal as the driver passes it on; ``reason`` None: the one that goes with the code."""
    reason = REASONS.get(code, "") if reason is None else reason
    status = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return Refused(code, message, orjson.dumps(status), reason=reason)


class Bench:
    """A Framework ``f`` in namespace ``ns``, and its tracked and cached state."""

    def __init__(self, *roles: Body, limit: Limits | None = None, checked: bool = True, **spec: Any) -> None:
        """``checked``: check every status, which costs its size; other keywords are fields of the spec."""
        self.spec: Body = {"taskRoles": list(roles), **spec}
        self.generation = 1
        self.deleting = False
        self.held = False
        """Whether it has the finalizer of the history."""
        self.now: float = NOW
        self.set_back: float = 0.0
        """By how much the wall clock was set back: the other clock goes on."""
        self.listed: float = NOW
        """When the caches were last compared with a list."""
        self.creating = False
        """Whether creations of Pods are under way."""
        self.limits = limit or limits()
        self.rng = random.Random(7)
        self.tracker = Tracker()
        self.configmap: ConfigMapRecord | None = None
        self.pods: dict[str, PodRecord] = {}
        self.services: dict[str, CompanionRecord] = {}
        self.claims: dict[str, ClaimRecord] = {}
        self.scalers: dict[str, CompanionRecord] = {}
        self.budgets: dict[str, CompanionRecord] = {}
        self.groups: dict[tuple[Kind, str], CompanionRecord] = {}
        """PodGroups, by kind and name."""
        self.served = "v1beta1"
        """The version of the native PodGroups that is served."""
        self.not_listed: NotListed | None = None
        """Set if companions are not listed yet."""
        self.looks = 0
        """How many companions were looked for or listed."""
        self.bodies: dict[str, Body] = {}
        self.writes = 0
        self._uids = 0
        self._ends = Ends()
        self._checked = checked
        self._before: FrameworkStatus | None = None

    # --- the doors ---

    @property
    def framework(self) -> Framework:
        """The Framework as the machine gets it."""
        try:
            spec, invalid = parse_spec(self.spec), ""
            self._ends = ends_of(spec)
        except SpecError as error:
            self._ends, invalid = ends_in(self.spec, self._ends), str(error)
            spec = spec_to_end(self._ends, self.tracker.status)
        return Framework("ns", "f", UID, self.generation, self.deleting, spec, held=self.held, invalid=invalid)

    @property
    def env(self) -> Env:
        """Clocks, randomness, limits."""
        return Env(self.now, self.now + self.set_back, self.rng, self.limits)

    def plan(self, *, write: bool = True) -> Plan:
        """One plan; ``write``: and its status is accepted, if it is to be written."""
        listed = self.listed
        pods = lambda: list(self.pods.values())  # noqa: E731
        observed = Observed(
            self.configmap,
            self.pods.get,
            pods,
            configmaps_listed=listed,
            pods_listed=listed,
            find_companion=self._find_companion,
            list_claims=self._list_claims,
            served_version=lambda kind: self.served if kind is Kind.PODGROUP else "",
            creating=self.creating,
        )
        made = plan(self.framework, self.tracker, observed, self.env)
        self._check()
        if write:
            self.write()
        return made

    def _find_companion(self, kind: Kind, name: str) -> CompanionRecord | NotListed | None:
        self.looks += 1
        if kind in PODGROUPS:
            return self.not_listed or self.groups.get((kind, name))
        if kind is Kind.ROLE_SCALER:
            return self.not_listed or self.scalers.get(name)
        if kind is Kind.DISRUPTION_BUDGET:
            return self.not_listed or self.budgets.get(name)
        return self.not_listed or (self.claims if kind is Kind.VOLUME_CLAIM else self.services).get(name)

    def _list_claims(self, needed: bool) -> list[ClaimRecord] | NotListed:
        self.looks += len(self.claims)
        return (self.not_listed if needed else None) or list(self.claims.values())

    def fold(self, action: Action, result: Result, *, write: bool = True) -> Plan:
        """Fold the outcome of one action."""
        made = fold(self.framework, self.tracker, [Outcome(action, result)], self.env)
        self._check()
        if write:
            self.write()
        return made

    def write(self) -> None:
        """The status is accepted, if it is to be written."""
        if self.tracker.urgency is not Urgency.NONE:
            self.tracker.on_persisted()
            self.writes += 1

    def forget(self, *, pod: bool = False) -> None:
        """Another process takes over with a status from before the ConfigMap (``pod``: the first Pod) was created."""
        self.restart()
        if pod:
            self.task().attempt.pod_uid, self.task().state = None, State.CREATION_PENDING
        else:
            self.status.attempt.configmap_uid, self.status.state = None, State.CREATION_PENDING

    def restart(self) -> None:
        """Another process takes over with the stored status alone."""
        self.tracker = Tracker(decode_status(orjson.loads(encode_status("f", self.status))))
        self._before = None
        self._ends = Ends()

    def edit(self, *roles: Body, **spec: Any) -> None:
        """The user replaces roles, or sets other fields of the spec."""
        self.spec = {**self.spec, **({"taskRoles": list(roles)} if roles else {}), **spec}
        self.generation += 1

    def spoil(self, **spec: Any) -> None:
        """The user makes the spec invalid, and sets other fields of it."""
        self.edit(coordinator=NO_TASK, **spec)

    def put_clock_back(self, seconds: float) -> None:
        """A user sets the wall clock back."""
        self.now -= seconds
        self.set_back += seconds

    # --- state ---

    @property
    def status(self) -> FrameworkStatus:
        """The tracked status."""
        assert self.tracker.status is not None
        return self.tracker.status

    def task(self, role_name: str = "a", index: int = 0) -> TaskStatus:
        """A Task's status."""
        found = self.tracker.task((role_name, index))
        assert found is not None
        return found

    def states(self, role_name: str = "a") -> list[str]:
        """The states of a role's Tasks, without the word Attempt."""
        tasks = next(item.tasks for item in self.status.attempt.roles if item.name == role_name)
        return [task.state.value.removeprefix("Attempt") for task in tasks]

    def state(self) -> State:
        """The state of the first Task."""
        return self.task().state

    def code(self) -> int | None:
        """The completion code of the FrameworkAttempt."""
        return _code(self.status.attempt.completion_status)

    def completion(self) -> CompletionStatus:
        """The completion of the FrameworkAttempt, which is decided."""
        found = self.status.attempt.completion_status
        assert found is not None
        return found

    def task_completion(self, role_name: str = "a", index: int = 0) -> CompletionStatus:
        """The completion of a Task's attempt, which is decided."""
        found = self.task(role_name, index).attempt.completion_status
        assert found is not None
        return found

    def task_code(self, role_name: str = "a", index: int = 0) -> int | None:
        """The completion code of a Task's attempt."""
        return _code(self.task(role_name, index).attempt.completion_status)

    def task_codes(self) -> list[int | None]:
        """The completion codes of all Tasks' attempts."""
        return [_code(task.attempt.completion_status) for task in self.tracker.tasks()]

    def stalls(self) -> list[tuple[str, str]]:
        """Status and reason of the condition Stalled, if there is one."""
        return [(item.status, item.reason) for item in self.status.conditions if item.type == "Stalled"]

    def stall(self) -> tuple[str, str]:
        """Reason and message of the condition Stalled, empty if it is not True."""
        found = (one for one in self.status.conditions if one.type == "Stalled" and one.status == "True")
        return next(((one.reason, one.message) for one in found), ("", ""))

    # --- walking on ---

    def only(self, made: Plan) -> Action:
        """The one action of a plan."""
        (action,) = made.actions
        return action

    def expect(self, kind: type[_A], within: float | None = None, *, after: float = 0) -> _A:
        """The one action of the next plan, of that kind, ``after`` some seconds. ``within``: as the alarms ring."""
        self.now += after
        action = self.only(self.plan() if within is None else self.wait(within))
        assert isinstance(action, kind), action
        return action

    def idle(self, *, after: float = 0) -> Plan:
        """The next plan, ``after`` some seconds, which asks for nothing."""
        made = self.pass_time(after)
        assert made.actions == []
        return made

    def pass_time(self, seconds: float) -> Plan:
        """The next plan, after that time."""
        self.now += seconds
        return self.plan()

    def edit_then_plan(self, *roles: Body, **spec: Any) -> Plan:
        """The user edits the spec, and a plan follows."""
        self.edit(*roles, **spec)
        return self.plan()

    def edit_then_settle(self, *roles: Body, **spec: Any) -> None:
        """The user edits the spec, and all that follows by itself is done."""
        self.edit(*roles, **spec)
        self.settle()

    def show_then_plan(self, name: str, *, deleting: float | None = None, grace: int = 30, **status: Any) -> Plan:
        """The cache sees an object (see ``show``), and a plan follows."""
        self.show(name, deleting=deleting, grace=grace, **status)
        return self.plan()

    def hide_then_plan(self, name: str) -> Plan:
        """The cache sees an object gone, and a plan follows."""
        self.hide(name)
        return self.plan()

    def wait(self, seconds: float) -> Plan:
        """Plans as the alarms ring, until one asks for something, for at most so long."""
        end = self.now + seconds
        made = self.plan()
        while not made.actions and made.requeue_after is not None and self.now < end:
            self.now += made.requeue_after
            made = self.plan()
        return made

    def refuse(self, action: Action, result: Result, times: int = 3) -> None:
        """The action has this result ``times`` times in a row, each time as soon as it is tried again."""
        for number in range(times):
            self.fold(action, result)
            if number + 1 < times:
                assert action in self.wait(60).actions

    def created(self, action: Action, *, show: bool = True) -> str:
        """A creation succeeds, and (``show``) the cache sees the object; its UID."""
        assert isinstance(action, Create)
        self._uids += 1
        body = orjson.loads(action.body)
        uid = f"{action.target.kind.lower()}-{self._uids}"
        now = format_time(int(self.now))
        body["metadata"] |= {"uid": uid, "resourceVersion": "1", "creationTimestamp": now}
        self.bodies[action.target.name] = body
        self.fold(action, Created(uid))
        if show:
            self.show(action.target.name)
        return uid

    def patched(self, action: Action, *, show: bool = True) -> None:
        """A merge patch succeeds, and (``show``) the cache sees the object."""
        assert isinstance(action, Patch)
        body = self.bodies[action.target.name]
        version = body["metadata"]["resourceVersion"]
        assert (body["metadata"]["uid"], version) == (action.uid, action.resource_version or version)
        body = self.bodies[action.target.name] = merged(body, orjson.loads(action.change))
        body["metadata"]["resourceVersion"] = str(int(version) + 1)
        self.fold(action, Patched(body["metadata"]["resourceVersion"]))
        if show:
            self.show(action.target.name)

    def show(self, name: str, *, deleting: float | None = None, grace: int = 30, **status: Any) -> None:
        """The cache sees an object that was created; ``deleting``: to be gone at that time; ``status``: of a Pod."""
        body = self.bodies[name]
        if deleting is not None:
            deletion = {"deletionTimestamp": format_time(int(deleting)), "deletionGracePeriodSeconds": grace}
            body["metadata"] |= deletion
        if body["kind"] == Kind.CONFIGMAP:
            self.configmap = configmap_record(body)
            return
        if body["kind"] == Kind.SERVICE:
            self.services[name] = service_record(body)
            return
        if body["kind"] == Kind.ROLE_SCALER:
            self.scalers[name] = scaler_record(body)
            return
        if body["kind"] == Kind.DISRUPTION_BUDGET:
            self.budgets[name] = budget_record(body)
            return
        if body["kind"] == Kind.PODGROUP:
            group, _, version = body["apiVersion"].partition("/")
            kind = next((one for one in PODGROUPS if one.endswith(group)), Kind.PODGROUP)
            assert kind is not Kind.PODGROUP or version == self.served
            body |= {"status": {**body.get("status", {}), **status}}
            self.groups[kind, name] = PODGROUP_RECORDS[kind](body)
            return
        if body["kind"] == Kind.VOLUME_CLAIM:
            self.claims[name] = claim_record(body)
            self.tracker.part(ClaimAgenda).add(name)
            return
        node = status.pop("nodeName", None)
        if node:
            body["spec"]["nodeName"] = node
        body["status"] = {**body.get("status", {"phase": "Pending"}), **status}
        self.pods[name] = pod_record(body)
        self.touch(name)

    def hide(self, name: str) -> None:
        """The cache sees an object gone."""
        if name == names.configmap_name("f"):
            self.configmap = None
        elif self.scalers.pop(name, None) is not None:
            pass
        elif any(of == name for _, of in self.groups):
            self.groups = {key: group for key, group in self.groups.items() if key[1] != name}
        elif not any(of.pop(name, None) for of in (self.services, self.budgets, self.claims)):
            self.pods.pop(name, None)
            self.touch(name)

    def relist(self, kind: Kind, requested: float | None = None) -> bool:
        """A list that was requested then (None: now) is in the cache. Returns whether it lacks a created companion."""
        find = self.claims.get if kind is Kind.VOLUME_CLAIM else self.services.get
        lacking = self.tracker.expectations.observe_list(kind, self.now if requested is None else requested, find)
        for target, uid in lacking:
            drop(PARTS, self.tracker, target, uid)
        return bool(lacking)

    def vanish(self) -> None:
        """The cache sees the attempt's ConfigMap gone, and all Pods."""
        for name in [names.configmap_name("f"), *self.pods]:
            self.hide(name)

    def drop(self, name: str, *, removed: bool = False) -> None:
        """The cache drops an object. ``removed``: its last state shows that it is gone."""
        if name == names.configmap_name("f"):
            assert self.configmap is not None
            self.tracker.configmap_dropped(self.configmap.uid)
            self.tracker.agenda.look()
        elif name in self.services:
            drop(PARTS, self.tracker, Target(Kind.SERVICE, name), self.services[name].uid)
        elif name in self.scalers:
            drop(PARTS, self.tracker, Target(Kind.ROLE_SCALER, name), self.scalers[name].uid)
        elif name in self.budgets:
            drop(PARTS, self.tracker, Target(Kind.DISRUPTION_BUDGET, name), self.budgets[name].uid)
        elif found := [(kind, group.uid) for (kind, of), group in self.groups.items() if of == name]:
            ((kind, uid),) = found
            drop(PARTS, self.tracker, Target(kind, name, self.status.attempt.id), uid)
        elif name in self.claims:
            _, _, of_role, index = names.split_claim_name(name) or ("", "", "", -1)
            target = Target(Kind.VOLUME_CLAIM, name, role=of_role, index=index)
            drop(PARTS, self.tracker, target, self.claims[name].uid)
        else:
            parts = names.split_pod_name(name)
            assert parts is not None
            self.tracker.pod_dropped(parts[1:], self.pods[name], removed=removed)
        self.hide(name)

    def touch(self, name: str) -> None:
        """The machine gets an event of that Pod."""
        parts = names.split_pod_name(name)
        assert parts is not None
        self.tracker.agenda.look(parts[1:])

    def attempt(self) -> None:
        """Up to where the ConfigMap of the first attempt is in the cache, and its Pods are about to be created."""
        self.plan()
        self.created(self.only(self.plan()))

    def pod(self, name: str = "f-a-0", *, show: bool = True) -> str:
        """Up to where the Pod of that name is created; its UID."""
        if self.tracker.status is None:
            self.attempt()
        for _ in range(5):
            for action in self.plan().actions:
                if isinstance(action, Create) and action.target.name == name:
                    return self.created(action, show=show)
                if isinstance(action, Create):
                    self.created(action)
        raise AssertionError(f"{name} is not created")

    def all_pods(self) -> None:
        """Up to where nothing more is created."""
        while True:
            made = self.plan()
            for action in made.actions:
                self.created(action)
            if not made.actions and not self.tracker.is_busy:
                return

    def run(self, name: str = "f-a-0") -> None:
        """The Pod runs, and its Task does."""
        self.show(name, phase="Running", podIP="10.0.0.1", hostIP="10.0.1.1", nodeName="node-1")
        self.plan()

    def run_all(self) -> None:
        """All Pods are created, and run."""
        self.all_pods()
        for name in list(self.pods):
            self.run(name)

    def end(self, name: str = "f-a-0", code: int = 0, *, after: float = 0) -> None:
        """The Pod ends with that exit code, ``after`` some seconds, and its Task does, as far as it goes by itself."""
        self.now += after
        self.stop(name, code)
        self.settle()

    def stop(self, name: str = "f-a-0", code: int = 0) -> None:
        """The cache sees the Pod end with that exit code."""
        terminated = {"exitCode": code, "finishedAt": format_time(int(self.now))}
        self.show(
            name,
            phase="Failed" if code else "Succeeded",
            containerStatuses=[{"name": "main", "state": {"terminated": terminated}}],
        )

    def stop_then_plan(self, name: str = "f-a-0", code: int = 0) -> Plan:
        """The cache sees the Pod end with that exit code, and a plan follows."""
        self.stop(name, code)
        return self.plan()

    def settle(self) -> None:
        """Deletions are accepted and seen at once, creations succeed, until nothing is left to do by itself."""
        for _ in range(50):
            made = self.plan()
            for action in made.actions:
                match action:
                    case _ if self.do(action):
                        pass
                    case Create():
                        self.created(action)
                    case Delete(target=target):
                        self.fold(action, Gone() if action.confirm else Accepted())
                        if target.kind is Kind.FRAMEWORK:
                            self.deleting = True
                        else:
                            self.hide(target.name)
                    case ConfirmNone() | ConfirmGone() | LookUp():
                        self.fold(action, Gone())
                    case Patch():
                        self.patched(action)
            if not made.actions and not self.tracker.is_busy:
                return
        raise AssertionError("it does not settle")

    def do(self, action: Action) -> bool:
        """Carry out an action that this bench does not know. Return whether it was one."""
        return False

    def _check(self) -> None:
        if not self._checked:
            return
        check_status(self.status)
        after = decode_status(orjson.loads(encode_status("f", self.status)))
        assert after is not None
        if self._before is not None:
            check_step(self._before, after)
        self._before = after


def accepted(*roles: Body, limit: Limits | None = None, **spec: Any) -> Bench:
    """A Framework whose first status is stored: of one role with one Task, if no other is given."""
    bench = Bench(*(roles or (role(),)), limit=limit, **spec)
    bench.plan()
    return bench


def begun(*roles: Body, limit: Limits | None = None, **spec: Any) -> Bench:
    """A Framework with the ConfigMap of its first attempt: of one role with one Task, if no other is given."""
    bench = Bench(*(roles or (role(),)), limit=limit, **spec)
    bench.attempt()
    return bench


def prepared(*roles: Body, limit: Limits | None = None, **spec: Any) -> Bench:
    """A Framework whose Pods are all created: of one role with one Task, if no other is given."""
    bench = Bench(*(roles or (role(),)), limit=limit, **spec)
    bench.all_pods()
    return bench


def running(*roles: Body, limit: Limits | None = None, **spec: Any) -> Bench:
    """A Framework whose Pods all run: of one role with one Task, if no other is given."""
    bench = Bench(*(roles or (role(),)), limit=limit, **spec)
    bench.run_all()
    return bench


def _code(completion: CompletionStatus | None) -> int | None:
    return None if completion is None else completion.code


def foreign(name: str, uid: str = "foreign", *, controller: str | None = None, deleting: bool = False) -> Identity:
    """The identity of another owner's object."""
    return Identity(uid, controller, None, deleting)
