"""How times, counts and ends of attempts are said to people."""

from __future__ import annotations

from typing import Final

import orjson

from frameworkcontroller.api.completion import CompletionStatus

MOST_OF_A_TEXT: Final = 300

_REFUSED: Final = "Failed to create Pod: "


def duration(seconds: float) -> str:
    """A span of time in its two greatest units: ``45s``, ``3m12s``, ``2h5m``, ``4d3h``."""
    whole = max(0, int(seconds))
    for size, unit, smaller_size, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{whole // size}{unit}{f'{rest}{smaller}' if rest else ''}"
    return f"{whole}s"


def counted(number: int, one: str, many: str | None = None) -> str:
    """``1 Task``, ``2 Tasks``, ``10,000 Tasks``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def code_and_phrase(completion: CompletionStatus | None) -> str:
    """``137 ContainerSigKillReceived``; empty while nothing has ended."""
    return "" if completion is None else code_and_phrase_of(completion.code, completion.phrase)


def code_and_phrase_of(code: int, phrase: str) -> str:
    """``137 ContainerSigKillReceived``."""
    return f"{code} {tame(phrase)}".rstrip()


def why(completion: CompletionStatus) -> str:
    """What the attempt ended by, in the words of whoever knows best: its Pod, or else the controller."""
    pod = completion.pod
    if pod is None:
        return tame(_without_json(completion.diagnostics))
    parts = [": ".join(part for part in (pod.reason, pod.message) if part)]
    for container in pod.containers:
        if container.code or container.message:
            said = ": ".join(part for part in (container.reason, container.message) if part)
            ended = f"signal {container.signal}" if container.signal else f"exit code {container.code}"
            parts.append(f"container {container.name}: {ended}{f': {said}' if said else ''}")
    if not any(parts) and pod.containers:
        # Code 0 is also that of a container that never ran, or ran on; only one that has ended has a reason.
        parts += [f"container {one.name} did not end by itself" for one in pod.containers if not one.reason]
    return tame("; ".join(part for part in parts if part) or completion.diagnostics)


def by_policy(completion: CompletionStatus) -> str:
    """Which Task met which completion policy, as the end of a sentence; empty if none was met.

    Of an attempt whose Tasks have all completed the counts say more than the Task that was the last.
    """
    trigger = completion.trigger
    if trigger is None or not trigger.task_role_name or trigger.message == completion.diagnostics:
        return ""
    return f", by {trigger.task_role_name}[{trigger.task_index}]: {trigger.message}"


def _without_json(diagnostics: str) -> str:
    """Of a Pod that was refused, diagnostics hold the API server's whole answer; its message is what is for people."""
    if not diagnostics.startswith(_REFUSED):
        return diagnostics
    try:
        return f"{_REFUSED}{orjson.loads(diagnostics.removeprefix(_REFUSED))['ErrStatus']['message']}"
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return diagnostics


def harmless(text: str) -> str:
    """The text with a blank in place of each character, but for ends of lines, that a terminal may act upon."""
    return "\n".join(line if line.isprintable() else _blanked(line) for line in text.split("\n"))


def _blanked(line: str) -> str:
    return "".join(char if char.isprintable() else " " for char in line)


def tame(text: str, most: int = MOST_OF_A_TEXT) -> str:
    """Text that a container wrote, on one line, shortened, and without what terminals act upon."""
    tamed = harmless(" ".join(text.split()))
    return tamed if len(tamed) <= most else f"{tamed[: most - 1]}…"
