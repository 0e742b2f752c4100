"""Print docs/metrics.md: every metric of a controller and of the archive, read from newly created ones.

`make docs` runs it; a test compares the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from prometheus_client import Metric

from frameworkcontroller.config.config import ProgressReports, shipped_config
from frameworkcontroller.config.historyconfig import History, HistorySinkKind
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.manager.app import Controller
from frameworkcontroller.manager.exposition import registry_of

HEAD: Final = """\
# Metrics

Every metric that `/metrics` serves ([scraping, dashboard, alerts](monitoring.md)), with its labels. Names of counters
end with `_total`, `ʰ` marks histograms, the others are gauges. Not listed: `process_*`, `python_gc_*`,
and client-go's `workqueue_*`, with the label `name`: `depth`, `adds_total`, `retries_total`, `queue_duration_seconds`ʰ,
`work_duration_seconds`ʰ, `unfinished_work_seconds` and `longest_running_processor_seconds`.

Time series exist from the start, at zero, except for some HTTP codes. No label of a controller holds the name of a
namespace, Framework, role or Pod: it has a few hundred time series at any load.
"""

UNLISTED: Final = ("process_", "python_gc_", "workqueue_")

SECTIONS: Final = {
    "workqueue_": "Work queue and syncs",
    "frameworkcontroller_reconcile_": "Work queue and syncs",
    "frameworkcontroller_ledger_entries": "Frameworks and Tasks",
    "frameworkcontroller_work": "Work queue and syncs",
    "frameworkcontroller_api": "API server",
    "frameworkcontroller_status": "API server",
    "frameworkcontroller_crd": "API server",
    "frameworkcontroller_events": "API server",
    "frameworkcontroller_cache": "Caches",
    "frameworkcontroller_lists": "Caches",
    "frameworkcontroller_watch": "Caches",
    "frameworkcontroller_unreadable": "Caches",
    "frameworkcontroller_frameworks": "Frameworks and Tasks",
    "frameworkcontroller_tasks": "Frameworks and Tasks",
    "frameworkcontroller_queue_wait": "Queues",
    "frameworkcontroller_evictions": "Queues",
    "frameworkcontroller_quota": "Queues",
    "frameworkcontroller_longest_eviction": "Queues",
    "frameworkcontroller_history": "History (only with a sink)",
    "frameworkcontroller_progress": "Reports of progress (only with a server)",
    "frameworkcontroller_attempts": "Frameworks and Tasks",
    "frameworkcontroller_retries": "Frameworks and Tasks",
    "": "Process",
}
"""The section of a metric, by prefix of its name; the first match wins."""

ORDER: Final = (
    "Frameworks and Tasks",
    "Queues",
    "History (only with a sink)",
    "Reports of progress (only with a server)",
    "Work queue and syncs",
    "API server",
    "Caches",
    "Process",
)


def families() -> list[Metric]:
    """Collect every metric."""

    async def collect() -> list[Metric]:
        parts = {
            "history": History(sink=HistorySinkKind.FILE, path="/"),
            "progress_reports": ProgressReports(bind_address="127.0.0.1:0"),
            "namespace": "default",
        }
        config = shipped_config().model_copy(update=parts)
        controller = Controller(config, Connection.to_address("http://127.0.0.1:1"))
        return list(registry_of(controller).collect())

    return asyncio.run(collect())


ARCHIVE: Final = "Archive of the history"


def archive_families() -> list[Metric]:
    """Collect the metrics that only the archive has."""
    from frameworkcontroller.history.archiveapi import new_metrics

    metrics = new_metrics()
    metrics.watch_folders(lambda: 0, lambda: 0.0)
    metrics.set_suspect_nodes({"": 0})
    return [one for one in metrics.registry.collect() if one.name.startswith("frameworkcontroller_archive_")]


def name_of(family: Metric) -> str:
    """The name in PromQL."""
    return f"{family.name}_total" if family.type == "counter" else family.name


def labels_of(family: Metric) -> list[str]:
    """The labels, without a histogram's ``le``."""
    found = dict.fromkeys(label for sample in family.samples for label in sample.labels)
    return [label for label in found if label != "le"]


def document() -> str:
    """The whole page."""
    return "".join(f"{line}\n" for line in page())


def page() -> Iterator[str]:
    """The lines of the page."""
    yield HEAD.rstrip("\n")
    sections: dict[str, list[Metric]] = {title: [] for title in ORDER}
    for family in families():
        sections[next(title for start, title in SECTIONS.items() if family.name.startswith(start))].append(family)
    sections[ARCHIVE] = archive_families()
    for title, members in sections.items():
        yield ""
        yield f"## {title}"
        yield ""
        if title == ARCHIVE:
            yield "Of [`frameworkcontroller history serve`](history.md)."
            yield ""
        yield "| metric | meaning |"
        yield "|---|---|"
        for family in members:
            if not family.name.startswith(UNLISTED):
                labels = ",".join(labels_of(family))
                name = name_of(family) + (f"{{{labels}}}" if labels else "")
                yield f"| `{name}`{'ʰ' if family.type == 'histogram' else ''} | {family.documentation} |"


if __name__ == "__main__":
    print(document(), end="")
