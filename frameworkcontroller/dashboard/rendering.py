"""Renders the templates: every text is escaped, and times are formatted here."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from frameworkcontroller.api.phases import phase_of_task
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.dashboard.rows import past_time
from frameworkcontroller.dashboard.views import Page
from frameworkcontroller.views.diagnosis import result
from frameworkcontroller.views.texts import clean_line, duration


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
    made.filters.update(
        iso=_iso,
        ago=_ago,
        span=duration,
        seconds=past_time,
        thousands="{:,}".format,
        svg=Markup,
        line=clean_line,
        phase=lambda task: phase_of_task(task).lower(),
        result=result,
    )
    return made


def render(page: Page) -> str:
    """Render the template of the page with the names ``view`` (the page) and ``shell``."""
    return environment().get_template(page.template).render(view=page, shell=page.shell)


def _iso(seconds: float | None) -> str:
    """Format a time as ``2026-01-31T12:00:00Z``; "" for None."""
    return "" if seconds is None else format_time(int(seconds))


@pass_context
def _ago(context: Context, seconds: float | None) -> str:
    """Format the time since then as ``3m12s``; "" for None. The span between two times has the filter ``span``."""
    return "" if seconds is None else duration(context["shell"].now - seconds)
