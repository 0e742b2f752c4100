"""Lint prose: refuse the phrases of scripts/prose.txt, wide lines and long cells, in pages, manifests, comments, texts.

Run as `python scripts/prose.py [PATH...]`; without paths it reads all of these. Code in Markdown is not prose. Of tests
it reads docstrings, comments and the names of tests: their strings are data.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
PHRASES: Final = Path(__file__).with_suffix(".txt")
PATTERNS: Final = (
    "*.md",
    "Dockerfile",
    "Makefile",
    "docs/**/*.md",
    "examples/**/*.md",
    "examples/**/*.py",
    "examples/**/*.yaml",
    "crd/*.yaml",
    "image/**/Dockerfile",
    "manifests/**/*.yaml",
    "frameworkcontroller/**/*.yaml",
    "frameworkcontroller/**/*.py",
    "torchx_plugins/**/*.py",
    "scripts/*.py",
    "tests/**/*.py",
)
TESTS: Final = ROOT / "tests"
# Ruff holds code to 120 columns. Tables, headings, indented code and single long words may be wider.
WIDTHS: Final = {".md": 150, ".yaml": 150}

# A longer cell is a paragraph: it belongs below the table, or into a list.
CELL: Final = 160
CELL_END: Final = re.compile(r"(?<!\\)\|")
LINKED: Final = re.compile(r"\]\([^)\s]+\)")
CODE: Final = re.compile(r"(`[^`]+`(, )?)*")
# Pages from `make docs`: the cells are the texts of the CRD, of the configuration and of metrics.
GENERATED: Final = frozenset({"reference.md", "failure-codes.md", "metrics.md"})

CODE_BLOCK: Final = re.compile(r"^( *)(```|~~~).*?(^ *\2|\Z)|`[^`\n]+`", re.MULTILINE | re.DOTALL)
# The heading of a section may be a question without its mark, and links refer to it.
HEADING: Final = re.compile(r"^#+\sWhat\s.*", re.MULTILINE)
WHITE: Final = re.compile(r"[ \t]*\n[ \t>#]*|[ \t]+")
UNWRAPPED: Final = re.compile(r" {4}|\s*(\||#+ |([-*>#] )?\S+$)")


class Text(NamedTuple):
    """Prose that begins at a line of its file."""

    line: int
    text: str


class Finding(NamedTuple):
    line: int
    phrase: str
    hint: str


class Phrase(NamedTuple):
    pattern: re.Pattern[str]
    hint: str


def parse(text: str) -> list[Phrase]:
    """Parse a list of phrases. Raises ValueError for an invalid line."""
    found = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        pattern, arrow, hint = line.partition(" => ")
        if not arrow:
            raise ValueError(f"not PATTERN => HINT: {line}")
        found.append(Phrase(re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", re.IGNORECASE), hint))
    return found


def blanked(match: re.Match[str]) -> str:
    """Replace code by a gap of as many lines that no phrase spans."""
    return "|" + "\n" * match[0].count("\n")


def blanked_block(match: re.Match[str]) -> str:
    return blanked(match) if match[2] else match[0]


def texts_of_code(source: str) -> Iterator[Text]:
    """Strings, joined where they are split over lines, and blocks of comments."""
    yield from strings(ast.parse(source))
    yield from comments(source)


def texts_of_tests(source: str) -> Iterator[Text]:
    """Docstrings, names of tests, and blocks of comments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if (documentation := ast.get_docstring(node, clean=False)) is not None:
                yield Text(node.body[0].lineno, documentation)
            if not isinstance(node, ast.Module) and node.name.startswith("test_"):
                yield Text(node.lineno, node.name.removeprefix("test_").replace("_", " "))
    yield from comments(source)


def strings(tree: ast.Module) -> Iterator[Text]:
    parts: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            values = [value.value if isinstance(value, ast.Constant) else "{}" for value in node.values]
            parts.update(id(value) for value in node.values)
            yield Text(node.lineno, "".join(map(str, values)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield Text(node.lineno, node.value if " " in node.value else "")  # one word is a name or a value


def comments(source: str) -> Iterator[Text]:
    first, last, block = 0, 0, ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1:
                if block:
                    yield Text(first, block)
                first, block = token.start[0], ""
            last = token.start[0]
            block += token.string + "\n"
    if block:
        yield Text(first, block)


def texts(path: Path) -> Iterator[Text]:
    content = path.read_text()
    if path.suffix != ".py":
        yield Text(1, HEADING.sub("", content) if path.suffix == ".md" else content)
    elif path.is_relative_to(TESTS):
        yield from texts_of_tests(content)
    else:
        yield from texts_of_code(content)


def check(path: Path, phrases: Sequence[Phrase]) -> list[Finding]:
    """The listed phrases and the wide lines in a file, by line."""
    findings = [*wide_lines(path), *wide_cells(path)]
    for text in texts(path):
        # One space for all white space, and where each line begins in the result.
        flat, starts, end = "", [], 0
        prose = CODE_BLOCK.sub(blanked, text.text)
        for gap in WHITE.finditer(prose):
            flat += prose[end : gap.start()] + " "
            end = gap.end()
            starts += [len(flat)] * gap[0].count("\n")
        flat += prose[end:]
        for phrase in phrases:
            for match in phrase.pattern.finditer(flat):
                line = text.line + bisect_right(starts, match.start())
                findings.append(Finding(line, match[0], phrase.hint))
    return sorted(findings)


def wide_lines(path: Path) -> Iterator[Finding]:
    """Lines of pages, and comments of manifests, that exceed their width."""
    width = WIDTHS.get(path.suffix, 0)
    if not width:
        return
    text = path.read_text()
    for number, line in enumerate(CODE_BLOCK.sub(blanked_block, text).splitlines(), 1):
        wraps = line.lstrip().startswith("#") if path.suffix == ".yaml" else not UNWRAPPED.match(line)
        if len(line) > width and wraps:
            yield Finding(number, f"{len(line)} columns", f"wrap at {width}")


def wide_cells(path: Path) -> Iterator[Finding]:
    """Cells of tables that are too long for their column. Lists of code, and addresses of links, do not count."""
    if path.suffix != ".md" or path.name in GENERATED:
        return
    for number, line in enumerate(CODE_BLOCK.sub(blanked_block, path.read_text()).splitlines(), 1):
        if line.lstrip().startswith("|"):
            for cell in CELL_END.split(line):
                text = LINKED.sub("]", cell.strip())
                if len(text) >= CELL and not CODE.fullmatch(text):
                    yield Finding(number, f"a cell of {len(text)} characters", f"less than {CELL}, or a list")


def main(arguments: Sequence[str]) -> int:
    """Print the findings; return 1 if there are any."""
    phrases = parse(PHRASES.read_text())
    every = sorted({path for pattern in PATTERNS for path in ROOT.glob(pattern)})
    paths = [Path(argument).absolute() for argument in arguments] or every
    found = 0
    for path in paths:
        for finding in check(path, phrases):
            found += 1
            print(f"{path}:{finding.line}: {finding.phrase!r}: {finding.hint}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
