"""Carries out the machine's actions against the API server, and says what became of each.

Actions of one sync run concurrently. Creations start with one in flight and gain one more with each that succeeds (1,
2, 4, ... a round trip later), so that a namespace that refuses is asked once and not a thousand times; at the first
refusal no more are started, unless it is one that completes its Task. All syncs together keep a bounded number in
flight, in which Frameworks take turns: more only makes the API server slower (docs/performance.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import Framework, Identity, identity_of
from frameworkcontroller.controller.slots import Slots
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, ServerError, TransportError
from frameworkcontroller.kube.resources import CONFIGMAPS, FRAMEWORKS, PODS, Resource
from frameworkcontroller.machine.failure import classify_creation_refusal
from frameworkcontroller.machine.model import (
    Accepted,
    Action,
    Cleanup,
    Confirm,
    Create,
    Created,
    Delete,
    Exists,
    Gone,
    Kind,
    NotAttempted,
    Outcome,
    Refused,
    Remains,
    Result,
    Target,
    Unanswered,
)

MAX_IN_FLIGHT: Final = 50
"""Requests in flight over all Frameworks: the most that still raised the rate when it was measured."""

SLICE_SEC: Final = 1.0
"""A sync starts no more actions after so long, so that what it did is persisted and exposed."""

_FINAL_CODES: Final = frozenset({400, 403, 413, 422})
"""Refusals that may complete a Task: it is made sure that an earlier, lost request did not create the Pod after all."""


@dataclass(frozen=True, slots=True)
class _Api:
    resource: Resource
    marks: tuple[str, ...]
    propagation: str | None


_APIS: Final = {
    Kind.POD: _Api(PODS, names.POD_IDENTITY, None),
    # Foreground: the attempt is over only when its last Pod is gone (C3, C4).
    Kind.CONFIGMAP: _Api(CONFIGMAPS, names.CONFIGMAP_IDENTITY, "Foreground"),
    Kind.FRAMEWORK: _Api(FRAMEWORKS, (), "Foreground"),
}


@dataclass(slots=True)
class Ramp:
    """How many creations of one Framework may be in flight, from slice to slice."""

    width: int = 1


class Executor:
    """Carries out actions. One for the whole controller: it holds the bound on requests in flight."""

    def __init__(self, client: KubeClient, *, clock: Callable[[], float], max_in_flight: int = MAX_IN_FLIGHT) -> None:
        """``clock``: monotonic seconds."""
        self._client = client
        self._clock = clock
        self._max_in_flight = max_in_flight
        self._slots = Slots(max_in_flight)

    async def execute(
        self,
        framework: Framework,
        actions: Sequence[Action],
        *,
        ramp: Ramp | None = None,
        slice_sec: float = SLICE_SEC,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> list[Outcome]:
        """What became of each action, in the order in which it became known.

        After ``slice_sec``, or once ``interrupted``, no more are started; those are told as not attempted.
        """
        if len(actions) == 1:
            return [await self._carry_out(framework, actions[0])]
        ramp = Ramp() if ramp is None else ramp
        creates = any(isinstance(action, Create) for action in actions)
        end = self._clock() + slice_sec
        these = _Slice(
            partial(self._carry_out, framework),
            lambda: self._clock() >= end or interrupted(),
            todo=list(reversed(actions)),
            width=ramp.width if creates else self._max_in_flight,
            widest=self._max_in_flight,
        )
        await these.run()
        if creates:
            ramp.width = these.width if these.todo and not these.refused else 1
        return [*these.outcomes, *(Outcome(action, NotAttempted()) for action in reversed(these.todo))]

    async def _carry_out(self, framework: Framework, action: Action) -> Outcome:
        async with self._slots.taken(framework.key):
            try:
                result = await self._request(framework, action)
            except TransportError as error:
                result = Unanswered(str(error))
            except ServerError as error:
                # A 504 can come after the write was done: nothing is known, whatever the server says.
                result = Unanswered(f"{error.code}: {error.message}")
            except ApiError as error:
                result = _refused(error)
        return Outcome(action, result)

    async def _request(self, framework: Framework, action: Action) -> Result:
        match action:
            case Create():
                return await self._create(framework, action)
            case Delete(target=target, uid=uid, force=force, confirm=confirm):
                if not await self._delete(framework, target, uid, force=force):
                    return Gone()
                if confirm:
                    return await self._confirm(framework, target, uid, "is still being deleted")
                return Accepted()
            case Cleanup(target=target, controller_uid=controller_uid):
                found = await self._look(framework, target)
                if found is None or found.controller_uid != controller_uid:
                    return Gone()
                if not found.deleting and not await self._delete(framework, target, found.uid):
                    return Gone()
                return await self._confirm(framework, target, found.uid, "is still being deleted")
            case Confirm(target=target, uid=uid):
                return await self._confirm(framework, target, uid, "is there, but the cache does not show it")

    async def _create(self, framework: Framework, action: Create) -> Result:
        target = action.target
        try:
            answer = await self._client.create(
                _APIS[target.kind].resource, action.body, framework.namespace, metadata_only=True, owner=framework.key
            )
        except AlreadyExists:
            return Exists(await self._namesake(framework, target))
        except ApiError as error:
            if target.kind is Kind.POD and error.code in _FINAL_CODES and "exceeded quota" not in error.message:
                found = await self._namesake(framework, target)
                if found is not None and found.controller_uid == action.controller_uid:
                    return Exists(found)
            raise
        return Created(_metadata(answer)["uid"])

    async def _namesake(self, framework: Framework, target: Target) -> Identity | None:
        """Who bears the name of what was to be created; a refusal to tell must not pass for one to create."""
        try:
            return await self._look(framework, target)
        except ApiError as error:
            raise TransportError(f"{target.kind} {target.name} may be there: {error.code}: {error.message}") from error

    async def _delete(self, framework: Framework, target: Target, uid: str, *, force: bool = False) -> bool:
        """Whether the deletion was accepted; False: nothing of that UID is there."""
        api = _APIS[target.kind]
        try:
            await self._client.delete(
                api.resource,
                target.name,
                framework.namespace,
                uid=uid,
                grace_period_seconds=0 if force else None,
                propagation=api.propagation,
                owner=framework.key,
            )
        except NotFound:
            return False
        except Conflict:
            # The UID precondition failed: the name belongs to another object by now.
            found = await self._look(framework, target)
            if found is not None and found.uid == uid:
                raise
            return False
        return True

    async def _confirm(self, framework: Framework, target: Target, uid: str, otherwise: str) -> Result:
        found = await self._look(framework, target)
        return Gone() if found is None or found.uid != uid else Remains(f"{target.kind} {target.name} {otherwise}")

    async def _look(self, framework: Framework, target: Target) -> Identity | None:
        """A live read: who bears the target's name, None for nobody."""
        api = _APIS[target.kind]
        try:
            answer = await self._client.get(
                api.resource, target.name, framework.namespace, metadata_only=True, owner=framework.key
            )
        except NotFound:
            return None
        return identity_of(_metadata(answer), api.marks)


@dataclass(slots=True)
class _Slice:
    """The actions of one call, the next one last in ``todo``, and how far they are.

    No function within `execute`: one that starts itself again is a cycle, and would keep the bodies of its Pods until
    the garbage collector comes by.
    """

    carry_out: Callable[[Action], Awaitable[Outcome]]
    is_over: Callable[[], bool]
    todo: list[Action]
    width: int
    """So many are in flight."""
    widest: int
    outcomes: list[Outcome] = field(default_factory=list)
    refused: bool = False

    async def run(self) -> None:
        try:
            # Cancelled in the middle: what was sent may be done all the same; adoption finds it later.
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self.width, len(self.todo))):
                    group.create_task(self._work(group))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def _work(self, group: asyncio.TaskGroup) -> None:
        while self.todo and not self.refused:
            if self.outcomes and self.is_over():
                return
            outcome = await self.carry_out(self.todo.pop())
            self.outcomes.append(outcome)
            if _holds_back_others(outcome):
                self.refused = True
            elif self.width < self.widest:
                self.width += 1
                group.create_task(self._work(group))


def _holds_back_others(outcome: Outcome) -> bool:
    """Whether the actions that follow would fare no better. A final refusal of one Pod says nothing of the next Task's,
    which has to hear its own.
    """
    match outcome:
        case Outcome(Create(target=Target(kind=Kind.POD)), Refused() as refusal):
            return classify_creation_refusal(refusal) is None
        case Outcome(_, Refused() | Unanswered()):
            return True
    return False


def _refused(error: ApiError) -> Refused:
    return Refused(error.code, error.message, orjson.dumps(error.status), error.retry_after or 0.0)


def _metadata(answer: bytes) -> dict[str, Any]:
    try:
        metadata = orjson.loads(answer)["metadata"]
        if isinstance(metadata, dict) and isinstance(metadata.get("uid"), str):
            return metadata
    except (ValueError, KeyError, TypeError):
        pass
    raise TransportError(f"the API server's answer is not an object: {answer[:100]!r}")
