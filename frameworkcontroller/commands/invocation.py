"""One invocation of a command on a cluster: the client, the namespace, and where to print."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar, Unpack

import orjson
from rich.console import Console
from rich.table import Table

from frameworkcontroller import __version__
from frameworkcontroller.api import names
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.commands import program
from frameworkcontroller.commands.output import console, print_table
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection, connect
from frameworkcontroller.kube.errors import ApiError, Invalid, NoClusterError, NotFound, ObjectNotFound
from frameworkcontroller.kube.resources import Resource
from frameworkcontroller.views.apiobjects import Json
from frameworkcontroller.views.paging import Selection, each_object
from frameworkcontroller.views.specpatch import ContentionError, patch_spec
from frameworkcontroller.views.texts import encode

T = TypeVar("T")

NO_CLUSTER: Final = "no cluster: set $KUBECONFIG or --kubeconfig, or start one by 'frameworkcontroller local up'"

_FIELD_MANAGER: Final = "kubectl-framework"
_UNAUTHORIZED: Final = 401


@dataclass(frozen=True, slots=True)
class Invocation:
    """The environment of a running command. ``wall``: a clock, in seconds since the epoch.

    ``extension``: the kubeconfig's values for this project.
    """

    client: KubeClient
    namespace: str
    out: Console = field(default_factory=lambda: console(sys.stdout))
    err: Console = field(default_factory=lambda: console(sys.stderr))
    wall: Callable[[], float] = time.time
    extension: Mapping[str, Any] = field(default_factory=dict)

    def print(self, text: str = "") -> None:
        """Print plain text on stdout without wrapping it."""
        self.out.print(text, soft_wrap=True)

    def print_table(self, rows: Table) -> None:
        """Print a table in its full width."""
        print_table(self.out, rows)

    def print_object(self, value: Any, output: str) -> None:
        """Print an object as ``json`` or ``yaml``."""
        self.print(encode(value, output).rstrip("\n"))

    def note(self, text: str) -> None:
        """Print a remark on stderr."""
        self.err.print(program.line("note", text), soft_wrap=True)

    def error(self, text: str) -> None:
        """Print on stderr an error that does not end the command."""
        self.err.print(program.line("error", text), soft_wrap=True)

    async def framework(self, name: str, *, hint_at_history: bool = False) -> Json:
        """Return the Framework of that name. ``hint_at_history``: the error names the command for deleted ones.

        Raises:
            CommandError: there is none.
        """
        try:
            found: Json = orjson.loads(await self.client.get(FRAMEWORKS, checked_name(name), self.namespace))
        except NotFound as error:
            hint = ""
            if hint_at_history and isinstance(error, ObjectNotFound):
                hint = f"; if it was deleted: kubectl framework history {name} -n {self.namespace}"
            raise program.CommandError(self._missing(name, error) + hint) from None
        return found

    async def each(
        self,
        resource: Resource,
        *,
        all_namespaces: bool = False,
        most: int | None = None,
        **listing: Unpack[Selection],
    ) -> AsyncIterator[Json]:
        """Yield the objects of a collection, which are read a page at a time, to hold no more than a page in memory.

        Stop after the page with the object number ``most``.
        """
        where = None if all_namespaces else self.namespace
        try:
            async for item in each_object(self.client, resource, where, most=most, **listing):
                yield item
        except NotFound as error:
            raise program.CommandError(self._missing("", error)) from None

    async def for_each(self, frameworks: Sequence[str], work: Callable[[str], Awaitable[str]]) -> int:
        """Print the result of ``work`` for each name. Return the exit code of the last failure."""
        code = program.EXIT_OK
        for name in frameworks:
            try:
                self.print(f"{name}: {await work(name)}")
            except program.CommandError as error:
                code = program.fail(str(error), error.code)
        return code

    async def patch_spec(self, name: str, change: Callable[[Json], tuple[list[Json], T]]) -> T:
        """Send JSON patch operations to a Framework, unless there are none.

        The patch tests the UID and the generation, which changes with the spec.

        Args:
            change: returns the operations and the result for a Framework. It is called again after a concurrent change.

        Returns:
            the result of the last ``change``.

        Raises:
            CommandError: there is no such Framework, or the API server refuses the patch.
        """
        try:
            return await patch_spec(self.client, partial(self.framework, name), change, manager=_FIELD_MANAGER)
        except ContentionError as error:
            raise program.CommandError(str(error)) from None
        except Invalid as error:
            raise program.CommandError(f"{name}: {error}") from None

    def _missing(self, name: str, error: NotFound) -> str:
        if error.details.get("name") == name and name:
            return f'there is no Framework "{name}" in namespace "{self.namespace}"'
        return f"this cluster knows no Frameworks: is the controller installed? ({error})"


def run(work: Callable[[Invocation, argparse.Namespace], Awaitable[int]], options: argparse.Namespace) -> int:
    """Run the function of a command on the cluster that the options name. Return the exit code."""

    async def work_on_cluster() -> int:
        async with open_invocation(options) as invocation:
            code = await work(invocation, options)
            # A broken pipe must raise here, where it is handled.
            sys.stdout.flush()
            return code

    return program.run_command(work_on_cluster(), interrupted=lambda number: 128 + number)


async def connect_as_kubectl(options: argparse.Namespace) -> Connection:
    """Connect to the cluster that kubectl would use with these options."""
    kubeconfig = None if options.kubeconfig is None else str(options.kubeconfig)
    try:
        return await connect(kubeconfig=kubeconfig, context=options.context)
    except NoClusterError:
        raise NoClusterError(NO_CLUSTER) from None


@asynccontextmanager
async def open_invocation(options: argparse.Namespace) -> AsyncIterator[Invocation]:
    """Connect to the cluster that kubectl would use with these options."""
    connection = await connect_as_kubectl(options)
    namespace = options.namespace or connection.access.namespace or "default"
    async with KubeClient(connection, user_agent=f"{_FIELD_MANAGER}/{__version__}") as client:
        try:
            yield Invocation(client, namespace, extension=connection.access.extension)
        except ApiError as error:
            if error.code != _UNAUTHORIZED:
                raise
            context = f", context {connection.access.context}" if connection.access.context else ""
            raise program.CommandError(
                f"{connection.server} ({connection.origin}{context}) does not accept the credentials: {error}. Log in "
                "again, or choose another context: kubectl config get-contexts"
            ) from None


def checked_name(name: str) -> str:
    """Return the name of a Framework; raise CommandError if it is invalid."""
    if not names.is_valid_name(name):
        raise program.UsageError(f'"{name}" is not the name of a Framework (lower case letters and digits, at most 63)')
    return name
