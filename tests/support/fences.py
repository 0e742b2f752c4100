"""The fenced blocks of Markdown pages, so that tests can try them."""

import re
from pathlib import Path
from typing import NamedTuple


class Block(NamedTuple):
    """The text between two fences."""

    path: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.path.name}:{self.line}"


def blocks(path: Path, language: str) -> list[Block]:
    """The blocks of that language in a page; one in a list has its indentation taken off."""
    found, fence, lines, start = [], None, list[str](), 0
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r"( *)```(\w*)", line)
        if match is None:
            lines.append(line)
        elif fence is None:
            fence, lines, start = match, [], number + 1
        else:
            if fence[2] == language:
                indent = len(fence[1])
                found.append(Block(path, start, language, "".join(line[indent:] + "\n" for line in lines)))
            fence = None
    assert fence is None, f"{path}: the block at line {start} has no end"
    return found
