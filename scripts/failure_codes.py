"""Prints docs/failure-codes.md: every completion code, from where each is defined.

Run as `.venv/bin/python scripts/failure_codes.py > docs/failure-codes.md`; a test says when that is due.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from frameworkcontroller.api import completion
from frameworkcontroller.config.config import SHIPPED_CONFIG_FILE, shipped_config
from frameworkcontroller.config.failurespec import ContainerPatternConfig, IntRange, PodPatternConfig

CONTRACT: Final = {
    0: "Every container of the Pod exited with 0. Of a Framework: its completion policy says so.",
    200: "A container exited with 200: it knows that another try may well succeed.",
    201: "A container exited with 201: likewise, but not at once: others are in its way. `frameworkbarrier` ends so.",
    210: "A container exited with 210: it knows that another try is no use.",
    -100: "Somebody deleted the ConfigMap of the attempt.",
    -101: "Somebody deleted the Pod, and Kubernetes does not say why: `kubectl delete`, for one.",
    -110: "The ConfigMap was created, and not seen within `objectLocalCacheCreationTimeoutSec`.",
    -111: "The Pod was created, and not seen within `objectLocalCacheCreationTimeoutSec`.",
    -120: "The Pod could not be created for now. It is tried again, so nothing ever ends with this.",
    -200: "The API server refused the Pod as invalid or too large (reason `Invalid`; 413).",
    -210: "Somebody set `executionType: Stop`.",
    -220: "The attempt was over, by its completion policy or by Stop, before the Task was.",
    -230: "A rescale removed the Task.",
    -300: "The Pod failed, no entry of `podFailureSpec` matches, and none of its containers did.",
    -310: "The API server refused the Pod otherwise (reason `BadRequest` or `Forbidden`).",
}

HEAD: Final = """\
# Completion codes

This page is to look up why an attempt ended, and to choose codes for a `podFailureSpec` of your own. The
[manual](manual.md#how-an-attempt-ends) introduces codes.

`completionStatus.code` and `.phrase` in the status say how an attempt of a Task or a Framework ended. The attributes
decide about retries under `fancyRetryPolicy`:

- A Transient failure is retried and is not counted. A whole Framework is retried after a delay if the failure
  is also Conflict.
- A Permanent failure is not retried.
- Any other failure counts against `maxRetryCount`.

Codes -210, -220 and -230 are never retried.

A failed Pod is classified in this order; the first match wins:

1. the exit codes of the contract, 200, 201 and 210;
2. `podFailureSpec` of the [configuration](configuration.md), in order. Without a configuration file, that is the
   shipped one, below;
3. -300 if no container failed, else the exit code of the container that was the last to fail, with the phrase
   `ContainerUnrecognizedFailed`.

Native sidecars (init containers with `restartPolicy: Always`) are left out: they end because their Pod does. The
status and the diagnostics of an unmatched Pod list them all the same.

The diagnostics quote what matched: `Pod failed: PodPattern matched: {"reason":"Evicted","message":"…"}`, or, if
nothing did, all that the Pod said: `Pod failed: PodPattern unmatched: {…}`.

Free for entries of your own: 1 to 128, 193 to 199, 220 to 255, and everything below -1399.

## Codes of the contract
"""

SHIPPED: Final = """
## Codes of the shipped configuration

From [default-config.yaml](../frameworkcontroller/config/default-config.yaml). Reasons are matched as a whole, in upper
or lower case. -1008 to -1012 are also given to Pods that Kubernetes deletes ([below](#deleted-pods)).
"""

TAIL: Final = """
## What never gets a code

- A container that cannot be created (`CreateContainerError`, `CreateContainerConfigError`, `ErrImagePull`,
  `ImagePullBackOff`, `InvalidImageName`): its node tries again for ever, and the Pod stays Pending. With CRI-O, this
  is also how a command that does not exist ends, where containerd gives `StartError`. Give such a Pod
  `activeDeadlineSeconds`, and it ends with -1004.
- A Pod whose volumes cannot be attached or mounted (`FailedAttachVolume`, `FailedMount`), or whose sandbox or network
  cannot be made (`FailedCreatePodSandBox`): likewise, and only its Events say so. `kubectl framework status` quotes the
  last one.
- A Pod for which the scheduler finds no node: it stays Pending.

## Deleted Pods

A Pod that is deleted before it is seen to have failed gets -101, or one of -1008 to -1012 by the reason of its
condition `DisruptionTarget` (Kubernetes 1.26 and later). Its containers and `podFailureSpec` do not count, so these
codes hold with any configuration. A Pod that has failed and would get -300 gets the code of that condition, too.
"""


def document() -> str:
    """The whole text."""
    lines = [HEAD, *table(("code", "phrase", "attributes", "when"), contract_rows())]
    lines.append(SHIPPED)
    lines += table(("code", "phrase", "attributes", "when", "matches"), shipped_rows())
    lines.append(TAIL)
    return "\n".join(lines)


def contract_rows() -> Iterator[tuple[str, ...]]:
    for code in completion.PREDEFINED.values():
        kind = code.type_name if code.type_name == completion.SUCCEEDED else attributes(code.attributes)
        yield str(code.code), code.phrase, kind, CONTRACT[code.code]


def shipped_rows() -> Iterator[tuple[str, ...]]:
    said = remarks()
    for entry in shipped_config().pod_failure_spec:
        matches = "; or ".join(unique(pattern_text(pattern) for pattern in entry.pod_patterns))
        yield str(entry.code), entry.phrase, attributes(entry.type.attributes), said[entry.code], matches


def remarks() -> dict[int, str]:
    """What the file's comments say of each code: the lines right above it."""
    said: dict[int, str] = {}
    comment: list[str] = []
    for line in SHIPPED_CONFIG_FILE.read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if text.startswith("# "):
            comment.append(text[2:])
            continue
        if entry := re.fullmatch(r"- code: (-?\d+)", text):
            said[int(entry.group(1))] = " ".join(comment)
        comment = []
    return said


def pattern_text(pattern: PodPatternConfig) -> str:
    """What a Pod must be like, in words."""
    said = fields("Pod", pattern.reason_regex, pattern.message_regex)
    for container in pattern.containers:
        said += fields("container", container.reason_regex, container.message_regex)
        said += ranges(container)
    return ", ".join(said)


def fields(whose: str, reason: str, message: str) -> list[str]:
    said = []
    if reason:
        inner = reason.removeprefix("(?i)^").removesuffix("$")
        words = inner[1:-1].split("|") if re.fullmatch(r"\([\w|]+\)", inner) else [inner]
        said.append(f"{whose} reason " + " or ".join(f"`{word}`" for word in words))
    if message not in ("", "(?s).*"):
        verb = "has" if message.startswith("(?is)^.*") else "is"
        inner = message.removeprefix("(?is)^.*").removesuffix(".*$").removeprefix("(?i)^").removesuffix("\\s*$")
        said.append(f"its message {verb} `{inner}`")
    return said


def ranges(container: ContainerPatternConfig) -> list[str]:
    code = container.code_range
    return [f"exit code {range_text(code)}"] if code != IntRange() else []


def range_text(numbers: IntRange) -> str:
    if numbers.min == numbers.max:
        return str(numbers.min)
    return f"{numbers.min} or more" if numbers.max is None else f"{numbers.min} to {numbers.max}"


def attributes(given: Sequence[str] | None) -> str:
    return ", ".join(given) if given else "none"


def unique(items: Iterator[str]) -> list[str]:
    return list(dict.fromkeys(items))


def table(head: Sequence[str], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    """A table in Markdown; bars within its cells are escaped."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


if __name__ == "__main__":
    print(document(), end="")
