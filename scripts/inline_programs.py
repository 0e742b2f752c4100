"""Writes the programs of the examples anew into the ConfigMaps that hold copies of them. `make docs` runs it.

A ConfigMap of an example may hold a program that lies beside the manifest, or in the folder above, as a file of its
own, where it can be read, run and checked. A literal block `NAME: |` whose NAME is such a file is replaced by the file.
"""

import re
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def renewed(manifest: Path) -> str:
    """The text of the manifest, with each program as it is now."""
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
    """Renew those that differ."""
    for manifest in EXAMPLES.rglob("*.yaml"):
        text = renewed(manifest)
        if text != manifest.read_text():
            manifest.write_text(text)
            print(manifest.relative_to(EXAMPLES.parent), file=sys.stderr)


if __name__ == "__main__":
    main()
