"""Base names of modules and names of public classes are unique in the package, so that each names one thing."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from frameworkcontroller.machine.kernel.reasons import Reason
from frameworkcontroller.machine.parts import REASONS

PACKAGE: Final = Path(__file__).resolve().parents[2] / "frameworkcontroller"

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


def modules() -> list[Path]:
    return [path for path in PACKAGE.rglob("*.py") if not path.stem.startswith("__")]


def public_classes() -> Iterator[str]:
    for path in modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name


def repeated(names: list[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def test_a_reason_occurs_once_and_is_listed() -> None:
    enums = {type(reason) for reason in REASONS}
    assert repeated([reason.value for reason in REASONS]) == set()
    assert enums == set(Reason.__subclasses__())


def test_a_base_name_occurs_once() -> None:
    assert repeated([path.stem for path in modules()]) == MODULES


def test_a_public_class_name_occurs_once() -> None:
    assert repeated(list(public_classes())) == CLASSES
