"""Archived logs of containers: their names, their missing parts, and the choice among many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from frameworkcontroller.views.apiobjects import default_container, roles_of
from frameworkcontroller.views.texts import clean_line

Item: TypeAlias = Mapping[str, Any]

_MAX_REASON: Final = 300


@dataclass(frozen=True, slots=True)
class ArchivedLog:
    """The log of one run of a container. ``item``: its entry in the archive."""

    item: Item

    @property
    def task(self) -> tuple[str, int]:
        return self.item["role"], self.item["index"]

    @property
    def place(self) -> tuple[str, str, int]:
        """The Pod's UID, the container and its run."""
        return self.item["podUid"], self.item["container"], self.item["run"]

    @property
    def label(self) -> str:
        """``worker[3]``; ``worker[3]#1`` in the Task's second attempt."""
        role, index, attempt = self.item["role"], self.item["index"], self.item["attempt"]
        return f"{role}[{index}]{f'#{attempt}' if attempt else ''}"

    @property
    def missing(self) -> str:
        """Which part is missing, and why; "" if it is whole."""
        item = self.item
        ends = [name for name, cut in (("beginning", item["cutStart"]), ("end", item["cutEnd"])) if cut]
        if not item["size"] and item["why"]:
            ends = ["log"]
        if not ends:
            return ""
        why = f": {clean_line(item['why'], _MAX_REASON)}" if item["why"] else ""
        return f"its {' and its '.join(ends)} {'is' if len(ends) == 1 else 'are'} not in the archive{why}"


def of_default_containers(logs: Iterable[ArchivedLog], framework: Mapping[str, Any]) -> list[ArchivedLog]:
    """Return the logs of the default container of each role's Pods; all, where that is not known."""
    named = {}
    for role in roles_of(framework):
        pod = (role.get("task") or {}).get("pod") or {}
        named[role.get("name")] = default_container({"metadata": {}, **pod})
    return [log for log in logs if named.get(log.item["role"]) in (None, log.item["container"])]


def newest(logs: Iterable[ArchivedLog], *, previous: bool = False) -> list[ArchivedLog]:
    """Return the logs of the newest attempt of each Task, and of each container its last run, or the one before it."""
    pods: dict[tuple[str, int], tuple[Any, ...]] = {}
    of_pod: dict[tuple[Any, ...], list[ArchivedLog]] = {}
    for log in logs:
        item = log.item
        pod = (item["captured"] or "", item["attempt"], item["podUid"])
        pods[log.task] = max(pods.get(log.task, pod), pod)
        of_pod.setdefault((*log.task, item["podUid"]), []).append(log)
    found: list[ArchivedLog] = []
    for task, (_, _, pod_uid) in pods.items():
        runs: dict[str, list[ArchivedLog]] = {}
        for log in of_pod[*task, pod_uid]:
            runs.setdefault(log.item["container"], []).append(log)
        for of_container in runs.values():
            of_container.sort(key=lambda log: int(log.item["run"]))
            found += of_container[-2:-1] if previous else of_container[-1:]
    return found
