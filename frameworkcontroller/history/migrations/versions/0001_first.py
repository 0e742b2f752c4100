"""The first version: Frameworks, their attempts, attempts of Tasks, Pods."""

from __future__ import annotations

from typing import Final

from alembic import op
from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, SmallInteger, Text, UniqueConstraint, text

revision = "0001"
down_revision = None

TEXT: Final = Text().with_variant(Text(collation="C"), "postgresql")
KEY: Final = BigInteger().with_variant(Integer, "sqlite")
BLAMED: Final = text("failed_at IS NOT NULL")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "frameworks",
        Column("fid", KEY, primary_key=True, autoincrement=True),
        Column("uid", TEXT, nullable=False, unique=True),
        Column("namespace", TEXT, nullable=False),
        Column("name", TEXT, nullable=False),
        Column("cluster", TEXT, nullable=False),
        Column("time", BigInteger, nullable=False),
        Column("last", BigInteger, nullable=False),
        Column("created", BigInteger, nullable=False),
        Column("started", BigInteger),
        Column("completed", BigInteger),
        Column("deleted", BigInteger),
        Column("ended", BigInteger),
        Column("state", TEXT),
        Column("code", BigInteger),
        Column("phrase", TEXT),
        Column("type", TEXT),
        Column("attempts", BigInteger),
        Column("task_retries", BigInteger),
        Column("tasks", BigInteger),
        Column("failed_tasks", BigInteger),
        Index("frameworks_created", "created", "fid"),
        Index("frameworks_namespace", "namespace", "created", "fid"),
        Index("frameworks_name", "name", "created", "fid"),
        Index("frameworks_state", "state", "created", "fid"),
        Index("frameworks_code", "code", "created", "fid"),
        Index("frameworks_last", "last"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "framework_attempts",
        Column("aid", KEY, primary_key=True, autoincrement=True),
        Column("fid", BigInteger, nullable=False),
        Column("attempt", BigInteger, nullable=False),
        Column("time", BigInteger, nullable=False),
        Column("trigger", TEXT),
        Column("code", BigInteger),
        Column("phrase", TEXT),
        Column("type", TEXT),
        Column("diagnostics", TEXT),
        Column("started", BigInteger),
        Column("completed", BigInteger),
        Column("failed_at", BigInteger),
        Column("tasks", BigInteger),
        Column("running_tasks", BigInteger),
        Column("succeeded_tasks", BigInteger),
        Column("failed_tasks", BigInteger),
        Column("task_retries", BigInteger),
        Column("cause_role", TEXT),
        Column("cause_index", BigInteger),
        Column("cause_node", TEXT),
        Column("record", LargeBinary),
        UniqueConstraint("fid", "attempt", name="framework_attempts_key"),
        Index("framework_attempts_failed", "failed_at", sqlite_where=BLAMED, postgresql_where=BLAMED),
    )
    op.create_table(
        "task_attempts",
        Column("tid", KEY, primary_key=True, autoincrement=True),
        Column("fid", BigInteger, nullable=False),
        Column("attempt", BigInteger, nullable=False),
        Column("role", TEXT, nullable=False),
        Column("idx", BigInteger, nullable=False),
        Column("task_uid", TEXT, nullable=False),
        Column("task_attempt", BigInteger, nullable=False),
        Column("own", SmallInteger, nullable=False),
        Column("time", BigInteger, nullable=False),
        Column("trigger", TEXT),
        Column("code", BigInteger),
        Column("phrase", TEXT),
        Column("type", TEXT),
        Column("diagnostics", TEXT),
        Column("node", TEXT),
        Column("pod", TEXT),
        Column("pod_uid", TEXT),
        Column("pod_ip", TEXT),
        Column("host_ip", TEXT),
        Column("started", BigInteger),
        Column("ran", BigInteger),
        Column("completed", BigInteger),
        Column("failed_at", BigInteger),
        Column("record", LargeBinary),
        UniqueConstraint("fid", "attempt", "role", "idx", "task_uid", "task_attempt", name="task_attempts_key"),
        Index(
            "task_attempts_failed",
            "failed_at",
            "code",
            "node",
            "role",
            "fid",
            "tid",
            sqlite_where=BLAMED,
            postgresql_where=BLAMED,
        ),
    )
    op.create_table(
        "pods",
        Column("pid", KEY, primary_key=True, autoincrement=True),
        Column("fid", BigInteger, nullable=False),
        Column("attempt", BigInteger, nullable=False),
        Column("role", TEXT, nullable=False),
        Column("task_uid", TEXT, nullable=False),
        Column("task_attempt", BigInteger, nullable=False),
        Column("pod_uid", TEXT, nullable=False),
        Column("time", BigInteger, nullable=False),
        Column("record", LargeBinary, nullable=False),
        UniqueConstraint("fid", "attempt", "role", "task_uid", "task_attempt", "pod_uid", name="pods_key"),
    )
    op.create_table(
        "doomed",
        Column("fid", BigInteger, primary_key=True, autoincrement=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        # Records are compressed already.
        for table in ("framework_attempts", "task_attempts", "pods"):
            op.execute(f"ALTER TABLE {table} ALTER COLUMN record SET STORAGE EXTERNAL")
