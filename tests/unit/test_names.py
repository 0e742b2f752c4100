"""Base names of modules and names of public classes are unique in the package, so that each names one thing."""

import ast
from collections import Counter
from collections.abc import Iterable
from typing import Final

from frameworkcontroller.machine.kernel.reasons import Reason
from frameworkcontroller.machine.parts import REASONS
from tests.support.sourcecode import PACKAGE, parsed

# Names that still occur more than once. Add none; a line each, so that renames merge.
MODULES: Final = {
    "main",
    "resources",
}
CLASSES: Final = {
    "Outcome",
    "Trigger",
    "Wait",
}


MODULES_OF_PACKAGE: Final = [(file.stem, tree) for file, tree in parsed() if not file.stem.startswith("__")]


def repeated(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def test_a_reason_occurs_once_and_is_listed() -> None:
    enums = {type(reason) for reason in REASONS}
    assert repeated([reason.value for reason in REASONS]) == set()
    assert enums == set(Reason.__subclasses__())


def test_a_base_name_occurs_once() -> None:
    assert repeated(stem for stem, _ in MODULES_OF_PACKAGE) == MODULES


def test_a_public_class_name_occurs_once() -> None:
    """Except in the SDK, whose names are its interface: `Framework`, `NotFound`, `Role`."""
    trees = (tree for file, tree in parsed() if not file.is_relative_to(PACKAGE / "sdk"))
    nodes = (node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    assert repeated(node.name for node in nodes if not node.name.startswith("_")) == CLASSES
