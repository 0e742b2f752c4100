"""Permitted imports, and the impure functions that the machine may not use."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from frameworkcontroller.machine.parts import PARTS
from tests.support.sourcecode import PACKAGE, dotted, meanings, parsed

NAME = PACKAGE.name

LAYERS = {
    "api": {"api", "kube.resources"},
    "machine": {"api", "machine"},
    "kube": {"kube", "kubeconfig"},
    "controller": {"api", "machine", "kube", "controller"},
    "local": {"api", "kube", "local", "webaccess.loopback"},
    "webaccess": {"api.resources", "kube", "webaccess"},
    "config": {"api", "machine", "kube", "config"},
    "reports": {"api", "kube", "webaccess.boundedserver", "reports"},
    "manager": {"api", "machine", "kube", "controller", "config", "reports", "manager"},
    "views": {"api", "machine", "kube", "views", "history.reads"},
    "integrations": {"aio", "api", "kube.client", "sdk"},
    "sdk": {"api", "kube", "views", "history", "sdk", "commands.lint", "webaccess.viewers"},
    "commands": {"api", "machine", "kube", "views", "history", "sdk", "commands", "logs", "webaccess.viewers"},
    "dashboard": {"api", "kube", "webaccess", "views", "history", "dashboard"},
    "history": {"api", "kube", "webaccess", "history"},
    "kubeconfig": {"kubeconfig"},
    "barrier": {"barrier", "kubeconfig"},
    "cli": {
        "api", "kube", "config", "manager", "local", "commands", "views", "webaccess", "dashboard", "history", "cli",
        "logs",
    },
}  # fmt: skip
"""The packages and modules that each package may import. Modules at the top may import all but `local`."""

PLUGINS = {"torchx_plugins": {"api", "sdk"}}
"""The top-level packages that other libraries load, and the packages that each may import. No package imports them."""

FOUNDATIONS = {"backoff.py", "deadlines.py", "depths.py", "extras.py", "lru.py", "tokenbucket.py"}
"""Pure modules at the top that every package may import; they import nothing of ours."""

RESERVED = {
    "prometheus_client": {"manager/exposition.py", "history/archivemetrics.py"},
    "cryptography": {"reports/authority.py"},
    "sqlalchemy": {"history"},
    "aiosqlite": {"history"},
    "asyncpg": {"history"},
    "alembic": {"history"},
    "torchx": set(),
    "torchx_plugins": set(),
}
"""Libraries that only these packages and files may import.

The code that is measured knows nothing of metrics, and a controller loads no database.
"""

STANDALONE = {"barrier", "kubeconfig"}
"""Packages that run in images of others: besides their layers they may import the standard library and BUNDLED."""

BUNDLED = {"yaml"}
"""Third-party packages that scripts/build-barrier adds to the barrier."""

IMPURE_MODULES = {
    "aiohttp", "asyncio", "concurrent", "http", "importlib", "io", "kubernetes_asyncio", "logging", "multiprocessing",
    "os", "pathlib", "prometheus_client", "secrets", "select", "selectors", "signal", "socket", "subprocess",
    "tempfile", "tenacity", "threading", "time", "urllib", "uvloop",
}  # fmt: skip
IMPURE_NAMES = {
    "datetime.datetime": {"now", "today", "utcnow"},
    "datetime.date": {"today"},
    "uuid": {"getnode", "uuid1", "uuid4", "uuid6", "uuid7", "uuid8"},
}
"""Names that read a clock or draw chance; of `random`, only `Random` is allowed, as the type of an argument."""

IMPURE_BUILTINS = {"__import__", "breakpoint", "eval", "exec", "input", "open", "print"}


class Import(NamedTuple):
    file: Path
    line: int
    module: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(PACKAGE.parent)}:{self.line} imports {self.module}"


def imports(file: Path, tree: ast.AST) -> Iterator[Import]:
    """Every import in the file, however deep inside, as full dotted names down to the imported one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno} imports relatively"
            for alias in node.names:
                yield Import(file, node.lineno, f"{node.module}.{alias.name}")


def layering_faults(file: Path, tree: ast.AST) -> Iterator[str]:
    """The imports of the file that break the rules above."""
    parts = file.relative_to(PACKAGE).parts
    for found in imports(file, tree):
        root, _, rest = found.module.partition(".")
        standalone = parts[0] in STANDALONE
        if standalone and root not in sys.stdlib_module_names | BUNDLED | {NAME}:
            yield f"{found}, which scripts/build-barrier does not bundle"
        if root in RESERVED and not RESERVED[root] & {parts[0], "/".join(parts)}:
            yield f"{found}, which only {', '.join(sorted(RESERVED[root])) or 'plug-ins'} may"
        if root != NAME or rest in ("", "__version__"):  # the package itself, which holds its version and nothing more
            continue
        target = rest.partition(".")[0]
        if target + ".py" in FOUNDATIONS and not standalone:
            continue
        if len(parts) == 1:
            if file.name in FOUNDATIONS:
                yield f"{found}, and {file.name} may import nothing of ours"
            if target == "local":
                yield f"{found}, which only cli may"
        elif not any(f"{rest}.".startswith(f"{allowed}.") for allowed in LAYERS[parts[0]]):
            yield f"{found}, and {parts[0]} may import {', '.join(sorted(LAYERS[parts[0]]))} only"


def plugin_faults(file: Path, tree: ast.AST) -> Iterator[str]:
    """The imports of a plug-in that break the rules above."""
    allowed = PLUGINS[file.relative_to(PACKAGE.parent).parts[0]]
    for found in imports(file, tree):
        root, _, rest = found.module.partition(".")
        if root == NAME and rest.partition(".")[0] not in allowed:
            yield f"{found}, and plug-ins may import {', '.join(sorted(allowed))} only"


def part_faults(file: Path, tree: ast.AST) -> Iterator[str]:
    """The imports of a file of the machine that break the order of its rooms: kernel, parts, life.

    The life knows the table of parts, and no part; a part knows the kernel, and no other part.
    """
    room, *inner = file.relative_to(PACKAGE / "machine").parts
    for found in imports(file, tree):
        target = found.module.removeprefix(f"{NAME}.machine.")
        if target == found.module:
            continue
        to, _, rest = target.partition(".")
        if room == "kernel":
            allowed = to == "kernel"
        elif room == "parts" and inner != ["__init__.py"]:
            # A folder, or a single module.
            allowed = to == "kernel" or (to == "parts" and rest.partition(".")[0] == inner[0].removesuffix(".py"))
        else:
            allowed = to != "parts" or rest == "PARTS" or room == "parts"
        if not allowed:
            yield str(found)


PARTS_WORDS = re.compile(
    r"kueue|workload|gang|pod_?group|claim|histor|archiv|dependenc|(?<!of[- ])service\b", re.IGNORECASE
)
"""Words of features. Reasons, kinds and fields that have them belong into a part, or into `api/`."""

NAMED_IN_LIFE = {
    "kernel/aside.py": {"archiv", "histor"},
    "kernel/model.py": {"kueue", "gang", "podgroup", "histor", "archiv", "claim"},
    "kernel/part.py": {"archiv", "histor"},
    "kernel/protocol.py": {"archiv", "histor"},
    "passes.py": {"archiv"},
    "plan.py": {"archiv"},
    "reconciler.py": {"archiv", "histor"},
}
"""The exceptions: the configuration and the caches that a plan gets (`Limits`,
`Observed`), and `Archive`, whose answers the driver brings as it does those of requests."""


def naming_faults(file: str, source: str) -> Iterator[str]:
    """Where a file of the life or the kernel names a feature."""
    for number, line in enumerate(source.splitlines(), 1):
        for word in {found.lower() for found in PARTS_WORDS.findall(line)} - NAMED_IN_LIFE.get(file, set()):
            yield f"{file}:{number} names {word}"


def purity_faults(file: Path, tree: ast.AST) -> Iterator[str]:
    """Where the file could read a clock, draw chance, or do I/O."""
    where = file.relative_to(PACKAGE.parent)
    meaning = meanings(tree)
    for found in imports(file, tree):
        if found.module.partition(".")[0] in IMPURE_MODULES or impure(found.module):
            yield str(found)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (name := dotted(node, meaning)) and impure(name):
            yield f"{where}:{node.lineno} uses {name}"
        elif isinstance(node, ast.Name) and node.id in IMPURE_BUILTINS and node.id not in meaning:
            yield f"{where}:{node.lineno} uses {node.id}"


def impure(name: str) -> bool:
    """Whether this full name reads a clock or draws chance."""
    owner, _, attribute = name.rpartition(".")
    if owner == "random":
        return attribute != "Random"
    return attribute in IMPURE_NAMES.get(owner, ())


def test_imports_run_one_way() -> None:
    assert [fault for file, tree in parsed() for fault in layering_faults(file, tree)] == []


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_plugin_uses_the_sdk_alone(plugin: str) -> None:
    folder = PACKAGE.parent / plugin
    assert [fault for file, tree in parsed(folder) for fault in plugin_faults(file, tree)] == []
    # A namespace package: other distributions have parts of it.
    assert list(folder.rglob("__init__.py")) == []
    assert list(plugin_faults(folder / "x.py", ast.parse("from frameworkcontroller.kube import client")))


def test_the_life_names_no_part_and_no_part_another() -> None:
    assert [fault for file, tree in parsed(PACKAGE / "machine") for fault in part_faults(file, tree)] == []


def test_the_life_and_the_kernel_name_no_feature() -> None:
    machine = PACKAGE / "machine"
    files = {str(file.relative_to(machine)): file for file in machine.rglob("*.py")}
    sources = {name: file.read_text() for name, file in files.items() if not name.startswith("parts/")}
    assert [fault for name, source in sources.items() for fault in naming_faults(name, source)] == []
    for name, words in NAMED_IN_LIFE.items():
        assert {word.lower() for word in PARTS_WORDS.findall(sources[name])} == words


@pytest.mark.parametrize("source", ["if limits.kueue:", "Kind.VOLUME_CLAIM", '"""Ask the history."""', "Service"])
def test_a_name_of_a_feature_is_found(source: str) -> None:
    assert list(naming_faults("task.py", source))


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("machine/task.py", "from frameworkcontroller.machine.parts.claims.volumeclaims import ClaimPart"),
        ("machine/task.py", "from frameworkcontroller.machine.parts import claims"),
        ("machine/kernel/x.py", "from frameworkcontroller.machine.parts import PARTS"),
        ("machine/kernel/x.py", "from frameworkcontroller.machine.task import step"),
        ("machine/parts/gangs/x.py", "from frameworkcontroller.machine.parts.kueue.kueue import KueuePart"),
        ("machine/parts/x.py", "from frameworkcontroller.machine.parts.kueue.kueue import KueuePart"),
        ("machine/parts/x.py", "from frameworkcontroller.machine.gates import may_create"),
        ("machine/parts/gangs/x.py", "from frameworkcontroller.machine.parts import PARTS"),
        ("machine/parts/gangs/x.py", "from frameworkcontroller.machine.gates import why_not_create_pod"),
    ],
)
def test_an_import_of_a_part_is_found(file: str, source: str) -> None:
    assert list(part_faults(PACKAGE / file, ast.parse(source)))


def test_every_package_has_a_layer() -> None:
    packages = {file.parent.name for file in PACKAGE.glob("*/__init__.py")}
    assert packages == set(LAYERS)


def test_the_machine_is_pure() -> None:
    pure = {PACKAGE / name for name in FOUNDATIONS} | set((PACKAGE / "machine").rglob("*.py"))
    assert [fault for file, tree in parsed() if file in pure for fault in purity_faults(file, tree)] == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("api/x.py", "from frameworkcontroller.kube import errors"),
        ("api/x.py", "import frameworkcontroller.machine.plan"),
        ("machine/x.py", "from frameworkcontroller import kube"),
        ("kube/x.py", "from frameworkcontroller.api import names"),
        ("kube/x.py", "def f():\n    from frameworkcontroller.machine.plan import plan"),
        ("kube/x.py", "import typing\nif typing.TYPE_CHECKING:\n    from frameworkcontroller.local import cluster"),
        ("controller/x.py", "from frameworkcontroller.config.config import Config"),
        ("local/apiserver/x.py", "from frameworkcontroller.controller.driver import Driver"),
        ("local/x.py", "from frameworkcontroller.manager.app import run"),
        ("manager/app.py", "from frameworkcontroller.local.cluster import Cluster"),
        ("kube/x.py", "import prometheus_client"),
        ("controller/x.py", "from prometheus_client import Counter"),
        ("history/x.py", "from prometheus_client import Counter"),
        ("manager/controllermetrics.py", "from prometheus_client import Counter"),
        ("manager/x.py", "from sqlalchemy import Table"),
        ("history/x.py", "from frameworkcontroller.machine.plan import plan"),
        ("sdk/x.py", "from torchx.specs import AppDef"),
        ("cli/x.py", "import torchx_plugins.schedulers.frameworkcontroller"),
        ("backoff.py", "from frameworkcontroller.api import names"),
        ("config/config.py", "from frameworkcontroller.controller.driver import Driver"),
        ("commands/x.py", "from frameworkcontroller.config.config import Config"),
        ("commands/x.py", "from frameworkcontroller.manager.app import Controller"),
        ("dashboard/x.py", "from frameworkcontroller.commands import program"),
        ("views/x.py", "from frameworkcontroller.commands import program"),
        ("commands/x.py", "from frameworkcontroller.cli import local"),
        ("commands/x.py", "from frameworkcontroller.local.cluster import Cluster"),
        ("__main__.py", "from frameworkcontroller.local.cluster import Cluster"),
        ("barrier/x.py", "import aiohttp"),
        ("barrier/x.py", "from frameworkcontroller.api import names"),
        ("barrier/x.py", "from frameworkcontroller.backoff import Backoff"),
        ("kubeconfig/x.py", "import kubernetes_asyncio"),
        ("kubeconfig/x.py", "from frameworkcontroller.barrier import exits"),
    ],
)  # fmt: skip
def test_an_import_against_the_rules_is_found(file: str, source: str) -> None:
    assert list(layering_faults(PACKAGE / file, ast.parse(source)))


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("machine/x.py", "from frameworkcontroller.api.names import GROUP"),
        ("kube/x.py", "from frameworkcontroller import __version__"),
        ("kube/x.py", "from frameworkcontroller.backoff import Backoff"),
        ("cli/local.py", "from frameworkcontroller.local.cluster import Cluster"),
        ("manager/app.py", "from frameworkcontroller.controller.driver import Driver"),
        ("manager/exposition.py", "from prometheus_client import Metric"),
        ("history/archivemetrics.py", "from prometheus_client import Counter"),
        ("history/x.py", "from sqlalchemy.ext.asyncio import create_async_engine"),
        ("commands/x.py", "from frameworkcontroller.logs import one_line"),
        ("barrier/x.py", "import json, urllib.request, yaml"),
        ("barrier/x.py", "from frameworkcontroller.kubeconfig.reader import Kubeconfig"),
    ],
)
def test_an_import_by_the_rules_is_let_pass(file: str, source: str) -> None:
    assert list(layering_faults(PACKAGE / file, ast.parse(source))) == []


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio",
        "from time import monotonic",
        "import os.path",
        "import random\nrandom.random()",
        "from random import choice",
        "import random as chance\nchance.shuffle([])",
        "from datetime import datetime, UTC\ndatetime.now(UTC)",
        "import datetime as dt\ndt.datetime.utcnow()",
        "from datetime import date as day\nday.today()",
        "from datetime import datetime\nread = datetime.now",
        "from uuid import uuid4",
        "import uuid\nuuid.uuid4()",
        "print('x')",
        "from logging import getLogger",
    ],
)
def test_an_impurity_is_found(source: str) -> None:
    assert list(purity_faults(PACKAGE / "machine" / "x.py", ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "import random\ndef f(rng: random.Random) -> float:\n    return rng.random()",
        "from random import Random",
        "from datetime import UTC, datetime\ndatetime.fromtimestamp(0.0, UTC)",
        "import uuid\nuuid.UUID(int=1)",
    ],
)
def test_pure_code_is_accepted(source: str) -> None:
    assert list(purity_faults(PACKAGE / "machine" / "x.py", ast.parse(source))) == []


def test_every_part_is_in_the_table() -> None:
    rooms = {file.stem for file in (PACKAGE / "machine/parts").iterdir() if file.stem.isidentifier()} - {"__init__"}
    inside = f"{NAME}.machine.parts."
    assert rooms - {"__pycache__"} == {type(part).__module__.removeprefix(inside).partition(".")[0] for part in PARTS}


def test_a_module_of_the_machine_fits_one_head() -> None:
    lengths = {file.name: len(file.read_text().splitlines()) for file in (PACKAGE / "machine").rglob("*.py")}
    assert {name: length for name, length in lengths.items() if length > 500} == {}
