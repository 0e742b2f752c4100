"""The generated pages of docs/ say what the code and the shipped configuration say."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from frameworkcontroller.api.completion import PREDEFINED
from frameworkcontroller.machine.reasons import ABOUT, Reason

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
    ],
)
def test_a_page_is_current(page: str, script: str) -> None:
    assert (ROOT / "docs" / page).read_text() == generator(script).document(), "run `make docs`"


def test_every_code_of_the_contract_is_explained() -> None:
    assert generator("failure_codes").CONTRACT.keys() == PREDEFINED.keys()


def test_every_code_of_the_configuration_has_a_remark() -> None:
    assert all(generator("failure_codes").remarks().values())


def test_every_reason_is_explained() -> None:
    assert list(ABOUT) == list(Reason)


@pytest.mark.parametrize("manifest", sorted((ROOT / "examples").rglob("*.yaml")), ids=lambda path: path.name)
def test_copies_of_programs_are_current(manifest: Path) -> None:
    assert manifest.read_text() == generator("inline_programs").renewed(manifest), "run `make docs`"
