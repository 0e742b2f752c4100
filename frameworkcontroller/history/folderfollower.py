"""Follows a folder of ``sink: file``: stores the records of its files, also while they grow or are added.

A file has one record a line, and may be compressed, renamed or removed once it no longer grows. A last line without its
end is still being written, so it waits. A line that is no record is logged and skipped.

The place in a file is identified by content: a digest of its first line, and one of the bytes before the place. So a
renamed or compressed file is continued, and another file of the same name is read from its beginning.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import logging
import os
import random
import re
import time
import zlib
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from frameworkcontroller.api.historyrecords import HistoryRecordError, decode_record
from frameworkcontroller.backoff import Backoff
from frameworkcontroller.history.archiveerrors import ArchiveError, FolderError, RecordError
from frameworkcontroller.history.archivemetrics import FILE, ArchiveMetrics
from frameworkcontroller.history.upload import MAX_BODY_BYTES, NumberedLine, outline

_log: Final = logging.getLogger(__name__)

POLL_SEC: Final = 1.0
BATCH_BYTES: Final = 2 * 2**20
_PIECE_BYTES: Final = 2**20
_WINDOW_BYTES: Final = 256
_FIRST_BYTES: Final = 4096
_LOGGED_LINES: Final = 20
"""Bad lines of a file that are logged one by one; all are counted."""

_NAMES: Final = re.compile(r".+\.ndjson(\.\d+)?(\.gz)?")
_BACKOFF: Final = Backoff(base=1.0, maximum=30.0)


_Readable = io.BufferedReader | gzip.GzipFile


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A place in a file: all lines before it are stored or skipped.

    ``file``: digest of the first line. ``window``: digest of the bytes before ``offset``, which is that in the
    decompressed file. ``line``: number of lines before it. ``seen``: path, size and time of change of the file when
    its end was reached; "" before.
    """

    file: str
    offset: int = 0
    line: int = 0
    window: str = ""
    seen: str = ""


class LineBatch(NamedTuple):
    """Lines of a file, with their numbers from 1, and the place after them."""

    lines: list[NumberedLine]
    too_long: list[int]
    place: FilePlace


class FolderFollower:
    """Follows one folder. ``run`` never ends; it is cancelled between two batches or during one."""

    def __init__(
        self,
        folder: Path,
        store: Callable[[list[bytes]], Awaitable[object]],
        metrics: ArchiveMetrics,
        *,
        rng: random.Random | None = None,
    ) -> None:
        """``store``: of the archive.

        Raises:
            FolderError: ``folder`` is not a folder that can be read.
        """
        self.folder = folder
        self._store_lines = store
        self._metrics = metrics
        self._rng = rng or random.Random()
        # Forgotten at the end of the process: then all files are read again, which changes nothing.
        self._known: dict[str, FilePlace] = {}
        """By ``file``."""
        self._files: dict[Path, _File] = {}
        self._behind_since: float | None = None
        self._listed = True
        try:
            os.scandir(folder).close()
        except OSError as error:
            raise FolderError(f"{folder}: cannot be read: {error.strerror}") from None

    @property
    def unread_bytes(self) -> int:
        """Bytes that were not stored at the last look, of compressed files as they are."""
        return sum(file.unread for file in self._files.values())

    @property
    def lag_seconds(self) -> float:
        """Time for which there have been unread bytes; 0: there are none."""
        return 0.0 if self._behind_since is None else time.monotonic() - self._behind_since

    async def run(self) -> None:
        """Follow until cancelled."""
        failures = 0
        while True:
            try:
                await self.catch_up()
            except ArchiveError as error:
                failures += 1
                delay = _BACKOFF.delay(failures, self._rng)
                _log.warning("Cannot store records of %s, retrying in %.0f s: %s", self.folder, delay, error)
                await asyncio.sleep(delay)
            else:
                failures = 0
                await asyncio.sleep(POLL_SEC)

    async def catch_up(self) -> None:
        """Store the present content of the folder.

        Raises:
            ArchiveError: the database cannot be used. Earlier batches stay stored.
        """
        await asyncio.to_thread(self._look)
        for path, file in sorted(self._files.items()):
            if file.unread:
                await self._read(path, file)
        if not self.unread_bytes:
            self._behind_since = None

    def _look(self) -> None:
        """Find the files, and which have changed."""
        try:
            with os.scandir(self.folder) as entries:
                found = {Path(one.path): one.stat() for one in entries if _NAMES.fullmatch(one.name) and one.is_file()}
        except OSError as error:
            if self._listed:
                _log.warning("Cannot read %s: %s", self.folder, error.strerror)
            self._listed = False
            return
        self._listed = True
        files = {}
        for path, stat in found.items():
            seen = f"{stat.st_ino} {stat.st_size} {stat.st_mtime_ns} {path}"
            file = self._files.get(path) or _File()
            if file.seen != seen:
                known = any(place.seen == seen for place in self._known.values())
                file = _File(seen, 0 if known else stat.st_size, file.bad)
            files[path] = file
        self._files = files
        if self._behind_since is None and self.unread_bytes:
            self._behind_since = time.monotonic()

    async def _read(self, path: Path, file: _File) -> None:
        size = file.unread
        batches = _batches(path, self._known)
        place: FilePlace | None = None
        try:
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                await self._store(path, file, batch)
                place = batch.place
                self._known[place.file] = place
                file.unread = max(1, size - place.offset)
        except (OSError, EOFError, zlib.error, ValueError) as error:
            self._metrics.refused(FILE, 400)
            # It is read again once it has changed.
            _log.warning("%s cannot be read further: %s", path, getattr(error, "strerror", None) or error)
        else:
            if place is not None:
                self._known[place.file] = replace(place, seen=file.seen)
        finally:
            batches.close()
        file.unread = 0
        if file.bad > _LOGGED_LINES:
            _log.warning("%s: %d lines are no records; they were skipped", path, file.bad)

    async def _store(self, path: Path, file: _File, batch: LineBatch) -> None:
        """Store a batch without the lines that are no records."""
        for number in batch.too_long:
            self._skip(path, file, number, f"it has more than {MAX_BODY_BYTES} bytes")
        stored = await store_valid(
            self._store_lines, batch.lines, lambda number, problem: self._skip(path, file, number, problem)
        )
        if stored:
            self._metrics.stored(FILE, outline(stored)[1])

    def _skip(self, path: Path, file: _File, number: int, problem: str) -> None:
        file.bad += 1
        self._metrics.refused(FILE, 400)
        if file.bad <= _LOGGED_LINES:
            _log.warning("%s, line %d is no record, skipped: %s", path, number, problem)


async def store_valid(
    store: Callable[[list[bytes]], Awaitable[object]],
    lines: Sequence[NumberedLine],
    skip: Callable[[int, str], None],
) -> list[bytes]:
    """Store the lines that are records, and return them. ``skip`` gets the number and the problem of each bad line.

    Raises:
        ArchiveError: the database cannot be used. Nothing is stored.
    """
    checked = False
    while lines:
        records = [line for _, line in lines]
        try:
            await store(records)
        except RecordError as error:
            # There may be many: first find all that are found without the database.
            faults = {} if checked else _faults(records)
            faults = faults or {error.line: error.problem}
            checked = True
            for place, problem in faults.items():
                skip(lines[place - 1][0], problem)
            lines = [one for place, one in enumerate(lines, 1) if place not in faults]
        else:
            return records
    return []


def _faults(lines: Sequence[bytes]) -> dict[int, str]:
    """Return the problems of lines that are no records, by their places from 1."""
    found = {}
    for place, line in enumerate(lines, 1):
        try:
            decode_record(line)
        except HistoryRecordError as problem:
            found[place] = str(problem)
    return found


def read_folder(folder: Path, on_error: Callable[[Path, str], None]) -> Iterator[tuple[Path, LineBatch]]:
    """Yield the present content of the files of a folder, by their names. ``on_error`` gets broken files, and why.

    Raises:
        FolderError: ``folder`` is not a folder that can be read.
    """
    try:
        paths = sorted(Path(one.path) for one in os.scandir(folder) if _NAMES.fullmatch(one.name) and one.is_file())
    except OSError as error:
        raise FolderError(f"{folder}: cannot be read: {error.strerror}") from None
    for path in paths:
        try:
            for batch in _batches(path, {}):
                yield path, batch
        except (OSError, EOFError, zlib.error) as error:
            on_error(path, getattr(error, "strerror", None) or str(error))


@dataclass(slots=True)
class _File:
    """The state of a file. ``unread``: bytes, at most; ``bad``: lines skipped by this process."""

    seen: str = ""
    unread: int = 0
    bad: int = 0


def _batches(path: Path, known: Mapping[str, FilePlace]) -> Generator[LineBatch, None, None]:
    """Read a file from its place to its last complete line. Raises OSError, EOFError, ValueError, zlib.error."""
    compressed = path.suffix == ".gz"
    with gzip.open(path) if compressed else path.open("rb") as file:
        resumed = _resume(file, known, whole=compressed)
        if resumed is None:
            return
        place, window = resumed
        rest = b""
        dropping = False  # the rest of a line that is too long
        lines: list[NumberedLine] = []
        too_long: list[int] = []
        size = 0
        broken: Exception | None = None
        offset, line = place.offset, place.line
        while True:
            try:
                piece = file.read1(_PIECE_BYTES)
            except (OSError, EOFError, zlib.error) as error:
                # The readable part of a broken file is stored.
                broken = error
                break
            if not piece and compressed and rest:
                piece = b"\n"  # it no longer grows
            if not piece:
                break
            *complete, rest = (rest + piece).split(b"\n")
            for each in complete:
                line += 1
                offset += len(each) + 1
                window = (window + each[-_WINDOW_BYTES:] + b"\n")[-_WINDOW_BYTES:]
                if dropping or len(each) > MAX_BODY_BYTES:
                    too_long.append(line)
                    dropping = False
                elif each.strip():
                    lines.append((line, each))
                    size += len(each)
                if size >= BATCH_BYTES:
                    place = FilePlace(place.file, offset, line, _digest(window))
                    yield LineBatch(lines, too_long, place)
                    lines, too_long, size = [], [], 0
            if len(rest) > MAX_BODY_BYTES:
                offset += len(rest)
                window = rest[-_WINDOW_BYTES:]
                rest = b""
                dropping = True
        if offset > place.offset and not dropping:
            yield LineBatch(lines, too_long, FilePlace(place.file, offset, line, _digest(window)))
        if broken is not None:
            raise broken


def _resume(file: _Readable, known: Mapping[str, FilePlace], *, whole: bool) -> tuple[FilePlace, bytes] | None:
    """Return the place from which to read the file, and the bytes before it; None: it has no complete line yet."""
    first = file.readline(_FIRST_BYTES)
    if not first or not (first.endswith(b"\n") or len(first) == _FIRST_BYTES or whole):
        return None
    name = _digest(first.removesuffix(b"\n"))
    place = known.get(name)
    if place is not None and place.offset:
        start = max(0, place.offset - _WINDOW_BYTES)
        with suppress(EOFError):
            file.seek(start)
            window = file.read(place.offset - start)
            if _digest(window) == place.window:
                return place, window
    file.seek(0)
    return FilePlace(name), b""


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
