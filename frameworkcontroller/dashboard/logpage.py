"""The page of one archived log, and the last lines of a log on other pages."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from frameworkcontroller.dashboard.rows import framework_href, logs_href, past_time, tasks_href
from frameworkcontroller.dashboard.views import Shell
from frameworkcontroller.views.containerlogs import ArchivedLog
from frameworkcontroller.views.texts import printable

Json = Mapping[str, Any]

_COLOR: Final = re.compile(r"\x1b\[[0-9;]{0,32}m")

LAST_LINES: Final = 20
"""Lines of a log on the page of its Framework."""
PAGE_LINES: Final = 2000
"""Lines on the page of a log, without ``?lines=all``."""


@dataclass(frozen=True, slots=True)
class LogLink:
    """A log. ``name``: container and run. ``href``: its page. ``note``: its missing part."""

    name: str
    href: str
    note: str
    is_empty: bool

    @classmethod
    def of(cls, log: ArchivedLog, namespace: str, framework: str, uid: str) -> LogLink:
        """Return the link to the page of a log."""
        item = log.item
        run = f" (restart {item['run']})" if item["run"] else ""
        href = f"{logs_href(namespace, framework, uid)}{item['id']}"
        return cls(f"{item['container']}{run}", href, log.missing, not item["size"])


@dataclass(frozen=True, slots=True)
class LastWords:
    """The last lines of the Task that explains the end of an attempt.

    ``problem``: why there are none, for the viewer. ``others``: the other logs of the same Pod.
    """

    role: str
    index: int
    text: str = ""
    log: LogLink | None = None
    others: Sequence[LogLink] = ()
    problem: str = ""


class LogPage:
    """A log. ``text``: its last lines, or all. ``is_cut``: whether the archive has lines that are not shown."""

    template: ClassVar[str] = "log.html"

    def __init__(
        self, shell: Shell, framework: Json, log: Json, others: Sequence[LogLink], *, lines: int | None
    ) -> None:
        """``framework``, ``log``: items of the archive. ``others``: the logs of the same Pod."""
        namespace, name, uid = framework["namespace"], framework["name"], framework["uid"]
        archived = ArchivedLog(log)
        self.shell = shell
        self.namespace, self.name = namespace, name
        self.log = log
        self.label = archived.label
        self.link = LogLink.of(archived, namespace, name, uid)
        self.others = others
        self.captured = past_time(log["captured"])
        self.framework_href = framework_href(namespace, name, uid)
        self.attempt_href = framework_href(namespace, name, uid, log["frameworkAttempt"])
        self.task_href = f"{tasks_href(namespace, name, uid, log['role'])}{log['index']}"
        data = b64decode(log["data"] or "")
        self.text = printable_lines(data.decode(errors="replace"))
        self.is_cut = len(data) < log["size"]
        self.lines = lines


def printable_lines(text: str) -> str:
    """Return a log for a page: without colors, and with blanks for characters that do not print, except tabs."""
    return "\t".join(map(printable, _COLOR.sub("", text.replace("\r\n", "\n")).split("\t")))
