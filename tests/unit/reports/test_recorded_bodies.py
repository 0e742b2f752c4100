"""Bodies that libraries have sent: the first one, one of the middle, and the last one of each."""

from pathlib import Path

from frameworkcontroller.api.progressreports import MAX_METRICS
from frameworkcontroller.reports.merging import Pending, StoredProgress, merged
from frameworkcontroller.reports.reportbody import Report, parse_report, with_total

BODIES = Path(__file__).with_name("bodies")


def recorded(library: str) -> list[Report]:
    return [parse_report(line) for line in (BODIES / f"{library}.jsonl").read_bytes().splitlines()]


def stored(reports: list[Report]) -> StoredProgress:
    """The progress after these reports, each stored by itself."""
    found = None
    for time, report in enumerate(reports):
        pending = Pending()
        pending.add("pod", report, time, None)
        found = merged(found, pending, time)
    assert found is not None
    return found


def test_transformers() -> None:
    first, middle, last = recorded("transformers-5.24.0")
    assert first == Report(percentage=0.0, metrics=(("total_steps", 1000.0),))
    assert (middle.percentage, middle.remaining_seconds, middle.step) == (98.0, 0, 981)
    assert dict(middle.metrics or ())["loss"] == 3.6651995849609373
    assert (last.percentage, last.remaining_seconds, last.step) == (100.0, 0, None)
    assert dict(last.metrics or ())["train_loss"] == 3.8524571228027344


def test_kubeflow() -> None:
    first, middle, last = recorded("kubeflow-0.5.0")
    assert first == Report(percentage=0.0)
    metrics = (("loss", 0.25), ("current_step", 120.0), ("total_steps", 1000.0))
    assert middle == Report(12.0, 340, 120, metrics)
    assert last == Report(12.5, 339, metrics=())


def test_the_total_of_the_steps_is_kept_after_the_last_report() -> None:
    reports = recorded("transformers-5.24.0")
    together = Pending()
    for report in reports:
        together.add("pod", report, 1, None)
    for found in (stored(reports), merged(None, together, 1)):
        assert (found.percentage, found.step) == (100.0, 981)
        metrics = dict(found.metrics or ())
        assert (metrics["total_steps"], metrics["loss"]) == (1000.0, 3.6630923461914064)
        assert "current_step" not in metrics


def test_the_total_of_the_steps_is_kept_among_many_metrics() -> None:
    many = tuple((f"m{number}", 1.0) for number in range(300))
    body = b'{"trainerStatus": {"metrics": [%s]}}' % b",".join(
        b'{"name": "%s", "value": "1"}' % name.encode() for name, _ in (*many, ("total_steps", 1.0))
    )
    assert parse_report(body).metrics == (*many[: MAX_METRICS - 1], ("total_steps", 1.0))
    assert with_total(many[:MAX_METRICS], ()) == many[:MAX_METRICS]
