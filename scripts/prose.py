"""Lint prose: refuse the phrases of scripts/prose.txt in pages, manifests, and the product's comments and strings.

Run as `python scripts/prose.py [PATH...]`; without paths it reads all of these. Code in Markdown is not prose.
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
    "docs/**/*.md",
    "examples/**/*.md",
    "examples/**/*.py",
    "examples/**/*.yaml",
    "crd/*.yaml",
    "manifests/**/*.yaml",
    "frameworkcontroller/**/*.yaml",
    "frameworkcontroller/**/*.py",
    "scripts/*.py",
)

CODE_BLOCK: Final = re.compile(r"^( *)(```|~~~).*?(^ *\2|\Z)|`[^`\n]+`", re.MULTILINE | re.DOTALL)
WHITE: Final = re.compile(r"[ \t]*\n[ \t>#]*|[ \t]+")


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


def phrases(text: str) -> list[Phrase]:
    """Parse a list of phrases. Raises ValueError for an invalid line."""
    found = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            pattern, arrow, hint = line.partition(" => ")
            if not arrow:
                raise ValueError(f"not PATTERN => HINT: {line}")
            found.append(Phrase(re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", re.IGNORECASE), hint))
    return found


def blanked(match: re.Match[str]) -> str:
    """Replace code by a gap of as many lines that no phrase spans."""
    return "|" + "\n" * match[0].count("\n")


def texts_of_code(source: str) -> Iterator[Text]:
    """Strings, joined where they are split over lines, and blocks of comments."""
    parts: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            values = [value.value if isinstance(value, ast.Constant) else "{}" for value in node.values]
            parts.update(id(value) for value in node.values)
            yield Text(node.lineno, "".join(map(str, values)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield Text(node.lineno, node.value if " " in node.value else "")  # one word is a name or a value
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
    if path.suffix == ".py":
        yield from texts_of_code(content)
    else:
        yield Text(1, content)


def check(path: Path, listed: Sequence[Phrase]) -> list[Finding]:
    """The listed phrases in a file, by line."""
    findings = []
    for text in texts(path):
        # One space for all white space, and where each line begins in what is left.
        flat, starts, end = "", [], 0
        prose = CODE_BLOCK.sub(blanked, text.text)
        for gap in WHITE.finditer(prose):
            flat += prose[end : gap.start()] + " "
            end = gap.end()
            starts += [len(flat)] * gap[0].count("\n")
        flat += prose[end:]
        for phrase in listed:
            for match in phrase.pattern.finditer(flat):
                line = text.line + bisect_right(starts, match.start())
                findings.append(Finding(line, match[0], phrase.hint))
    return sorted(findings)


def main(arguments: Sequence[str]) -> int:
    """Print the findings; return 1 if there are any."""
    listed = phrases(PHRASES.read_text())
    every = sorted({path for pattern in PATTERNS for path in ROOT.glob(pattern)})
    paths = [Path(argument) for argument in arguments] or every
    found = 0
    for path in paths:
        for finding in check(path, listed):
            found += 1
            print(f"{path}:{finding.line}: {finding.phrase!r}: {finding.hint}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
