"""How records put into words what they tell of."""

from __future__ import annotations

from frameworkcontroller.api.completion import CompletionStatus


def tasks(count: int) -> str:
    """So many Tasks."""
    return "1 Task" if count == 1 else f"{count} Tasks"


def brief(completion: CompletionStatus) -> str:
    """How an attempt ended, in two words."""
    return f"{completion.code} {completion.phrase}"


def describe(completion: CompletionStatus) -> str:
    """How an attempt ended, in one line: what there is most of comes last, where it may be cut off."""
    trigger = completion.trigger
    by = ""
    if trigger is not None:
        # Of all Tasks completed, the trigger and the diagnostics say the same.
        said = "" if trigger.message == completion.diagnostics else f": {trigger.message}"
        by = f" (Task {trigger.task_role_name}[{trigger.task_index}]{said})"
    return f"{brief(completion)}{by}: {completion.diagnostics}"
