"""Update the copies of example programs in ConfigMaps and in docs/python.md. `make docs` runs it.

A literal block `NAME: |` in a manifest is replaced by the file NAME in the manifest's folder or the one above, if there
is one; in the page, the code below a heading with a link to a file. The file can be read, run and linted on its own.
"""

import re
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PAGE = EXAMPLES.parent / "docs/python.md"


def renewed(manifest: Path) -> str:
    """The manifest's text with the current programs."""
    lines: list[str] = []
    skipped: int | None = None
    for line in manifest.read_text().splitlines():
        indent = len(line) - len(line.lstrip())
        if skipped is not None and (not line.strip() or indent > skipped):
            continue
        skipped = None
        lines.append(line)
        block = re.fullmatch(r" +([\w.-]+): \|", line)
        programs = [folder / block[1] for folder in manifest.parents[:2]] if block else []
        if program := next(filter(Path.is_file, programs), None):
            skipped = indent
            lines += [" " * (indent + 2) + own if own else "" for own in program.read_text().splitlines()]
    return "\n".join(lines) + "\n"


def renewed_page(page: Path) -> str:
    """The page's text with the current programs, without their first docstrings."""

    def block(match: re.Match[str]) -> str:
        program = (page.parent / match[2]).read_text()
        return match[1] + re.sub(r'\A""".*?"""\n+', "", program, flags=re.DOTALL)

    code = re.compile(r"(^#+ [^\n]*\]\(([^)\n]+\.py)\)$.*?^```python\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
    return code.sub(block, page.read_text())


def main() -> None:
    """Update outdated manifests, and the page."""
    texts = {manifest: renewed(manifest) for manifest in EXAMPLES.rglob("*.yaml")}
    for file, text in {**texts, PAGE: renewed_page(PAGE)}.items():
        if text != file.read_text():
            file.write_text(text)
            print(file.relative_to(EXAMPLES.parent), file=sys.stderr)


if __name__ == "__main__":
    main()
