"""Prints docs/events.md: what is told of Frameworks by Kubernetes Events, from the table of reasons.

Run as `.venv/bin/python scripts/events.py > docs/events.md`; a test says when that is due.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from frameworkcontroller.controller.eventbroadcaster import MAX_MESSAGE_BYTES, QPS
from frameworkcontroller.controller.eventcorrelator import BURST, COMBINED, REFILL_SEC, RESERVE, SIMILAR, SIMILAR_SEC
from frameworkcontroller.controller.taskevents import DELAY_SEC, MAX_DELAY_SEC
from frameworkcontroller.machine.reasons import ABOUT, EventPolicy

HEAD: Final = f"""\
# Events

This page is for people who follow a Framework by its Events, and to look up a reason, which is also the word that log
lines and the condition `Stalled` use.

`kubectl describe framework NAME` tells a Framework's story by Kubernetes Events, and `kubectl get events
--field-selector involvedObject.kind=Framework,involvedObject.name=NAME` lists them. Events tell only what the
API server has accepted.

Events are news and not records: the API server forgets them after an hour, and there is a bound on how many there are.
What must be known is in the status, and the whole history is in the [log](logs.md).

- They are about Frameworks alone, never about Pods, which tell their own story.
- What several Tasks of a TaskRole did in the same way is one Event: "37 Tasks of TaskRole worker failed with 137".
  It is held back for {DELAY_SEC:g} s, and for twice as long each time (up to {MAX_DELAY_SEC / 60:g} min)
  while more comes, but never beyond what is told of the Framework as a whole.
- The same Event again raises its count. Of more than {SIMILAR - 1} within {SIMILAR_SEC / 60:g}
  min that differ only in their message, the rest become one, "{COMBINED.strip()}".
- Of one Framework there are at most {BURST} at once, and then one in {REFILL_SEC / 60:g} min;
  {RESERVE} of them are kept for what is not about single Tasks, and that it is completed is always told.
  The figures are those of client-go, as all other controllers have them.
- Messages are cut to {MAX_MESSAGE_BYTES} bytes. They quote the status, and with it what containers said last:
  whoever may read Events of the namespace can read that.
- They have a rate limit of their own ({QPS:g} a second), take nothing from `kubeClientQps`, and nothing waits
  for them. What cannot be sent is dropped and counted. A namespace that takes none (it is being deleted, or RBAC does
  not allow `create` and `patch` of `events`) is named in the log once.

`recordEvents: false` in the [configuration](configuration.md) switches them off.
"""


def page() -> Iterator[str]:
    """The lines of the page."""
    yield HEAD
    yield "| reason | tells | also of `Stalled` |"
    yield "|---|---|---|"
    for reason, about in ABOUT.items():
        if about.event is not EventPolicy.NEVER:
            only = "" if about.event is EventPolicy.ALWAYS else " (only when it is a failure)"
            yield f"| `{reason}` | {about.meaning}{only} | {'yes' if about.stall else ''} |"
    yield ""
    yield "These are in log lines alone:"
    yield ""
    yield "| reason | tells |"
    yield "|---|---|"
    for reason, about in ABOUT.items():
        if about.event is EventPolicy.NEVER:
            yield f"| `{reason}` | {about.meaning} |"


def document() -> str:
    """The whole page."""
    return "".join(f"{line}\n" for line in page())


if __name__ == "__main__":
    print(document(), end="")
