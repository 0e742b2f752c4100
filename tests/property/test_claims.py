"""Histories of one Framework whose Tasks have volume claims, which others delete, take the names of, or change.

By the rules of tests/support/guarantees.py, no Pod comes before its claims, and only our own claims are deleted, with
cause. Here: a policy that was always Retain loses nothing, foreign claims never change, and at rest exactly the claims
exist that the policy wants.
"""

from __future__ import annotations

from typing import Any, Final

import orjson
from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.api import names
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.requests import Kind
from tests.support.history import NAME, History
from tests.support.world import Body, Fate, controller_of, is_deleting, mark_of, name_of, uid_of

POLICY, RESCALE, DELETE_CLAIM, UNLABEL, EDIT, TAKE = "policy", "rescale", "delete claim", "unlabel", "edit", "take"
SUSPEND, RESUME, CRASH, EXIT, KILL, COLLECT = "suspend", "resume", "crash", "exit", "kill", "collect"
DROP, RECREATE, WAIT = "drop", "recreate", "wait"
FATES: Final = [
    *((verb, fate) for verb in ("create", "write", "get", "patch", "delete") for fate in list(Fate)[:2]),
    ("create", Fate.FORBIDDEN),
    ("create", Fate.QUOTA),
    ("create", Fate.CLASH),
    ("patch", Fate.FORBIDDEN),
    ("delete", Fate.CONFLICT),
]
SIMPLE: Final = [
    *[POLICY, RESCALE, RESCALE, RESCALE, DELETE_CLAIM, UNLABEL, EDIT, TAKE, SUSPEND, RESUME, CRASH, EXIT, KILL],
    *[COLLECT, DROP, RECREATE, WAIT],
]
OPERATIONS = st.lists(st.tuples(st.sampled_from([*SIMPLE, *FATES]), st.integers(0, 3), st.integers(0, 12)), max_size=16)
Policy = dict[str, str]


def policy_of(number: int) -> Policy:
    """One of the four policies."""
    return {"whenDeleted": ("Retain", "Delete")[number % 2], "whenScaled": ("Retain", "Delete")[number // 2]}


class Claimed:
    """A history, and the claims in it."""

    def __init__(self, policy: Policy) -> None:
        self.history = History()
        self.world = self.history.world
        self.policies = [policy]
        self.deleted_by_user: set[str] = set()
        self.foreign: dict[str, str] = {}
        """Names and resourceVersions of claims of others."""
        self.dropped = False
        self.create()

    def create(self) -> None:
        """The user creates the Framework."""
        role = {
            "name": "a",
            "taskNumber": 2,
            "volumeClaimTemplates": [{"metadata": {"name": "data"}}, {"metadata": {"name": "my-log"}}],
            "persistentVolumeClaimRetentionPolicy": self.policies[-1],
            "task": {"retryPolicy": {"maxRetryCount": -2}},
        }
        roles = [{"name": "b", "task": {"retryPolicy": {"maxRetryCount": -2}}}, *([] if self.dropped else [role])]
        self.history.create({"taskRoles": roles})

    @property
    def claims(self) -> dict[str, Body]:
        """The live claims."""
        return self.world.objects[Kind.VOLUME_CLAIM]

    def follow(self, steps: int) -> None:
        """The controller sees everything, and works."""
        for _ in range(steps):
            self.history.controllers[0].catch_up()
            self.history.run(0, 1)
            self.check_foreign()

    def check_foreign(self) -> None:
        """Foreign claims are unchanged."""
        for name, version in self.foreign.items():
            assert self.claims[name]["metadata"]["resourceVersion"] == version, f"{name} was changed"

    def _ours(self, number: int) -> str | None:
        found = sorted(name for name in self.claims if name not in self.foreign)
        return found[number % len(found)] if found else None

    def do(self, operation: Any, number: int) -> None:
        """One operation, if it can be done."""
        history, world, ours = self.history, self.world, self._ours(number)
        match operation:
            case "policy" if history.framework is not None and not self.dropped:
                self.policies.append(policy_of(number))

                def change(spec: Body) -> None:
                    spec["taskRoles"][1]["persistentVolumeClaimRetentionPolicy"] = self.policies[-1]

                history.edit(f"policy {self.policies[-1]}", change)
            case "rescale" if not self.dropped:
                history.rescale("a", number)
            case "drop":
                self.dropped = True
                history.drop("a")
            case "delete claim" if ours is not None and self.claims[ours]["metadata"].get("labels"):
                self.deleted_by_user.add(uid_of(self.claims[ours]))
                world.delete(Kind.VOLUME_CLAIM, ours)
            case "unlabel" if ours is not None:
                world.edit(Kind.VOLUME_CLAIM, ours, lambda body: body["metadata"].update(labels={}))
            case "edit" if ours is not None:
                world.edit(Kind.VOLUME_CLAIM, ours, lambda body: body["metadata"].update(labels={"x": "y"}))
                world.edit(
                    Kind.VOLUME_CLAIM, ours, lambda body: body["metadata"]["labels"].update(FC_FRAMEWORK_NAME="f")
                )
            case "take" if (name := f"data-{NAME}-a-{number}") not in self.claims:
                made = world.create(
                    Kind.VOLUME_CLAIM, {"metadata": {"name": name, "labels": {"FC_FRAMEWORK_NAME": "f"}}}
                )
                self.foreign[name] = made["metadata"]["resourceVersion"]
            case "suspend" | "resume":
                history.suspend(wanted=operation == SUSPEND)
            case "crash":
                history.crash(0)
            case "exit" | "kill":
                history.kubelet(number, "end", int(operation == KILL))
            case "collect":
                history.collect(4)
            case "wait":
                history.wait(20)
            case "recreate":
                history.delete(foreground=True)
                while history.framework is not None:
                    history.collect(4)
                    history.wait(20)
                history.collect(99)
                self.create()
            case (verb, fate):
                history.fail(verb, fate)

    def free(self) -> None:
        """Other clients remove their claims."""
        for name in list(self.foreign):
            del self.foreign[name]
            self.world.remove(Kind.VOLUME_CLAIM, name)

    def check_nothing_is_lost(self) -> None:
        """Under a policy that never said Delete, only users delete claims."""
        if all("Delete" not in policy.values() for policy in self.policies):
            removed = [event for event in self.world.events[Kind.VOLUME_CLAIM] if event.removed]
            assert {uid_of(_body(event.raw)) for event in removed if _is_marked(event.raw)} <= self.deleted_by_user
            live = (body for body in self.claims.values() if is_deleting(body))
            assert {uid_of(body) for body in live} <= self.deleted_by_user

    def check_quiet(self) -> None:
        """All is quiet: the claims are those that the policy wants."""
        framework, status = self.history.framework, self.history.status
        assert framework is not None
        assert status is not None
        uid, policy = uid_of(framework), self.policies[-1]
        number = next((role["taskNumber"] for role in framework["spec"]["taskRoles"] if role["name"] == "a"), 0)
        for index in range(number):
            for claim in ("data", "my-log"):
                body = self.claims[names.claim_name(claim, NAME, "a", index)]
                assert mark_of(body, names.FRAMEWORK_UID) == uid
                assert mark_of(body, names.WHEN_SCALED) == policy["whenScaled"]
                assert controller_of(body) == (uid if policy["whenDeleted"] == "Delete" else None)
        if all(one["whenScaled"] == "Delete" for one in self.policies):
            left = {name_of(one) for one in self.claims.values() if mark_of(one, names.FRAMEWORK_UID) == uid}
            labelled = {name for name in left if self.claims[name]["metadata"].get("labels")}
            wanted = {names.claim_name(one, NAME, "a", index) for one in ("data", "my-log") for index in range(number)}
            assert labelled <= wanted


def _body(raw: bytes) -> Body:
    body: Body = orjson.loads(raw)
    return body


def _is_marked(raw: bytes) -> bool:
    return bool(mark_of(_body(raw), names.FRAMEWORK_UID))


@given(policy=st.integers(0, 3).map(policy_of), first=st.integers(0, 12), operations=OPERATIONS)
def test_claims_are_as_the_policy_wants_under_all_acts_of_other_clients(
    policy: Policy, first: int, operations: list[tuple[Any, int, int]]
) -> None:
    claimed = Claimed(policy)
    history = claimed.history
    claimed.follow(first)
    for operation, number, steps in operations:
        claimed.do(operation, number)
        claimed.follow(steps)
        claimed.check_nothing_is_lost()
    claimed.free()
    history.suspend(wanted=False)
    for _ in range(6):
        history.wait(100)
        history.collect(99)
    history.wait(100)
    claimed.check_nothing_is_lost()
    status = history.status
    if status is not None and status.state in (State.PREPARING, State.RUNNING):
        claimed.check_quiet()
