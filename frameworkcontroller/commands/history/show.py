"""``history``: past Frameworks, and the past attempts of one."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import orjson
from rich.text import Text

from frameworkcontroller.api.causes import cause_in
from frameworkcontroller.api.codec import StatusError
from frameworkcontroller.api.completion import SUCCEEDED, Outcome, outcome_of
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.status import Phase
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.commands import archivesource, program
from frameworkcontroller.commands.archivesource import open_archive
from frameworkcontroller.commands.decompress import decompressed
from frameworkcontroller.commands.history.attemptcolumns import (
    cost_columns,
    failure_columns,
    has_steps,
    step_columns,
    total_row,
)
from frameworkcontroller.commands.history.failurecounts import show_failures
from frameworkcontroller.commands.invocation import Invocation, checked_name
from frameworkcontroller.commands.output import table_of
from frameworkcontroller.history.attemptsummary import attempt_summary
from frameworkcontroller.history.reads import (
    MAX_GROUPS,
    MAX_PAGE,
    RUNNING,
    TASK_FIELDS,
    ArchiveReader,
    CostKey,
    CountCost,
    GetFramework,
    GetTaskHistory,
    ListFrameworks,
    ListTasks,
    Read,
)
from frameworkcontroller.kube.errors import KubeError, NotFound
from frameworkcontroller.views.apiobjects import Json
from frameworkcontroller.views.looks import LOOKS
from frameworkcontroller.views.texts import clean_line, counted, duration

_NONE: Final = "-"
_CURRENT: Final = "*"
_MESSAGE: Final = 200

Item: TypeAlias = Mapping[str, Any]
Columns: TypeAlias = Mapping[str, Callable[[Item], str | Text]]


def run_anywhere(options: argparse.Namespace) -> int:
    """Run the command, also without a cluster. Return the exit code."""
    return archivesource.run_anywhere(run, options)


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """Show them. Return the exit code."""
    _check(options)
    async with open_archive(invocation, options) as source:
        await _Show(invocation, options, source).run()
    return program.EXIT_OK


def _check(options: argparse.Namespace) -> None:
    for option in ("attempt", "task", "uid"):
        if options.name is None and getattr(options, option) is not None:
            raise program.UsageError(f"--{option}: needs the NAME of a Framework")
    for option in ("key", "since"):
        if options.failures is None and getattr(options, option) is not None:
            raise program.UsageError(f"--{option}: is for --failures")
    if options.failures is not None and options.name is not None:
        raise program.UsageError("--failures: counts all Frameworks, so it takes no NAME")
    if options.name is not None:
        checked_name(options.name)
        if options.all_namespaces:
            raise program.UsageError("-A: is for the list, without the NAME of a Framework")
    if options.task is not None and options.task[1] is None:
        raise program.UsageError(f"--task {options.task[0]}: must be ROLE/INDEX, such as worker/3")
    if options.failed and (options.attempt is None or options.task is not None):
        raise program.UsageError("--failed: is for the Tasks of an attempt, with --attempt and without --task")
    if options.most == 0:
        raise program.UsageError("--most 0: must be at least 1")


# --- output ---


@dataclass(frozen=True, slots=True)
class _Show:
    invocation: Invocation
    options: argparse.Namespace
    source: ArchiveReader

    async def run(self) -> None:
        """Show the requested attempts."""
        options = self.options
        if options.failures is not None:
            await show_failures(self.invocation, options, self.source)
            return
        if options.name is None:
            await self._frameworks()
            return
        live = await self._live()
        found = await self._all(ListFrameworks(self.invocation.namespace, options.name), "older ones") or []
        if options.uid is not None:
            found = [one for one in found if one["uid"] == options.uid]
            live = live if live is not None and live["metadata"]["uid"] == options.uid else None
        if not found and live is None:
            which = f" with UID {options.uid}" if options.uid is not None else ""
            raise program.CommandError(
                f'the history has no Framework "{options.name}"{which} in namespace "{self.invocation.namespace}"'
            )
        uids = list(
            dict.fromkeys([*([live["metadata"]["uid"]] if live is not None else ()), *(one["uid"] for one in found)])
        )
        chosen = uids[0]
        narrowed = options.attempt is not None or options.task is not None
        if len(uids) > 1 and not narrowed:
            self._list(found, live)
            self.invocation.note(
                f"{counted(len(uids), 'Framework')} had this name; --uid UID shows the attempts of one"
            )
            return
        if len(uids) > 1:
            self.invocation.note(
                f"the newest of {len(uids)} Frameworks of this name, {chosen}; --uid UID shows another"
            )
        if live is not None and live["metadata"]["uid"] != chosen:
            live = None
        if options.task is not None:
            await self._task(chosen, live)
        elif options.attempt is not None:
            await self._tasks(chosen, options.attempt, live)
        else:
            await self._attempts(chosen, live)

    async def _live(self) -> Json | None:
        """Return the Framework in the cluster, if there is one that can be read."""
        if not getattr(self.options, "live", True):
            return None
        try:
            body: Json = orjson.loads(
                await self.invocation.client.get(FRAMEWORKS, self.options.name, self.invocation.namespace)
            )
            if body.get("status"):
                decompressed(body)
        except NotFound:
            return None
        except (KubeError, StatusError, program.CommandError) as error:
            self.invocation.note(f"the present state of the cluster is not shown: {clean_line(str(error), _MESSAGE)}")
            return None
        return body

    # --- Frameworks ---

    async def _frameworks(self) -> None:
        everywhere: bool = self.options.all_namespaces
        namespace = "" if everywhere else self.invocation.namespace
        found = await self._all(ListFrameworks(namespace), "older ones") or []
        if not found and self.options.output is None:
            where = "" if everywhere else f' in namespace "{namespace}"'
            self.invocation.note(f"the history has no Frameworks{where}")
            return
        self._list(found, None)

    def _list(self, found: Sequence[Item], live: Json | None) -> None:
        items = list(found)
        if live is not None and all(one["uid"] != live["metadata"]["uid"] for one in found):
            items.insert(0, _item_of(live))
        if self._printed({"items": items}):
            return
        everywhere: bool = self.options.all_namespaces
        columns: Columns = {
            **({"NAMESPACE": _field("namespace")} if everywhere else {}),
            "NAME": _field("name"),
            "PHASE": _phase,
            **{name.upper(): _field(name) for name in ("attempts", "tasks")},
            "FAILED": _field("failedTasks"),
            "CREATED": _field("created"),
            "TOOK": self._took,
            "UID": _field("uid"),
            "WHY": _why,
        }
        self._print(columns, items)

    async def _all(self, query: ListFrameworks | ListTasks, others: str) -> list[Item] | None:
        """Read the pages of a list, up to ``--most``; None if there is no such list. ``others``: the rest."""
        most: int = self.options.most
        found: list[Item] = []
        after = ""
        while True:
            part: Read[Any] = replace(query, limit=min(MAX_PAGE, most - len(found)), after=after)
            page = await self.source.read(part)
            if page is None:
                return None
            found += page["items"]
            if page["next"] is None:
                return found
            if len(found) >= most:
                self.invocation.note(f"{others} are not shown; --most N shows more than {most}")
                return found
            after = page["next"]

    # --- one Framework ---

    async def _attempts(self, uid: str, live: Json | None) -> None:
        framework = await self.source.read(GetFramework(uid))
        rows: list[dict[str, Any]] = [{**one, "current": False} for one in (framework["attempts"] if framework else ())]
        current = _attempt_of(live)
        if current is not None:
            archived = [one for one in rows if one["id"] != current["id"]]
            # The logs of a current attempt may be there already.
            current["logs"] = sum(one.get("logs") or 0 for one in rows if one["id"] == current["id"])
            rows = sorted([*archived, current], key=lambda one: int(one["id"]))
        if self._printed({**(framework or _item_of(live or {})), "attempts": rows}):
            return
        if not rows:
            self.invocation.note(f"the history has no attempt of {self.options.name} yet")
            return
        columns: dict[str, Callable[[Item], str | Text]] = {
            "ATTEMPT": lambda one: f"{one['id']}{_CURRENT if one['current'] else ''}",
            **_END,
        }
        columns |= {**self._times, **_logs(rows), "TASKS": _field("tasks"), "FAILED": _field("failedTasks")}
        columns |= failure_columns(rows)
        if has_steps(rows):
            found = await self.source.read(CountCost(CostKey.ATTEMPT, limit=MAX_GROUPS, uid=uid))
            columns |= {**step_columns(rows), **cost_columns(found)}
            rows.append(total_row(rows))
        self._print({**columns, "WHY": _why}, rows)
        if current is not None:
            self.invocation.note(f"{_CURRENT} the current attempt, from the cluster")

    async def _tasks(self, uid: str, attempt: int, live: Json | None) -> None:
        found = await self._all(ListTasks(uid, attempt, failed=self.options.failed or None), "further Tasks")
        is_current = live is not None and (_attempt_of(live) or {}).get("id") == attempt
        if found is None and not is_current:
            raise program.CommandError(f"the history has no attempt {attempt} of {self.options.name}")
        rows = list(found or ())
        if is_current:
            failed = self.options.failed
            rows += _new_tasks(live, rows, lambda one: not failed or _outcome(one) is Outcome.FAILED)
            rows.sort(key=lambda one: (one["role"], one["index"], one["attempt"]))
        if self._printed({"items": rows}):
            return
        if not rows:
            self.invocation.note(f"attempt {attempt} has no such Tasks")
            return
        columns: Columns = {"TASK": lambda one: f"{one['role']}[{one['index']}]", "ATTEMPT": _number}
        self._print({**columns, **_END, "NODE": _field("node"), **self._times, **_logs(rows), "WHY": _why}, rows)

    async def _task(self, uid: str, live: Json | None) -> None:
        role, index = self.options.task
        archived = await self.source.read(GetTaskHistory(uid, role, index))
        rows: list[Item] = list(archived["items"] if archived else ())
        rows += _new_tasks(live, rows, lambda one: (one["role"], one["index"]) == (role, index))
        if self.options.attempt is not None:
            rows = [one for one in rows if one["frameworkAttempt"] == self.options.attempt]
        if not rows:
            within = "" if self.options.attempt is None else f" in attempt {self.options.attempt}"
            raise program.CommandError(f"the history has no Task {role}[{index}] of {self.options.name}{within}")
        if self._printed({"items": rows}):
            return
        columns: Columns = {"FRAMEWORK ATTEMPT": _field("frameworkAttempt"), "ATTEMPT": _number}
        self._print(
            {**columns, **_END, "NODE": _field("node"), "POD": _field("pod"), **self._times, **_logs(rows)}, rows
        )
        for one in rows:
            if one["diagnostics"]:
                self.invocation.print()
                self.invocation.print(f"attempt {one['frameworkAttempt']}/{one['attempt']}:")
                self.invocation.print(str(one["diagnostics"]))

    # --- output ---

    def _printed(self, value: Any) -> bool:
        """Print it for programs, if that is asked for."""
        if self.options.output is None:
            return False
        self.invocation.print_object(value, self.options.output)
        return True

    def _print(self, columns: Columns, items: Sequence[Item]) -> None:
        self.invocation.print_table(table_of(columns, items))

    @property
    def _times(self) -> Columns:
        return {"STARTED": _field("started"), "TOOK": self._took}

    def _took(self, one: Item) -> str:
        started, completed = one["started"], one["completed"]
        if one.get("current") and started and not completed:
            return duration(self.invocation.wall() - parse_time(started))
        return duration(parse_time(completed) - parse_time(started)) if started and completed else _NONE


def _field(name: str) -> Callable[[Item], str]:
    return lambda one: _NONE if one[name] is None or one[name] == "" else str(one[name])


def _logs(items: Sequence[Item]) -> Columns:
    """Return the column with the numbers of archived logs, if there are any."""
    return {"LOGS": lambda one: str(one.get("logs") or _NONE)} if any(one.get("logs") for one in items) else {}


def _number(one: Item) -> str:
    return f"{one['attempt']}{_CURRENT if one.get('current') else ''}"


def _phrase(one: Item) -> Text:
    if one["code"] is None:
        return Text("running" if one.get("current") else _NONE)
    return Text(str(one["phrase"] or _NONE), _STYLES[_outcome(one)])


def _phase(one: Item) -> Text:
    phase = Phase(one["phase"].capitalize())
    return Text(phase, LOOKS[phase].color)


_END: Final[Columns] = {"CODE": _field("code"), "PHRASE": _phrase}
_STYLES: Final = {None: "", Outcome.SUCCEEDED: "green", Outcome.STOPPED: "dim", Outcome.FAILED: "red"}


def _outcome(one: Item) -> Outcome | None:
    return None if one["code"] is None else outcome_of(one["code"], one["phrase"], one["type"])


def _why(one: Item) -> str:
    if (first := one.get("firstFailure")) and first.get("message"):
        return clean_line(first["message"])
    return clean_line(cause_in(one["diagnostics"])) if one["diagnostics"] and one["type"] != SUCCEEDED else ""


# --- the live Framework ---


def _item_of(live: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Framework of the cluster as an item of the archive, as far as a list shows it."""
    metadata, status = live.get("metadata") or {}, live.get("status") or {}
    current = _attempt_of(live) or {}
    ended = current if status.get("completionTime") else {}
    return {
        **{name: metadata.get(name) for name in ("uid", "namespace", "name")},
        "state": status.get("state"),
        "phase": (_outcome(ended) or RUNNING) if ended else RUNNING,
        "code": ended.get("code"),
        **{name: current.get(name) for name in ("phrase", "type")},
        "diagnostics": status.get("message") or current.get("diagnostics"),
        "attempts": current["id"] + 1 if current else None,
        **{name: current.get(name) for name in ("tasks", "failedTasks")},
        "created": metadata.get("creationTimestamp"),
        "started": status.get("startTime"),
        "completed": status.get("completionTime"),
    }


def _attempt_of(live: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the current attempt of a Framework of the cluster as an attempt of the archive."""
    attempt = ((live or {}).get("status") or {}).get("attemptStatus")
    if not attempt:
        return None
    tasks = _task_attempts_of(live or {})
    return {
        "id": attempt["id"],
        **_completion(attempt),
        "started": attempt.get("startTime"),
        "completed": attempt.get("completionTime"),
        "tasks": len(tasks),
        "failedTasks": sum(_outcome(one) is Outcome.FAILED for one in tasks),
        **attempt_summary(live or {}),
        "current": True,
    }


def _new_tasks(live: Json | None, known: Sequence[Item], wanted: Callable[[Item], bool]) -> list[Item]:
    """Return the current Task attempts of a Framework of the cluster that are not known yet."""

    def key(one: Item) -> tuple[Any, ...]:
        return tuple(one[name] for name in ("frameworkAttempt", "role", "index", "taskUid", "attempt"))

    keys = set(map(key, known))
    return [] if live is None else [one for one in _task_attempts_of(live) if wanted(one) and key(one) not in keys]


def _task_attempts_of(live: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the current Task attempts of a Framework of the cluster."""
    framework_attempt = live["status"]["attemptStatus"]
    found = []
    for role in framework_attempt.get("taskRoleStatuses") or ():
        for task in role.get("taskStatuses") or ():
            attempt = task["attemptStatus"]
            found.append(
                {
                    "frameworkAttempt": framework_attempt["id"],
                    "role": role["name"],
                    "index": task["index"],
                    "taskUid": task.get("instanceUID"),
                    "attempt": attempt["id"],
                    **_completion(attempt),
                    **{name: attempt.get(field) for name, field in TASK_FIELDS.items()},
                    "current": True,
                }
            )
    return found


def _completion(attempt: Mapping[str, Any]) -> dict[str, Any]:
    completion = attempt.get("completionStatus") or {}
    return {
        "code": completion.get("code"),
        "phrase": completion.get("phrase"),
        "type": (completion.get("type") or {}).get("name"),
        "diagnostics": completion.get("diagnostics"),
    }
