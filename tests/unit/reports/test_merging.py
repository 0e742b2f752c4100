"""The merge of reports into the stored progress."""

import orjson
import pytest

from frameworkcontroller.reports.merging import (
    MAX_REPORTERS,
    Pending,
    Reporter,
    StoredProgress,
    decode_stored,
    encode_reporters,
    encode_stored,
    merged,
)
from frameworkcontroller.reports.reportbody import Mark, Report

POD, OTHER = "pod-uid", "other-uid"


def pending(*reports: tuple[int, Report], before: Reporter | None = None, pod: str = POD) -> Pending:
    found = Pending()
    for now, report in reports:
        before = found.add(pod, report, now, before)
    return found


def stored(mark: Mark, since: int, until: int, *, pod: str = POD, checkpoint_time: int | None = None) -> StoredProgress:
    reporters = {pod: Reporter(mark, since, until)}
    return StoredProgress(
        until, mark.percentage, step=mark.step, reporters=reporters, change_time=since, checkpoint_time=checkpoint_time
    )


def test_the_first_report_is_a_change() -> None:
    found = merged(None, pending((10, Report(step=1))), 10)
    assert (found.report_time, found.change_time, found.checkpoint_time, found.step) == (10, 10, None, 1)


def test_a_report_that_repeats_the_last_is_none() -> None:
    first = merged(None, pending((10, Report(step=1))), 10)
    found = merged(first, pending((20, Report(step=1)), before=first.reporters[POD]), 20)
    assert (found.report_time, found.change_time) == (20, 10)


def test_the_time_of_a_change_is_the_time_of_the_first_report_with_it() -> None:
    first = merged(None, pending((10, Report(step=1))), 10)
    reports = pending((20, Report(step=1)), (30, Report(step=2)), (40, Report(step=2)), before=first.reporters[POD])
    found = merged(first, reports, 40)
    assert (found.report_time, found.change_time, found.step) == (40, 30, 2)


def test_a_step_that_goes_back_is_a_change() -> None:
    first = stored(Mark(step=9), 10, 10)
    assert merged(first, pending((20, Report(step=8)), before=first.reporters[POD]), 20).change_time == 20


def test_a_part_of_a_percent_is_a_change() -> None:
    first = stored(Mark(50.0), 10, 10)
    found = merged(first, pending((20, Report(50.01))), 20)
    assert found.change_time == 20
    assert orjson.loads(encode_stored(found))["percentage"] == 50


def test_a_checkpoint_is_a_change() -> None:
    first = stored(Mark(step=9), 10, 10)
    found = merged(first, pending((20, Report(step=9, checkpoint=True)), before=first.reporters[POD]), 20)
    assert (found.change_time, found.checkpoint_time) == (20, 20)


def test_a_later_report_without_a_checkpoint_keeps_its_time() -> None:
    first = stored(Mark(step=9), 10, 10, checkpoint_time=10)
    assert merged(first, pending((20, Report(step=10))), 20).checkpoint_time == 10


def test_a_report_without_a_field_keeps_its_value() -> None:
    reports = pending((10, Report(5.0, 60, 1, (("loss", 1.0),))), (20, Report(step=2)))
    found = merged(None, reports, 20)
    assert (found.percentage, found.remaining_seconds, found.step, found.metrics) == (5.0, 60, 2, (("loss", 1.0),))


def test_a_process_that_does_not_know_the_pod_compares_with_the_stored_progress() -> None:
    first = stored(Mark(step=9), 10, 20)
    assert merged(first, pending((30, Report(step=9))), 30).change_time == 10
    assert merged(first, pending((30, Report(step=10))), 30).change_time == 30


def test_each_pod_is_compared_with_itself() -> None:
    first = merged(None, pending((10, Report(step=100))), 10)
    second = merged(first, pending((20, Report(step=90)), pod=OTHER), 20)
    assert second.change_time == 20
    # Both hang and report.
    third = merged(second, pending((30, Report(step=100))), 30)
    assert merged(third, pending((40, Report(step=90)), pod=OTHER), 40).change_time == 20


def test_an_older_report_of_another_replica_does_not_take_the_place_of_a_newer_one() -> None:
    first = stored(Mark(step=9), 30, 30)
    found = merged(first, pending((20, Report(step=8, metrics=(("loss", 2.0),)))), 40)
    assert (found.step, found.metrics, found.report_time) == (9, (("loss", 2.0),), 30)
    assert found.reporters[POD].mark == Mark(step=9)


def test_a_report_around_one_of_another_replica_counts_from_its_last() -> None:
    # 8 at 20 and at 40 here, 9 at 30 elsewhere: the report at 40 differs from the one before.
    first = stored(Mark(step=9), 30, 30)
    found = merged(first, pending((20, Report(step=8)), (40, Report(step=8))), 40)
    assert (found.change_time, found.step) == (40, 8)


def test_a_change_shows_though_the_clock_of_another_replica_is_ahead() -> None:
    first = stored(Mark(step=9), 1000, 1000, checkpoint_time=1000)
    found = merged(first, pending((20, Report(step=10, checkpoint=True))), 20)
    assert (found.change_time, found.checkpoint_time, found.step) == (1001, 1001, 10)
    same = merged(found, pending((30, Report(step=10))), 30)
    assert same.change_time == 1001


def test_the_reporters_are_bounded() -> None:
    progress: StoredProgress | None = None
    for number in range(2 * MAX_REPORTERS):
        progress = merged(progress, pending((number, Report(step=number)), pod=f"pod-{number:03}"), number)
    assert progress is not None
    assert len(progress.reporters) == MAX_REPORTERS
    assert min(progress.reporters) == f"pod-{MAX_REPORTERS:03}"
    unknown = merged(progress, pending((100, Report(step=MAX_REPORTERS + 5)), pod="pod-000"), 100)
    assert unknown.change_time == progress.change_time
    assert merged(progress, pending((100, Report(step=1000)), pod="pod-000"), 100).change_time == 100


def test_reports_that_failed_to_be_written_come_before_newer_ones() -> None:
    older = pending((10, Report(5.0, step=1, checkpoint=True)))
    newer = pending((20, Report(step=2)), before=older.reporters[POD])
    older.add_all(newer)
    found = merged(None, older, 20)
    assert (found.percentage, found.step, found.report_time) == (5.0, 2, 20)
    assert (found.change_time, found.checkpoint_time) == (20, 10)


def test_it_survives_storage() -> None:
    reports = pending((10, Report(5.5, 60, 1, (("loss", 1.25),), checkpoint=True)))
    found = merged(None, reports, 10)
    again = decode_stored(encode_stored(found), encode_reporters(found.reporters))
    assert again is not None
    assert again.reporters == found.reporters
    assert (again.percentage, again.step, again.metrics) == (5.0, 1, (("loss", 1.25),))
    assert (again.report_time, again.change_time, again.checkpoint_time) == (10, 10, 10)


@pytest.mark.parametrize(
    "text",
    [
        *(None, 1, "", "{", "[]", "{}", '{"lastReportTime": 1}', '{"lastReportTime": "x"}', "x" * 100_000),
        *('{"lastReportTime": "2026-01-31T12:00:00Z", "step": {}}', "[" * 10_000),
    ],
)
def test_an_edited_value_is_as_none(text: object) -> None:
    assert decode_stored(text, None) is None


@pytest.mark.parametrize("text", [None, 1, "", "{", "[]", '{"a": 1}', '{"a": [1, 2, "x", 4]}', '{"a": [1]}'])
def test_edited_reporters_are_none(text: object) -> None:
    progress = decode_stored('{"lastReportTime": "2026-01-31T12:00:00Z"}', text)
    assert progress is not None
    assert progress.reporters == {}


def test_the_step_of_a_checkpoint_is_stored() -> None:
    found = merged(None, pending((10, Report(step=7, checkpoint=True)), (20, Report(step=9))), 20)
    assert (found.step, found.checkpoint_step) == (9, 7)
    again = decode_stored(encode_stored(found), encode_reporters(found.reporters))
    assert again is not None
    assert again.checkpoint_step == 7
    assert merged(again, pending((30, Report(step=12))), 30).checkpoint_step == 7


def test_a_checkpoint_without_a_step_has_the_last_one() -> None:
    known = merged(None, pending((10, Report(step=7)), (20, Report(checkpoint=True))), 20)
    assert known.checkpoint_step == 7
    # Another replica has the step.
    stored_step = merged(None, pending((10, Report(step=7))), 10)
    assert merged(stored_step, pending((20, Report(checkpoint=True)), pod=OTHER), 20).checkpoint_step == 7
    assert merged(None, pending((10, Report(checkpoint=True))), 10).checkpoint_step is None


def test_a_later_checkpoint_of_an_unknown_step_has_no_older_step() -> None:
    first = StoredProgress(10, checkpoint_time=10, checkpoint_step=7)
    found = merged(first, pending((20, Report(checkpoint=True))), 20)
    assert (found.checkpoint_time, found.checkpoint_step) == (20, None)


def test_an_older_checkpoint_of_another_replica_keeps_the_step() -> None:
    first = StoredProgress(30, step=9, checkpoint_time=30, checkpoint_step=9)
    found = merged(first, pending((20, Report(step=8, checkpoint=True))), 40)
    assert (found.checkpoint_time, found.checkpoint_step) == (30, 9)
    # The stored time is of a clock that is ahead.
    ahead = StoredProgress(1000, step=9, checkpoint_time=1000, checkpoint_step=9)
    assert merged(ahead, pending((20, Report(step=12, checkpoint=True))), 40).checkpoint_step == 12


def test_the_step_of_a_checkpoint_that_failed_to_be_written_stays() -> None:
    older = pending((10, Report(step=1, checkpoint=True)))
    older.add_all(pending((20, Report(step=2)), before=older.reporters[POD]))
    assert merged(None, older, 20).checkpoint_step == 1
    older.add_all(pending((30, Report(checkpoint=True)), pod=OTHER))
    assert merged(None, older, 30).checkpoint_step == 2
