"""An index of Task attempts by end and node, for the rates of nodes."""

from __future__ import annotations

from alembic import op
from sqlalchemy import text

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the index."""
    ended = text("completed IS NOT NULL AND node IS NOT NULL")
    columns = ["completed", "node", "fid"]
    op.create_index("task_attempts_ended", "task_attempts", columns, sqlite_where=ended, postgresql_where=ended)
