"""Print docs/events.md: the Kubernetes Events about Frameworks, with the limits of the code.

`make docs` runs it; a test compares the result.
"""

from __future__ import annotations

from typing import Final

from frameworkcontroller.controller.eventcorrelator import BURST, COMBINED, REFILL_SEC, RESERVE, SIMILAR, SIMILAR_SEC
from frameworkcontroller.controller.recorder import MAX_MESSAGE_BYTES, QPS
from frameworkcontroller.controller.taskevents import DELAY_SEC, MAX_DELAY_SEC

HEAD: Final = f"""\
# Events

`kubectl describe framework NAME` and `kubectl framework events NAME` show a Framework's Events; the
[reference](reference.md#reasons) lists their reasons. An Event is sent after the API server has accepted the status
that it describes. The API server deletes Events after an hour, and their number is limited: the current state is in the
status, the complete history in the [log](logs.md).

- All Events are about Frameworks, none about Pods.
- Equal changes of several Tasks of a TaskRole are one Event: "37 Tasks of TaskRole worker failed with 137". It is
  delayed by {DELAY_SEC:g} s, doubling (up to {MAX_DELAY_SEC / 60:g} min) while more Tasks follow, but never beyond the
  next Event about the whole Framework.
- A repeated Event increments its count. If more than {SIMILAR - 1} Events within {SIMILAR_SEC / 60:g} min differ only
  in their message, the rest become one, "{COMBINED.strip()}".
- A Framework gets at most {BURST} Events at once, then one in {REFILL_SEC / 60:g} min. {RESERVE} of them are reserved
  for Events that are not about single Tasks, and its completion is always sent. The limits are client-go's.
- Messages are cut to {MAX_MESSAGE_BYTES} bytes. They quote the status, including the last output of containers, for
  everyone who may read Events of the namespace.
- Events have their own rate limit ({QPS:g} a second) in addition to `kubeClientQps`, and nothing waits for them. Events
  that cannot be sent are dropped and counted. The log names a namespace that rejects them once.

`recordEvents: false` in the [configuration](configuration.md) disables them.
"""


def document() -> str:
    """The whole page."""
    return HEAD


if __name__ == "__main__":
    print(document(), end="")
