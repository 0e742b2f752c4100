"""Print docs/failure-codes.md, every completion code, from the code and the configuration.

Run as `.venv/bin/python scripts/failure_codes.py > docs/failure-codes.md`; a test says when that is due.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from frameworkcontroller.api import completion
from frameworkcontroller.config.config import SHIPPED_CONFIG_FILE, shipped_config

CONTRACT: Final = {
    0: "All containers exited with 0; of a Framework: its completion policy was met.",
    200: "A container exited with 200.",
    201: "A container exited with 201, as `frameworkbarrier` does.",
    210: "A container exited with 210.",
    -100: "A client deleted the ConfigMap of the attempt.",
    -101: "The Pod was deleted without a reason from Kubernetes, for example by `kubectl delete`.",
    -110: "The ConfigMap was created, but not seen within `objectLocalCacheCreationTimeoutSec`.",
    -111: "The Pod was created, but not seen within `objectLocalCacheCreationTimeoutSec`.",
    -120: "The Pod could not be created for now. It is retried, so no attempt ends with it.",
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

`completionStatus.code` and `.phrase` in the status show how an attempt of a Task or a Framework ended. The attributes
[decide about retries](failures-and-retries.md#how-an-attempt-ends) under `fancyRetryPolicy`. Codes -210, -220, -230 and
-250 are never retried; -240, -241, -242 and -261 always, without a count or delay.

A failed Pod gets the first match of:

1. the exit codes 200, 201 and 210;
2. `podFailureSpec` of the [configuration](configuration.md), in order; without a configuration file, the shipped one;
3. -300 if no container failed, otherwise the exit code of the container that failed last, with the phrase
   `ContainerUnrecognizedFailed`. One below 0, as on Windows, is none of the codes below.

Native sidecars (init containers with `restartPolicy: Always`) do not count. The diagnostics quote the match.

Codes for your own entries: 1 to 128, 193 to 199, 220 to 255, and everything below -1399.

## Predefined codes
"""

SHIPPED: Final = """
## Codes of the shipped configuration

In order of precedence; [default-config.yaml](../frameworkcontroller/config/default-config.yaml) has the patterns.
"""

CASCADES: Final = """
## Consequences

When a container fails, others lose their connection to it and fail, too. The shipped configuration knows the words of
PyTorch, NCCL, Gloo, MPI and torchrun in this case, by entries with `cascade: true`. They have no code and change none:
[`status.firstFailure`](configuration.md#podfailurespec) does not name such a container unless nothing else failed.
"""

TAIL: Final = """
## Failures without a code

These Pods stay Pending, until `preRunningDeadlineSeconds` ends the attempt with -260, or the Pod's own
`activeDeadlineSeconds` with -1004:

- a container that cannot be created (`CreateContainerError`, `CreateContainerConfigError`, `ErrImagePull`,
  `ImagePullBackOff`, `InvalidImageName`; with CRI-O, a command that does not exist);
- volumes that cannot be attached or mounted (`FailedAttachVolume`, `FailedMount`), or a sandbox or network that cannot
  be created (`FailedCreatePodSandBox`): only Events show it, and `kubectl framework status` the last one;
- no node for the Pod: only `preRunningDeadlineSeconds` counts.

## Deleted Pods

A Pod that is deleted before the controller has seen it fail gets -101, or one of -1008 to -1012 by the reason of its
condition `DisruptionTarget` (Kubernetes 1.26 and later), with any configuration. A failed Pod that would get -300 gets
the code of that condition, too.
"""


def document() -> str:
    """The whole text."""
    lines = [HEAD, *table(("code", "phrase", "attributes", "when"), contract_rows())]
    lines.append(SHIPPED)
    lines += table(("code", "phrase", "attributes", "when"), shipped_rows())
    lines.append(CASCADES.rstrip("\n"))
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
        yield str(entry.code), entry.phrase, attributes(entry.type.attributes), said[entry.code]


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


def attributes(given: Sequence[str] | None) -> str:
    return ", ".join(given) if given else "none"


def table(head: Sequence[str], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    """Format a Markdown table; bars in cells are escaped."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


if __name__ == "__main__":
    print(document(), end="")
