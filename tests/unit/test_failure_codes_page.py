"""docs/failure-codes.md says what the code and the shipped configuration say."""

import importlib.util
from pathlib import Path
from types import ModuleType

from frameworkcontroller.api.completion import PREDEFINED

ROOT = Path(__file__).resolve().parents[2]


def generator() -> ModuleType:
    """scripts/failure_codes.py, which is in no package."""
    spec = importlib.util.spec_from_file_location("failure_codes", ROOT / "scripts" / "failure_codes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_current() -> None:
    page = (ROOT / "docs" / "failure-codes.md").read_text()
    assert page == generator().document(), "run `make docs`"


def test_every_code_of_the_contract_is_explained() -> None:
    assert generator().CONTRACT.keys() == PREDEFINED.keys()


def test_every_code_of_the_configuration_has_a_remark() -> None:
    assert all(generator().remarks().values())
