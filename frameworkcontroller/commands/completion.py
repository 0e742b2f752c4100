"""Completion by the shell: of commands and options from the parser, of names from the cluster that is meant."""

from __future__ import annotations

import argparse
import asyncio
import io
import logging
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any, Final

import argcomplete
from argcomplete.shell_integration import shellcode

from frameworkcontroller.commands import program
from frameworkcontroller.kube.errors import KubeError

_PROGRAMS: Final = (program.PROGRAM, "kubectl-framework")
_TIMEOUT_SEC: Final = 3.0
_SEPARATOR: Final = "\013"
# What a completer of cobra's ends with: 4 has the shell not offer files, 0 leaves it to the shell.
_NO_FILES: Final = ":4"
_AS_USUAL: Final = ":0"


def print_script(options: argparse.Namespace) -> int:
    """Print what the shell is to read. Returns the exit code."""
    sys.stdout.write(shellcode(_PROGRAMS, shell=options.shell) + "\n")
    return program.EXIT_OK


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell, which has said in the environment what is to be completed, and exit."""
    argcomplete.autocomplete(parser, always_complete_options=False)


def complete_for_kubectl(parser: argparse.ArgumentParser, words: Sequence[str]) -> int:
    """Print, as kubectl wants it, what the last of the words may become. Returns the exit code."""
    *before, last = words or [""]
    line = " ".join([_PROGRAMS[1], *map(shlex.quote, before), last])
    os.environ |= {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": _SEPARATOR, "COMP_LINE": line, "COMP_POINT": str(len(line))}
    answer = io.StringIO()
    argcomplete.autocomplete(
        parser,
        always_complete_options=False,
        exit_method=lambda _code: None,
        output_stream=answer,
        default_completer=argcomplete.completers.SuppressCompleter(),
    )
    found = [word.strip() for word in answer.getvalue().split(_SEPARATOR) if word.strip()]
    sys.stdout.write("\n".join([*found, _NO_FILES if found else _AS_USUAL]) + "\n")
    return program.EXIT_OK


def framework_names(options: argparse.Namespace) -> list[str]:
    """The names of the Frameworks in the namespace that is meant; none if the cluster does not answer soon."""
    return _ask(options, None)


def role_names(options: argparse.Namespace) -> list[str]:
    """The names of the roles of the Framework that is named before; none if the cluster does not answer soon."""
    name = getattr(options, "name", None)
    return _ask(options, name) if isinstance(name, str) else []


def _ask(options: argparse.Namespace, framework: str | None) -> list[str]:
    logging.disable()
    try:
        return asyncio.run(asyncio.wait_for(_names(options, framework), _TIMEOUT_SEC))
    except (KubeError, program.CommandError, TimeoutError, OSError):
        return []


async def _names(options: argparse.Namespace, framework: str | None) -> list[str]:
    from frameworkcontroller.api.resources import FRAMEWORKS
    from frameworkcontroller.commands.invocation import Json, open_session

    found: list[str] = []

    def take(body: Json) -> None:
        found.append(body["metadata"]["name"])

    async with open_session(options) as session:
        if framework is None:
            await session.each(FRAMEWORKS, take, metadata_only=True)
            return found
        spec: dict[str, Any] = (await session.framework(framework)).get("spec") or {}
        return [role["name"] for role in spec.get("taskRoles") or ()]
