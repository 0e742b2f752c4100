"""The linter of prose finds the phrases that its list names, and wide lines, and only in prose."""

from pathlib import Path

import pytest

from tests.unit.test_generated_pages import generator

PROSE = generator("prose")
LISTED = PROSE.parse("# Words.\nfor ever => forever\nstrays? => orphan\n\nbut for => except\n")


def found(tmp_path: Path, name: str, content: str) -> list[tuple[int, str, str]]:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    return [tuple(finding) for finding in PROSE.check(path, LISTED)]


@pytest.mark.parametrize(
    ("name", "content", "line", "phrase"),
    [
        ("page.md", "# Title\n\nIt waits for ever.\n", 3, "for ever"),
        ("page.md", "It waits for\n  ever.\n", 1, "for ever"),
        ("page.md", "```\nfor ever\n```\nStrays are left.\n", 4, "Strays"),
        ("page.md", "All are ready, but\nfor one.\n", 1, "but for"),
        ("file.yaml", "# It waits for\n# ever.\na: 1\n", 1, "for ever"),
        ("module.py", '"""Waits\n\nfor ever."""\n', 3, "for ever"),
        ("module.py", "a = 1  # one\n\n# It waits for\n# ever.\n", 3, "for ever"),
        ("module.py", 'a = ("waits for "\n     "ever")\n', 1, "for ever"),
        ("module.py", 'a = f"{a} waits for ever"\n', 1, "for ever"),
        ("tests/test_a.py", "def test_a_stray_is_removed() -> None: ...\n", 1, "stray"),
        ("tests/test_a.py", 'class A:\n    """Waits\n    for ever."""\n', 3, "for ever"),
        ("tests/test_a.py", "a = 1\n\n# It waits for\n# ever.\n", 3, "for ever"),
    ],
)
def test_a_listed_phrase_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str, line: int, phrase: str
) -> None:
    monkeypatch.setattr(PROSE, "TESTS", tmp_path / "tests")
    [(at, text, hint)] = found(tmp_path, name, content)
    assert (at, text) == (line, phrase)
    assert hint in {"forever", "orphan", "except"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("page.md", "Run `for ever` or\n\n~~~sh\nfor ever\n~~~\n"),
        ("page.md", "An astray-dog is no stray-dog; forever.\n"),
        ("module.py", 'stray = {"stray": 1}\n'),
        ("tests/test_a.py", 'assert run("stray pods") == "waits for ever"\n'),
    ],
)
def test_code_is_not_prose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str) -> None:
    monkeypatch.setattr(PROSE, "TESTS", tmp_path / "tests")
    assert not found(tmp_path, name, content)


@pytest.mark.parametrize(
    "prose", ["What is written to the log.", "It has what it needs.", "All but for one: what it has."]
)
def test_a_noun_clause_is_refused(prose: str) -> None:
    assert any(phrase.pattern.search(prose) for phrase in PROSE.parse(PROSE.PHRASES.read_text()))


@pytest.mark.parametrize(
    "prose",
    [
        "What happens to a Pod?",
        "Events show what happens.",
        "A runbook lists what to do.",
        "See [what is kept](#kept).",
    ],
)
def test_a_question_is_not_refused(prose: str) -> None:
    assert not any(phrase.pattern.search(prose) for phrase in PROSE.parse(PROSE.PHRASES.read_text()))


def test_wide_prose_is_refused_but_not_wide_tables_and_code(tmp_path: Path) -> None:
    words = "word " * 31
    assert found(tmp_path, "page.md", f"| {words}\n\n# {words}\n\n```\n{words}\n```\n\n- {'w' * 160}\n\n{words}\n") == [
        (11, "155 columns", "wrap at 150")
    ]
    assert found(tmp_path, "file.yaml", f"a: {words}\n# {words}\n") == [(2, "157 columns", "wrap at 150")]


def test_a_paragraph_in_a_cell_is_refused(tmp_path: Path) -> None:
    text, code, link = "w" * 160, ", ".join(["`code`"] * 30), f"[a](https://{'b' * 160})"
    assert found(tmp_path, "page.md", f"| a | {code} |\n|---|---|\n| {link} | {text} |\n```\n| {text} |\n```\n") == [
        (3, "a cell of 160 characters", "less than 160, or a list")
    ]


def test_a_finding_fails_the_linter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("The first line.\nIts status was written by somebody else.\n")
    assert PROSE.main([str(page)]) == 1
    assert f"{page}:2: 'somebody': " in capsys.readouterr().out
    page.write_text("Another writer changed its status.\n")
    assert PROSE.main([str(page)]) == 0


def test_a_line_without_a_hint_is_refused() -> None:
    with pytest.raises(ValueError, match="not PATTERN => HINT: for ever"):
        PROSE.parse("for ever\n")
