"""The tracker alone changes the records of a status, and marks each change; the machine alone decides their content."""

import ast
from collections.abc import Iterator
from dataclasses import fields
from typing import Final

import pytest

from frameworkcontroller.api import status
from tests.support.sourcecode import PACKAGE, dotted, meanings, parsed

RECORDS: Final = (
    status.FrameworkStatus,
    status.FrameworkAttemptStatus,
    status.TaskStatus,
    status.TaskAttemptStatus,
    status.TaskRoleStatus,
    status.RetryPolicyStatus,
)
FIELDS: Final = {field.name for record in RECORDS for field in fields(record)}
LISTS: Final = {"roles", "tasks", "conditions"}
"""Those of the fields that are lists."""

OWNERS: Final = {
    "machine/kernel/tracker.py": "Tracker",
    "machine/parts/autoscaling/rolescalers.py": "ScalerState",
    "machine/parts/budgets/disruptionbudgets.py": "BudgetState",
    "machine/parts/dependencies/dependencies.py": "RoleOrder",
    "machine/parts/gangs/gangstate.py": "GangState",
    "machine/parts/history/archiving.py": "ArchiveMemory",
    "machine/parts/kueue/queueing.py": "Queueing",
    "machine/parts/nodes/nodeavoidance.py": "UnplacedPods",
    "machine/parts/notice/checkpointnotice.py": "NoticeState",
    "machine/parts/progress/reportedprogress.py": "ReadReports",
    "machine/parts/rollout/availability.py": "Availability",
}
"""By file, the class that changes records: the tracker and, each for its own fields of the status, states of parts."""

HOLDERS: Final = {"machine", "controller", "manager"}
"""Packages of the controller's process. Commands decode statuses of their own, and write none."""

MARKS: Final = {"change", "move", "move_framework"}
"""Methods of the owner that mark what changed."""

UNMARKED: Final = {
    "encoded", "task_counts", "phase", "reason", "message", "progress", "ready_task_count", "updated_task_count",
}  # fmt: skip
"""A cache, counts, and the headline, which follow from marked changes: no status is written for them alone. Progress is
written with the next change or after a minute, ready Tasks with it or after a second, and no action waits for them."""

MUTATORS: Final = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"}

DECISIONS: Final = {
    "frameworkcontroller.api.completion.CompletionStatus",
    "frameworkcontroller.api.status.Condition",
    "frameworkcontroller.machine.kernel.actions.Outcome",
    "frameworkcontroller.machine.kernel.model.Record",
}
"""Classes of which only the machine, and the decoding in api/, make objects."""

EXPECTATIONS: Final = "frameworkcontroller.machine.kernel.expectations"


# --- the rules ------------------------------------------------------------------------------------------------------


def writes(tree: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Where a field of a record is assigned or deleted, or a list in one changed, and the field's name."""
    lists = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute) and node.value.attr in LISTS
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def list_of(node: ast.expr) -> str | None:
        if isinstance(node, ast.Attribute) and node.attr in LISTS and not is_own(node):
            return node.attr
        return node.id if isinstance(node, ast.Name) and node.id in lists else None

    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ctx=ast.Store() | ast.Del()) if node.attr in FIELDS and not is_own(node):
                yield node, node.attr
            case ast.Subscript(ctx=ast.Store() | ast.Del()) if (found := list_of(node.value)) is not None:
                yield node, found
            case ast.Call(func=ast.Attribute(attr=name)) if name in MUTATORS:
                assert isinstance(node.func, ast.Attribute)
                if (found := list_of(node.func.value)) is not None:
                    yield node, found
            case ast.Call(func=ast.Name(id="setattr")):
                yield node, "setattr"


def is_own(node: ast.Attribute) -> bool:
    """Whether it is an attribute of the object itself: no record has methods that assign."""
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def assignment_faults(file: str, tree: ast.Module) -> Iterator[str]:
    """Where the file changes a record that it does not own."""
    if file.partition("/")[0] not in HOLDERS:
        return
    owned: set[ast.AST] = set()
    if (owner := OWNERS.get(file)) is not None:
        owned = {node for item in tree.body if is_class(item, owner) for node in ast.walk(item)}
    for node, name in writes(tree):
        if node not in owned:
            yield f"{file}:{node.lineno} changes {name}: {ast.unparse(node)}"


def marking_faults(owner: ast.ClassDef) -> Iterator[str]:
    """Where a method of the owner changes a record, and does not mark it."""
    methods = {item.name: item for item in owner.body if isinstance(item, ast.FunctionDef)}
    marking = MARKS | {name for name, method in methods.items() if MARKS & set(own_calls(method))}
    for name, method in methods.items():
        changed = [node for node, field in writes(method) if field not in UNMARKED]
        if changed and name != "change" and not marking & set(own_calls(method)):
            yield f"{name} does not mark {ast.unparse(changed[0])}"


def own_calls(method: ast.FunctionDef) -> Iterator[str]:
    """The names of the methods of the same object, or of a tracker, that are called."""
    for node in ast.walk(method):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of = node.func.value
            if is_own(node.func) or (isinstance(of, ast.Name) and of.id == "tracker"):
                yield node.func.attr


def decision_faults(file: str, tree: ast.AST) -> Iterator[str]:
    """The places where the file constructs decisions, or touches the machine's expectations."""
    if file.partition("/")[0] in {"machine", "api"}:
        return
    meaning = meanings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            within = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            if any(f"{within}{alias.name}.".startswith(f"{EXPECTATIONS}.") for alias in node.names):
                yield f"{file}:{node.lineno} imports {EXPECTATIONS}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (name := (dotted(node.func, meaning) or "").removesuffix(".of")) in DECISIONS:
            yield f"{file}:{node.lineno} makes a {name.rpartition('.')[2]}"
        elif isinstance(node, ast.Attribute) and node.attr == "expectations":
            yield f"{file}:{node.lineno} touches {ast.unparse(node)}"


def is_class(node: ast.stmt, name: str) -> bool:
    """Whether it is the class of that name."""
    return isinstance(node, ast.ClassDef) and node.name == name


# --- the product ----------------------------------------------------------------------------------------------------


def files() -> Iterator[tuple[str, ast.Module]]:
    """The path of each file in the package, with its tree."""
    return ((str(file.relative_to(PACKAGE)), tree) for file, tree in parsed())


def the_owners() -> Iterator[ast.ClassDef]:
    trees = dict(files())
    for file, name in OWNERS.items():
        yield from (item for item in trees[file].body if isinstance(item, ast.ClassDef) and is_class(item, name))


def test_only_owners_change_the_records_of_a_status() -> None:
    assert [fault for file, tree in files() for fault in assignment_faults(file, tree)] == []


def test_owners_mark_each_change() -> None:
    owners = list(the_owners())
    assert len(owners) == len(OWNERS)
    assert sum(1 for _ in writes(owners[0])) > 20
    assert [fault for owner in owners for fault in marking_faults(owner)] == []


def test_only_the_machine_decides() -> None:
    assert [fault for file, tree in files() for fault in decision_faults(file, tree)] == []


# --- the rules can fail ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("machine/task.py", "task.attempt.pod_uid = uid"),
        ("machine/task.py", "task.retry.total_retried_count += 1"),
        ("machine/task.py", "attempt.pod_ip, attempt.pod_host_ip = merged"),
        ("machine/task.py", "delay = task.retry.retry_delay_sec = 1"),
        ("machine/task.py", "for task.state in states:\n    pass"),
        ("machine/scale.py", "del role.tasks[-1]"),
        ("machine/scale.py", "role.status.tasks[0] = task"),
        ("machine/scale.py", "ctx.attempt.roles.append(role)"),
        ("machine/scale.py", "tasks = role.status.tasks\ntasks.pop()"),
        ("machine/scale.py", "tasks = role.status.tasks\ntasks[0] = task"),
        ("machine/conditions.py", "ctx.status.conditions.clear()"),
        ("machine/kernel/tracker.py", "def f(task):\n    task.encoded = None"),
        ("machine/kernel/tracker.py", "class AnotherOne:\n    def f(self):\n        self.status.name = ''"),
        ("machine/x.py", "setattr(task, 'state', state)"),
        ("controller/driver.py", "machine.tracker.status.observed_generation = 1"),
    ],
)
def test_a_change_by_another_is_found(file: str, source: str) -> None:
    assert list(assignment_faults(file, ast.parse(source)))


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("machine/task.py", "uid = task.attempt.pod_uid"),
        ("machine/task.py", "TaskAttemptStatus(id=0, start_time=now)"),
        ("machine/x.py", "class C:\n    def __init__(self):\n        self.name = ''"),
        ("machine/kernel/tracker.py", "class Tracker:\n    def f(self, task):\n        task.state = 1"),
        ("machine/x.py", "names = []\nnames.append('')"),
        ("views/summary.py", "summary.state = State.RUNNING"),
    ],
)
def test_code_that_changes_no_record_is_accepted(file: str, source: str) -> None:
    assert list(assignment_faults(file, ast.parse(source))) == []


@pytest.mark.parametrize(
    ("body", "faulty"),
    [
        ("task.state = 1", True),
        ("task.state = 1; task.encoded = None", True),
        ("role.tasks.pop(); self.count(role)", True),
        ("task.state = 1; other.change(task)", True),
        ("task.state = 1; self.change(task)", False),
        ("role.tasks.pop(); self.added(role)", False),
        ("task.encoded = None", False),
        ("return task.state", False),
    ],
)
def test_a_change_that_is_not_marked_is_found(body: str, *, faulty: bool) -> None:
    source = f"class Tracker:\n    def f(self): {body}\n    def added(self, role): self.change()"
    (owner,) = ast.parse(source).body
    assert isinstance(owner, ast.ClassDef)
    assert bool(list(marking_faults(owner))) is faulty


@pytest.mark.parametrize(
    "source",
    [
        "from frameworkcontroller.machine.kernel.model import Record\nRecord(reason, '')",
        "from frameworkcontroller.machine.kernel.actions import Outcome as Result\nResult(action, result)",
        "from frameworkcontroller.machine.kernel import actions\nactions.Outcome(action, result)",
        "from frameworkcontroller.api.status import Condition\ndef f():\n    return Condition()",
        "from frameworkcontroller.api.completion import CompletionStatus\nCompletionStatus.of(code, '')",
        "from frameworkcontroller.api.completion import CompletionStatus\nCompletionStatus(0, '')",
        "import frameworkcontroller.api.completion as codes\ncodes.CompletionStatus.of(code, '')",
        "from frameworkcontroller.machine.kernel.expectations import Expectations",
        "from frameworkcontroller.machine.kernel import expectations",
        "import frameworkcontroller.machine.kernel.expectations",
        "machine.tracker.expectations.trust_absence(uid)",
        "trust = machine.tracker.expectations.trust_absence",
    ],
)
def test_a_decision_elsewhere_is_found(source: str) -> None:
    assert list(decision_faults("controller/x.py", ast.parse(source)))


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("machine/x.py", "from frameworkcontroller.machine.kernel.model import Record\nRecord(reason, '')"),
        ("api/codec.py", "from frameworkcontroller.api.status import Condition\nCondition()"),
        (
            "controller/x.py",
            "from frameworkcontroller.machine.kernel.model import Record\ndef f(found: list[Record]): ...",
        ),
        ("controller/x.py", "from frameworkcontroller.local.apiserver.object_records import Record\nRecord()"),
        ("commands/x.py", "from frameworkcontroller.api.status import Condition\nisinstance(found, Condition)"),
    ],
)
def test_code_that_decides_nothing_is_accepted(file: str, source: str) -> None:
    assert list(decision_faults(file, ast.parse(source))) == []
