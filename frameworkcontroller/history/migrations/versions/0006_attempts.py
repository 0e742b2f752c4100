"""The first failure, the avoided nodes and the steps of Framework attempts."""

from __future__ import annotations

from typing import Final

from alembic import op
from sqlalchemy import BigInteger, Column, Text

revision = "0006"
down_revision = "0005"

TEXT: Final = Text().with_variant(Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the columns. Older rows stay without."""
    for name in ("last_step", "checkpoint_step"):
        op.add_column("framework_attempts", Column(name, BigInteger))
    for name in ("first_failure", "avoided_nodes"):
        op.add_column("framework_attempts", Column(name, TEXT))
