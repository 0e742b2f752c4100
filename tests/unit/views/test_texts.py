"""Durations and counts; foreign text that must not act on the terminal."""

import io

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from frameworkcontroller.commands.output import console, print_table
from frameworkcontroller.depths import TooDeepError
from frameworkcontroller.views.texts import clean_line, counted, duration, encode

HOSTILE = [
    "a\x1b[31mb", "a\x1b]0;title\x07b", "a\x9b31mb", "a\x7fb", "a\x00b", "a\x85b", "a\rb", "a\x0bb", "a\u2028b",
    "a\u202eb", "a\u2066b", "a\ufeffb", "a\U000e0001b",
]  # fmt: skip


def acts(text: str) -> list[str]:
    """The characters on which a terminal may act."""
    return [char for char in text if not char.isprintable() and char != "\n"]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_is_shown_acts_on_the_terminal(text: str) -> None:
    file = io.StringIO()
    out = console(file)
    table = Table("TITLE")
    table.add_row(text)
    tree = Tree(Text(text))
    tree.add(text)
    print_table(out, table)
    out.print(tree)
    out.print(text, soft_wrap=True)
    out.print(Text(text, "red"), soft_wrap=True)
    assert acts(file.getvalue()) == []


@pytest.mark.parametrize("text", ["[bold]x[/bold]", "[link=https://elsewhere]x[/link]", "[/x]", ":smile:", "\\[x]"])
def test_foreign_markup_is_text(text: str) -> None:
    file = io.StringIO()
    out = console(file)
    table = Table(box=None, show_header=False, padding=0)
    table.add_row(text)
    print_table(out, table)
    out.print(text)
    assert file.getvalue() == f"{text}\n{text}\n"


@given(text=st.text() | st.sampled_from(HOSTILE))
def test_objects_stay_the_same_and_act_on_nothing(text: str) -> None:
    value = {"said": [text, "é 日本"]}
    as_json, as_yaml = encode(value, "json"), encode(value, "yaml")
    assert orjson.loads(as_json) == value
    assert yaml.safe_load(as_yaml) == value
    assert acts(as_json) == acts(as_yaml) == []


def test_deeply_nested_objects_are_written_or_refused() -> None:
    deep: object = "x\x1b"
    for _ in range(400):
        deep = {"a": deep}
    assert orjson.loads(encode(deep, "json")) == deep
    for _ in range(4000):
        deep = {"a": deep}
    for output in ("json", "yaml"):
        with pytest.raises(TooDeepError, match=f"nested too deeply for -o {output}"):
            encode(deep, output)


def test_printable_text_is_not_escaped() -> None:
    assert "é 日本" in encode("é 日本", "json")
    assert "é 日本" in encode("é 日本", "yaml")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"), (0, "0s"), (59.9, "59s"), (60, "1m"), (61, "1m1s"), (3599, "59m59s"), (3600, "1h"),
        (3661, "1h1m"), (86400, "1d"), (90000, "1d1h"), (400 * 86400, "400d"),
    ],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_numbers() -> None:
    assert [counted(1, "Task"), counted(0, "Task"), counted(10000, "Task")] == ["1 Task", "0 Tasks", "10,000 Tasks"]
    assert counted(2, "retry", "retries") == "2 retries"


def test_a_containers_text_does_nothing_to_the_terminal() -> None:
    assert clean_line("a\n\x1b[31mb\tc\x07  d") == "a  [31mb c  d"
    assert clean_line("x" * 400) == "x" * 299 + "…"
