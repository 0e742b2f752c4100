"""Counts of Tasks by outcome, the phase of a Framework, and the reason for its end."""

from __future__ import annotations

from typing import Final

from alembic import op
from sqlalchemy import BigInteger, Column, Text

revision = "0002"
down_revision = "0001"

TEXT: Final = Text().with_variant(Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the columns, and fill them from the columns that exist."""
    for column in (
        Column("succeeded_tasks", BigInteger),
        Column("stopped_tasks", BigInteger),
        Column("diagnostics", TEXT),
        Column("phase", TEXT, nullable=False, server_default="running"),
    ):
        op.add_column("frameworks", column)
    op.add_column("framework_attempts", Column("stopped_tasks", BigInteger))
    # Until now, stopped Tasks counted as failed ones. The attempts of removed Tasks (-230) were not counted.
    op.execute(
        "UPDATE framework_attempts SET stopped_tasks ="
        " (SELECT count(*) FROM task_attempts AS t WHERE t.fid = framework_attempts.fid"
        " AND t.attempt = framework_attempts.attempt"
        " AND t.code IN (-210, -220, -240, -241) AND coalesce(t.type, '') <> 'Succeeded')"
        " WHERE failed_tasks IS NOT NULL"
    )
    op.execute("UPDATE framework_attempts SET stopped_tasks = failed_tasks WHERE stopped_tasks > failed_tasks")
    op.execute("UPDATE framework_attempts SET failed_tasks = failed_tasks - stopped_tasks")
    op.execute(
        "UPDATE frameworks SET (failed_tasks, succeeded_tasks, stopped_tasks, diagnostics) ="
        " (SELECT a.failed_tasks, a.succeeded_tasks, a.stopped_tasks, substr(a.diagnostics, 1, 512)"
        " FROM framework_attempts AS a"
        " WHERE a.fid = frameworks.fid AND a.attempt = frameworks.attempts - 1)"
    )
    op.execute(
        "UPDATE frameworks SET phase = CASE"
        " WHEN coalesce(state, '') <> 'Completed' AND deleted IS NULL THEN 'running'"
        " WHEN code IS NULL THEN CASE WHEN state = 'Completed' THEN 'failed' ELSE 'stopped' END"
        " WHEN type = 'Succeeded' THEN 'succeeded'"
        " WHEN code IN (-210, -220, -230, -240, -241) THEN 'stopped' ELSE 'failed' END"
    )
    op.create_index("frameworks_phase", "frameworks", ["phase", "created", "fid"])
