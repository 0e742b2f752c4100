"""Progress in the SDK: the field of a Framework, and the reported one of its status."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from frameworkcontroller import Framework, InvalidSpec, Progress, ProgressStatus, Role
from frameworkcontroller.sdk.display import _progress
from frameworkcontroller.sdk.runstatus import read_status
from tests.support import pagesamples as samples
from tests.support.pagesamples import NOW

WRITTEN: dict[str, Any] = {"deadlineSeconds": 600, "startDeadlineSeconds": 900, "intervalSeconds": 30}


def job(**fields: Any) -> Framework:
    return Framework(name="f", roles=[Role(image="i", command=["c"])], **fields)


@pytest.mark.parametrize(
    ("progress", "written"),
    [
        (Progress(), {}),
        (Progress(deadline=600), {"deadlineSeconds": 600}),
        (Progress(deadline=600, start_deadline=900, interval=30), WRITTEN),
    ],
)
def test_the_field_is_written_and_read_again(progress: Progress, written: dict[str, Any]) -> None:
    framework = job(progress=progress)
    assert framework.to_dict()["spec"]["progress"] == written
    again = Framework.from_yaml(framework.to_yaml())
    assert again.progress == progress
    assert not again.extra
    assert again.to_dict() == framework.to_dict()


def test_without_it_the_spec_has_no_such_field() -> None:
    assert job().progress is None
    assert "progress" not in job().to_dict()["spec"]
    assert Framework.from_yaml(job().to_yaml()).progress is None


def test_a_null_of_a_manifest_is_omitted() -> None:
    body = job().to_dict()
    body["spec"]["progress"] = {"deadlineSeconds": None, "intervalSeconds": 30}
    framework = Framework.from_yaml(yaml.safe_dump(body))
    assert framework.to_dict()["spec"]["progress"] == {"intervalSeconds": 30}


@pytest.mark.parametrize("written", [{"deadlineSeconds": 0}, {"intervalSeconds": 3601}, {"deadlineSeconds": "x"}, 5])
def test_a_fault_of_a_manifest_names_the_field(written: Any) -> None:
    body = job().to_dict()
    body["spec"]["progress"] = written
    with pytest.raises(InvalidSpec, match=r"spec\.progress"):
        Framework.from_yaml(yaml.safe_dump(body))


@pytest.mark.parametrize("fields", [{"deadline": 0}, {"start_deadline": 0}, {"interval": 0}, {"interval": 3601}])
def test_a_fault_names_the_field(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec, match=next(iter(fields))):
        Progress(**fields)


def test_the_reported_progress_of_a_status() -> None:
    progress = read_status(samples.training()).progress
    assert progress == ProgressStatus(
        attempt=1,
        percent=42,
        step=8400,
        metrics={"learning_rate": 2.517e-05, "total_steps": 20_000.0, "loss": 0.2513},
        remaining_seconds=4200,
        reported=NOW - 20,
        changed=NOW - 20,
        checkpoint=NOW - 320,
        text="42%, step 8,400 of 20,000, loss 0.2513, learning_rate 2.517e-05",
    )
    assert str(progress) == progress.text
    assert read_status(samples.many(2)).progress is None


def test_a_notebook_shows_a_bar() -> None:
    text = _progress(ProgressStatus(0, percent=42, text="42%, <b> 3"))
    assert '<progress max="100" value="42"' in text
    assert "42%, &lt;b&gt; 3" in text
    assert "<progress" not in _progress(ProgressStatus(0, step=3, text="step 3"))
    assert _progress(None) == ""
