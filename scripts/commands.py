"""Print docs/commands.md, all commands with their options, from the parsers.

Run as `.venv/bin/python scripts/commands.py > docs/commands.md`; a test detects an outdated page.
"""

import argparse
import re
from collections.abc import Iterator
from textwrap import fill
from typing import Final

from frameworkcontroller.cli.main import build_parser
from frameworkcontroller.commands.parsers import PLUGIN, build_plugin_parser
from frameworkcontroller.commands.program import PROGRAM

HEAD: Final = f"""\
# Commands and options

[Command line](cli.md) has examples. Every command of `{PLUGIN}` is one of `{PROGRAM}`, too, except
that `history` and `cost` are `history show` and `history cost` there.

Commands that ask a cluster have `-n`, `--namespace`, `--context` and `--kubeconfig`, as kubectl. `-A`,
`--all-namespaces` includes all namespaces. Options of the *archive*: `--archive URL`, its server (default:
`$FRAMEWORK_HISTORY_URL`, or the kubeconfig's); `--dir PATH`, a folder of records, which `sink: file` writes;
`--token-file PATH`, a bearer token (default: `$FRAMEWORK_HISTORY_TOKEN_FILE`, or else the kubeconfig's, over https and
on loopback only); `--ca-file PATH`, the certificates that sign the archive's, in PEM."""
USAGES: Final = (
    "-h",
    "--all-namespaces",
    "--namespace",
    "--context",
    "--kubeconfig",
    "--config",
    "--log-level",
    "--log-format",
)
"""Explained once, or of the controller."""
ARCHIVE: Final = ("--archive", "--dir", "--token-file", "--ca-file")
"""Explained once, for commands that have all of them."""

WORD: Final = re.compile(r"`[^`]*`|(?<![\w-])(\{\{[A-Z_]+\}\}|--?[a-z][a-z-]*|\$[A-Z_]+)(?![\w-])")


def commands(parser: argparse.ArgumentParser) -> Iterator[tuple[list[str], argparse.ArgumentParser]]:
    """Each command without further ones, with its names, a group's commands with the name of the group."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            names: dict[int, list[str]] = {}
            for name, below in action.choices.items():
                names.setdefault(id(below), []).append(name)
            found = {id(below): below for below in action.choices.values()}
            for number, below in found.items():
                nested = list(commands(below))
                yield from [([f"{names[number][0]} {one[0]}", *one[1:]], it) for one, it in nested]
                if not nested:
                    yield names[number], below


Explained = dict[str, str]
"""The commands that have explained an option, by the text."""


def options(parser: argparse.ArgumentParser, command: str, known: Explained) -> Iterator[str]:
    """Explain the options; name those that an earlier command explains in the same words."""
    formatter = parser._get_formatter()
    names = {name for action in parser._actions for name in action.option_strings}
    archive = names.issuperset(ARCHIVE)
    explained = {*USAGES, *(ARCHIVE if archive else ())}
    earlier: dict[str, list[str]] = {}
    for action in parser._actions:
        if not action.help or action.help == argparse.SUPPRESS or explained.intersection(action.option_strings):
            continue
        value = "" if action.nargs == 0 else formatter._format_args(action, action.dest.upper())
        *short, last = action.option_strings or [""]
        spelled = ", ".join([*(f"`{one}`" for one in short), f"`{f'{last} {value}'.strip()}`"])
        text = f"{spelled}: {formatter._expand_help(action)}"
        if not last and action.help.startswith("name of"):
            continue
        if last and known.setdefault(text, command) != command:
            earlier.setdefault(known[text], []).append(f"`{last}`")
        else:
            yield text
    for other, same in earlier.items():
        yield f"as of [{other}](#{other.replace(' ', '-')}): {', '.join(same)}"
    if archive:
        yield "the options of the archive"


def usage(program: str, command: str, parser: argparse.ArgumentParser) -> str:
    """The command with its arguments."""
    formatter = parser._get_formatter()
    arguments = [one for one in parser._actions if not one.option_strings and one.help != argparse.SUPPRESS]
    everywhere = ["[-A]"] if any("-A" in one.option_strings for one in parser._actions) else []
    told = [formatter._format_args(action, action.dest.upper()) for action in arguments]
    return " ".join([program, command, *told, *everywhere])


def wrapped(text: str, indent: str = "") -> str:
    """Wrap, with options, variables and placeholders as code."""
    quoted = WORD.sub(lambda match: match[0] if match[1] is None else f"`{match[1]}`", " ".join(text.split()))
    return fill(quoted, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def section(program: str, names: list[str], parser: argparse.ArgumentParser, known: Explained) -> Iterator[str]:
    yield f"## {names[0]}"
    aliases = f" It is also called {' and '.join(f'`{name}`' for name in names[1:])}." if names[1:] else ""
    yield f"`{usage(program, names[0], parser)}`"
    yield wrapped((parser.description or "") + aliases)
    if lines := [wrapped(f"- {line}", "  ") for line in options(parser, names[0], known)]:
        yield "\n".join(lines)


def document() -> str:
    explained: Explained = {}
    plugin = list(commands(build_plugin_parser()))
    done = {names[0] for names, _ in plugin} | {"history show", "history cost"}
    parts = [HEAD, *(part for names, parser in plugin for part in section(PLUGIN, names, parser, explained))]
    for names, parser in commands(build_parser()):
        if names[0] not in done:
            parts += section(PROGRAM, names, parser, explained)
    return "\n\n".join(filter(None, parts)) + "\n"


if __name__ == "__main__":
    print(document(), end="")
