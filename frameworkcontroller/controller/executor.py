"""Carries out the machine's actions against the API server, and says what became of each.

Actions of one sync run concurrently. Creations start with a single one, and only if that succeeds do the others follow,
so that a namespace that refuses is asked once and not a thousand times; at the first refusal no more are started,
unless it is one that completes its Task. All syncs together keep a bounded number of requests in flight, those for
their statuses included, in which namespaces and Frameworks take turns: more only makes the API server slower
(docs/performance.md).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import Framework, Identity, ObjectError, identity_of
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Invalid,
    ObjectNotFound,
    ServerError,
    TooManyRequests,
    TransportError,
)
from frameworkcontroller.kube.fairsemaphore import FairSemaphore
from frameworkcontroller.kube.resources import CONFIGMAPS, PODS, Resource
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
    Refresh,
    Refused,
    Relabel,
    Remains,
    Result,
    Target,
    Unanswered,
)

MAX_IN_FLIGHT: Final = 50
"""Requests in flight over all Frameworks: the most that still raised the rate when it was measured. ``FairSemaphore``
says which do not count."""


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


class Executor:
    """Carries out actions. One for the whole controller: ``slots`` is the bound on requests in flight."""

    def __init__(self, client: KubeClient, *, max_in_flight: int = MAX_IN_FLIGHT) -> None:
        self._client = client
        self._max_in_flight = max_in_flight
        self.slots = FairSemaphore(max_in_flight)

    def begin(
        self,
        framework: Framework,
        actions: Iterable[Action],
        *,
        interrupted: Callable[[], bool] = lambda: False,
        wanted: Callable[[Create], bool] = lambda _: True,
    ) -> Batch:
        """Carry out these actions. Once ``interrupted``, no more are started; those are told as not attempted.

        So are creations that are not ``wanted`` any more when it is their turn.
        """
        return Batch(partial(self._carry_out, framework), actions, interrupted, wanted, self._max_in_flight)

    async def _carry_out(self, framework: Framework, action: Action) -> Outcome:
        async with self.slots.taken(framework.key):
            try:
                result = await self._request(framework, action)
            except TransportError as error:
                result = Unanswered(str(error))
            except ApiError as error:
                result = _refusal_or_nothing(error)
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
                return Gone() if found is None or found.controller_uid != controller_uid else Exists(found)
            case Relabel(target=target, uid=uid):
                return await self._relabel(framework, target, uid)
            case Confirm(target=target, uid=uid):
                return await self._confirm(framework, target, uid, "is there, but the cache does not show it")
            case Refresh():
                # The sync has read the Framework before it asked for this (``Syncer._is_justified``).
                return Remains("the stored status is as old")

    async def _create(self, framework: Framework, action: Create) -> Result:
        target = action.target
        try:
            answer = await self._client.create(
                _APIS[target.kind].resource, action.body, framework.namespace, metadata_only=True, flow=framework.key
            )
        except AlreadyExists as error:
            return Exists(await self._namesake(framework, target), error.message)
        except ApiError as error:
            if target.kind is Kind.POD and _is_final(error):
                # An earlier request, whose answer was lost, may have created the Pod after all.
                found = await self._namesake(framework, target)
                if found is not None and found.controller_uid == action.controller_uid:
                    return Exists(found)
            raise
        return Created(_identified(answer)["uid"])

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
            answer = await self._client.delete(
                api.resource,
                target.name,
                framework.namespace,
                uid=uid,
                grace_period_seconds=0 if force else None,
                propagation=api.propagation,
                flow=framework.key,
            )
        except ObjectNotFound:
            return False
        except Conflict:
            # The UID precondition failed: the name belongs to another object by now.
            found = await self._look(framework, target)
            if found is not None and found.uid == uid:
                raise
            return False
        # A page of something else would pass for a deletion that was accepted, and it would never be asked for again.
        _metadata(answer)
        return True

    async def _confirm(self, framework: Framework, target: Target, uid: str, otherwise: str) -> Result:
        found = await self._find(framework, target)
        if found is None or found["uid"] != uid:
            return Gone()
        labels = found.get("labels") or {}
        return Remains(f"{target.kind} {target.name} {otherwise}", unlabelled=names.FRAMEWORK_NAME not in labels)

    async def _relabel(self, framework: Framework, target: Target, uid: str) -> Result:
        metadata = {"uid": uid, "labels": {names.FRAMEWORK_NAME: framework.name}}
        try:
            await self._client.patch(
                _APIS[target.kind].resource,
                target.name,
                orjson.dumps({"metadata": metadata}),
                framework.namespace,
                content_type=MERGE_PATCH,
                metadata_only=True,
                flow=framework.key,
            )
        except ObjectNotFound:
            return Gone()
        except (Conflict, Invalid):
            # The name belongs to another object by now: a UID cannot be changed.
            found = await self._look(framework, target)
            if found is not None and found.uid == uid:
                raise
            return Gone()
        return Accepted()

    async def _look(self, framework: Framework, target: Target) -> Identity | None:
        """A live read: who bears the target's name, None for nobody."""
        found = await self._find(framework, target)
        if found is None:
            return None
        try:
            return identity_of(found, _APIS[target.kind].marks)
        except ObjectError as error:
            raise TransportError(f"the API server's answer is no usable {target.kind}: {error}") from error

    async def _find(self, framework: Framework, target: Target) -> dict[str, Any] | None:
        """A live read: the metadata of what bears the target's name."""
        api = _APIS[target.kind]
        try:
            answer = await self._client.get(
                api.resource, target.name, framework.namespace, metadata_only=True, flow=framework.key
            )
        except ObjectNotFound:
            return None
        return _identified(answer)


class Batch:
    """Actions of one Framework that are being carried out, while the sync that asked for them may do something else.

    Use it as a context manager, and ask for ``news`` until it is ``done``. Left earlier, requests that are under way
    are given up: they may be executed all the same.
    """

    def __init__(
        self,
        carry_out: Callable[[Action], Awaitable[Outcome]],
        actions: Iterable[Action],
        interrupted: Callable[[], bool],
        wanted: Callable[[Create], bool],
        widest: int,
    ) -> None:
        self._carry_out = carry_out
        self._interrupted = interrupted
        self._wanted = wanted
        self._widest = widest
        self._creations: deque[Create] = deque()
        self._others: deque[Action] = deque()
        self._known: set[Target] = set()
        self._under_way = 0
        self._creating = 0
        self._width = 1
        self._stopped = False
        self._outcomes: list[Outcome] = []
        self._error: Exception | None = None
        self._workers: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self.add(actions)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    @property
    def done(self) -> bool:
        """Whether nothing is under way, and nothing will be: ``news`` has told of everything."""
        return not (self._workers or self._creations or self._others or self._outcomes or self._error)

    @property
    def is_creating(self) -> bool:
        """Whether creations are under way, or will be."""
        return bool(self._creating or self._creations)

    def __contains__(self, target: Target) -> bool:
        """Whether an action is about that one of which ``news`` has not told yet."""
        return target in self._known

    def add(self, actions: Iterable[Action]) -> None:
        """Carry these out, too. Each must be about something that no other one of the batch is about."""
        for action in actions:
            self._known.add(action.target)
            if isinstance(action, Create):
                self._creations.append(action)
            else:
                self._others.append(action)

    def stop(self) -> None:
        """Start no more; those are told as not attempted."""
        self._stopped = True

    async def news(self, seconds: float | None = None) -> list[Outcome]:
        """What became of actions since this was asked last, in the order in which it became known.

        Returns once all are carried out, or after so many seconds.
        """
        if not self._workers and len(self._creations) + len(self._others) == 1:
            await self._work(self._next())
        else:
            self._spawn()
            if self._workers:
                self._idle.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._idle.wait()
        if self._error is not None:
            raise self._error
        outcomes, self._outcomes = self._outcomes, []
        if not self._workers:
            outcomes += [Outcome(action, NotAttempted()) for action in (*self._others, *self._creations)]
            self._others.clear()
            self._creations.clear()
        self._known.difference_update(outcome.action.target for outcome in outcomes)
        return outcomes

    def _next(self) -> Action | None:
        if self._under_way == self._widest or self._stopped or self._interrupted():
            return None
        if self._others:
            self._under_way += 1
            return self._others.popleft()
        while self._creations and self._creating < self._width:
            creation = self._creations.popleft()
            if self._wanted(creation):
                self._under_way += 1
                self._creating += 1
                return creation
            self._outcomes.append(Outcome(creation, NotAttempted()))
        return None

    def _spawn(self) -> None:
        while (action := self._next()) is not None:
            worker = asyncio.create_task(self._work(action))
            self._workers.add(worker)
            worker.add_done_callback(self._ended)

    def _ended(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if not self._workers:
            self._idle.set()

    async def _work(self, action: Action | None) -> None:
        try:
            while action is not None:
                outcome = await self._carry_out(action)
                self._under_way -= 1
                self._outcomes.append(outcome)
                if _holds_back_others(outcome):
                    self._stopped = True
                if isinstance(action, Create):
                    self._creating -= 1
                    if self._width < self._widest and not self._stopped:
                        self._width = self._widest
                        self._spawn()
                action = self._next()
        except Exception as error:  # noqa: BLE001 - it is raised where somebody waits for it
            self._error = error
            self._stopped = True


def _holds_back_others(outcome: Outcome) -> bool:
    """Whether the actions that follow would fare no better. A final refusal of one Pod says nothing of the next Task's,
    which has to hear its own.
    """
    match outcome:
        case Outcome(Create(target=Target(kind=Kind.POD)), Refused() as refusal):
            return classify_creation_refusal(refusal) is None
        case Outcome(Create(), Exists(found=None)) | Outcome(_, Refused() | Unanswered()):
            return True
    return False


def _refusal_or_nothing(error: ApiError) -> Refused | Unanswered:
    if isinstance(error, ServerError) and not _is_final(error):
        # A 504 may follow a write that was done: the outcome is unknown.
        return Unanswered(f"{error.code}: {error.message}")
    if not error.is_of_api and not isinstance(error, TooManyRequests):
        # The API server has not refused what a gateway does not let through: no Task is completed by that.
        return Unanswered(error.message)
    return _refused(error)


def _is_final(error: ApiError) -> bool:
    """Whether the API server has refused to create a Pod for good."""
    return error.is_of_api and classify_creation_refusal(_refused(error)) is not None


def _refused(error: ApiError) -> Refused:
    return Refused(error.code, error.message, orjson.dumps(error.status), error.retry_after or 0.0, error.reason)


def _identified(answer: bytes) -> dict[str, Any]:
    """The metadata of the object that was answered."""
    metadata = _metadata(answer)
    if not isinstance(metadata.get("uid"), str):
        raise _no_object(answer)
    return metadata


def _metadata(answer: bytes) -> dict[str, Any]:
    """The metadata of what was answered; those of a Status are empty."""
    with suppress(ValueError, KeyError, TypeError):
        metadata = orjson.loads(answer)["metadata"]
        if isinstance(metadata, dict):
            return metadata
    raise _no_object(answer)


def _no_object(answer: bytes) -> TransportError:
    return TransportError(f"the API server's answer is not an object: {answer[:100]!r}")
