"""Build the site of the documentation into build/site, and fail on a broken link or anchor. `make site` runs it.

`python scripts/site.py --version 0.1 --into FOLDER` adds the site of a version to FOLDER, whose `latest` and front page
then lead to it.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
CONFIG: Final = ROOT / "mkdocs.yml"
PAGES: Final = ROOT / "build/pages"
SITE: Final = ROOT / "build/site"
# Code in Markdown has no links, but patterns that look like some.
LINK: Final = re.compile(r"```.*?```|`[^`\n]*`|(?P<link>\]\((?P<target>[^)\s]+)\))", re.DOTALL)

MARKER: Final = re.compile(r"(?:[-*]|\d+\.) +(?=\S)")


def repository() -> str:
    found = re.search(r"^repo_url: (\S+)$", CONFIG.read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def outward(page: Path, text: str, address: str) -> str:
    """Point links to files outside docs/ to the repository. Raises ValueError for a file that does not exist."""

    def renewed(match: re.Match[str]) -> str:
        target = match["target"]
        if target is None or target.startswith(("#", "http:", "https:", "mailto:")):
            return match[0]
        path, mark, anchor = target.partition("#")
        file = (page.parent / path).resolve()
        if not file.exists():
            raise ValueError(f"{page.relative_to(ROOT)}: {target} does not exist")
        if file.is_relative_to(ROOT / "docs"):
            return match[0]
        return f"]({address}/{'tree' if file.is_dir() else 'blob'}/main/{file.relative_to(ROOT)}{mark}{anchor})"

    return LINK.sub(renewed, text)


def indented(text: str) -> str:
    """Write lists for Python-Markdown: content is indented by four columns, and a blank line precedes a list.

    On GitHub, the content of a list item begins below its text.
    """
    lines, offsets, fence, before, in_list = list[str](), list[int](), "", "", False
    for line in text.splitlines():
        bare = line.lstrip(" ")
        indent = len(line) - len(bare)
        if not bare:
            lines.append("")
            before = ""
            continue
        if not fence:
            offsets = [offset for offset in offsets if offset <= indent]
        depth = len(offsets)
        within = offsets[-1] if offsets else 0
        if not fence and (marker := MARKER.match(bare)) and indent - within < 4:
            if before and not MARKER.match(before) and not depth and not in_list:
                lines.append("")
            offsets = [*offsets, indent + marker.end()]
        lines.append(" " * (4 * depth + max(indent - within, 0)) + bare)
        in_list = bool(offsets)
        if bare.startswith(("```", "~~~")):
            fence = "" if fence else bare[:3]
        before = bare
    return "\n".join(lines) + "\n"


def prepare() -> None:
    """Copy docs/ to build/pages; the README becomes its front page."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES)
    address = repository()
    for page in (ROOT / "docs").glob("*.md"):
        text = indented(outward(page, page.read_text(), address))
        # Zensical serves README.md as the folder's index, but does not know it by that name in links.
        text = text.replace("](README.md", "](index.md")
        (PAGES / page.name.replace("README", "index")).write_text(text)
    (PAGES / "README.md").unlink()


def build() -> int:
    """Return the exit code of the generator, whose output is shown only if it fails."""
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.rmtree(ROOT / ".cache", ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", str(CONFIG)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_COLOR": "1"}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
    return done.returncode


def publish(version: str, folder: Path) -> None:
    """Add the built site to the versions in the folder. The theme's selector reads versions.json."""
    for name in (version, "latest"):
        shutil.rmtree(folder / name, ignore_errors=True)
        shutil.copytree(SITE, folder / name)
    listing = folder / "versions.json"
    earlier = json.loads(listing.read_text()) if listing.exists() else []
    others = [{**one, "aliases": []} for one in earlier if one["version"] != version]
    listing.write_text(json.dumps([{"version": version, "title": version, "aliases": ["latest"]}, *others], indent=1))
    (folder / "index.html").write_text('<!doctype html><meta http-equiv="refresh" content="0; url=latest/">\n')
    (folder / ".nojekyll").touch()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", help="version of the site, such as 0.1")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="folder of all versions")
    options = parser.parse_args()
    if (options.version is None) != (options.into is None):
        parser.error("--version and --into belong together")
    prepare()
    if code := build():
        return code
    if options.into is not None:
        options.into.mkdir(parents=True, exist_ok=True)
        publish(options.version, options.into)
    return 0


if __name__ == "__main__":
    sys.exit(main())
