"""The site of the documentation: links that leave docs/, versions, and the names of the Python reference."""

import json
import re
from pathlib import Path
from typing import Any

import markdown
import pytest
import yaml
from markdown_it import MarkdownIt

from frameworkcontroller import sdk
from frameworkcontroller.sdk.presets import Options
from tests.support.examples import ROOT
from tests.unit.test_generated_pages import generator

SITE: Any = generator("site")
PAGE = ROOT / "docs/python.md"
TAGS = ("h2", "h3", "ul", "ol", "li", "table", "tr", "pre")


def test_links_that_leave_the_pages_lead_to_the_repository() -> None:
    text = "[a](../Makefile#x) [b](../examples) [c](cli.md#run) [d](https://a.b) `[e](f)`\n```\n[g](../h)\n```\n"
    assert SITE.outward(PAGE, text, "https://git") == (
        "[a](https://git/blob/main/Makefile#x) [b](https://git/tree/main/examples) [c](cli.md#run) [d](https://a.b) "
        "`[e](f)`\n```\n[g](../h)\n```\n"
    )


def test_a_link_to_a_missing_file_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^docs/python\.md: \.\./nothing\.py does not exist$"):
        SITE.outward(PAGE, "[a](../nothing.py)", "https://git")


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_pages_mean_the_same_on_the_site(page: Path) -> None:
    """As many lists, tables and blocks of code as by the rules of CommonMark, which GitHub follows."""
    text = re.sub(r"^:::.*$", "", page.read_text(), flags=re.MULTILINE)
    expected = MarkdownIt().enable("table").render(text)
    extensions = ["attr_list", "tables", "pymdownx.superfences"]
    found = markdown.markdown(SITE.indented(text), extensions=extensions)
    counts = [{tag: len(re.findall(rf"<{tag}[ >]", html)) for tag in TAGS} for html in (found, expected)]
    assert counts[0] == counts[1]


@pytest.mark.parametrize(("link", "code"), [("b.md#there", 0), ("b.md#nowhere", 1), ("c.md", 1)])
def test_a_broken_link_fails_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], link: str, code: int
) -> None:
    pages = tmp_path / "build/pages"
    pages.mkdir(parents=True)
    (pages / "index.md").write_text(f"# A\n\n[b]({link})\n")
    (pages / "b.md").write_text("# B\n\n## There\n")
    (tmp_path / "mkdocs.yml").write_text((ROOT / "mkdocs.yml").read_text().partition("\nnav:")[0])
    monkeypatch.setattr(SITE, "ROOT", tmp_path)
    monkeypatch.setattr(SITE, "CONFIG", tmp_path / "mkdocs.yml")
    monkeypatch.setattr(SITE, "SITE", tmp_path / "build/site")
    assert SITE.build() == code
    assert ("does not exist" in capsys.readouterr().err) == bool(code)


def test_every_page_is_in_the_navigation() -> None:
    def pages(entry: Any) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        return [page for value in (entry.values() if isinstance(entry, dict) else entry) for page in pages(value)]

    class Loader(yaml.SafeLoader):
        """Ignores the tags of Python's objects."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda _loader, _suffix, _node: None)
    nav = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"]
    assert sorted(pages(nav)) == sorted(
        "index.md" if page.name == "README.md" else page.name for page in (ROOT / "docs").glob("*.md")
    )


def test_versions_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = tmp_path / "built"
    built.mkdir()
    monkeypatch.setattr(SITE, "SITE", built)
    for number in ("0.1", "0.2", "0.2"):
        (built / "index.html").write_text(number)
        SITE.publish(number, tmp_path)
    assert json.loads((tmp_path / "versions.json").read_text()) == [
        {"version": "0.2", "title": "0.2", "aliases": ["latest"]},
        {"version": "0.1", "title": "0.1", "aliases": []},
    ]
    pages = {name: (tmp_path / name / "index.html").read_text() for name in ("0.1", "0.2", "latest")}
    assert pages == {"0.1": "0.1", "0.2": "0.2", "latest": "0.2"}


def test_the_python_reference_has_every_name() -> None:
    text = (ROOT / "docs/python-reference.md").read_text()
    named = re.findall(r"^::: frameworkcontroller\.(\w+)$", text, re.MULTILINE)
    assert sorted(named) == sorted(sdk.PLACES)
    options = text.partition("`options` are")[2].partition("\n\n")[0]
    assert re.findall(r"`(\w+)`", options)[2:] == list(Options.__annotations__)
