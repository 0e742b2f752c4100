"""Alembic runs this to migrate over the connection that it is given, in the transaction of the caller."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
