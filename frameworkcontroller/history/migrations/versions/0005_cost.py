"""The resources that attempts of Tasks held, the last progress of Framework attempts, and the queue and the user."""

from __future__ import annotations

from typing import Any, Final

from alembic import op
from sqlalchemy import BigInteger, Column, SmallInteger, Text

revision = "0005"
down_revision = "0004"

TEXT: Final = Text().with_variant(Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the columns and their indexes. Older rows stay without: their cost is unknown."""
    added: dict[str, list[Column[Any]]] = {
        "frameworks": [Column("queue", TEXT), Column("submitter", TEXT)],
        "framework_attempts": [Column("progressed", BigInteger), Column("succeeded", SmallInteger)],
        "task_attempts": [*(Column(name, BigInteger) for name in ("held", "busy", "freed")), Column("requests", TEXT)],
    }
    for table, columns in added.items():
        for column in columns:
            op.add_column(table, column)
    names = ["fid", "attempt", "held", "busy", "freed", "requests", "completed", "failed_at", "code", "node"]
    op.create_index("task_attempts_cost", "task_attempts", names)
    op.create_index("framework_attempts_cost", "framework_attempts", ["fid", "attempt", "succeeded", "progressed"])
