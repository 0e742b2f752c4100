"""Documents are composed alike by the parsers in C and in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from frameworkcontroller.api import yamldocuments
from frameworkcontroller.api.yamldocuments import ERRORS, Loader, compose, error_text
from tests.support.mangled import VALUES

ROOT = Path(__file__).parents[3]
FILES = sorted([*ROOT.glob("frameworkcontroller/**/*.yaml"), *ROOT.glob("examples/**/*.yaml")])


def shape(node: yaml.Node | None) -> Any:
    """The node as plain values, with its lines."""
    match node:
        case yaml.MappingNode():
            value: Any = [(shape(key), shape(item)) for key, item in node.value]
        case yaml.SequenceNode():
            value = [shape(item) for item in node.value]
        case None:
            return None
        case _:
            value = node.value
    return node.tag, node.start_mark.line, value


def outcome(text: str) -> Any:
    try:
        return shape(compose(text))
    except ERRORS as error:
        return error_text(error)


def in_python(text: str) -> Any:
    try:
        return shape(yaml.compose(text, Loader))
    except ERRORS as error:
        return error_text(error)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_file_is_read_as_in_python(file: Path) -> None:
    text = file.read_text()
    assert outcome(text) == in_python(text)


@example(text="a: 1e3\nb: 2026-01-01\nc: on\n? d\n: ~\n")
@example(text="a: [1\nb: 2\n")
@example(text="a: 1\n---\nb: 2\n")
@example(text="")
@given(text=VALUES.map(yaml.safe_dump) | st.lists(st.sampled_from("ab:-[]{}#'\"&*?|> \n1~,"), max_size=20).map("".join))
def test_a_text_that_is_read_in_python_is_read_alike(text: str) -> None:
    expected = in_python(text)
    if isinstance(expected, tuple) and isinstance(expected[0], str):
        assert outcome(text) == expected


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 100_000, "- " * 100_000, "? " * 100_000])
def test_nesting_does_not_overflow_the_stack(text: str) -> None:
    with pytest.raises(ERRORS):
        compose(text)


def test_the_parser_in_c_reads_the_shipped_configuration() -> None:
    text = (ROOT / "frameworkcontroller/config/default-config.yaml").read_text()
    assert yamldocuments._levels(text) < yamldocuments._MOST_LEVELS


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1:30", "1:30"),
        ("1:30.5", "1:30.5"),
        ("017", 15),
        ("0x1f", 31),
        ("0b11", 3),
        ("-12", -12),
        ("0", 0),
        ("1_0", 10),
    ],
)
def test_numbers_are_read_as_by_kubernetes(text: str, value: object) -> None:
    node = compose(text)
    assert node is not None
    assert Loader.content(node) == value
    assert type(Loader.content(node)) is type(value)
