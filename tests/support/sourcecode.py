"""The syntax trees of the package, for tests of its rules."""

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).resolve().parents[2] / "frameworkcontroller"


@cache
def parsed(folder: Path = PACKAGE) -> Sequence[tuple[Path, ast.Module]]:
    """Each file with its tree. Do not modify the trees."""
    return [(file, ast.parse(file.read_text(encoding="utf-8"), str(file))) for file in sorted(folder.rglob("*.py"))]


def meanings(tree: ast.AST) -> dict[str, str]:
    """The full names of imported local names, so that nothing hides behind an alias."""
    meaning: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.partition(".")[0]
                meaning[alias.asname or root] = alias.name if alias.asname else root
        elif isinstance(node, ast.ImportFrom):
            meaning |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return meaning


def dotted(node: ast.expr, meaning: dict[str, str]) -> str | None:
    """The full name of an expression such as ``dt.datetime.now``; None if it does not begin with an imported name."""
    if isinstance(node, ast.Name):
        return meaning.get(node.id)
    if isinstance(node, ast.Attribute) and (owner := dotted(node.value, meaning)):
        return f"{owner}.{node.attr}"
    return None
