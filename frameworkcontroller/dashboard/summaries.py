"""What is kept of each live Framework: a row of the list, which is much smaller than the object."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from frameworkcontroller.api.codec import decode_completion
from frameworkcontroller.api.problems import ProblemError
from frameworkcontroller.api.status import State
from frameworkcontroller.views.apiobjects import key_of
from frameworkcontroller.views.diagnosis import (
    NOT_SEEN,
    Phase,
    cause,
    phase_before_end,
    phase_of_end,
    result,
    trigger,
)
from frameworkcontroller.views.summary import Summary, summarize
from frameworkcontroller.views.texts import counted

UNREADABLE: Final = "unreadable status"

WORDS: Final = ("stalled", "being deleted", "suspended", "queued")
"""What a Framework that has not completed waits for, the most important one first, if it is not in its phase."""

_PHASES: Final = tuple(Phase)


@dataclass(frozen=True, slots=True)
class LiveFramework:
    """A live Framework, for the list. ``phases``: numbers of Tasks, in the order of `Phase`; ``tasks``: in the spec.

    The other fields are those of `FrameworkRow`.
    """

    key: str
    uid: str
    resource_version: str
    namespace: str
    name: str
    created: int
    phase: str
    state: str
    word: str
    why: str
    result: str
    attempt: int
    retries: int
    task_retries: int
    phases: tuple[int, ...]
    tasks: int
    started: int | None
    ended: int | None
    queue: str


def live_framework(body: Mapping[str, Any]) -> LiveFramework:
    """Summarize an API object. One that cannot be read is summarized as such."""
    found = summarize(body)
    phase, why, end = _end_or_wait(found, body.get("status") or {})
    word = _word(found)
    if phase is Phase.RUNNING and not why and found.phases[Phase.WAITING] == sum(found.phases.values()) > 0:
        why = f"none of its {counted(found.total, 'Task')} runs yet" if found.total > 1 else "its Task does not run yet"
        phase = Phase.WAITING
    elif why and not word and not found.completed and not found.unreadable and phase is not Phase.FAILED:
        phase = Phase.WAITING
    metadata = body["metadata"]
    return LiveFramework(
        key=key_of(body),
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        namespace=sys.intern(found.namespace),
        name=found.name,
        created=found.created,
        phase=phase.label,
        state=UNREADABLE if found.unreadable else found.state or NOT_SEEN,
        word=word,
        why=why,
        result=sys.intern(end),
        attempt=found.attempt,
        retries=found.retries,
        task_retries=found.task_retries,
        phases=tuple(found.phases[phase] for phase in _PHASES),
        tasks=found.total,
        started=found.start_time,
        ended=found.completion_time,
        queue=sys.intern(found.queue),
    )


def _end_or_wait(found: Summary, status: Mapping[str, Any]) -> tuple[Phase, str, str]:
    """Return the phase, why it waits or why it ended, and the result of the attempt."""
    if found.unreadable:
        return Phase.FAILED, "", ""
    if not found.state:
        return Phase.WAITING, found.why or NOT_SEEN, ""
    try:
        body = status["attemptStatus"].get("completionStatus")
        completion = None if body is None else decode_completion(body)
    except ProblemError as error:
        return Phase.FAILED, str(error), ""
    state = State(found.state)
    if state is State.COMPLETED:
        phase = phase_of_end(completion)
    else:
        phase = phase_before_end(state, (status.get("retryPolicyStatus") or {}).get("retryDelaySec"))
    why = found.why
    if completion is not None and not why and not completion.succeeded:
        why = trigger(completion).removeprefix(", ") or cause(completion)
    return phase, why, result(completion)


def _word(found: Summary) -> str:
    if found.completed or found.unreadable:
        return "being deleted" if found.deleting else ""
    holds = (found.stalled, found.deleting, found.suspended == "True", found.queued)
    return next((word for word, one in zip(WORDS, holds, strict=True) if one), "")
