"""Every link of a page leads to a file, and to a heading, that exists; so does every module that a page names."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md")]

MODULES = [
    path.as_posix()
    for folder in ("frameworkcontroller", "tests", "scripts", "benchmarks", "examples")
    for path in (ROOT / folder).rglob("*.py")
]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub forms them."""
    text = re.sub(r"^( *)```.*?^\1```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    # Patterns of names in code look like links.
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", page.read_text())):
        if link.startswith(("http:", "https:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_modules_exist(page: Path) -> None:
    named = re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", page.read_text())
    assert [name for name in named if not any(module.endswith(f"/{name}") for module in MODULES)] == []


def test_a_workload_is_named_with_its_group() -> None:
    """Where Kubernetes serves gangs, ``kubectl get workload`` means its own API, ``scheduling.k8s.io``."""
    folders = [
        ROOT / name for name in ("docs", "examples", "manifests", "frameworkcontroller", "benchmarks", "scripts")
    ]
    files = [file for folder in folders for file in folder.rglob("*") if file.suffix in {".md", ".sh", ".py", ".yaml"}]
    short = re.compile(r"kubectl [^|;`\n]*\bworkloads?\b(?![.-])", re.IGNORECASE)
    found = {str(file.relative_to(ROOT)): short.findall(file.read_text()) for file in (*files, *ROOT.glob("*.md"))}
    assert {name: lines for name, lines in found.items() if lines} == {}
