"""Print manifests/monitoring/dashboard.json, the Grafana dashboard.

`make docs` runs it; a test compares the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import orjson

Json = dict[str, Any]

_WIDTH: Final = 24
_HEIGHT: Final = 8
_STAT_HEIGHT: Final = 4

_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

RED: Final = {"mode": "absolute", "steps": [{"color": "green", "value": None}, {"color": "red", "value": 1}]}
PLAIN: Final = {"mode": "absolute", "steps": [{"color": "blue", "value": None}]}


class Panel(NamedTuple):
    """A panel of the dashboard. ``queries``: pairs of PromQL and legend."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    text: str = ""
    stacked: bool = False
    stat: bool = False
    thresholds: Json = PLAIN


QUEUE: Final = 'name="framework"'
LEADER: Final = 'name="frameworkcontroller"'
UNFINISHED: Final = 'phase!~"Succeeded|Failed|Stopped"'
NO_WATCH: Final = 'verb!="watch"'
NOT_DONE: Final = 'code!~"2.."'


def of(metric: str, matchers: str = "") -> str:
    """Select the time series of the dashboard's jobs."""
    return f'{metric}{{job=~"$job"{", " if matchers else ""}{matchers}}}'


def sums(metric: str, matchers: str = "", by: str = "") -> str:
    """Sum over all replicas."""
    return f"sum{f' by ({by})' if by else ''} ({of(metric, matchers)})"


def rates(metric: str, matchers: str = "", by: str = "") -> str:
    """Rate per second, summed over all replicas."""
    return f"sum{f' by ({by})' if by else ''} (rate({of(metric, matchers)}[$__rate_interval]))"


def quantile(value: str, histogram: str, matchers: str = "", by: str = "le") -> str:
    """A quantile of a histogram."""
    return f"histogram_quantile({value}, {rates(f'{histogram}_bucket', matchers, by)})"


def quantiles(histogram: str, matchers: str = "") -> tuple[tuple[str, str], ...]:
    """Median and 99th percentile of a histogram."""
    return ((quantile("0.5", histogram, matchers), "median"), (quantile("0.99", histogram, matchers), "p99"))


FC: Final = "frameworkcontroller"

ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "At a glance": (
        Panel("Frameworks not completed", ((sums(f"{FC}_frameworks", UNFINISHED), ""),), stat=True),
        Panel("Tasks running", ((sums(f"{FC}_tasks", 'state="AttemptRunning"'), ""),), stat=True),
        Panel(
            "Frameworks stalled",
            ((sums(f"{FC}_frameworks_stalled"), ""),),
            text="Waiting for something that only a person or another component can change.",
            stat=True,
            thresholds=RED,
        ),
        Panel(
            "Frameworks quarantined",
            ((sums(f"{FC}_frameworks_quarantined"), ""),),
            text="Not processed because of a state that must not occur.",
            stat=True,
            thresholds=RED,
        ),
        Panel(
            "Leaders",
            ((sums("leader_election_master_status", LEADER), ""),),
            text="Replicas that act: exactly one per installation.",
            stat=True,
        ),
        Panel("Replicas", ((f"count({of(f'{FC}_build_info')})", ""),), stat=True),
    ),
    "Frameworks and Tasks": (
        Panel(
            "Frameworks by phase",
            ((sums(f"{FC}_frameworks", UNFINISHED, "phase"), "{{phase}}"),),
            text="Without those that are over.",
            stacked=True,
        ),
        Panel(
            "Tasks by state",
            ((sums(f"{FC}_tasks", 'state!="Completed"', "state"), "{{state}}"),),
            text="Without those that are completed.",
            stacked=True,
        ),
        Panel(
            "Ends of attempts by code",
            ((f"{rates(f'{FC}_attempts_completed_total', by='level, code')} > 0", "{{level}} {{code}}"),),
            unit="ops",
            text="docs/failure-codes.md explains the completion codes.",
        ),
        Panel(
            "Retries by type",
            ((f"{rates(f'{FC}_retries_total', by='level, type')} > 0", "{{level}} {{type}}"),),
            unit="ops",
        ),
    ),
    "Queues and gangs": (
        Panel(
            "Frameworks that wait",
            ((f"{sums(f'{FC}_frameworks_waiting', by='reason')} > 0", "{{reason}}"),),
            text="Waiting for quota, a PodGroup, other roles, a retry, a suspension.",
            stacked=True,
        ),
        Panel("Time until admission", quantiles(f"{FC}_queue_wait_seconds"), unit="s"),
        Panel(
            "Evictions by reason",
            ((f"{rates(f'{FC}_evictions_total', by='reason')} > 0", "{{reason}}"),),
            unit="ops",
        ),
        Panel(
            "Quota that is not released yet",
            ((f"max({of(f'{FC}_longest_eviction_seconds')})", "longest eviction"),),
            unit="s",
            text="Time since an eviction, while something of the Framework may run.",
        ),
    ),
    "Reports of progress": (
        Panel(
            "Reports by result",
            ((rates(f"{FC}_progress_reports_total", by="result"), "{{result}}"),),
            unit="ops",
            text="Only with progressReports. Senders repeat reports that are throttled or unavailable.",
        ),
        Panel(
            "Writes by result",
            ((rates(f"{FC}_progress_writes_total", by="result"), "{{result}}"),),
            unit="ops",
            text="Of reported progress, into the ConfigMaps of attempts. Failed writes are repeated.",
        ),
    ),
    "History": (
        Panel(
            "Records by result",
            ((rates(f"{FC}_history_records_total", by="result"), "{{result}}"),),
            unit="ops",
            text="Only with a sink. Failed and refused records are sent again; dropped ones are lost for the history.",
        ),
        Panel(
            "Records that wait",
            (
                (f"{sums(f'{FC}_history_pending_records', by='trigger')} > 0", "{{trigger}}"),
                (sums(f"{FC}_history_pending_bytes"), "bytes"),
            ),
        ),
        Panel(
            "Oldest record that waits",
            ((f"max({of(f'{FC}_history_oldest_pending_seconds')})", ""),),
            unit="s",
            text="Under Block, nothing is retried, scaled down or deleted meanwhile.",
        ),
        Panel(
            "Logs of containers",
            (
                (rates(f"{FC}_history_logs_total", by="result"), "{{result}}"),
                *quantiles(f"{FC}_history_log_wait_seconds"),
            ),
            text="Logs kept before their Pods are deleted, and how long deletions waited for them (seconds).",
        ),
        Panel(
            "Requests to the sink",
            (
                *quantiles(f"{FC}_history_request_duration_seconds"),
                (rates(f"{FC}_history_request_duration_seconds_count", 'result="failed"'), "failed per second"),
            ),
            unit="s",
        ),
    ),
    "Work queue and syncs": (
        Panel(
            "Work queue",
            (
                (sums("workqueue_depth", QUEUE), "ready"),
                (sums(f"{FC}_workers_busy"), "worked on"),
                (sums(f"{FC}_workqueue_delayed"), "delayed"),
            ),
        ),
        Panel("Time in the queue", quantiles("workqueue_queue_duration_seconds", QUEUE), unit="s"),
        Panel(
            "Syncs by result",
            ((rates(f"{FC}_reconcile_duration_seconds_count", by="result"), "{{result}}"),),
            unit="ops",
        ),
        Panel(
            "Time of a sync",
            (
                *quantiles("workqueue_work_duration_seconds", QUEUE),
                (f"max({of('workqueue_longest_running_processor_seconds', QUEUE)})", "longest now"),
            ),
            unit="s",
        ),
    ),
    "API server": (
        Panel(
            "Requests",
            (
                (
                    f"{rates(f'{FC}_api_requests_total', NO_WATCH, 'verb, resource')} > 0",
                    "{{verb}} {{resource}}",
                ),
            ),
            unit="reqps",
            stacked=True,
        ),
        Panel(
            "Refused and unanswered requests",
            (
                (
                    f"{rates(f'{FC}_api_requests_total', NOT_DONE, 'verb, resource, code')} > 0",
                    "{{verb}} {{resource}} {{code}}",
                ),
            ),
            unit="reqps",
            text="404 and 409 are normal; code none: no answer.",
        ),
        Panel(
            "Time of a request (p99)",
            (
                (
                    quantile("0.99", f"{FC}_api_request_duration_seconds", by="le, verb, resource"),
                    "{{verb}} {{resource}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            "Waiting for the own rate limit",
            quantiles(f"{FC}_api_rate_limiter_wait_seconds"),
            unit="s",
            text="kubeClientQps and kubeClientBurst.",
        ),
        Panel(
            "Status writes by result",
            ((rates(f"{FC}_status_writes_total", by="result"), "{{result}}"),),
            unit="ops",
        ),
        Panel("Size of a status", quantiles(f"{FC}_status_write_bytes"), unit="bytes"),
        Panel(
            "Kubernetes Events by result",
            ((rates(f"{FC}_events_total", by="result"), "{{result}}"),),
            unit="ops",
            text="Events that are rationed, overflowed, refused or unsent are lost.",
        ),
    ),
    "Caches": (
        Panel("Cached objects", ((sums(f"{FC}_cache_objects", by="resource"), "{{resource}}"),)),
        Panel("Watch events", ((rates(f"{FC}_watch_events_total", by="resource"), "{{resource}}"),), unit="ops"),
        Panel(
            "Watches that did not continue",
            ((f"{rates(f'{FC}_watch_restarts_total', by='resource, reason')} > 0", "{{resource}} {{reason}}"),),
            unit="ops",
            text="closed is normal: API servers close watches every few minutes.",
        ),
    ),
    "Process": (
        Panel(
            "CPU",
            ((f"rate({of('process_cpu_seconds_total')}[$__rate_interval])", "{{instance}}"),),
            unit="percentunit",
        ),
        Panel("Memory", ((of("process_resident_memory_bytes"), "{{instance}}"),), unit="bytes"),
        Panel(
            "Lag of the event loop",
            quantiles(f"{FC}_event_loop_lag_seconds"),
            unit="s",
            text="How long one computation blocks all others.",
        ),
    ),
}


def panel_json(number: int, panel: Panel, grid: Json) -> Json:
    """Render a panel as Grafana's JSON."""
    made: Json = {
        "id": number,
        "type": "stat" if panel.stat else "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": _DATASOURCE,
        "gridPos": grid,
        "targets": [
            {
                "refId": chr(ord("A") + position),
                "datasource": _DATASOURCE,
                "expr": expression,
                "legendFormat": legend or "__auto",
                "range": not panel.stat,
                "instant": panel.stat,
            }
            for position, (expression, legend) in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "thresholds": panel.thresholds}, "overrides": []},
    }
    if panel.stat:
        made["options"] = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}
    else:
        made["fieldConfig"]["defaults"]["custom"] = {
            "fillOpacity": 30 if panel.stacked else 10,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.stacked else "none"},
        }
        made["options"] = {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    return made


def panels() -> Iterator[Json]:
    """Lay out all panels, each row under its heading."""
    number = top = 0
    for title, members in ROWS.items():
        number += 1
        heading = {"h": 1, "w": _WIDTH, "x": 0, "y": top}
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": heading, "panels": []}
        top += 1
        height = _STAT_HEIGHT if members[0].stat else _HEIGHT
        columns = len(members) if members[0].stat else min(len(members), 3 if len(members) % 3 == 0 else 4)
        width = _WIDTH // columns
        for position, member in enumerate(members):
            number += 1
            row, column = divmod(position, columns)
            grid = {"h": height, "w": width, "x": column * width, "y": top + row * height}
            yield panel_json(number, member, grid)
        top += height * -(-len(members) // columns)


def dashboard() -> Json:
    """Build the dashboard for Grafana's provisioning or import."""
    return {
        "uid": "frameworkcontroller",
        "title": "FrameworkController",
        "tags": ["kubernetes", "frameworkcontroller"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
                {
                    "name": "job",
                    "label": "Job",
                    "type": "query",
                    "datasource": _DATASOURCE,
                    "query": "label_values(frameworkcontroller_build_info, job)",
                    "definition": "label_values(frameworkcontroller_build_info, job)",
                    "refresh": 2,
                    "multi": True,
                    "includeAll": True,
                    "allValue": ".+",
                    "current": {"text": "All", "value": "$__all"},
                },
            ]
        },
        "panels": list(panels()),
    }


def document() -> str:
    """The file."""
    return orjson.dumps(dashboard(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


if __name__ == "__main__":
    print(document(), end="")
