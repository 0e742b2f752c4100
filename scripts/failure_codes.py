"""Print docs/failure-codes.md, every completion code, from the code and the configuration.

Run as `.venv/bin/python scripts/failure_codes.py > docs/failure-codes.md`; a test says when that is due.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from frameworkcontroller.api import completion
from frameworkcontroller.api.failurespec import ContainerPattern, IntRange, PodPattern, Regex
from frameworkcontroller.config.config import SHIPPED_CONFIG_FILE, shipped_config

CONTRACT: Final = {
    0: "All containers of the Pod exited with 0. For a Framework: its completion policy determined success.",
    200: "A container exited with 200: a retry may succeed.",
    201: "A container exited with 201: a retry may succeed later, when others no longer conflict with it. "
    "`frameworkbarrier` exits with this code.",
    210: "A container exited with 210: no retry can succeed.",
    -100: "A client deleted the ConfigMap of the attempt.",
    -101: "The Pod was deleted without a reason from Kubernetes, for example by `kubectl delete`.",
    -110: "The ConfigMap was created, but not seen within `objectLocalCacheCreationTimeoutSec`.",
    -111: "The Pod was created, but not seen within `objectLocalCacheCreationTimeoutSec`.",
    -120: "The Pod could not be created because of a transient error. It is retried, so no attempt ends with it.",
    -200: "The API server rejected the Pod as invalid or too large (reason `Invalid`; 413).",
    -210: "A user set `executionType: Stop`.",
    -220: "The attempt ended before the Task, by its completion policy or by Stop.",
    -230: "A rescale removed the Task.",
    -240: "A user set `suspend: true`.",
    -241: "Kueue evicted the Framework, or the running Pods differ from its admission.",
    -242: "The Pod template of its role has changed, and `updateStrategy.type` is `RollingUpdate`.",
    -250: "All attempts together were active for longer than `activeDeadlineSeconds`.",
    -252: "`progress.deadlineSeconds` passed without progress, or `startDeadlineSeconds` without a first report.",
    -260: "The Pod did not run within `preRunningDeadlineSeconds` after its creation.",
    -261: "The Pod fitted on no node for `avoidNodes.relaxAfterSeconds`: the next one avoids a node less.",
    -300: "The Pod failed without a failed container, and no entry of `podFailureSpec` matches.",
    -310: "The API server rejected the Pod for another reason (`BadRequest` or `Forbidden`).",
}

HEAD: Final = """\
# Completion codes

`completionStatus.code` and `.phrase` in the status show how an attempt of a Task or a Framework ended
([introduction](failures-and-retries.md#how-an-attempt-ends)). The attributes decide about retries
under `fancyRetryPolicy`:

- A Transient failure is retried and not counted. If it is also Conflict, a Framework is retried after a delay.
- A Permanent failure is not retried.
- Any other failure counts against `maxRetryCount`.

Codes -210, -220, -230 and -250 are never retried. -240, -241, -242 and -261 are always retried, without a count or
delay: once the Framework is resumed, Kueue admits it again, or at once.

A failed Pod is classified in this order; the first match wins:

1. the predefined exit codes 200, 201 and 210;
2. `podFailureSpec` of the [configuration](configuration.md), in order; without a configuration file, the shipped one
   below;
3. -300 if no container failed, otherwise the exit code of the container that failed last, with the phrase
   `ContainerUnrecognizedFailed`. One below 0, as on Windows, is none of the codes below.

Native sidecars (init containers with `restartPolicy: Always`) do not count. The diagnostics quote the matched fields,
`Pod failed: PodPattern matched: {"reason":"Evicted","message":"…"}`, or the whole status of the Pod:
`Pod failed: PodPattern unmatched: {…}`.

Codes for your own entries: 1 to 128, 193 to 199, 220 to 255, and everything below -1399.

## Predefined codes
"""

SHIPPED: Final = """
## Codes of the shipped configuration

From [default-config.yaml](../frameworkcontroller/config/default-config.yaml). A reason is matched as a
whole, in upper or lower case; of a container, with an exit code of 1 or more unless the row has others. -1008 to -1012
also apply to Pods that Kubernetes deletes ([below](#deleted-pods)).
"""

CASCADES: Final = """
## Consequences

When a container fails, others lose their connection to it and fail, too. The shipped configuration has entries with
`cascade: true` for the words of PyTorch, NCCL, Gloo, MPI and torchrun in this case. They have no code and change none:
[`status.firstFailure`](configuration.md#podfailurespec) does not name such a container unless nothing else failed. The
termination message of a container has one of these words:
"""

TAIL: Final = """
## Failures without a code

- A container that cannot be created (`CreateContainerError`, `CreateContainerConfigError`, `ErrImagePull`,
  `ImagePullBackOff`, `InvalidImageName`): the node retries indefinitely, and the Pod stays Pending. With CRI-O, so does
  a command that does not exist; containerd reports `StartError`. With `activeDeadlineSeconds`, such a Pod ends
  with -1004; with `preRunningDeadlineSeconds`, its attempt ends with -260.
- A Pod whose volumes cannot be attached or mounted (`FailedAttachVolume`, `FailedMount`), or whose sandbox or network
  cannot be created (`FailedCreatePodSandBox`): the same, and only Events show it. `kubectl framework status` quotes the
  last Event.
- A Pod for which the scheduler finds no node: it stays Pending, or ends by `preRunningDeadlineSeconds` with
  -260.

## Deleted Pods

A Pod that is deleted before the controller has seen it fail gets -101, or one of -1008 to -1012 by the reason of its
condition `DisruptionTarget` (Kubernetes 1.26 and later). These codes apply with any configuration, because neither the
containers nor `podFailureSpec` count. A failed Pod that would get -300 gets the code of that condition, too.
"""


def document() -> str:
    """The whole text."""
    lines = [HEAD, *table(("code", "phrase", "attributes", "when"), contract_rows())]
    lines.append(SHIPPED)
    lines += table(("code", "phrase", "attributes", "when", "matches"), shipped_rows())
    lines.append(CASCADES)
    lines += [f"- `{text}`" for text in cascade_words()]
    lines.append(TAIL)
    return "\n".join(lines)


def contract_rows() -> Iterator[tuple[str, ...]]:
    for code in completion.PREDEFINED.values():
        kind = code.type_name if code.type_name == completion.SUCCEEDED else attributes(code.attributes)
        yield str(code.code), code.phrase, kind, CONTRACT[code.code]


def shipped_rows() -> Iterator[tuple[str, ...]]:
    said = remarks()
    for entry in shipped_config().pod_failure_spec:
        if entry.code is None:
            continue
        matches = "; or ".join(unique(pattern_text(pattern) for pattern in entry.pod_patterns))
        yield str(entry.code), entry.phrase, attributes(entry.type.attributes), said[entry.code], matches


def cascade_words() -> Iterator[str]:
    """The patterns of the entries with cascade."""
    for entry in shipped_config().pod_failure_spec:
        for pattern in entry.pod_patterns if entry.cascade else ():
            yield from (one.message_regex.pattern for one in pattern.containers if one.message_regex is not None)


def remarks() -> dict[int, str]:
    """The comment right above each entry of the file, by code."""
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


def pattern_text(pattern: PodPattern) -> str:
    """Describe the pattern."""
    said = fields("Pod", pattern.reason_regex, pattern.message_regex)
    for container in pattern.containers:
        said += fields("container", container.reason_regex, container.message_regex)
        said += ranges(container)
    return ", ".join(said)


def fields(whose: str, reason: Regex | None, message: Regex | None) -> list[str]:
    said = []
    if reason is not None:
        inner = reason.pattern.removeprefix("(?i)^").removesuffix("$")
        words = inner[1:-1].split("|") if re.fullmatch(r"\([\w|]+\)", inner) else [inner]
        said.append(f"{whose} reason " + " or ".join(f"`{word}`" for word in words))
    if message is not None and message.pattern != "(?s).*":
        verb = "has" if message.pattern.startswith("(?is)^.*") else "is"
        inner = message.pattern.removeprefix("(?is)^.*").removesuffix(".*$").removeprefix("(?i)^").removesuffix("\\s*$")
        said.append(f"its message {verb} `{inner}`")
    return said


ANY_FAILURE: Final = IntRange(min=1)
"""Of all patterns with a reason and no other exit code."""


def ranges(container: ContainerPattern) -> list[str]:
    code = container.code_range
    return [f"exit code {range_text(code)}"] if code not in (IntRange(), ANY_FAILURE) else []


def range_text(numbers: IntRange) -> str:
    if numbers.min == numbers.max:
        return str(numbers.min)
    return f"{numbers.min} or more" if numbers.max is None else f"{numbers.min} to {numbers.max}"


def attributes(given: Sequence[str] | None) -> str:
    return ", ".join(given) if given else "none"


def unique(items: Iterator[str]) -> list[str]:
    return list(dict.fromkeys(items))


def table(head: Sequence[str], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    """Format a Markdown table; bars in cells are escaped."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


if __name__ == "__main__":
    print(document(), end="")
