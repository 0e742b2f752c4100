"""The commands for people, run in the test's own process against its cluster."""

import io
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple
from unittest.mock import patch

from rich.console import Console

from frameworkcontroller.cli.main import main
from frameworkcontroller.commands import program
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.commands.output import console
from frameworkcontroller.commands.parsers import Parser, build_plugin_parser, late
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from tests.support.clusters import Cluster


class Ended(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Its output, line by line, without blanks at their ends."""
        return [line.rstrip() for line in self.out.splitlines()]


def run_program(*arguments: str, stdin: str = "", program: Callable[[Sequence[str]], int] = main) -> Ended:
    """Run ``frameworkcontroller ARGUMENTS`` in this process, which saves a second of CPU.

    Its tests need the fixture ``logging_as_before``.
    """
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "stdin", io.StringIO(stdin)):
        try:
            code = program(arguments)
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else 1
    return Ended(code, out.getvalue(), err.getvalue())


async def run_offline(*arguments: str, wall: Callable[[], float] = time.time) -> tuple[str, str]:
    """The output and the remarks of ``kubectl framework ARGUMENTS`` where there is no cluster; it must succeed.

    Raises:
        CommandError: of the command.
    """
    options = build_plugin_parser().parse_args(arguments)
    options.live = False
    out, err = io.StringIO(), io.StringIO()
    async with KubeClient(Connection.to_address("http://127.0.0.1:1")) as nowhere:
        invocation = Invocation(nowhere, options.namespace or "default", console(out), console(err), wall)
        assert await late(f"commands.{options.module}")(invocation, options) == 0
    return out.getvalue(), err.getvalue()


class Cli:
    """Runs ``kubectl framework ARGUMENTS`` in the test's namespace, as if into a pipe; or another parser's commands."""

    def __init__(
        self,
        cluster: Cluster,
        client: KubeClient,
        *,
        width: int = 200,
        parser: Callable[[], Parser] = build_plugin_parser,
    ) -> None:
        self._cluster = cluster
        self._client = client
        self._width = width
        self._parser = parser
        self.out = io.StringIO()
        """What the last command has printed so far."""
        self.err = io.StringIO()

    async def __call__(self, *arguments: str, namespace: str | None = None) -> Ended:
        """Run it to its end."""
        options = self._parser().parse_args(arguments)
        self.out = out = io.StringIO()
        self.err = err = io.StringIO()
        invocation = Invocation(
            self._client,
            namespace or self._cluster.namespace,
            self._console(out),
            self._console(err),
            self._cluster.wall,
        )
        program.set_prefixes(as_plugin=True)
        try:
            code = await late(f"commands.{options.module}")(invocation, options)
        except program.CommandError as error:
            return Ended(error.code, out.getvalue(), err.getvalue() + str(error))
        finally:
            program.set_prefixes(as_plugin=False)
        return Ended(code, out.getvalue(), err.getvalue())

    def _console(self, file: io.StringIO) -> Console:
        made = console(file)
        made.width = self._width
        return made

    async def ok(self, *arguments: str) -> list[str]:
        """Run it, which must succeed and have nothing to remark; the lines that it prints."""
        ended = await self(*arguments)
        assert (ended.code, ended.err) == (0, ""), ended
        return ended.lines
