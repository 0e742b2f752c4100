"""The extras of the distribution that install optional libraries (pyproject.toml)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EXTRA_OF: Final[Mapping[str, str]] = {
    "aiosqlite": "archive",
    "alembic": "archive",
    "asyncpg": "archive",
    "cryptography": "controller",
    "jinja2": "archive",
    "kubernetes_asyncio": "controller",
    "prometheus_client": "archive",
    "re2": "controller",
    "sqlalchemy": "archive",
    "tenacity": "controller",
    "uvloop": "controller",
}
"""One extra for each library. The controller needs `prometheus_client`, too, but imports `tenacity` first."""


def needs(extra: str) -> str:
    """Return the end of an error: which extra to install, and how."""
    return f"needs the extra \"{extra}\": pip install 'frameworkcontroller[{extra}]'"


def missing_library(error: Exception) -> str | None:
    """Return the optional library whose absence is the error.

    None for any other error, such as a missing submodule of an installed library, which is broken then.
    """
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return name if name in EXTRA_OF else None
