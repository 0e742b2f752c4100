"""The spawner starts before and without anything else of the project."""

import ast
import sys
from pathlib import Path

import frameworkcontroller

PACKAGE = Path(frameworkcontroller.__file__).parent
SPAWNER = "frameworkcontroller.local.kubelet.spawner"


def imported(file: Path) -> set[str]:
    """The modules that importing the file imports; of the spawner's own files, also those that functions import."""
    found: set[str] = set()
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree) if file.parent.name == "spawner" else tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_it_needs_the_standard_library_alone() -> None:
    files = [*(PACKAGE / "local" / "kubelet" / "spawner").glob("*.py")]
    # Its parents are imported with it.
    files += [PACKAGE / part / "__init__.py" for part in ("", "local", "local/kubelet")]
    foreign = {
        name
        for file in files
        for name in imported(file)
        if name.partition(".")[0] not in sys.stdlib_module_names and not name.startswith(SPAWNER)
    }
    assert foreign == set()
