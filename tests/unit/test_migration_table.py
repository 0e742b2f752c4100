"""docs/migration.md lists every field that the original controller ignores."""

import re
from collections.abc import Iterator
from typing import get_args

from pydantic import BaseModel

from frameworkcontroller.api.spec import FrameworkSpec
from tests.support.examples import ROOT

ORIGINAL = {
    "description", "executionType", "retryPolicy", "fancyRetryPolicy", "maxRetryCount", "taskRoles", "name",
    "taskNumber", "frameworkAttemptCompletionPolicy", "minFailedTaskCount", "minSucceededTaskCount", "task",
    "podGracefulDeletionTimeoutSec", "pod",
}  # fmt: skip
"""The fields of the original's spec."""


def new_fields(model: type[BaseModel]) -> Iterator[str]:
    """The fields that the original does not have; a field stands for all fields below it."""
    for info in model.model_fields.values():
        assert info.alias is not None
        if info.alias not in ORIGINAL:
            yield info.alias
            continue
        for below in (info.annotation, *get_args(info.annotation)):
            if isinstance(below, type) and issubclass(below, BaseModel):
                yield from new_fields(below)


def test_no_field_is_forgotten() -> None:
    page = (ROOT / "docs/migration.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \|", page.partition("## Back\n")[2], re.MULTILINE)
    assert sorted(listed) == sorted({*new_fields(FrameworkSpec)})
