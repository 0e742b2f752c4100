"""The bodies of reports: of known senders, and invalid ones."""

import json

import pytest

from frameworkcontroller.api.problems import ProblemError
from frameworkcontroller.api.progressreports import MAX_METRICS
from frameworkcontroller.reports.reportbody import Mark, Report, parse_report


def body(**status: object) -> bytes:
    return json.dumps({"trainerStatus": status}).encode()


def test_transformers_reports_its_step_among_its_metrics() -> None:
    report = parse_report(
        body(
            lastUpdatedTime="2026-01-31T12:00:00.123456+00:00",
            progressPercentage=12,
            estimatedRemainingSeconds=340,
            metrics=[
                {"name": "loss", "value": "0.25"},
                {"name": "grad_norm", "value": "nan"},
                {"name": "current_step", "value": "120"},
                {"name": "total_steps", "value": "1000"},
            ],
        )
    )
    assert report == Report(12.0, 340, 120, (("loss", 0.25), ("current_step", 120.0), ("total_steps", 1000.0)))


def test_a_report_may_be_empty() -> None:
    assert parse_report(body()) == Report()


def test_a_null_is_not_reported() -> None:
    fields = ("progressPercentage", "estimatedRemainingSeconds", "step", "metrics", "checkpoint", "lastUpdatedTime")
    assert parse_report(body(**dict.fromkeys(fields))) == Report()


def test_own_fields() -> None:
    assert parse_report(body(step=7, checkpoint=True, unknown={})) == Report(step=7, checkpoint=True)


def test_the_field_step_precedes_metrics() -> None:
    report = parse_report(body(step=7, metrics=[{"name": "current_step", "value": 8}]))
    assert report.step == 7


def test_the_step_is_found_beyond_the_metrics_that_are_kept() -> None:
    metrics = [{"name": f"m{index}", "value": str(index)} for index in range(300)]
    report = parse_report(body(metrics=[*metrics, {"name": "current_step", "value": "9"}]))
    assert report.step == 9
    assert report.metrics == tuple((f"m{index}", float(index)) for index in range(MAX_METRICS))


@pytest.mark.parametrize(
    "metric",
    [
        {"name": "", "value": 1},
        {"name": "n" * 64, "value": 1},
        {"name": "a\nb", "value": 1},
        {"name": "a", "value": "word"},
        {"name": "a", "value": "inf"},
        {"name": "a", "value": "9" * 100},
    ],
)
def test_an_unusable_metric_is_left_out(metric: object) -> None:
    assert parse_report(body(metrics=[metric, {"name": "b", "value": 1}])).metrics == (("b", 1.0),)


@pytest.mark.parametrize(
    ("invalid", "text"),
    [
        (b"{", "must be JSON"),
        # orjson reads it as no number.
        (body(metrics=[{"name": "a", "value": 10**400}]), "must be JSON"),
        (b"[]", "must be an object"),
        (b"{}", "trainerStatus: null: must be an object"),
        (b'{"trainerStatus": 1}', "trainerStatus: 1: must be an object"),
        (body(progressPercentage="1"), "trainerStatus.progressPercentage: '1': must be a number"),
        (body(progressPercentage=True), "trainerStatus.progressPercentage: true: must be a number"),
        (body(progressPercentage=101), "trainerStatus.progressPercentage: 101: must be between 0 and 100"),
        (body(progressPercentage=-0.5), "trainerStatus.progressPercentage: -0.5: must be between 0 and 100"),
        (body(estimatedRemainingSeconds=-1), "trainerStatus.estimatedRemainingSeconds: -1: must be between"),
        (body(step=2**53), "trainerStatus.step: 9007199254740992: must be between"),
        (body(step="a" * 1000), "trainerStatus.step: 'aaa"),
        (body(checkpoint=1), "trainerStatus.checkpoint: 1: must be true or false"),
        (body(lastUpdatedTime=1), "trainerStatus.lastUpdatedTime: 1: must be text"),
        (body(metrics={}), "trainerStatus.metrics: a mapping: must be a list"),
        (body(metrics=["a"]), "trainerStatus.metrics[0]: 'a': must be an object"),
        (body(metrics=[{"value": 1}]), "trainerStatus.metrics[0].name: null: must be text"),
        (body(metrics=[{"name": "a"}]), "trainerStatus.metrics[0].value: null: must be a number"),
        (body(metrics=[{"name": "a", "value": True}]), "trainerStatus.metrics[0].value: true: must be a number"),
    ],
)
def test_an_error_names_field_and_value(invalid: bytes, text: str) -> None:
    with pytest.raises(ProblemError) as caught:
        parse_report(invalid)
    assert text in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("new", "old", "differs"),
    [
        (Mark(1.0, 2), Mark(1.0, 2), False),
        (Mark(1.5, 2), Mark(1.0, 2), True),
        (Mark(1.0, 1), Mark(1.0, 2), True),
        (Mark(None, 2), Mark(1.0, 2), False),
        (Mark(), Mark(1.0, 2), False),
        (Mark(1.0, 2), Mark(1.0), True),
    ],
)
def test_a_field_that_is_not_reported_does_not_differ(new: Mark, old: Mark, differs: bool) -> None:
    assert new.differs(old) == differs
    assert not old.differs(new.after(old)) or differs
