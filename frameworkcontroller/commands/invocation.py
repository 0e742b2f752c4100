"""What every command on a cluster works with: a client, the namespace that is meant, and where to write."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import orjson
from rich.console import Console
from rich.table import Table

from frameworkcontroller.api import names
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.commands import program
from frameworkcontroller.commands.output import console, print_whole
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import connect
from frameworkcontroller.kube.errors import Gone, NotFound
from frameworkcontroller.kube.resources import Resource

FIELD_MANAGER: Final = "kubectl-framework"

_PAGE_ITEMS: Final = 100

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Session:
    """One command's way to its cluster and its user. ``wall``: seconds since the epoch."""

    client: KubeClient
    namespace: str
    out: Console = field(default_factory=lambda: console(sys.stdout))
    err: Console = field(default_factory=lambda: console(sys.stderr))
    wall: Callable[[], float] = time.time

    def say(self, text: str = "") -> None:
        """Print plain text, however long its lines."""
        self.out.print(text, soft_wrap=True)

    def print_table(self, table: Table) -> None:
        """Print it as wide as it is: whoever wants it narrower has a window, and a pipe has no width."""
        print_whole(self.out, table)

    def note(self, text: str) -> None:
        """Tell the user something that is not the result."""
        self.err.print(program.remark(text), soft_wrap=True)

    def complain(self, text: str) -> None:
        """Tell the user of something that went wrong while the rest goes on."""
        self.err.print(program.complaint(text), soft_wrap=True)

    async def framework(self, name: str) -> Json:
        """The Framework of that name.

        Raises:
            CommandError: there is none.
        """
        try:
            found: Json = orjson.loads(await self.client.get(FRAMEWORKS, checked_name(name), self.namespace))
        except NotFound as error:
            raise program.CommandError(self._missing(name, error)) from None
        return found

    async def each(
        self,
        resource: Resource,
        take: Callable[[Json], None],
        *,
        all_namespaces: bool = False,
        label_selector: str | None = None,
        field_selector: str | None = None,
        most: int | None = None,
        metadata_only: bool = False,
    ) -> bool:
        """Read a collection page by page, so that only what ``take`` keeps of an object stays in memory.

        Returns whether that was all, which it may not be if more than ``most`` are there.
        """
        token: str | None = None
        read = 0
        while True:
            try:
                page = orjson.loads(
                    await self.client.list(
                        resource,
                        None if all_namespaces else self.namespace,
                        label_selector=label_selector,
                        field_selector=field_selector,
                        limit=_PAGE_ITEMS,
                        continue_token=token,
                        metadata_only=metadata_only,
                    )
                )
            except Gone as error:
                # The page's moment is no longer known. The server offers to go on from now.
                token = (error.status.get("metadata") or {}).get("continue")
                if not token:
                    raise
                continue
            except NotFound as error:
                raise program.CommandError(self._missing("", error)) from None
            for item in page.get("items") or ():
                take(item)
                read += 1
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return True
            if most is not None and read >= most:
                return False

    def _missing(self, name: str, error: NotFound) -> str:
        if (error.details or {}).get("name") == name and name:
            return f'there is no Framework "{name}" in namespace "{self.namespace}"'
        return f"this cluster knows no Frameworks: is the controller installed? ({error})"


Work: TypeAlias = Callable[[Session, argparse.Namespace], Awaitable[int]]
"""A command: does what the options say, and returns the exit code."""


def run(work: Work, options: argparse.Namespace) -> int:
    """Do it on the cluster that the options mean. Returns the exit code."""
    return program.run_command(_on_cluster(work, options), interrupted=lambda number: 128 + number)


async def _on_cluster(work: Work, options: argparse.Namespace) -> int:
    async with open_session(options) as session:
        code = await work(session, options)
        # While whoever does not read any more can still be told from other trouble.
        sys.stdout.flush()
        return code


@asynccontextmanager
async def open_session(options: argparse.Namespace) -> AsyncIterator[Session]:
    """A session with the cluster that the options mean, as kubectl would understand them."""
    kubeconfig = options.kubeconfig
    connection = await connect(kubeconfig=None if kubeconfig is None else str(kubeconfig), context=options.context)
    namespace = options.namespace or connection.access.namespace or "default"
    async with KubeClient(connection, user_agent=_user_agent()) as client:
        yield Session(client, namespace)


def checked_name(name: str) -> str:
    """The name of a Framework. Raises CommandError if none can have it."""
    if not names.is_valid_name(name):
        raise program.CommandError(
            f'"{name}" is not the name of a Framework (lower case letters and digits, at most 63)', program.EXIT_USAGE
        )
    return name


def _user_agent() -> str:
    from frameworkcontroller import __version__

    return f"{FIELD_MANAGER}/{__version__}"
