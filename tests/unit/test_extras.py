"""The package without the libraries of its extras."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence, Set
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

from frameworkcontroller import extras
from frameworkcontroller.commands import program
from tests.support.sourcecode import PACKAGE

WITH_EXTRAS = {"integrations",
    "cli.dashboard", "cli.local", "cli.runcontroller", "cli.servehistory", "dashboard", "history", "local", "manager",
    "reports", "webaccess",
}  # fmt: skip
"""The rooms that may import libraries of extras. All others are for every installation."""

LOADED = """
import sys
from importlib import import_module
for module in sys.argv[2:]:
    import_module(module)
    for library in set(sys.argv[1].split()) & set(sys.modules):
        sys.exit(f"{module} imports {library}")
"""

WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

absent = sys.argv.pop(1).split()

class Absence(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absence())
from frameworkcontroller.cli.main import main
sys.exit(main())
"""


def requirements(extra: str) -> set[str]:
    """The distributions of an extra."""
    wanted = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"][extra]
    return {re.split(r"[<>=\[]", one, maxsplit=1)[0].lower() for one in wanted}


def base_modules() -> Sequence[str]:
    """The modules of every installation."""
    files = [file for file in sorted(PACKAGE.rglob("*.py")) if file.stem != "__main__"]
    found = [".".join(file.relative_to(PACKAGE).with_suffix("").parts) for file in files]
    return [name.removesuffix(".__init__") for name in found if not starts_with_any(name, WITH_EXTRAS)]


def starts_with_any(name: str, rooms: set[str]) -> bool:
    return any(f"{name}.".startswith(f"{room}.") for room in rooms)


def test_each_library_is_in_its_extra() -> None:
    distributions = packages_distributions()
    named: dict[str, set[str]] = {"controller": set(), "archive": set()}
    for library, extra in extras.EXTRA_OF.items():
        (distribution,) = distributions[library]
        assert distribution.lower().replace("_", "-") in requirements(extra), library
        named[extra].add(distribution.lower().replace("_", "-"))
    # Some are in both.
    assert named["controller"] | named["archive"] == requirements("controller") | requirements("archive")


def test_no_other_room_imports_a_library_of_an_extra() -> None:
    modules = [f"{PACKAGE.name}.{name}" for name in base_modules() if name != "__init__"]
    assert len(modules) > 150
    command = [sys.executable, "-c", LOADED, " ".join(extras.EXTRA_OF), *modules]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        ([], "controller"),
        (["local", "up"], "local"),
        (["local", "run", "file"], "local"),
        (["dashboard"], "archive"),
        (["history", "serve"], "archive"),
        (["history", "show", "--dir", "."], "archive"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(tmp_path: Path, arguments: list[str], extra: str) -> None:
    assert without_extras(tmp_path, *arguments) == (
        2,
        f"frameworkcontroller: this command needs the extra \"{extra}\": pip install 'frameworkcontroller[{extra}]'\n",
    )


def test_a_controllers_extra_is_not_enough_for_a_local_cluster(tmp_path: Path) -> None:
    code, said = without_extras(tmp_path, "local", "up", absent={"sqlalchemy"})
    assert (code, said) == (
        2,
        "frameworkcontroller: this command needs the extra \"local\": pip install 'frameworkcontroller[local]'\n",
    )


@pytest.mark.parametrize("arguments", [["history", "show"], ["logs", "f"]])
def test_an_archive_elsewhere_needs_no_extra(tmp_path: Path, arguments: list[str]) -> None:
    code, said = without_extras(tmp_path, *arguments, "--archive", "http://127.0.0.1:1")
    assert code == 1
    assert said.startswith("frameworkcontroller: ")
    assert "127.0.0.1:1" in said


def test_an_auth_provider_names_the_controllers_extra(tmp_path: Path) -> None:
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"auth-provider": {"name": "oidc", "config": {}}}}],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    assert without_extras(tmp_path, "list", "--kubeconfig", str(path)) == (
        2,
        f'frameworkcontroller: kubeconfig {path}: auth-provider needs the extra "controller": '
        "pip install 'frameworkcontroller[controller]'\n",
    )


def test_a_fault_is_not_taken_for_a_missing_extra() -> None:
    """An installed library that lacks a part, and a module of this package that has a wrong name."""
    for name in ("sqlalchemy.ext.asyncio", "frameworkcontroller.history.archiv", "json", None):
        assert extras.missing_library(ModuleNotFoundError(name=name)) is None
    assert extras.missing_library(ImportError(name="re2")) is None
    assert extras.missing_library(ModuleNotFoundError(name="re2")) == "re2"


@pytest.mark.parametrize("installed", [True, False])
def test_commands_run_without_uvloop(monkeypatch: pytest.MonkeyPatch, installed: bool) -> None:
    if not installed:
        monkeypatch.setitem(sys.modules, "uvloop", None)

    async def loop() -> str:
        import asyncio

        return type(asyncio.get_running_loop()).__module__

    assert program.run(loop()).startswith("uvloop" if installed else "asyncio")


def without_extras(folder: Path, *arguments: str, absent: Set[str] = frozenset(extras.EXTRA_OF)) -> tuple[int, str]:
    """The exit code and the errors of a command where these libraries are not installed."""
    command = [sys.executable, "-c", WITHOUT, " ".join(absent), *arguments]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False)
    return ran.returncode, ran.stderr
