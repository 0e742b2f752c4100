"""The linter of prose finds what its list names, and only where prose is."""

from pathlib import Path

import pytest

from tests.unit.test_generated_pages import generator

PROSE = generator("prose")
LISTED = PROSE.phrases("# Words.\nfor ever => forever\nstrays? => orphan\n")


def found(tmp_path: Path, name: str, content: str) -> list[tuple[int, str, str]]:
    path = tmp_path / name
    path.write_text(content)
    return [tuple(finding) for finding in PROSE.check(path, LISTED)]


@pytest.mark.parametrize(
    ("name", "content", "line", "phrase"),
    [
        ("page.md", "# Title\n\nIt waits for ever.\n", 3, "for ever"),
        ("page.md", "It waits for\n  ever.\n", 1, "for ever"),
        ("page.md", "```\nfor ever\n```\nStrays are left.\n", 4, "Strays"),
        ("file.yaml", "# It waits for\n# ever.\na: 1\n", 1, "for ever"),
        ("module.py", '"""Waits\n\nfor ever."""\n', 3, "for ever"),
        ("module.py", "a = 1  # one\n\n# It waits for\n# ever.\n", 3, "for ever"),
        ("module.py", 'a = ("waits for "\n     "ever")\n', 1, "for ever"),
        ("module.py", 'a = f"{a} waits for ever"\n', 1, "for ever"),
    ],
)
def test_a_listed_phrase_is_found(tmp_path: Path, name: str, content: str, line: int, phrase: str) -> None:
    [(at, text, hint)] = found(tmp_path, name, content)
    assert (at, text) == (line, phrase)
    assert hint in {"forever", "orphan"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("page.md", "Run `for ever` or\n\n~~~sh\nfor ever\n~~~\n"),
        ("page.md", "An astray-dog is no stray-dog; forever.\n"),
        ("module.py", 'stray = {"stray": 1}\n'),
    ],
)
def test_code_is_not_prose(tmp_path: Path, name: str, content: str) -> None:
    assert not found(tmp_path, name, content)


def test_a_finding_fails_the_linter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("The first line.\nIts status was written by somebody else.\n")
    assert PROSE.main([str(page)]) == 1
    assert f"{page}:2: 'somebody': " in capsys.readouterr().out
    page.write_text("Another writer changed its status.\n")
    assert PROSE.main([str(page)]) == 0


def test_a_line_without_a_hint_is_refused() -> None:
    with pytest.raises(ValueError, match="not PATTERN => HINT: for ever"):
        PROSE.phrases("for ever\n")
