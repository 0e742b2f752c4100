"""The generated pages of docs/ agree with the code and the shipped configuration."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pytest
from pydantic import BaseModel

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import encode_task
from frameworkcontroller.api.completion import PREDEFINED
from frameworkcontroller.api.status import TaskStatus
from frameworkcontroller.config.config import Config
from tests.support.filled import filled

ROOT = Path(__file__).resolve().parents[2]


def generator(name: str) -> ModuleType:
    """A script of scripts/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("page", "script"),
    [
        ("failure-codes.md", "failure_codes"),
        ("states.md", "states"),
        ("events.md", "events"),
        ("metrics.md", "metrics"),
        ("reference.md", "reference"),
        ("commands.md", "commands"),
    ],
)
def test_a_page_is_current(page: str, script: str) -> None:
    assert (ROOT / "docs" / page).read_text() == generator(script).document(), "run `make docs`"


def test_the_fields_that_lint_knows_are_current() -> None:
    table = ROOT / "frameworkcontroller/commands/lint/podfields.json"
    assert table.read_text() == generator("pod_fields").document(), "run `make docs`"


def test_every_field_of_a_task_is_explained() -> None:
    def paths(value: Any, path: str) -> Iterator[str]:
        for name, item in value.items():
            # A constant object with fields of its own needs no row.
            if not isinstance(item, dict) or name in ("completionStatus", "pod"):
                yield path + name
            if isinstance(item, dict):
                yield from paths(item, f"{path}{name}.")
            elif isinstance(item, list) and isinstance(item[0], dict):
                yield from paths(item[0], f"{path}{name}[].")

    task = orjson.loads(encode_task("f", "a", filled(TaskStatus)))
    # Only Frameworks have a trigger.
    del task["attemptStatus"]["completionStatus"]["trigger"]
    assert list(generator("reference").task_fields()) == list(paths(task, ""))


def test_every_name_that_pods_get_is_explained() -> None:
    reference = generator("reference")
    keys = {key for key, _, _ in reference.KEYS}
    placeholders = [name for name, _ in reference.PLACEHOLDERS]
    assert keys | {*placeholders, names.WHEN_SCALED} == {
        value for value in vars(names).values() if isinstance(value, str) and value.startswith("FC_")
    }
    assert sorted(placeholders) == sorted(names.NETWORK_PLACEHOLDERS)


def test_every_key_of_the_configuration_is_in_its_table() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    rows = dict(re.findall(r"^\| `([^`]+)`[^|]* \| ([^|]*) \|", text, re.MULTILINE))
    for field in Config.model_fields.values():
        alias, value = str(field.alias), field.get_default(call_default_factory=True)
        if isinstance(value, BaseModel):
            assert any(row.startswith(f"{alias}.") for row in rows), alias
        elif isinstance(value, bool):
            assert rows[alias] == str(value).lower(), alias
        elif isinstance(value, int | float):
            assert rows[alias].split()[0] == f"{value:.0f}", alias
        else:
            assert alias in rows, alias


def test_every_code_of_the_contract_is_explained() -> None:
    assert generator("failure_codes").CONTRACT.keys() == PREDEFINED.keys()


def test_every_code_of_the_configuration_has_a_remark() -> None:
    assert all(generator("failure_codes").remarks().values())


@pytest.mark.parametrize("manifest", sorted((ROOT / "examples").rglob("*.yaml")), ids=lambda path: path.name)
def test_copies_of_programs_are_current(manifest: Path) -> None:
    assert manifest.read_text() == generator("inline_programs").renewed(manifest), "run `make docs`"


def test_programs_in_the_page_are_current() -> None:
    inline = generator("inline_programs")
    text = inline.renewed_page(inline.PAGE)
    assert text == inline.PAGE.read_text(), "run `make docs`"
    programs = {file.name for file in (ROOT / "examples/python").glob("*.py")} - {"parameters.py"}
    assert set(re.findall(r"^### .*\(\.\./examples/python/(.+)\)$", text, re.MULTILINE)) == programs


@pytest.mark.parametrize("name", ["script", "function", "servers", "scale", "why", "trials"])
def test_a_program_is_short(name: str) -> None:
    lines = (ROOT / f"examples/python/{name}.py").read_text().splitlines()
    assert len([line for line in lines if line]) <= 20
