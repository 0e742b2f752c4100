"""Update the copies of example programs in ConfigMaps. `make docs` runs it.

A literal block `NAME: |` in a manifest is replaced by the file NAME in the manifest's folder or the one above, if there
is one. The file can be read, run and linted on its own.
"""

import re
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


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


def main() -> None:
    """Update outdated manifests."""
    for manifest in EXAMPLES.rglob("*.yaml"):
        text = renewed(manifest)
        if text != manifest.read_text():
            manifest.write_text(text)
            print(manifest.relative_to(EXAMPLES.parent), file=sys.stderr)


if __name__ == "__main__":
    main()
