"""Machines next to a Framework's own, by the same protocol, for objects that it does not decide on."""

from __future__ import annotations

from collections.abc import Generator

from frameworkcontroller.machine.kernel.model import require
from frameworkcontroller.machine.kernel.protocol import (
    Archive,
    Call,
    Done,
    Effect,
    Instruction,
    ReadLive,
    RequeueError,
    View,
    Wait,
)
from frameworkcontroller.machine.kernel.requests import Answer, Request


class Aside:
    """A machine with one exchange of requests a pass, which returns the seconds until the next pass."""

    def __init__(self, key: str, uid: str) -> None:
        """``key``, ``uid``: of the Framework."""
        self.key, self.uid = key, uid
        self.name = key.partition("/")[2]
        self._effects: list[Effect] = []
        self._call: Call | None = None
        """The call in flight."""
        self._exchange: Generator[Request, Answer, float | None] | None = None
        self._done: Done | None = None

    def exchange(self, view: View) -> Generator[Request, Answer, float | None]:
        """The requests of a pass. Return the seconds until the next one, None for never.

        Raises:
            RequeueError: a transient failure.
        """
        raise NotImplementedError

    def due(self, view: View) -> Call | Done:  # noqa: ARG002 - for subclasses
        """The call of the pass, or the time of the next one."""
        return ReadLive()

    def next(self, view: View) -> Instruction:
        """One call, and the end of the pass."""
        if self._call is not None:
            return Wait()
        done, self._done = self._done, None
        instruction = done or self.due(view)
        self._call = None if isinstance(instruction, Done) else instruction
        return instruction

    def begin(self, call: Call, view: View) -> Request | None:  # noqa: ARG002 - there is one call
        """The first request."""
        self._exchange = self.exchange(view)
        return self._advance(None)

    def on_answer(self, call: Call, answer: Answer) -> Request | None:  # noqa: ARG002 - there is one call
        """The request after ``answer``; None: the pass is over."""
        return self._advance(answer)

    def effects(self) -> list[Effect]:
        """Take the effects that are due before the next request."""
        effects, self._effects = self._effects, []
        return effects

    def on_archived(self, archive: Archive, answer: Answer) -> None:
        """Take the answer of the history."""

    def is_large(self, call: Call, view: View) -> bool:  # noqa: ARG002 - as a reconciler has
        """False: statuses are read, not written."""
        return False

    def stop(self) -> None:
        """Do nothing: a pass is short."""

    def give_up(self) -> None:
        """Forget the requests in flight, which get no answer."""
        self._call = self._exchange = None

    def _advance(self, answer: Answer | None) -> Request | None:
        exchange = require(self._exchange, "exchange")
        try:
            return next(exchange) if answer is None else exchange.send(answer)
        except StopIteration as end:
            self._done = Done(end.value)
        except RequeueError as error:
            self._done = Done(error=error.with_traceback(None))
        self.give_up()
        return None
