"""The reads of the archive: one class each, with its route, its parameters and its answer.

The server parses requests into these classes, the client sends them, the OpenAPI document describes them, and the
archive answers them. Answers are JSON values with the names of the HTTP API. Times are RFC 3339, UTC. A value that is
not known is None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Generic, NotRequired, Protocol, Self, TypeVar, get_args
from urllib.parse import quote

from pydantic import Field, TypeAdapter, WithJsonSchema
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from frameworkcontroller.api.completion import Outcome
from frameworkcontroller.api.status import State
from frameworkcontroller.api.timestamps import format_time, parse_time
from frameworkcontroller.history.archiveerrors import QueryError
from frameworkcontroller.webaccess.viewers import Viewer

RUNNING: Final = "running"
"""The phase of a Framework whose records show no end. The phases of ended ones are outcomes."""

PHASES: Final = [*Outcome, RUNNING]
"""The phases of past Frameworks."""

MAX_PAGE: Final = 1000
"""The most items that a page may have."""

MAX_COMPARED: Final = 5000
"""The most failures whose words are compared: the newest ones."""

MAX_GROUPS: Final = 1000
"""The most groups of failures or costs that one answer has: those with the most of them, or the newest days."""

MAX_AVOIDED_SHOWN: Final = 100
"""The most avoided nodes that an attempt of a Framework has in the archive."""

_SHOWN: Final = 100
_NUMBER: Final = re.compile(r"-?[0-9]{1,10}", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_INT32: Final = 2**31 - 1
_DATE_TIME: Final = {"type": "string", "format": "date-time"}
_SEARCH: Final = (
    "Only those with all of these words in namespace, name, UID, state, code, phrase or diagnostics, in any case. "
    "A page may have few items, or none, and still a `next`: each searches a part of the archive."
)

Json = dict[str, Any]
A = TypeVar("A")

TASK_FIELDS: Final[Mapping[str, str]] = {
    "node": "podNodeName",
    "pod": "podName",
    "podUid": "podUID",
    "podIP": "podIP",
    "hostIP": "podHostIP",
    "started": "startTime",
    "ran": "runTime",
    "completed": "completionTime",
}
"""The fields of a `TaskAttempt` by their names in an ``attemptStatus``."""


class FailureKey(StrEnum):
    """The keys of groups of failures. ``DAY``: of the completion, UTC. ``CAUSE``: code, and words without numbers."""

    CODE = "code"
    CAUSE = "cause"
    NODE = "node"
    ROLE = "role"
    DAY = "day"


class CostKey(StrEnum):
    """The keys of groups of costs. ``QUEUE``, ``ATTEMPT``: of the Framework. ``CODE``: of the Task. ``DAY``: UTC."""

    FRAMEWORK = "framework"
    NAMESPACE = "namespace"
    QUEUE = "queue"
    USER = "user"
    NODE = "node"
    CODE = "code"
    DAY = "day"
    ATTEMPT = "attempt"


def _about(text: str) -> Any:
    return Field(description=text)


# --- answers ---

_Count = Annotated[int, Field(ge=0)]
_Amount = Annotated[int | float, WithJsonSchema({"type": "number", "minimum": 0})]
_When = Annotated[str | None, WithJsonSchema({**_DATE_TIME, "type": ["string", "null"]})]
_Object = Annotated[Any, WithJsonSchema({"type": ["object", "null"]})]
_Pod = Annotated[Any, WithJsonSchema({"type": "object"})]
_Phase = Annotated[str, WithJsonSchema({"type": "string", "enum": PHASES})]
_Trigger = Annotated[str | None, _about("Event for which the controller made the newest record; null: it made none.")]
_Next = Annotated[str | None, _about("Value of `after` for the next page; null: this is the last one.")]


class ProblemAnswer(TypedDict):
    """An error."""

    title: Annotated[str, _about("Kind of the error.")]
    detail: Annotated[str, _about("Problem, with field and value.")]
    field: NotRequired[Annotated[str, _about("Parameter or header at fault, if it is one.")]]
    line: NotRequired[Annotated[_Count, _about("Line of the body at fault, from 1, if it is one.")]]


class _FrameworkKey(TypedDict):
    uid: Annotated[str, _about("UID.")]
    namespace: Annotated[str, _about("Namespace.")]
    name: Annotated[str, _about("Name.")]


class _Completion(TypedDict):
    code: Annotated[int | None, _about("Completion code; null: not completed.")]
    phrase: Annotated[str | None, _about("Name of the code, such as ContainerTransientFailed.")]
    type: Annotated[str | None, _about("Type of the completion, such as Succeeded or Permanent Failed.")]
    diagnostics: Annotated[str | None, _about("Text of the completion; in lists of Frameworks, it is shortened.")]


class _Framework(_FrameworkKey, _Completion):
    cluster: Annotated[
        str | None, _about("Cluster: the name configured there, or the UID of its namespace kube-system.")
    ]
    state: Annotated[str | None, _about("State in the newest record; null: only attempts of Tasks are archived yet.")]
    phase: Annotated[_Phase, _about("How it ended; running: no record says that it has ended.")]
    taskRetries: Annotated[_Count | None, _about("Retries of Tasks, over all attempts.")]
    tasks: Annotated[_Count | None, _about("Tasks of the newest archived attempt.")]
    failedTasks: Annotated[_Count | None, _about("Failed Tasks of that attempt, without stopped ones.")]
    succeededTasks: Annotated[_Count | None, _about("Succeeded Tasks of that attempt.")]
    stoppedTasks: Annotated[_Count | None, _about("Tasks of that attempt that ended on request, or with the attempt.")]
    created: Annotated[_When, _about("Creation.")]
    started: Annotated[_When, _about("Start of the first attempt.")]
    completed: Annotated[_When, _about("Completion.")]
    archived: Annotated[_When, _about("Time of the newest record.")]
    deleted: Annotated[_When, _about("Deletion; null: none is archived.")]


class _FrameworkAttempt(_Completion):
    id: Annotated[_Count, _about("Attempt, from 0.")]
    trigger: _Trigger
    started: Annotated[_When, _about("Start.")]
    completed: Annotated[_When, _about("Completion.")]
    failedTasks: Annotated[_Count | None, _about("Failed Tasks, without stopped ones.")]
    firstFailure: Annotated[_Object, _about("`status.firstFailure`; null: no Task failed, or an older version.")]
    avoidedNodes: Annotated[
        list[str], _about(f"Nodes that Tasks avoid after it, by `avoidNodes`; {MAX_AVOIDED_SHOWN} at most.")
    ]
    lastStep: Annotated[_Count | None, _about("Last reported step.")]
    checkpointStep: Annotated[_Count | None, _about("Step of the last reported checkpoint.")]
    logs: NotRequired[Annotated[_Count, _about("Archived logs of containers.")]]


class FrameworkAnswer(_Framework):
    """A Framework in a list. One with only Tasks or Pods in the archive is running, and has no state."""

    attempts: Annotated[_Count | None, _about("Attempts that were begun.")]


class FrameworkAttempt(_FrameworkAttempt):
    """An attempt of a Framework."""

    tasks: Annotated[_Count | None, _about("Tasks.")]


class FrameworkWithAttempts(_Framework):
    """A Framework and its archived attempts."""

    attempts: Annotated[list[FrameworkAttempt], _about("The archived ones.")]
    attemptCount: Annotated[_Count | None, _about("Attempts that were begun.")]


class TaskCountsAnswer(TypedDict):
    """Tasks of an attempt, by their ends."""

    total: Annotated[_Count | None, _about("Tasks.")]
    running: Annotated[_Count | None, _about("Not completed ones.")]
    succeeded: Annotated[_Count | None, _about("Succeeded ones.")]
    stopped: Annotated[_Count | None, _about("Ones that ended on request, or with the attempt.")]
    failed: Annotated[_Count | None, _about("Failed ones.")]


class FrameworkAttemptWithObject(_FrameworkAttempt):
    """An attempt of a Framework, with the object as archived, its roles decompressed."""

    tasks: TaskCountsAnswer
    record: Annotated[_Object, _about("The newest record, without its object.")]
    object: Annotated[_Object, _about("The Framework as archived; null: only Tasks are archived yet.")]


class TaskAttempt(_Completion):
    """An attempt of a Task."""

    frameworkAttempt: Annotated[_Count, _about("Attempt of the Framework, from 0.")]
    role: Annotated[str, _about("Role.")]
    index: Annotated[_Count, _about("Index of the Task.")]
    taskUid: Annotated[str, _about("UID of the instance of the Task.")]
    attempt: Annotated[_Count, _about("Attempt of the Task, from 0.")]
    node: Annotated[str | None, _about("Node of the Pod.")]
    pod: Annotated[str | None, _about("Name of the Pod.")]
    podUid: Annotated[str | None, _about("UID of the Pod.")]
    podIP: Annotated[str | None, _about("IP address of the Pod.")]
    hostIP: Annotated[str | None, _about("IP address of the node.")]
    started: Annotated[_When, _about("Start.")]
    ran: Annotated[_When, _about("Time at which the Pod ran.")]
    completed: Annotated[_When, _about("Completion.")]
    trigger: _Trigger
    logs: NotRequired[Annotated[_Count, _about("Archived logs of its containers.")]]


class TaskAttemptWithObjects(TaskAttempt):
    """An attempt of a Task, with its objects. Without a record of its own, the Task comes from the Framework's."""

    object: Annotated[_Object, _about("The Task as archived.")]
    pods: Annotated[list[_Pod], _about("Its Pods as archived.")]


class LogAnswer(TypedDict):
    """The log of one run of a container, without its text."""

    id: Annotated[_Count, _about("Number of the log, unique in the archive.")]
    frameworkAttempt: Annotated[_Count, _about("Attempt of the Framework, from 0.")]
    role: Annotated[str, _about("Role.")]
    index: Annotated[_Count, _about("Index of the Task.")]
    taskUid: Annotated[str, _about("UID of the instance of the Task.")]
    attempt: Annotated[_Count, _about("Attempt of the Task, from 0.")]
    pod: Annotated[str, _about("Name of the Pod.")]
    podUid: Annotated[str, _about("UID of the Pod.")]
    node: Annotated[str, _about("Node of the Pod.")]
    container: Annotated[str, _about("Container.")]
    run: Annotated[_Count, _about("Restarts of the container before this run.")]
    captured: Annotated[_When, _about("Time at which the controller read it.")]
    size: Annotated[_Count, _about("Bytes in the archive, decompressed.")]
    cutStart: Annotated[bool, _about("Whether its beginning is missing.")]
    cutEnd: Annotated[bool, _about("Whether its end is missing.")]
    why: Annotated[str, _about("Reason for which a part, or all, is missing.")]
    lastLine: Annotated[str, _about("Its last line that is not blank, shortened.")]


class LogWithText(LogAnswer):
    """The log of one run of a container."""

    text: Annotated[str | None, _about("The text; bytes that are not UTF-8 are replaced. null: with `raw`.")]
    data: Annotated[str | None, _about("The bytes in base64; null: without `raw`.")]


class FailureExample(_FrameworkKey):
    """One of the failures of a group."""

    attempt: Annotated[_Count, _about("Attempt of the Framework.")]
    role: Annotated[str | None, _about("Role; null: the attempt of the Framework.")]
    index: Annotated[_Count | None, _about("Index of the Task.")]


class FailureAnswer(TypedDict):
    """A group of failures."""

    key: Annotated[str, _about("Code, cause, node, role or day (UTC).")]
    label: Annotated[str | None, _about("The same for people: of a code its name, of a cause the newest one's words.")]
    taskAttempts: Annotated[_Count, _about("Failed attempts of Tasks.")]
    ofAttempts: Annotated[
        _Count | None,
        _about("All attempts of Tasks that ended on this node in this time; null: not counted, except by node."),
    ]
    expected: Annotated[
        float | None,
        _about(
            "By node, failed attempts of Tasks if this node had the rate of the others; null: by something else, or "
            "there is no other."
        ),
    ]
    frameworkAttempts: Annotated[
        _Count,
        _about(
            "Attempts of Frameworks that failed: with this code, on this day, because of a Task of this role, or on "
            "this node."
        ),
    ]
    frameworks: Annotated[_Count, _about("Frameworks to which these belong.")]
    first: Annotated[_When, _about("Earliest completion.")]
    last: Annotated[_When, _about("Latest completion.")]
    example: Annotated[FailureExample, _about("One of the failures.")]


class FailedTaskAttempt(TaskAttempt):
    """A failed attempt of a Task, with its Framework."""

    uid: Annotated[str, _about("UID of the Framework.")]
    namespace: Annotated[str, _about("Namespace.")]
    name: Annotated[str, _about("Name of the Framework.")]


class FailedTaskAttempts(TypedDict):
    """A list of failed Task attempts."""

    items: list[FailedTaskAttempt]


class FrameworksPage(TypedDict):
    """A part of a list of Frameworks."""

    items: list[FrameworkAnswer]
    next: _Next


class TaskAttemptsPage(TypedDict):
    """A part of a list of Task attempts."""

    items: list[TaskAttempt]
    next: _Next


class LogsPage(TypedDict):
    """A part of a list of logs."""

    items: list[LogAnswer]
    next: _Next


class TaskAttempts(TypedDict):
    """A list of Task attempts."""

    items: list[TaskAttempt]


class Failures(TypedDict):
    """Groups of failures."""

    items: list[FailureAnswer]


class ResourceSeconds(TypedDict):
    """Amount of a resource times seconds: CPUs, bytes of memory, units of other resources."""

    waiting: Annotated[_Amount, _about("Held before the Pod ran.")]
    useful: Annotated[_Amount, _about("Held by a running Pod whose work counts.")]
    lost: Annotated[_Amount, _about("Held by a running Pod whose work is lost.")]


class CostSum(TypedDict):
    """The cost of attempts of Tasks."""

    attempts: Annotated[_Count, _about("Attempts whose cost is known; by day, they count on their last one.")]
    unknownAttempts: Annotated[
        _Count,
        _about(
            "Attempts on a node whose cost is not known, and not in the sums: they were archived by an older version, "
            "or had too many resources."
        ),
    ]
    resources: Annotated[dict[str, ResourceSeconds], _about("By name of the resource, such as cpu.")]


class CostAnswer(CostSum):
    """A group of costs."""

    key: Annotated[str, _about("UID, namespace, queue, user, node, code, day (UTC) or attempt; empty: none.")]
    label: Annotated[str, _about("The same for people: of a Framework namespace/name, of a code its name.")]


class Costs(TypedDict):
    """Groups of costs."""

    items: list[CostAnswer]
    total: Annotated[CostSum, _about("Of all groups, also those that are not in `items`.")]
    resource: Annotated[str, _about("The resource by which the groups are ordered; empty: there is none.")]


class Namespaces(TypedDict):
    """A list of namespaces."""

    items: list[str]


# --- reads ---


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a path or a query. ``field``: of the class; ``default``: its value if it is absent."""

    name: str
    field: str
    in_path: bool
    schema: Mapping[str, Any]
    default: Any

    def value(self, text: str) -> Any:
        """Return the value of a text. Raise QueryError if it has none."""
        valid, value, expected = _read(self.schema, text)
        if not valid:
            raise QueryError(self.name, f"must be {expected}, not {shown(text)}")
        return value

    def text(self, value: Any) -> str:
        """Return the text that stands for a value."""
        if "format" in self.schema:
            return format_time(value)
        return str(value).lower() if isinstance(value, bool) else str(value)


class Read(Generic[A]):
    """A question to the archive. Subclasses are frozen dataclasses, whose fields are the parameters.

    Attributes:
        operation: the name in the OpenAPI document and in metrics.
        path: of the HTTP API, with the names of parameters in braces.
        missing: names the missing object if the answer is None (404); "" if there always is an answer.
        of_logs: whether the viewer needs the permission to get pods/log in the namespace, too (else 403).
    """

    operation: ClassVar[str]
    path: ClassVar[str]
    missing: ClassVar[str]
    of_logs: ClassVar[bool]

    def __init_subclass__(cls, *, operation: str, path: str, missing: str = "", of_logs: bool = False) -> None:
        cls.operation, cls.path, cls.missing, cls.of_logs = operation, f"/v1/{path}", missing, of_logs

    @classmethod
    @cache
    def answer(cls) -> TypeAdapter[Any]:
        """Return the type of the answer."""
        return TypeAdapter(get_args(cls.__orig_bases__[0])[0])  # type: ignore[attr-defined]

    @classmethod
    @cache
    def parameters(cls) -> tuple[Parameter, ...]:
        """Return the parameters, the path's first."""
        schemas = TypeAdapter(cls).json_schema()["properties"]
        return tuple(_parameter(one.name, cls.path, schemas[one.name], one.default) for one in fields(cls))  # type: ignore[arg-type]

    @classmethod
    def parse(cls, path: Mapping[str, str], query: Iterable[tuple[str, str]]) -> Self:
        """Return the read that a path and a query stand for.

        Raises:
            QueryError: a parameter is unknown, given twice, or has a bad value.
        """
        known = {one.name: one for one in cls.parameters()}
        found = {one.field: one.value(path[one.name]) for one in known.values() if one.in_path}
        in_query = [name for name, one in known.items() if not one.in_path]
        for name, text in query:
            if name not in in_query:
                allowed = ", ".join(in_query) or "none"
                raise QueryError(name[:_SHOWN], f"is no parameter of {cls.path} (which has {allowed})")
            if known[name].field in found:
                raise QueryError(name, "must be given once only")
            found[known[name].field] = known[name].value(text)
        return cls(**found)

    def location(self) -> tuple[str, dict[str, str]]:
        """Return the path, and the parameters of the query that are not at their defaults."""
        values, query = asdict(self), {}  # type: ignore[call-overload]
        path = self.path
        for one in self.parameters():
            value = values[one.field]
            if one.in_path:
                path = path.replace(f"{{{one.name}}}", quote(str(value), safe=""))
            elif value != one.default:
                query[one.name] = one.text(value)
        return path, query

    def what(self) -> str:
        """Name the missing object if the answer is None."""
        return self.missing.format(**asdict(self))  # type: ignore[call-overload]


class ArchiveReader(Protocol):
    """An archive as one viewer may read it. Other namespaces do not exist."""

    async def read(self, query: Read[A]) -> A:
        """Answer.

        Raises:
            ArchiveError: the archive cannot be read now.
            LogAccessError: the read is ``of_logs``, and the viewer may not get pods/log in the namespace.
            QueryError: a parameter cannot be used.
        """


class ArchiveSource(Protocol):
    """An archive of this process, or a client of one."""

    async def for_viewer(self, viewer: Viewer) -> ArchiveReader:
        """Return the archive as the viewer may read it. Raises ArchiveError and AccessError."""


_Text = Annotated[str, Field(min_length=1, max_length=1024)]
_Words = Annotated[str, Field(min_length=1, max_length=200)]
_Index = Annotated[int, Field(ge=0, le=_INT32)]
_Code = Annotated[int, Field(ge=-_INT32, le=_INT32)]
_Limit = Annotated[int, Field(ge=1, le=MAX_PAGE), _about("Most items of a page.")]
_Seconds = Annotated[int, WithJsonSchema(_DATE_TIME)]
_Uid = Annotated[_Text, _about("UID of the Framework.")]
_Attempt = Annotated[_Index, _about("Attempt of the Framework, from 0.")]
_Role = Annotated[_Text, _about("Role.")]
_TaskIndex = Annotated[_Index, _about("Index of the Task.")]
_Namespace = Annotated[_Text, _about("Only of this namespace.")]
_After = Annotated[_Text, _about("`next` of the page before, with the same other parameters.")]


@dataclass(frozen=True)
class ListFrameworks(Read[FrameworksPage], operation="frameworks", path="frameworks"):
    """List Frameworks, newest first."""

    namespace: _Namespace = ""
    name: Annotated[_Text, _about("Only of this name.")] = ""
    state: Annotated[str, WithJsonSchema({"enum": list(State)}), _about("Only in this state.")] = ""
    phase: Annotated[str, WithJsonSchema({"enum": PHASES}), _about("Only in this phase.")] = ""
    code: Annotated[_Code | None, _about("Only with this completion code.")] = None
    since: Annotated[_Seconds | None, _about("Only those that existed at this time or later.")] = None
    until: Annotated[_Seconds | None, _about("Only those that existed before this time.")] = None
    q: Annotated[_Words, _about(_SEARCH)] = ""
    limit: _Limit = 100
    after: _After = ""


@dataclass(frozen=True)
class GetFramework(
    Read[FrameworkWithAttempts | None], operation="framework", path="frameworks/{uid}", missing="Framework {uid}"
):
    """Return a Framework and its attempts."""

    uid: _Uid


@dataclass(frozen=True)
class GetAttempt(
    Read[FrameworkAttemptWithObject | None],
    operation="attempt",
    path="frameworks/{uid}/attempts/{n}",
    missing="attempt {n} of Framework {uid}",
):
    """Return an attempt of a Framework, with its object and the counts of its Tasks."""

    uid: _Uid
    n: _Attempt


@dataclass(frozen=True)
class ListTasks(
    Read[TaskAttemptsPage | None],
    operation="tasks",
    path="frameworks/{uid}/attempts/{n}/tasks",
    missing="attempt {n} of Framework {uid}",
):
    """List the Task attempts of an attempt of a Framework, by role, index, instance and attempt."""

    uid: _Uid
    n: _Attempt
    role: Annotated[_Text, _about("Only of this role.")] = ""
    index: Annotated[_Index | None, _about("Only of Tasks with this index.")] = None
    failed: Annotated[
        bool | None, _about("true: only those that failed; stopped ones have not. false: only the others.")
    ] = None
    limit: _Limit = 100
    after: _After = ""


@dataclass(frozen=True)
class GetTaskAttempt(
    Read[TaskAttemptWithObjects | None],
    operation="task_attempt",
    path="frameworks/{uid}/attempts/{n}/tasks/{role}/{index}/{taskUid}/{attempt}",
    missing="attempt {attempt} of Task {role}[{index}] ({task_uid}) in attempt {n} of Framework {uid}",
):
    """Return a Task attempt, with the objects of the Task and of its Pods."""

    uid: _Uid
    n: _Attempt
    role: _Role
    index: _TaskIndex
    task_uid: Annotated[_Text, _about("UID of the instance of the Task.")]
    attempt: Annotated[_Index, _about("Attempt of the Task, from 0.")]


@dataclass(frozen=True)
class GetTaskHistory(
    Read[TaskAttempts | None],
    operation="task_history",
    path="frameworks/{uid}/tasks/{role}/{index}",
    missing="Framework {uid}",
):
    """List all attempts of a Task over all attempts of its Framework, oldest first: the newest 1000 of them."""

    uid: _Uid
    role: _Role
    index: _TaskIndex


@dataclass(frozen=True)
class ListLogs(
    Read[LogsPage | None], operation="logs", path="frameworks/{uid}/logs", missing="Framework {uid}", of_logs=True
):
    """List the logs of containers, by attempt of the Framework, role, index, attempt of the Task, container and run."""

    uid: _Uid
    attempt: Annotated[_Index | None, _about("Only of this attempt of the Framework.")] = None
    role: Annotated[_Text, _about("Only of this role.")] = ""
    index: Annotated[_Index | None, _about("Only of Tasks with this index.")] = None
    container: Annotated[_Text, _about("Only of containers of this name.")] = ""
    limit: _Limit = 100
    after: _After = ""


@dataclass(frozen=True)
class GetLog(
    Read[LogWithText | None],
    operation="log",
    path="frameworks/{uid}/logs/{id}",
    missing="log {id} of Framework {uid}",
    of_logs=True,
):
    """Return the log of one run of a container."""

    uid: _Uid
    id: Annotated[int, Field(ge=0, le=9_999_999_999), _about("Number of the log.")]
    tail: Annotated[_Index | None, _about("Only the last lines, as many as this.")] = None
    raw: Annotated[bool | None, _about("true: the bytes as they were, in base64.")] = None


@dataclass(frozen=True)
class CountFailures(Read[Failures], operation="failures", path="failures"):
    """Count failed attempts, not stopped ones; most Task attempts first, by day newest first."""

    by: Annotated[
        str,
        WithJsonSchema({"enum": list(FailureKey)}),
        _about(
            f"By what to count. By cause (code and words without numbers), the newest {MAX_COMPARED} of Tasks are "
            "counted, and as many of Frameworks that no Task has caused. By node, without Pods that were preempted or "
            "evicted, or whose node was shut down."
        ),
    ] = FailureKey.CODE
    namespace: _Namespace = ""
    since: Annotated[_Seconds | None, _about("Only completions at this time or later.")] = None
    until: Annotated[_Seconds | None, _about("Only completions before this time.")] = None
    limit: Annotated[int, Field(ge=1, le=MAX_GROUPS), _about("Most items.")] = MAX_GROUPS


@dataclass(frozen=True)
class ListFailures(Read[FailedTaskAttempts], operation="failed_attempts", path="failures/attempts"):
    """List the failed Task attempts of a group, newest first."""

    by: Annotated[str, WithJsonSchema({"enum": list(FailureKey)}), _about("The kind of the group.")] = FailureKey.CODE
    key: Annotated[_Text, _about("`key` of the group; absent: of all groups.")] = ""
    namespace: _Namespace = ""
    since: Annotated[_Seconds | None, _about("Only completions at this time or later.")] = None
    until: Annotated[_Seconds | None, _about("Only completions before this time.")] = None
    limit: _Limit = 100


@dataclass(frozen=True)
class CountCost(Read[Costs], operation="cost", path="cost"):
    """Sum the resource-seconds of Task attempts that have ended; most expensive first, by day newest first."""

    by: Annotated[str, WithJsonSchema({"enum": list(CostKey)}), _about("By what to sum.")] = CostKey.NAMESPACE
    resource: Annotated[
        _Text,
        _about("Order by this resource; absent: the extended resource with the highest sum, such as a GPU, else cpu."),
    ] = ""
    namespace: _Namespace = ""
    since: Annotated[_Seconds | None, _about("Only the time of attempts from this moment on.")] = None
    until: Annotated[_Seconds | None, _about("Only the time of attempts before this moment.")] = None
    limit: Annotated[int, Field(ge=1, le=MAX_GROUPS), _about("Most items.")] = MAX_GROUPS
    uid: Annotated[_Text, _about("Only of the Framework with this UID.")] = ""


@dataclass(frozen=True)
class ListNamespaces(Read[Namespaces], operation="namespaces", path="namespaces"):
    """List the namespaces of all Frameworks."""


READS: Final[tuple[type[Read[Any]], ...]] = tuple(Read.__subclasses__())


# --- parameters ---


def _parameter(field: str, path: str, schema: Json, default: Any) -> Parameter:
    # An absent one is None here, and has no value there.
    found: Json = next((one for one in schema.pop("anyOf", ()) if one.get("type") != "null"), {})
    schema = {key: value for key, value in {**found, **schema}.items() if key not in ("title", "default")}
    if default not in (None, "") and isinstance(default, str | int):
        schema["default"] = default
    name = re.sub("_([a-z])", lambda match: match[1].upper(), field)
    return Parameter(name, field, f"{{{name}}}" in path, schema, default)


def _read(schema: Mapping[str, Any], text: str) -> tuple[bool, Any, str]:
    """Return whether a text is valid, its value, and the description of valid ones. Fractions of times are dropped."""
    if "enum" in schema:
        return text in schema["enum"], text, f"one of {', '.join(schema['enum'])}"
    if "format" in schema:
        value: Any = None
        with suppress(ValueError, OverflowError):
            value = parse_time(text) if _TIME.fullmatch(text) else None
        return value is not None, value, "a time such as 2026-01-31T12:00:00Z"
    if schema["type"] == "integer":
        least, most = schema["minimum"], schema["maximum"]
        value = int(text) if _NUMBER.fullmatch(text) else least - 1
        return least <= value <= most, value, f"a whole number from {least} to {most}"
    if schema["type"] == "boolean":
        return text in ("true", "false"), text == "true", "true or false"
    valid = schema["minLength"] <= len(text) <= schema["maxLength"] and "\x00" not in text
    return valid, text, f"a text of 1 to {schema['maxLength']} characters"


def shown(text: str) -> str:
    """Quote a value for a message, shortened."""
    return f'"{text[:_SHOWN]}"{"..." if len(text) > _SHOWN else ""}'
