"""``completion``: the script for the shell; and completion itself, of names too, which it asks the cluster for."""

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

from frameworkcontroller.commands import program

_PROGRAMS: Final = (program.PROGRAM, "kubectl-framework")
_TIMEOUT_SEC: Final = 3.0
_SEPARATOR: Final = "\013"
# The last line of cobra's completers: 4 stops the shell from offering files, 0 does not.
_NO_FILES: Final = ":4"
_DEFAULT: Final = ":0"


def run(options: argparse.Namespace) -> int:
    """Print the script for the shell. Return the exit code."""
    from argcomplete.shell_integration import shellcode

    sys.stdout.write(shellcode(_PROGRAMS, shell=options.shell) + "\n")
    return program.EXIT_OK


def complete_for_kubectl(parser: argparse.ArgumentParser, words: Sequence[str]) -> int:
    """Print the completions of the last word in kubectl's format. Return the exit code."""
    import argcomplete

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
    sys.stdout.write("\n".join([*found, _NO_FILES if found else _DEFAULT]) + "\n")
    return program.EXIT_OK


# --- completers of arguments, with the names of parameters that argcomplete expects ---


def complete_names(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:  # noqa: ARG001
    """Return the names of the Frameworks in the namespace; none if the cluster does not answer soon."""
    return _ask(parsed_args, None)


def complete_roles(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:  # noqa: ARG001
    """Return the role names of the Framework that the line names; none if the cluster does not answer soon."""
    name = getattr(parsed_args, "name", None)
    return _ask(parsed_args, name) if isinstance(name, str) else []


def complete_roles_to_scale(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """Return the same as ``ROLE=``."""
    return [f"{role}=" for role in complete_roles(prefix, parsed_args)]


def _ask(options: argparse.Namespace, framework: str | None) -> list[str]:
    """Ask the cluster for the roles of the Framework; without one, for the names of the Frameworks."""
    from frameworkcontroller.api.resources import FRAMEWORKS
    from frameworkcontroller.commands.invocation import open_invocation
    from frameworkcontroller.kube.errors import KubeError
    from frameworkcontroller.views.apiobjects import roles_of

    async def answer() -> list[str]:
        async with asyncio.timeout(_TIMEOUT_SEC), open_invocation(options) as invocation:
            if framework is not None:
                return [role["name"] for role in roles_of(await invocation.framework(framework))]
            return [body["metadata"]["name"] async for body in invocation.each(FRAMEWORKS, metadata_only=True)]

    logging.disable()
    try:
        return asyncio.run(answer())
    except (KubeError, program.CommandError, TimeoutError, OSError):
        return []
