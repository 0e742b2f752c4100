"""The tables of the archive, and connections to the database that has them.

SQLite and PostgreSQL have the same tables and the same statements. SQLite commits with a WAL that is synced
(``synchronous=FULL``), PostgreSQL with ``synchronous_commit``: a transaction that has returned is durable.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import asyncpg  # type: ignore[import-untyped]
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    event,
    exc,
    select,
    text,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from frameworkcontroller.history import holdings
from frameworkcontroller.history.archiveerrors import ArchiveError
from frameworkcontroller.history.reserve import Reserve

_log: Final = logging.getLogger(__name__)

MIGRATIONS: Final = Path(__file__).with_name("migrations")

BUSY_SEC: Final = 5.0
"""How long SQLite waits for the lock of another process."""
_CONNECT_SEC: Final = 10.0
_COMMAND_SEC: Final = 60.0
"""A PostgreSQL that does not answer is away."""
_LOST_SEC: Final = 0.1
"""How long a call may continue after its connection is lost."""
_READERS: Final = 4
_MIGRATION_LOCK: Final = 0x6672616D65776F72
"""Key of the advisory lock of PostgreSQL: the letters "framewor"."""

# --- tables -----------------------------------------------------------------------------------------------------
#
# Times of objects are whole seconds since the epoch, times of records (`time`, `last`) microseconds.

metadata: Final = MetaData()

_Text = Text().with_variant(Text(collation="C"), "postgresql")
"""Sorts by code point, as SQLite does."""
_Key = BigInteger().with_variant(Integer, "sqlite")


def _texts(*names: str, null: bool = False) -> list[Column[str]]:
    return [Column(name, _Text, nullable=null) for name in names]


def _numbers(*names: str, null: bool = False) -> list[Column[int]]:
    return [Column(name, BigInteger, nullable=null) for name in names]


def _of_record(key: str) -> list[Column[Any]]:
    """The key of a row, its Framework, and its attempt. ``time`` 0: only Tasks or Pods of the attempt are archived."""
    return [Column(key, _Key, primary_key=True, autoincrement=True), *_numbers("fid", "attempt", "time")]


def _completion() -> list[Column[Any]]:
    return [*_texts("phrase", "type", "diagnostics", null=True), *_numbers("code", "started", "completed", null=True)]


frameworks: Final = Table(
    "frameworks",
    metadata,
    # Never used again: rows of Frameworks that are being removed still refer to it.
    Column("fid", _Key, primary_key=True, autoincrement=True),
    Column("uid", _Text, nullable=False, unique=True),
    *_texts("namespace", "name", "cluster"),
    # Of the newest record of the Framework itself (0: none); of the newest record of it, its Tasks and Pods.
    *_numbers("time", "last", "created"),
    *_completion(),
    *_numbers("deleted", "ended", "attempts", "task_retries", "tasks", null=True),
    *_numbers("failed_tasks", "succeeded_tasks", "stopped_tasks", null=True),
    *_texts("state", "queue", "submitter", null=True),
    Column("phase", _Text, nullable=False, server_default="running"),
    Index("frameworks_created", "created", "fid"),
    *(Index(f"frameworks_{name}", name, "created", "fid") for name in ("namespace", "name", "state", "code", "phase")),
    Index("frameworks_last", "last"),
    sqlite_autoincrement=True,
)

_blame = text("failed_at IS NOT NULL")
"""``failed_at``: completion of an attempt that failed, and not on request."""

attempts: Final = Table(
    "framework_attempts",
    metadata,
    *_of_record("aid"),
    *_texts("trigger", "cause_role", "cause_node", null=True),
    *_completion(),
    *_numbers("failed_at", "tasks", "running_tasks", "succeeded_tasks", "failed_tasks", "stopped_tasks", null=True),
    *_numbers("task_retries", "cause_index", "progressed", "last_step", "checkpoint_step", null=True),
    *_texts("first_failure", "avoided_nodes", null=True),
    Column("succeeded", SmallInteger),
    Column("record", LargeBinary),
    UniqueConstraint("fid", "attempt", name="framework_attempts_key"),
    Index("framework_attempts_cost", "fid", "attempt", "succeeded", "progressed"),
    Index("framework_attempts_failed", "failed_at", sqlite_where=_blame, postgresql_where=_blame),
)

_OF_TASK: Final = ("fid", "attempt", "role", "idx", "task_uid", "task_attempt")

# The index has all that failures are grouped by, so counting them reads nothing else.
_FAILED: Final = ("failed_at", "code", "node", "role", "fid", "tid")

# The same for counting all attempts that ended on a node.
_ENDED: Final = ("completed", "node", "fid")
_on_node = text("completed IS NOT NULL AND node IS NOT NULL")

# The same for their cost, Framework by Framework.
_COST: Final = ("fid", "attempt", *holdings.COLUMNS, "completed", "failed_at", "code", "node")

tasks: Final = Table(
    "task_attempts",
    metadata,
    *_of_record("tid"),
    *_texts("role", "task_uid"),
    *_numbers("idx", "task_attempt"),
    Column("own", SmallInteger, nullable=False),  # 1: from a record of the Task, 0: from a record of the Framework
    *_completion(),
    *_texts("trigger", "node", "pod", "pod_uid", "pod_ip", "host_ip", null=True),
    *_numbers("ran", "failed_at", "held", "busy", "freed", null=True),
    *_texts("requests", null=True),
    Column("record", LargeBinary),
    UniqueConstraint(*_OF_TASK, name="task_attempts_key"),
    Index("task_attempts_cost", *_COST),
    Index("task_attempts_failed", *_FAILED, sqlite_where=_blame, postgresql_where=_blame),
    Index("task_attempts_ended", *_ENDED, sqlite_where=_on_node, postgresql_where=_on_node),
)

_OF_POD: Final = ("fid", "attempt", "role", "task_uid", "task_attempt", "pod_uid")

pods: Final = Table(
    "pods",
    metadata,
    *_of_record("pid"),
    *_texts("role", "task_uid", "pod_uid"),
    *_numbers("task_attempt"),
    Column("record", LargeBinary, nullable=False),
    UniqueConstraint(*_OF_POD, name="pods_key"),
)

_OF_LOG: Final = ("fid", "attempt", "role", "idx", "task_uid", "task_attempt", "pod_uid", "container", "run")

# The bytes come last: reading the columns before them reads no more of a large row.
logs: Final = Table(
    "logs",
    metadata,
    *_of_record("lid"),
    *_numbers("idx", "task_attempt", "run", "size", "stored"),  # stored: bytes of packed
    *_texts("role", "task_uid", "pod_uid", "container", "pod", "node", "why", "last_line"),
    Column("cut_start", SmallInteger, nullable=False),
    Column("cut_end", SmallInteger, nullable=False),
    Column("packed", LargeBinary, nullable=False),
    UniqueConstraint(*_OF_LOG, name="logs_key"),
    # Has all that retention reads.
    Index("logs_time", "time", "lid", "stored"),
    # Never used again: ids of logs are in addresses.
    sqlite_autoincrement=True,
)

# Frameworks that queries no longer see, and whose rows are being removed.
doomed: Final = Table("doomed", metadata, Column("fid", BigInteger, primary_key=True, autoincrement=False))

KEYS: Final = {attempts: ("fid", "attempt"), tasks: _OF_TASK, pods: _OF_POD, logs: _OF_LOG}
"""The tables with records of Frameworks, and the columns that identify a row."""

CHILDREN: Final = ((attempts, "aid"), (tasks, "tid"), (pods, "pid"), (logs, "lid"))
"""The same tables with their primary keys."""


# --- connections ------------------------------------------------------------------------------------------------


class MovedError(Exception):
    """The file of the database was deleted or replaced, or its schema was changed."""


_DATABASE_ERRORS: Final = (
    exc.SQLAlchemyError,
    sqlite3.Error,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    OSError,
    TimeoutError,
    MovedError,
)


class _Connections:
    """Pools of connections to the database as it was when they were opened."""

    def __init__(self, writers: AsyncEngine, readers: AsyncEngine) -> None:
        self.writers, self.readers = writers, readers
        self.version = ""
        self.identity: tuple[Any, ...] = ()
        self.users = 0
        self.retired = False
        # SQLite deletes its WAL when the last connection is closed: this one keeps it, and so its identity.
        self.anchor: sqlite3.Connection | None = None

    async def retire(self) -> None:
        """Close the connections once no call uses them."""
        self.retired = True
        if self.users == 0:
            if self.anchor is not None:
                self.anchor.close()
            for engine in {self.writers, self.readers}:
                await engine.dispose()


class Database:
    """Connections to one database. Opens it again after an error.

    All methods raise ArchiveError while the database cannot be used.
    """

    def __init__(self, url: str, migrations: Path = MIGRATIONS, *, reserve: bool = False) -> None:
        """``migrations``: the folder with the versions of the schema. ``reserve``: set disk space aside; see `Reserve`.

        Raises:
            ArchiveError: the URL is invalid.
        """
        try:
            parsed = make_url(url)
        except exc.ArgumentError:
            # The text of the error may have the password.
            raise ArchiveError(
                "the URL of the database must be sqlite:///PATH or postgresql://HOST/NAME, and cannot be parsed"
            ) from None
        self.name = parsed.render_as_string(hide_password=True)
        self.path: Path | None = None
        """The file of SQLite, None of PostgreSQL."""
        if parsed.drivername == "sqlite":
            if parsed.query or not parsed.database or parsed.database == ":memory:":
                raise ArchiveError(f"{self.name}: must be sqlite:///PATH, with the path of a file and no options")
            self.path = Path(parsed.database).absolute()
        elif parsed.drivername not in {"postgresql", "postgres"}:
            raise ArchiveError(f"{self.name}: must begin with sqlite:/// or postgresql://")
        self._reserve = Reserve(self.path) if reserve and self.path is not None else None
        self._damage: tuple[tuple[Any, ...], str] | None = None
        """The file that SQLite has found to be corrupt, and its message."""
        self._url = url
        self._migrations = migrations
        self._connections: _Connections | None = None
        self._opening = asyncio.Lock()
        self._writing = asyncio.Lock()
        self._closed = False

    async def open(self) -> None:
        """Connect, and migrate to this version."""
        async with self._using():
            pass

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        async with self._writing, self._opening:
            if self._connections is not None:
                await self._connections.retire()
                self._connections = None

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that sees one state of the database."""
        async with self._using() as connections, connections.readers.connect() as opened:
            connection = opened
            if self.path is None:
                connection = await opened.execution_options(isolation_level="REPEATABLE READ")
            yield connection

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that is durable at the end, one at a time. After an error it may still have been committed."""
        async with self._writing, self._using() as connections:
            async with connections.writers.begin() as connection, self._until_lost(connection):
                await self._check_version(connections, connection)
                yield connection
            # Rows in a file that was deleted meanwhile are not stored.
            self._check_identity(connections)

    @asynccontextmanager
    async def _until_lost(self, connection: AsyncConnection) -> AsyncIterator[None]:
        """Interrupt calls whose connection to PostgreSQL is lost.

        The driver's ``executemany`` does not notice the loss while it waits to send.
        """
        if self.path is not None:
            yield
            return
        driver: Any = (await connection.get_raw_connection()).driver_connection
        over = False
        async with asyncio.timeout(None) as scope:

            def interrupt(_: object) -> None:
                if not over:
                    # A call that notices the loss has the better error.
                    scope.reschedule(asyncio.get_running_loop().time() + _LOST_SEC)

            driver.add_termination_listener(interrupt)
            try:
                yield
            finally:
                over = True
                driver.remove_termination_listener(interrupt)

    async def run_script(self, script: str) -> None:
        """Run statements of SQLite outside of a transaction, each to its end."""
        async with self._writing, self._using() as connections:
            if connections.anchor is not None:
                await asyncio.to_thread(connections.anchor.executescript, script)

    def require_room(self) -> None:
        """Raise ArchiveError if the disk is so full that only retention may write."""
        if self._reserve is not None and not self._reserve.hold():
            raise ArchiveError(f"{self.name}: the disk is full")

    def make_room(self, error: ArchiveError) -> bool:
        """Free the reserve of disk space if ``error`` came from a full disk. Return whether there is more room now."""
        return self._reserve is not None and is_full(error.__cause__) and self._reserve.release()

    @property
    def has_room(self) -> bool:
        """Whether the reserve of disk space is there."""
        return self._reserve is None or self._reserve.held

    async def check(self) -> None:
        """Return if the database answers, has the schema of this version, and is not corrupt."""
        if self._damage is not None:
            identity, words = self._damage
            if identity == self._identity()[:1]:
                raise ArchiveError(f"{self.name}: {words}")
            self._damage = None
        async with self._using() as connections, connections.readers.connect() as connection:
            await self._check_version(connections, connection)

    async def _check_version(self, connections: _Connections, connection: AsyncConnection) -> None:
        if await connection.scalar(select(_version_table.c.version_num)) != connections.version:
            raise MovedError("another process has changed its schema")

    @asynccontextmanager
    async def _using(self) -> AsyncIterator[_Connections]:
        try:
            connections = await self._current()
        except _DATABASE_ERRORS as error:
            raise ArchiveError(f"{self.name}: {_words(error)}") from error
        connections.users += 1
        try:
            yield connections
        except (exc.DataError, exc.IntegrityError):
            raise
        except _DATABASE_ERRORS as error:
            if _code(error) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
                self._damage = connections.identity[:1], _words(error)
            # Others may continue to read while a lock is held, or the disk is full.
            if not is_locked(error) and not is_full(error):
                await self._retire(connections)
            raise ArchiveError(f"{self.name}: {_words(error)}") from error
        finally:
            connections.users -= 1
            if connections.retired:
                await connections.retire()

    async def _retire(self, connections: _Connections) -> None:
        if self._connections is connections:
            self._connections = None
        await connections.retire()

    async def _current(self) -> _Connections:
        async with self._opening:
            if self._closed:
                raise ArchiveError(f"{self.name}: the archive is closed")
            if self._connections is not None:
                try:
                    self._check_identity(self._connections)
                except MovedError as error:
                    _log.warning("%s: %s; opening it again", self.name, error)
                    await self._retire(self._connections)
            if self._connections is None:
                try:
                    self._connections = await self._connect()
                except _DATABASE_ERRORS as error:
                    if self._reserve is None or not is_full(error) or not self._reserve.release():
                        raise
                    _log.warning("%s: the disk is full; records are refused", self.name)
                    self._connections = await self._connect()
                else:
                    if self._reserve is not None:
                        self._reserve.hold()
            return self._connections

    async def _connect(self) -> _Connections:
        if self.path is None:
            engine = _postgresql(self._url)
            connections = _Connections(engine, engine)
        else:
            if not self.path.parent.is_dir():
                raise MovedError(f"there is no directory {self.path.parent}")
            _make_private(self.path)
            connections = _Connections(_sqlite(self.path, write=True), _sqlite(self.path, write=False))
        try:
            deadline = asyncio.get_running_loop().time() + BUSY_SEC
            while True:
                try:
                    connections.version = await self._migrate(connections)
                    break
                except _DATABASE_ERRORS as error:
                    # SQLite does not wait for the lock when two processes make the same file.
                    if not is_locked(error) or asyncio.get_running_loop().time() > deadline:
                        raise
                    await asyncio.sleep(0.05)
            if self.path is not None:
                connections.anchor = sqlite3.connect(self.path, timeout=BUSY_SEC, check_same_thread=False)
                connections.anchor.execute("SELECT version_num FROM alembic_version").fetchall()
                connections.identity = self._identity()
        except BaseException:
            await connections.retire()
            raise
        return connections

    async def _migrate(self, connections: _Connections) -> str:
        # Loading Alembic takes longer than all else here.
        from frameworkcontroller.history.migrations.runner import Migrations

        migrations = await asyncio.to_thread(Migrations, self._migrations)
        async with connections.readers.connect() as connection:
            if await connection.run_sync(migrations.current) == migrations.head:
                return migrations.head
        async with connections.writers.begin() as connection:
            if self.path is None:
                await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
            await connection.run_sync(migrations.run)
        if self.path is not None:
            # A new file is durable once its entry in the directory is.
            directory = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        return migrations.head

    def _identity(self) -> tuple[Any, ...]:
        if self.path is None:
            return ()
        return _file_identity(self.path), _file_identity(self.path.with_name(self.path.name + "-wal"))

    def _check_identity(self, connections: _Connections) -> None:
        if self._identity() != connections.identity:
            raise MovedError("its file was deleted or replaced while it was open")


def _file_identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _make_private(path: Path) -> None:
    """Create the file if it is missing, and take it and its companions from other users: they hold whole records.

    SQLite gives a new WAL the mode of the database.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    for each in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal"))):
        # The files of another user stay as they are.
        with suppress(FileNotFoundError, PermissionError):
            each.chmod(0o600)


def is_locked(error: BaseException | None) -> bool:
    """Whether another process has held a lock of SQLite for too long."""
    return _code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def is_full(error: BaseException | None) -> bool:
    """Whether the file system of SQLite has no room."""
    extended = {sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMOPEN}
    if getattr(error, "errno", None) == errno.ENOSPC or _extended_code(error) in extended:
        return True
    return _code(error) == sqlite3.SQLITE_FULL


def _code(error: BaseException | None) -> int:
    return _extended_code(error) & 0xFF


def _extended_code(error: BaseException | None) -> int:
    """The code of an error of SQLite, 0 for other errors."""
    if isinstance(error, exc.DBAPIError) and error.orig is not None:
        error = error.orig
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code


_SETTINGS: Final = (
    "synchronous = FULL",
    "cache_size = -65536",
    "temp_store = MEMORY",
    "wal_autocheckpoint = 4000",
    "journal_size_limit = 67108864",
)


def _sqlite(path: Path, *, write: bool) -> AsyncEngine:
    engine = create_async_engine(
        URL.create("sqlite+aiosqlite", database=str(path)),
        connect_args={"timeout": BUSY_SEC},
        pool_size=1 if write else _READERS,
        max_overflow=0,
    )

    @event.listens_for(engine.sync_engine, "connect")
    def on_connect(connection: Any, _: object) -> None:
        # The driver begins no transaction by itself: `on_begin` does.
        connection.isolation_level = None
        cursor = connection.cursor()
        # Takes effect only in a new file, and before the WAL.
        cursor.execute("PRAGMA auto_vacuum = INCREMENTAL")
        for setting in ("journal_mode = WAL", *_SETTINGS, f"query_only = {'OFF' if write else 'ON'}"):
            cursor.execute(f"PRAGMA {setting}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def on_begin(connection: Connection) -> None:
        # A transaction that reads first and then writes can fail at once, without waiting for the lock.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _postgresql(url: str) -> AsyncEngine:
    # The driver's own parser takes the parameters, environment and password file of libpq.
    dsn = re.sub(r"^postgres(ql)?:", "postgresql:", url)

    async def connect() -> Any:
        connection = await asyncpg.connect(
            dsn,
            timeout=_CONNECT_SEC,
            command_timeout=_COMMAND_SEC,
            server_settings={"application_name": "frameworkcontroller history", "jit": "off"},
        )
        # A stronger setting of the administrator stays.
        await connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false)"
            " WHERE current_setting('synchronous_commit') IN ('off', 'local')"
        )
        return connection

    return create_async_engine(
        "postgresql+asyncpg://", async_creator=connect, pool_size=1 + _READERS, max_overflow=0, pool_pre_ping=True
    )


_version_table: Final = Table("alembic_version", MetaData(), Column("version_num", Text))


def _words(error: BaseException) -> str:
    """The text of an error of a database in one line, without the statement."""
    if isinstance(error, exc.DBAPIError) and error.orig is not None:
        error = error.orig
    words = " ".join(str(error).split()) or type(error).__name__
    return re.sub(r"^<class '[\w.]+'>: ", "", words)
