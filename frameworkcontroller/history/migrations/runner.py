"""Brings a database to the newest version of the schema."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from frameworkcontroller.history.archiveerrors import ArchiveError


class Migrations:
    """The versions in a folder."""

    def __init__(self, folder: Path) -> None:
        self._config = Config()
        self._config.set_main_option("script_location", str(folder).replace("%", "%%"))
        scripts = ScriptDirectory.from_config(self._config)
        self._known = {revision.revision for revision in scripts.walk_revisions()}
        self.head = scripts.get_current_head() or ""

    def current(self, connection: Connection) -> str | None:
        """Return the version of the database, None of an empty one.

        Raises:
            ArchiveError: it is not known, hence a newer one.
        """
        found = MigrationContext.configure(connection).get_current_revision()
        if found is not None and found not in self._known:
            raise ArchiveError(
                f"the database has version {found} of the schema, which a newer frameworkcontroller has made; "
                f"this one knows versions up to {self.head}: use the newer one"
            )
        return found

    def run(self, connection: Connection) -> None:
        """Migrate in the transaction of the connection.

        Raises:
            ArchiveError: the version of the database is not known.
        """
        if self.current(connection) != self.head:
            self._config.attributes["connection"] = connection
            command.upgrade(self._config, "head")
