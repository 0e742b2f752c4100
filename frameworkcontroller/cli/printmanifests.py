"""``frameworkcontroller print-manifests``: the manifests of this release, ready to be applied."""

from __future__ import annotations

import argparse
import sys
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from frameworkcontroller.api.problems import suggestion
from frameworkcontroller.api.yamldocuments import dumper
from frameworkcontroller.cli.kustomize import FILE, MANIFESTS, build
from frameworkcontroller.commands import program
from frameworkcontroller.config.config import ConfigurationError, load_config


def run(options: argparse.Namespace) -> int:
    """Print the objects of an overlay with components, or a list of both. Return the exit code."""
    overlays, components = _folders("Kustomization"), _folders("Component")
    if options.list:
        for title, folders in (("overlays", overlays), ("components", components)):
            width = max(map(len, folders))
            lines = "".join(f"  {name:<{width}}  {_summary(folder)}\n" for name, folder in folders.items())
            sys.stdout.write(f"{title}:\n{lines}")
        return program.EXIT_OK
    base = _find("overlay", options.overlay, overlays)
    added = [_find("component", name, components) for name in options.components]
    made = build(base, added, image=options.image, config=_configuration(options.config))
    yaml.dump_all(made, sys.stdout, _dumper(), sort_keys=False, width=120, allow_unicode=True)
    return program.EXIT_OK


def _folders(kind: str) -> dict[str, Path]:
    """The folders of that kind by their names."""
    found = {}
    for file in sorted(MANIFESTS.rglob(FILE)):
        if f"\nkind: {kind}\n" in file.read_text(encoding="utf-8"):
            name = file.parent.relative_to(MANIFESTS).as_posix()
            found[name.removeprefix("overlays/").removeprefix("components/")] = file.parent
    return found


def _find(kind: str, name: str, known: dict[str, Path]) -> Path:
    if name not in known:
        hint = suggestion(name, known) or "; --list shows all names"
        raise program.UsageError(f"print-manifests: there is no {kind} {name!r}{hint}")
    return known[name]


def _summary(folder: Path) -> str:
    """The first sentence of a kustomization's comment."""
    lines = (folder / FILE).read_text(encoding="utf-8").splitlines()
    words = " ".join(line[2:] for line in takewhile(lambda line: line.startswith("#"), lines))
    return words.partition(". ")[0].removesuffix(".")


def _configuration(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        load_config(file, required=True)
    except ConfigurationError as error:
        raise program.UsageError(str(error)) from None
    return file.read_text(encoding="utf-8")


def _dumper() -> Any:
    """Return a dumper that writes texts of several lines as blocks, and uses no aliases."""
    made: Any = type("_BlockDumper", (dumper(),), {"ignore_aliases": lambda *_: True})
    made.add_representer(
        str, lambda to, text: to.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)
    )
    return made
