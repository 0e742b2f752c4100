"""Renders the templates: every text is escaped, and times are formatted here."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Any, Protocol

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.dashboard.views import Shell
from frameworkcontroller.views.texts import clean_line, duration


class HasShell(Protocol):
    """A view."""

    @property
    def shell(self) -> Shell: ...


@cache
def environment() -> Environment:
    """Return the environment of the templates. Compiled templates stay in it."""
    made = Environment(
        loader=PackageLoader("frameworkcontroller.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(iso=_iso, day=_day, span=duration, ago=_ago, thousands=_thousands, svg=Markup, line=clean_line)
    return made


def render(template: str, view: HasShell) -> str:
    """Render the template with the names ``view`` and ``shell``."""
    return environment().get_template(template).render(view=view, shell=view.shell)


def _iso(seconds: float | None) -> str:
    """Format a time as ``2026-01-31T12:00:00Z``; "" for None."""
    return "" if seconds is None else format_time(int(seconds))


def _day(seconds: float | None) -> str:
    """Format a time as ``2026-01-31 12:00``, UTC; "" for None."""
    return "" if seconds is None else datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%d %H:%M")


@pass_context
def _ago(context: Context, seconds: float | None) -> str:
    """Format the time since then as ``3m12s``; "" for None. The span between two times has the filter ``span``."""
    return "" if seconds is None else duration(context["shell"].now - seconds)


def _thousands(number: Any) -> str:
    """Format a number as ``10,000``."""
    return f"{number:,}"
