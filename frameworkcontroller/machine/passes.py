"""One pass over a Framework: plans, the actions that they ask for, and when its status is written.

Source: docs/lifecycle.md, "In order".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from frameworkcontroller.api.objects import Framework
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.actions import Action, ChangeFinalizer, Create, Outcome, needs_live_status
from frameworkcontroller.machine.kernel.batch import Batch
from frameworkcontroller.machine.kernel.exchanges import Created, Exists, FinalizersAre, NotAttempted, Outdated
from frameworkcontroller.machine.kernel.model import Env, Observed, Plan, Urgency
from frameworkcontroller.machine.kernel.protocol import Archive, Done, Outbox, ReadLive, View, WriteStatus
from frameworkcontroller.machine.kernel.requests import Answer, Kind, Target
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.knownframework import KnownFramework
from frameworkcontroller.machine.parts import PARTS
from frameworkcontroller.machine.plan import fold, fold_archived, plan
from frameworkcontroller.machine.statuswriter import StatusWriter

TICK_SEC: Final = 1.0
"""Interval of plans while actions are in flight."""

SHOW_SEC: Final = 5.0
"""Interval of status writes while actions are in flight, with which they compete for the API server."""

BATCH_SEC: Final = 120.0
"""Time after which a pass starts no more actions; the next pass continues. A long batch must not look like a hung sync
to the liveness check: 10,000 creations of ten seconds each take more than half an hour."""

PLANS_PER_PASS: Final = 8
"""Maximum number of plans in a row without an action or write; the next pass continues."""

_TIMER_SLACK_SEC: Final = 0.001


class Pass:
    """One pass, from the work queue's key to ``Done``. Times are monotonic seconds.

    While ``framework_call`` is set, nothing is folded or planned. Once ``done`` is, the batch is stopped and no call
    begins, so that no ``framework_call`` follows. Without ``done``, the pass ends when nothing is left to do.
    """

    def __init__(
        self,
        framework: Framework,
        tracker: Tracker,
        known: KnownFramework,
        writer: StatusWriter,
        outbox: Outbox,
        clock: float,
    ) -> None:
        self.framework = framework
        self.tracker = tracker
        self.batch = Batch()
        self.tick_at = 0.0
        """When to plan again while actions are in flight."""
        self.framework_call: WriteStatus | ReadLive | None = None
        """The write or read of the Framework in flight."""
        self.done: Done | None = None
        """The end of the pass if a call decided it: by an error, or by news that another pass has to plan."""
        self._known, self._writer, self._outbox = known, writer, outbox
        self._show_at = clock + SHOW_SEC
        self._stop_at = clock + BATCH_SEC
        self._planned = False
        """Whether the first plans are made."""
        self._requeue_at: float | None = None

    def is_interrupted(self, view: View) -> bool:
        """Whether the Framework is gone, or its user has changed it."""
        record, framework = view.record, self.framework
        if record is None or record.uid != framework.uid:
            return True
        return record.generation > framework.generation or (record.deletion_time is not None) > framework.deleting

    def is_wanted(self, action: Action) -> bool:
        if not isinstance(action, Create):
            # Even if no more are started: where slots are scarce, every pass would drop it.
            return True
        # An earlier creation whose answer was lost may have created the Pod.
        target, part = action.target, PARTS.of(action.target)
        if target.kind is Kind.POD and not self._awaits_pod(target):
            return False
        if part is not None and not part.is_wanted(self.tracker, target):
            return False
        return not self.batch.stopped

    def _awaits_pod(self, target: Target) -> bool:
        task = self.tracker.task((target.role, target.index))
        if task is None or (task.instance_uid, task.attempt.id) != (target.instance, target.attempt_id):
            return False
        return task.state is State.CREATION_PENDING

    def decide(
        self, view: View, answers: Sequence[tuple[Archive, Answer]], *, stopping: bool
    ) -> WriteStatus | ReadLive | None:
        """Fold outcomes and answers, plan actions into the batch, and return the next write or read of the Framework.

        To be called only while no write or read is in flight. ``stopping``: write the status at once.
        """
        batch, env = self.batch, view.env
        self.tick_at = env.clock + TICK_SEC
        if (outcomes := batch.take()) and any(isinstance(outcome.action, Create) for outcome in outcomes):
            self._writer.pacing.created_at = env.clock
        self._fold(outcomes, env)
        if answers and self.tracker.status is not None:
            self._add(fold_archived(self.framework, self.tracker, answers, env), env)
        if self.done:
            return None
        if self._writer.must_write:
            if (too_early := self._writer.wait_sec(self.tracker, env.clock)) > 0:
                self._requeue(too_early, env.clock)
                return None
            return WriteStatus()
        read = None
        if not self._planned:
            read = self._plan_first(view)
        elif batch.is_open and not batch.stopped:
            read = self._plan_more(view)
        call = read or self._write_if_due(env, stopping=stopping)
        return ReadLive() if call is None and not batch.is_open and self._is_outdated(view) else call

    def catch_up(self, view: View, framework: Framework) -> None:
        """Plan the events since a write was decided: the busier the API server, the more each write contains."""
        self.done = Done(0.0)
        self.leave(self._plan(framework, view.observe(creating=False), view.env).actions, view.env)

    def leave(self, actions: Sequence[Action], env: Env) -> None:
        """Do not carry out actions now: the next plan decides on them again."""
        self._fold([Outcome(action, NotAttempted()) for action in actions], env)

    def wrote(self, clock: float) -> None:
        self._show_at = clock + SHOW_SEC

    def take_over(self, tracker: Tracker, done: Done) -> None:
        """End with ``done``, as another writer has stored a status, with that ``tracker``."""
        self.tracker, self.done = tracker, done

    def end(self, clock: float) -> Done:
        tracker = self.tracker
        if tracker.urgency is Urgency.NONE:
            # No write will follow: a request failed the first time, or the Framework was deleted.
            self._outbox.emit_records()
        if self.done:
            return self.done
        if tracker.is_busy and not self._writer.must_write:
            return Done(0.0)
        if tracker.status is not None and tracker.status.state is State.COMPLETED and tracker.is_clean:
            self._known.save_memory()
            tracker.drop_encoded()
            tracker.process.spec = None
        return Done(None if self._requeue_at is None else max(0.0, self._requeue_at - clock))

    # --- plans ---

    def _plan_first(self, view: View) -> ReadLive | None:
        """Plan until there are actions, an urgent change, or no work."""
        tracker, env = self.tracker, view.env
        if self._known.must_confirm(tracker.status, env.limits):
            return ReadLive()
        self._planned = True
        observed = view.observe(creating=False)
        step = Plan()
        for _ in range(PLANS_PER_PASS):
            step = self._plan(self.framework, observed, env)
            if step.actions or tracker.urgency is Urgency.NOW or not tracker.is_busy:
                break
        self._requeue(step.requeue_after, env.clock)
        return self._propose(step.actions, env)

    def _plan_more(self, view: View) -> ReadLive | None:
        """Plan the events since the last plan while actions are in flight.

        After an urgent change, no more actions are started, and it is persisted when none is in flight: no Pod is
        created for an attempt that the stored status shows as over.
        """
        batch, tracker, env = self.batch, self.tracker, view.env
        step = self._plan(self.framework, view.observe(creating=batch.is_creating), env)
        self._requeue(step.requeue_after, env.clock)
        # A creation is awaited; other actions are planned again after their outcome.
        self.leave([one for one in step.actions if one.target in batch and not isinstance(one, Create)], env)
        read = self._propose([action for action in step.actions if action.target not in batch], env)
        if tracker.urgency is Urgency.NOW or tracker.is_completing or env.clock >= self._stop_at:
            batch.stopped = True
        return read

    def _plan(self, framework: Framework, observed: Observed, env: Env) -> Plan:
        step = plan(framework, self.tracker, observed, env)
        self._outbox.add_plan(step, self._known.stored.resource_version)
        return step

    def _propose(self, actions: list[Action], env: Env) -> ReadLive | None:
        """Queue actions; return a live read that must come first if they rest on a status only the cache has shown."""
        if self.batch.stopped:
            self.leave(actions, env)
        elif self._known.stored.confirmed and not any(map(needs_live_status, actions)):
            self.batch.add(actions)
        elif actions:
            # Also for an unrecorded object: a status that another controller has just written may record it.
            return ReadLive(actions)
        return None

    def _is_outdated(self, view: View) -> bool:
        """Whether the status may be outdated that gives nothing to do: the cache shows a later version than its own.

        Without that, an outdated status does no harm: live reads come before actions, and writes have preconditions.
        """
        record, tracker = view.record, self.tracker
        if record is None or record.uid != self.framework.uid or not self._known.is_behind(record):
            return False
        return not self._known.stored.confirmed and tracker.status is not None and tracker.urgency is Urgency.NONE

    def _write_if_due(self, env: Env, *, stopping: bool) -> WriteStatus | None:
        tracker, clock = self.tracker, env.clock
        if tracker.urgency is Urgency.NONE:
            return None
        early = self._writer.pacing.due(tracker, clock, env.answer_sec) - clock
        if self.batch.is_open:
            is_due = early <= 0 and (clock >= self._show_at or (tracker.agenda.is_awaited and self.batch.is_long))
            return WriteStatus() if is_due and not self.batch.stopped else None
        if early > _TIMER_SLACK_SEC and not stopping:
            # End the pass: settled Tasks need not wait for this write.
            self._requeue(early, clock)
            return None
        # Work that is left is for the next pass; only new events may join this write.
        return WriteStatus(catch_up=not tracker.is_busy)

    # --- outcomes ---

    def _fold(self, outcomes: list[Outcome], env: Env) -> None:
        if not outcomes:
            return
        for outcome in outcomes:
            action, result = outcome.action, outcome.result
            if isinstance(result, FinalizersAre):
                if (held := self._known.finalizers_are(result)) is not None:
                    self.framework = replace(self.framework, held=held)
            elif isinstance(action, ChangeFinalizer) and isinstance(result, Outdated):
                self._known.stored.confirmed = False
            is_recorded = PARTS.of(action.target) is None
            if is_recorded and isinstance(action, Create) and isinstance(result, Created | Exists):
                # Without the body, which may be large.
                self._writer.unwritten_creations.append(replace(outcome, action=replace(action, source=b"")))
        self._add(fold(self.framework, self.tracker, outcomes, env), env)

    def _add(self, folded: Plan, env: Env) -> None:
        self._outbox.add_plan(folded, self._known.stored.resource_version)
        self._requeue(folded.requeue_after, env.clock)

    def _requeue(self, seconds: float | None, clock: float) -> None:
        """Let the next pass begin ``seconds`` after ``clock`` at the latest."""
        if seconds is not None and (self._requeue_at is None or clock + seconds < self._requeue_at):
            self._requeue_at = clock + seconds
