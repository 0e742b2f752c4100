"""Draws attempts over time as SVG, alone or in an HTML page."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import accumulate
from typing import Final

from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.status import TaskAttemptStatus
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.views.attempts import Row
from frameworkcontroller.views.diagnosis import code_and_phrase
from frameworkcontroller.views.texts import clean_line, counted, duration

MAX_ROWS: Final = 400

_WIDTH: Final = 1200
_LEFT: Final = 150
_RIGHT: Final = 20
_TOP: Final = 84
_LABELLED_ROWS: Final = 120
_TICKS: Final = 8
_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
_LEAST_WIDTH: Final = 1.5
_NARROWEST_TEXT: Final = 6.5
_HALF_CLOCK: Final = 30
_ROW: Final = 18
_THIN_ROW: Final = 4

_KINDS: Final = {
    "waiting": ("#f2c14e", "pending"),
    "running": ("#4c9f70", "running"),
    "succeeded": ("#3d7dca", "succeeded"),
    "failed": ("#cf4a4a", "failed"),
    "stopped": ("#9a9a9a", "stopped"),
    "earlier": ("url(#earlier)", "earlier attempts, without details"),
}
"""Colors of bars, and their meanings."""

_STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#333}.title{font-size:16px;font-weight:600}.small{font-size:10px}"
    "text.in{fill:#fff;pointer-events:none}text.out{fill:#a33}.grid{stroke:#ddd}.line{stroke:#bbb}"
)
_HATCH: Final = (
    '<pattern id="earlier" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="6" height="6" fill="#e4e4e4"/><rect width="2" height="6" fill="#b5b5b5"/></pattern>'
)
_PAGE: Final = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body{{margin:24px;background:#fff}}svg{{max-width:100%;height:auto}}rect:hover{{opacity:.75}}</style></head>
<body>
{svg}
</body></html>
"""


LastWordsOf = Callable[[Row, str, int], str]


def draw_page(title: str, rows: Sequence[Row], now: float) -> str:
    """Return the picture as an HTML page, with details of the attempt under the pointer."""
    return _PAGE.format(title=escape(title), svg=draw(title, rows, now))


def draw(title: str, rows: Sequence[Row], now: float) -> str:
    """Return the picture as SVG. Of more than `MAX_ROWS` rows it shows those with the most retries and failures."""
    return _draw(title, rows, now, inline=False, link=lambda _row: "")


def draw_inline(
    title: str,
    rows: Sequence[Row],
    now: float,
    link: Callable[[Row], str],
    words: LastWordsOf = lambda _row, _uid, _attempt: "",
) -> str:
    """Return the picture as an element of an HTML page, whose style sheet has its colors.

    It is an ``svg`` of the class ``timeline``, without styles; bars have their kind as class: waiting, running,
    succeeded, failed or stopped. ``data-begin`` and ``data-end``: the times at its ends, in seconds since the epoch.
    ``link``: the URL behind the label of a row, "" for none. ``words``: takes a row, a UID of a Task and an attempt,
    and returns the last line of the log for the text of a failed attempt, "" for none.
    """
    return _draw(title, rows, now, inline=True, link=link, words=words)


def _draw(
    title: str,
    rows: Sequence[Row],
    now: float,
    *,
    inline: bool,
    link: Callable[[Row], str],
    words: LastWordsOf = lambda _row, _uid, _attempt: "",
) -> str:
    shown = _chosen(rows)
    begin = min((row.since for row in shown), default=int(now))
    attempts = [attempt for row in shown for attempt in row.attempts.values()]
    open_end = any(attempt.completion_time is None for attempt in attempts)
    end = max([attempt.completion_time or attempt.start_time for attempt in attempts], default=begin)
    end = max(int(now) if open_end else end, begin + 1)
    task_high = _ROW if len(shown) <= _LABELLED_ROWS else _THIN_ROW
    heights = [task_high if row.role else _ROW for row in shown]
    *tops, bottom = accumulate(heights, initial=_TOP)

    def x(time: float) -> float:
        return _LEFT + (time - begin) / (end - begin) * (_WIDTH - _LEFT - _RIGHT)

    size = f'width="{_WIDTH}" height="{bottom + 24}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {_WIDTH} {bottom + 24}"'
    period = _period(begin, end, rows, shown)
    if inline:
        about = escape(f"Attempts of {title} over time, {period}")
        span = f'data-begin="{begin}" data-end="{end}"'
        parts = [f'{head} class="timeline" {span} role="group" aria-label="{about}"><defs>{_HATCH}</defs>']
    else:
        parts = [
            f"{head}><style>{_STYLE}</style><defs>{_HATCH}</defs>",
            f'<rect {size} fill="#fff"/>',
        ]
    parts += [
        f'<text class="title" x="12" y="24">{escape(title)}</text>',
        f'<text x="{_WIDTH - _RIGHT}" y="24" text-anchor="end">{period}</text>',
        *_legend(inline=inline),
    ]
    for time in _ticks(begin, end):
        parts.append(f'<line class="grid" x1="{x(time):.1f}" y1="{_TOP - 8}" x2="{x(time):.1f}" y2="{bottom}"/>')
        anchor = "middle" if x(time) + _HALF_CLOCK < _WIDTH else "end"
        parts.append(
            f'<text class="small" x="{x(time):.1f}" y="{_TOP - 12}" text-anchor="{anchor}">{_clock(time)}</text>'
        )
    role, label_y = "", _TOP - _ROW
    for row, y, high in zip(shown, tops, heights, strict=True):
        if row.role != role or not row.role:
            role = row.role
            parts.append(f'<line class="line" x1="0" y1="{y}" x2="{_WIDTH}" y2="{y}"/>')
        if y >= label_y + _ROW:
            label_y = y
            label = f'<text x="{_LEFT - 8}" y="{y + _ROW - 5}" text-anchor="end">{escape(_label(row))}</text>'
            url = link(row)
            parts.append(f'<a href="{escape(url)}">{label}</a>' if url else label)
        gap = 2 if high == _ROW else 0.5
        for kind, since, until, text, completion in _pieces(row, end, words):
            wide = max(_LEAST_WIDTH, x(until) - x(since))
            parts.append(
                f'<rect x="{x(since):.1f}" y="{y + gap}" width="{wide:.1f}" height="{high - 2 * gap}" '
                f"{_color(kind, inline=inline)}><title>{escape(text)}</title></rect>"
            )
            if high == _ROW and completion is not None and completion.unexpected:
                last = completion is row.ordered[-1].completion_status
                parts += _result(completion, x(since), wide, y + high - 5, last=last)
    return "\n".join([*parts, "</svg>\n"])


def _result(completion: CompletionStatus, x: float, wide: float, y: int, *, last: bool) -> Iterator[str]:
    """Write the result of a failed attempt: in its bar if it fits, or else after the last bar."""
    text = code_and_phrase(completion.code, completion.phrase)
    if wide > _NARROWEST_TEXT * len(text):
        yield f'<text class="small in" x="{x + 4:.1f}" y="{y}">{escape(text)}</text>'
    elif last and x + wide + _NARROWEST_TEXT * len(text) < _WIDTH:
        yield f'<text class="small out" x="{x + wide + 4:.1f}" y="{y}">{escape(text)}</text>'


def _chosen(rows: Sequence[Row]) -> list[Row]:
    def interest(place: int) -> tuple[bool, int, int]:
        row = rows[place]
        attempts = row.attempts.values()
        waited = max((each.run_time or each.completion_time or each.start_time) - each.start_time for each in attempts)
        return not row.role, row.retried + sum(_kind(each.completion_status) == "failed" for each in attempts), waited

    chosen = heapq.nlargest(MAX_ROWS, range(len(rows)), key=interest)
    return [rows[place] for place in sorted(chosen)]


def _pieces(row: Row, end: int, words: LastWordsOf) -> Iterator[tuple[str, int, int, str, CompletionStatus | None]]:
    """Yield the bars of a row: kind, start, end, text, and the completion of the attempt."""
    attempts = row.ordered
    uids = {id(attempt): uid for (uid, _), attempt in row.attempts.items()}
    begin = attempts[0].start_time
    missing = row.retried + 1 - len(attempts)
    if missing > 0 and begin > row.since:
        yield "earlier", row.since, begin, counted(missing, "earlier attempt"), None
    for attempt in attempts:
        start = attempt.start_time
        until = end if attempt.completion_time is None else attempt.completion_time
        run = until if attempt.run_time is None else attempt.run_time
        who, completion = f"{_label(row)} attempt {attempt.id}", attempt.completion_status
        said = ""
        if row.role and completion is not None and completion.unexpected:
            said = clean_line(words(row, uids[id(attempt)], attempt.id))
            said = f": {said}" if said else ""
        if attempt.run_time is None and completion is not None and completion.code >= 0:
            # Containers have ended, which were too quick to be seen running.
            how = f"waited and ran for {duration(until - start)}"
            ended_with = code_and_phrase(completion.code, completion.phrase)
            yield _kind(completion), start, until, f"{who}: {how}, then {ended_with}{said}", completion
            continue
        if run > start or attempt.run_time is None:
            # The result is written once, in or after the last bar of the attempt.
            ended = completion if attempt.run_time is None else None
            yield "waiting", start, run, f"{who}: waited for {duration(run - start)}", ended
        if attempt.run_time is not None:
            node = attempt.pod_node_name if isinstance(attempt, TaskAttemptStatus) else None
            ran = f"{who}: ran for {duration(until - run)}{f' on {clean_line(node)}' if node else ''}"
            how = f"then {code_and_phrase(completion.code, completion.phrase)}" if completion else "and still runs"
            yield _kind(completion), run, until, f"{ran}, {how}{said}", completion


def _kind(completion: CompletionStatus | None) -> str:
    if completion is None:
        return "running"
    return "failed" if completion.unexpected else "succeeded" if completion.succeeded else "stopped"


def _color(kind: str, *, inline: bool) -> str:
    return f'class="{kind}"' if inline and kind != "earlier" else f'fill="{_KINDS[kind][0]}"'


def _legend(*, inline: bool) -> Iterator[str]:
    x = 12
    for kind, (_, text) in _KINDS.items():
        yield f'<rect x="{x}" y="36" width="14" height="12" {_color(kind, inline=inline)}/>'
        yield f'<text x="{x + 20}" y="46">{text}</text>'
        x += 44 + 7 * len(text)


def _period(begin: int, end: int, rows: Sequence[Row], shown: Sequence[Row]) -> str:
    tasks = sum(bool(row.role) for row in rows)
    drawn = sum(bool(row.role) for row in shown)
    many = counted(tasks, "Task") if drawn == tasks else f"the {drawn:,} most eventful of {tasks:,} Tasks"
    return f"{format_time(begin)} to {format_time(end)}: {duration(end - begin)}, {many}"


def _ticks(begin: int, end: int) -> Iterator[int]:
    step = next((step for step in _STEPS if (end - begin) / step <= _TICKS), _STEPS[-1])
    while (end - begin) / step > 2 * _TICKS:
        step *= 2
    yield from range(begin + -begin % step, end + 1, step)


def _clock(time: int) -> str:
    moment = datetime.fromtimestamp(time, UTC)
    return moment.strftime("%H:%M:%S" if time % 60 else "%H:%M" if time % 86400 else "%b %d")


def _label(row: Row) -> str:
    return f"{clean_line(row.role, 14)}[{row.index}]" if row.role else "Framework"
