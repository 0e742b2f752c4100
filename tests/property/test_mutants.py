"""A short story catches each controller that breaks a guarantee, and passes the product's own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.property.mutants import MUTANTS

_ROOT: Final = Path(__file__).parents[2]
_PAGE: Final = (_ROOT / "docs" / "guarantees.md").read_text()
_TOPICS: Final = {"retry", "completion", "retention", "network", "rest"}
"""Promises of other pages that no row of the page's first table names."""


def _guarantees(text: str) -> set[str]:
    """The guarantees in a cell such as "C1 to C4, H"."""
    found = set()
    for first, last in re.findall(r"([A-Z]\d?)(?: to [A-Z](\d))?", text):
        found |= {f"{first[0]}{number}" for number in range(int(first[1]), int(last) + 1)} if last else {first}
    return found


def test_each_guarantee_has_random_histories_and_mutants() -> None:
    promised = set(re.findall(r"^\| ([A-Z]\d?) \|", _PAGE, re.MULTILINE))
    rows = re.findall(r"^\| ([A-Z][^|`]*) \| `(tests/property/[^`]*)` \|$", _PAGE, re.MULTILINE)
    assert set().union(*(_guarantees(cell) for cell, _ in rows)) == promised
    for _, path in rows:
        source = (_ROOT / path).read_text()
        assert any(word in source for word in ("@given", "@initialize", "make_story")), path
    assert {name.partition(": ")[0] for name in MUTANTS} == promised | _TOPICS


@pytest.mark.parametrize("name", MUTANTS)
def test_a_controller_that_breaks_a_guarantee_is_caught(name: str) -> None:
    mutant = MUTANTS[name]
    mutant.tale()
    with mutant.broken(), pytest.raises(AssertionError) as caught:
        mutant.tale()
    said = str(caught.value).partition("\n")[0]
    assert any(words in said for words in mutant.found.split("|")), said
