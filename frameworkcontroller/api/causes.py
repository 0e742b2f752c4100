"""Why a Task failed or does not run, in one line: Task, node, and the words of the program or the cluster.

Every surface shows these sentences: ``status.message``, the commands and the pages.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, Final

import orjson

from frameworkcontroller.api.completion import CompletionStatus, ContainerCompletion, PodCompletion
from frameworkcontroller.api.status import FirstFailure, TaskStatus

MOST: Final = 256
"""Characters of a sentence. The cause comes first, so a longer one loses its end."""

POD_REFUSED: Final = "Failed to create Pod: "
"""Precedes the answer of the API server in the diagnostics of a refused Pod (contract)."""

_FAILED: Final = re.compile(r"Pod failed: PodPattern (?:un)?matched: (?=\{)")
"""Precedes the Pod as JSON in the diagnostics of a failed Pod (contract)."""

_VARIABLE: Final = re.compile(r"0x[0-9a-f]+|\b(?=[a-f]*\d)[0-9a-f]{8,}\b|\d+", re.IGNORECASE)
"""Numbers and hexadecimal ids: indexes, addresses, times, UIDs."""


def task_sentence(task: TaskStatus, why: str = "") -> str:
    """Return ``worker[3] on node-7: main exited with 137 (OOMKilled): CUDA out of memory``.

    ``why``: the reason if the attempt has not ended.
    """
    completion = task.attempt.completion_status
    where = f" on {task.attempt.pod_node_name}" if task.attempt.pod_node_name else ""
    return f"{task.role}[{task.index}]{where}: {why or ('' if completion is None else cause(completion))}"


def failure_sentence(failure: FirstFailure) -> str:
    """Return the sentence of `task_sentence` for a failure."""
    where = f" on {failure.node_name}" if failure.node_name else ""
    return f"{failure.task_role_name}[{failure.task_index}]{where}: {failure.message}"


def cause(completion: CompletionStatus) -> str:
    """Return why an attempt ended: by its Pod or container, or else by the controller."""
    pod = completion.pod
    if pod is None:
        return cause_in(completion.diagnostics)
    return _of_pod(pod) or one_line(completion.diagnostics)


def _of_pod(pod: PodCompletion) -> str:
    message = one_line(pod.message)
    if any(last_line(one.message) == message for one in pod.containers):
        message = ""  # the container's end has it
    parts = [": ".join(filter(None, (one_line(pod.reason), message)))]
    parts += [container_end(one) for one in pod.containers if one.code or one.signal or one.message]
    if not any(parts):
        # A container that never ran, or ran on, has code 0 too; only one that has ended has a reason.
        parts += [f"{one.name} did not end by itself" for one in pod.containers if not one.reason]
    return "; ".join(filter(None, parts))


def container_end(container: ContainerCompletion) -> str:
    """Return ``main exited with 137 (OOMKilled): CUDA out of memory``, with the last line of its message."""
    end = f"was ended by signal {container.signal}" if container.signal else f"exited with {container.code}"
    reason = f" ({one_line(container.reason)})" if container.reason not in ("", "Error", "Completed") else ""
    words = last_line(container.message)
    return f"{one_line(container.name)} {end}{reason}{f': {words}' if words else ''}"


def cause_in(diagnostics: str) -> str:
    """Return the cause in the diagnostics of an attempt: an entry of an archive has nothing else."""
    if failed := _FAILED.match(diagnostics):
        with suppress(orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError):
            return _of_json(orjson.loads(diagnostics[failed.end() :])) or one_line(diagnostics)
    if not diagnostics.startswith(POD_REFUSED):
        return one_line(diagnostics)
    answer = diagnostics.removeprefix(POD_REFUSED)
    with suppress(orjson.JSONDecodeError, KeyError, TypeError):
        # The message in the API server's answer is for people.
        answer = str(orjson.loads(answer)["ErrStatus"]["message"])
    return f"Pod refused: {one_line(answer)}"


def _of_json(pod: dict[str, Any]) -> str:
    """Return the cause from the Pod in the diagnostics: an entry of an archive has nothing else."""
    containers = [
        ContainerCompletion(
            one["name"], one.get("code") or 0, one.get("reason") or "", one.get("message") or "", one.get("signal") or 0
        )
        for one in pod.get("containers") or ()
    ]
    return _of_pod(PodCompletion(pod.get("reason") or "", pod.get("message") or "", tuple(containers)))


def last_line(text: str) -> str:
    """The last line with words: of a traceback, the error. torchrun ends its report with a line of ``=``."""
    return next((line for one in reversed(text.splitlines()) if any(map(str.isalnum, line := one_line(one)))), "")


def one_line(text: str) -> str:
    """The text on one line of at most ``MOST`` printable characters."""
    # A container's message may have megabytes.
    line = " ".join(text[: 4 * MOST].split())
    if not line.isprintable():
        line = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)
    return line if len(line) <= MOST else f"{line[: MOST - 1]}…"


def normalized(text: str) -> str:
    """Return the text with ``#`` for numbers and ids, so that the same failure of many Tasks counts as one."""
    return _VARIABLE.sub("#", " ".join(text.split()))
