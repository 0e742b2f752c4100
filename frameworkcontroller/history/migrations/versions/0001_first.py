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


def texts(*names: str, null: bool = False) -> list[Column[str]]:
    return [Column(name, TEXT, nullable=null) for name in names]


def numbers(*names: str, null: bool = False) -> list[Column[int]]:
    return [Column(name, BigInteger, nullable=null) for name in names]


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "frameworks",
        Column("fid", KEY, primary_key=True, autoincrement=True),
        Column("uid", TEXT, nullable=False, unique=True),
        *texts("namespace", "name", "cluster"),
        *numbers("time", "last", "created"),
        *numbers("started", "completed", "deleted", "ended", null=True),
        *texts("state", null=True),
        *numbers("code", null=True),
        *texts("phrase", "type", null=True),
        *numbers("attempts", "task_retries", "tasks", "failed_tasks", null=True),
        Index("frameworks_created", "created", "fid"),
        *(Index(f"frameworks_{name}", name, "created", "fid") for name in ("namespace", "name", "state", "code")),
        Index("frameworks_last", "last"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "framework_attempts",
        Column("aid", KEY, primary_key=True, autoincrement=True),
        *numbers("fid", "attempt", "time"),
        *texts("trigger", null=True),
        *numbers("code", null=True),
        *texts("phrase", "type", "diagnostics", null=True),
        *numbers("started", "completed", "failed_at", "tasks", null=True),
        *numbers("running_tasks", "succeeded_tasks", "failed_tasks", "task_retries", null=True),
        *texts("cause_role", null=True),
        *numbers("cause_index", null=True),
        *texts("cause_node", null=True),
        Column("record", LargeBinary),
        UniqueConstraint("fid", "attempt", name="framework_attempts_key"),
        Index("framework_attempts_failed", "failed_at", sqlite_where=BLAMED, postgresql_where=BLAMED),
    )
    failed = ("failed_at", "code", "node", "role", "fid", "tid")
    op.create_table(
        "task_attempts",
        Column("tid", KEY, primary_key=True, autoincrement=True),
        *numbers("fid", "attempt"),
        *texts("role"),
        *numbers("idx"),
        *texts("task_uid"),
        *numbers("task_attempt"),
        Column("own", SmallInteger, nullable=False),
        *numbers("time"),
        *texts("trigger", null=True),
        *numbers("code", null=True),
        *texts("phrase", "type", "diagnostics", "node", "pod", "pod_uid", "pod_ip", "host_ip", null=True),
        *numbers("started", "ran", "completed", "failed_at", null=True),
        Column("record", LargeBinary),
        UniqueConstraint("fid", "attempt", "role", "idx", "task_uid", "task_attempt", name="task_attempts_key"),
        Index("task_attempts_failed", *failed, sqlite_where=BLAMED, postgresql_where=BLAMED),
    )
    op.create_table(
        "pods",
        Column("pid", KEY, primary_key=True, autoincrement=True),
        *numbers("fid", "attempt"),
        *texts("role", "task_uid"),
        *numbers("task_attempt"),
        *texts("pod_uid"),
        *numbers("time"),
        Column("record", LargeBinary, nullable=False),
        UniqueConstraint("fid", "attempt", "role", "task_uid", "task_attempt", "pod_uid", name="pods_key"),
    )
    op.create_table("doomed", Column("fid", BigInteger, primary_key=True, autoincrement=False))
    if op.get_bind().dialect.name == "postgresql":
        # Records are compressed already.
        for table in ("framework_attempts", "task_attempts", "pods"):
            op.execute(f"ALTER TABLE {table} ALTER COLUMN record SET STORAGE EXTERNAL")
