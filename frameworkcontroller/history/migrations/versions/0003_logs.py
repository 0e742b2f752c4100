"""Logs of containers."""

from __future__ import annotations

from typing import Final

from alembic import op
from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, SmallInteger, Text, UniqueConstraint

revision = "0003"
down_revision = "0002"

TEXT: Final = Text().with_variant(Text(collation="C"), "postgresql")
KEY: Final = BigInteger().with_variant(Integer, "sqlite")
LOG: Final = ("fid", "attempt", "role", "idx", "task_uid", "task_attempt", "pod_uid", "container", "run")


def texts(*names: str) -> list[Column[str]]:
    return [Column(name, TEXT, nullable=False) for name in names]


def numbers(*names: str) -> list[Column[int]]:
    return [Column(name, BigInteger, nullable=False) for name in names]


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "logs",
        Column("lid", KEY, primary_key=True, autoincrement=True),
        *numbers("fid", "attempt", "time", "idx", "task_attempt", "run", "size", "stored"),
        *texts("role", "task_uid", "pod_uid", "container", "pod", "node", "why", "last_line"),
        Column("cut_start", SmallInteger, nullable=False),
        Column("cut_end", SmallInteger, nullable=False),
        Column("packed", LargeBinary, nullable=False),
        UniqueConstraint(*LOG, name="logs_key"),
        Index("logs_time", "time", "lid", "stored"),
        sqlite_autoincrement=True,
    )
    if op.get_bind().dialect.name == "postgresql":
        # The bytes are compressed already.
        op.execute("ALTER TABLE logs ALTER COLUMN packed SET STORAGE EXTERNAL")
