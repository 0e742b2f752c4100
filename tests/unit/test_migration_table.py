"""docs/reference.md marks every field that the original controller ignores, and docs/migration.md lists no others."""

import re
from collections.abc import Iterator
from typing import get_args

from pydantic import BaseModel

from frameworkcontroller.api.spec import FrameworkSpec
from tests.support.examples import ROOT
from tests.unit.test_generated_pages import generator

ORIGINAL = generator("reference").ORIGINAL


def new_fields(model: type[BaseModel]) -> Iterator[str]:
    """The fields that the original does not have; a field stands for all fields below it."""
    for info in model.model_fields.values():
        assert info.alias is not None
        if info.alias not in ORIGINAL:
            yield info.alias
            continue
        for below in (info.annotation, *get_args(info.annotation)):
            if isinstance(below, type) and issubclass(below, BaseModel):
                yield from new_fields(below)


def test_every_new_field_is_marked() -> None:
    page = (ROOT / "docs/reference.md").read_text()
    marked = re.findall(r"^\| `([^`]+)` ⁺ \|", page, re.MULTILINE)
    assert {field.rpartition(".")[2].removesuffix("[]") for field in marked} >= {*new_fields(FrameworkSpec)}
    assert not [field for field in marked if ORIGINAL.issuperset(field.replace("[]", "").split("."))]


def test_only_new_fields_are_listed() -> None:
    page = (ROOT / "docs/migration.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \|", page.partition("## Back\n")[2], re.MULTILINE)
    assert listed
    assert {*listed} <= {*new_fields(FrameworkSpec)}
