"""The archive for a command: a server, or a folder of records."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from frameworkcontroller.api.historyrecords import is_log_line
from frameworkcontroller.commands import program
from frameworkcontroller.commands.invocation import Invocation, connect_as_kubectl, open_invocation
from frameworkcontroller.history.archiveaccess import (
    TOKEN_FILE_VARIABLE,
    URL_VARIABLE,
    archive_in,
    bearer_token,
    may_have_clusters_token,
    token_of,
)
from frameworkcontroller.history.archiveclient import ArchiveClient, ArchiveURLError
from frameworkcontroller.history.archiveerrors import ArchiveError, FolderError, QueryError
from frameworkcontroller.history.reads import ArchiveReader
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.errors import ConnectionConfigError
from frameworkcontroller.views.texts import clean_line, counted

if TYPE_CHECKING:
    from frameworkcontroller.history.archive import HistoryArchive

HOW_TO_NAME: Final = f"--archive URL, ${URL_VARIABLE}, the kubeconfig, or --dir PATH"

_MESSAGE: Final = 200


def run_anywhere(run: Callable[[Invocation, argparse.Namespace], Awaitable[int]], options: argparse.Namespace) -> int:
    """Run the command, also without a cluster: then nothing live is shown. Return the exit code."""

    async def work() -> int:
        async with AsyncExitStack() as stack:
            try:
                invocation = await stack.enter_async_context(open_invocation(options))
            except ConnectionConfigError as error:
                if options.kubeconfig is not None or options.context is not None:
                    raise
                nowhere = await stack.enter_async_context(KubeClient(Connection.to_address("http://127.0.0.1:1")))
                invocation = Invocation(nowhere, options.namespace or "default")
                options.live = False
                options.unreachable = str(error)
            code = await run(invocation, options)
            invocation.out.file.flush()
            return code

    return program.run_command(work(), interrupted=lambda number: 128 + number)


def name_archive(invocation: Invocation, options: argparse.Namespace) -> bool:
    """Return whether an archive is named: by options, by the environment, or else by the kubeconfig."""
    if _is_named(options):
        return True
    options.archive, token_file = archive_in(invocation.extension)
    if options.archive and options.token_file is None:
        options.token_file = token_file
    return bool(options.archive)


def _is_named(options: argparse.Namespace) -> bool:
    return options.dir is not None or bool(options.archive or os.environ.get(URL_VARIABLE))


@asynccontextmanager
async def open_archive(invocation: Invocation, options: argparse.Namespace) -> AsyncIterator[ArchiveReader]:
    """Open the archive that the options or the environment name. Errors of its reads become the command's.

    Raises:
        CommandError: it, or the folder, cannot be read.
        UsageError: none is named, an option cannot be used, or a query is invalid.
    """
    try:
        async with _opened(invocation, options) as archive:
            yield archive
    except (ArchiveError, FolderError) as error:
        raise program.CommandError(str(error)) from None
    except QueryError as error:
        raise program.UsageError(str(error)) from None


@asynccontextmanager
async def _opened(invocation: Invocation, options: argparse.Namespace) -> AsyncIterator[ArchiveReader]:
    if options.dir is not None:
        if options.token_file is not None or options.ca_file is not None:
            raise program.UsageError("--dir: takes neither --token-file nor --ca-file, which are for --archive")
        async with _folder(invocation, options) as archive:
            yield archive
        return
    name_archive(invocation, options)
    url, named = options.archive, "--archive"
    if url is None:
        url, named = os.environ.get(URL_VARIABLE), f"${URL_VARIABLE}"
    if not url and not getattr(options, "live", True):
        raise program.UsageError(f"{options.unreachable}; or name an archive: {HOW_TO_NAME}")
    if not url:
        raise program.UsageError(f"where is the history? name it: {HOW_TO_NAME}")
    try:
        client = ArchiveClient(url, ca_file=options.ca_file)
    except ArchiveURLError as error:
        raise program.UsageError(f"{named}: {error}") from None
    async with client:
        yield client.reader(await _token(options, client.url))


async def _token(options: argparse.Namespace, url: str) -> str | None:
    path, named = options.token_file, "--token-file"
    if path is None and os.environ.get(TOKEN_FILE_VARIABLE):
        path, named = Path(os.environ[TOKEN_FILE_VARIABLE]), f"${TOKEN_FILE_VARIABLE}"
    if path is not None:
        token = token_of(program.read_input(path))
        if token is None:
            raise program.UsageError(f"{named} {path}: has no token")
        return token
    if not getattr(options, "live", True) or not may_have_clusters_token(url):
        return None
    try:
        return await bearer_token(await connect_as_kubectl(options))
    except ConnectionConfigError:
        return None


@asynccontextmanager
async def _folder(invocation: Invocation, options: argparse.Namespace) -> AsyncIterator[HistoryArchive]:
    """Read the records of the Frameworks from a folder into an archive of this process."""
    # Late imports: only a folder needs the extra "archive".
    from frameworkcontroller.history.archive import HistoryArchive
    from frameworkcontroller.history.folderfollower import read_folder, store_valid

    # A prefilter: JSON of the controller has no blanks there. The queries leave out the rest.
    wanted = [f'"namespace":"{invocation.namespace}"'.encode()] * (not getattr(options, "all_namespaces", False))
    if options.name is not None:
        wanted.append(f'"name":"{options.name}"'.encode())
    with tempfile.TemporaryDirectory(prefix="framework-history-") as directory:
        async with await HistoryArchive.open(f"sqlite:///{directory}/archive.db") as archive:
            bad = 0
            for path, batch in read_folder(options.dir, lambda path, why: invocation.error(f"{path}: {why}")):
                lines = [one for one in batch.lines if all(part in one[1] for part in wanted)]
                if options.name is None:
                    lines = [one for one in lines if not is_log_line(one[1])]
                stored = await store_valid(archive.store, lines, partial(_report_bad, invocation, path))
                bad += len(batch.too_long) + len(lines) - len(stored)
            if bad:
                invocation.note(f"{counted(bad, 'line')} of {options.dir} left out")
            yield archive


def _report_bad(invocation: Invocation, path: Path, _number: int, problem: str) -> None:
    invocation.error(f"{path}: a line is no record: {clean_line(problem, _MESSAGE)}")
