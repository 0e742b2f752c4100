"""Report servers broken on purpose, by the guarantee that they break: W and T."""

from __future__ import annotations

import base64
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final
from unittest.mock import patch

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.reports import podtokens, progresswriter
from frameworkcontroller.reports.merging import Pending, Reporter, StoredProgress, merged
from frameworkcontroller.reports.podtokens import AttemptPath, PodTokens, ReportingPod
from frameworkcontroller.reports.reportbody import Report
from tests.property import test_progress_reports as reports
from tests.property import test_report_senders as sending
from tests.property.test_progress_reports import Step
from tests.property.test_report_senders import Event

Broken = Callable[[], AbstractContextManager[object]]

_patch_body: Final = progresswriter._patch_body
_add: Final = Pending.add
_find: Final = PodTokens.find


def _merges(instead: Callable[[StoredProgress | None, Pending, int], StoredProgress]) -> Broken:
    return partial(patch.object, progresswriter, "merged", instead)


def _forgets_checkpoints(stored: StoredProgress | None, pending: Pending, now: int) -> StoredProgress:
    return replace(merged(stored, pending, now), checkpoint_time=pending.checkpoint_time)


def _takes_any_step(stored: StoredProgress | None, pending: Pending, now: int) -> StoredProgress:
    found = merged(stored, pending, now)
    return replace(found, checkpoint_step=None if found.checkpoint_time is None else found.step)


def _trusts_clocks(stored: StoredProgress | None, pending: Pending, now: int) -> StoredProgress:
    if stored is not None and pending.report_time < stored.report_time:
        return stored
    return merged(stored, pending, now)


def _believes_its_memory(stored: StoredProgress | None, pending: Pending, now: int) -> StoredProgress:
    if stored is not None:
        stored = replace(stored, reporters=dict(pending.reporters))
    return merged(stored, pending, now)


def _adds_as_one(pending: Pending, _uid: str, report: Report, now: int, _before: Reporter | None) -> Reporter:
    return _add(pending, "pod", report, now, None)


def _writes_without(*tested: str) -> Broken:
    def body(uid: str, version: str, progress: StoredProgress) -> dict[str, Any]:
        made = _patch_body(uid, version, progress)
        return {**made, "metadata": {key: one for key, one in made["metadata"].items() if key not in tested}}

    return partial(patch.object, progresswriter, "_patch_body", body)


@contextmanager
def _ignores_other_attempts() -> Generator[None]:
    """It neither tests the UID nor notices another one."""

    def fold(writer: progresswriter.ProgressWriter, attempt: Any, body: dict[str, Any]) -> None:
        attempt.uid = body["metadata"]["uid"]
        _fold(writer, attempt, body)
        attempt.attempt_id = max(0, attempt.attempt_id)

    _fold = progresswriter.ProgressWriter._fold
    with (
        patch.object(progresswriter.ProgressWriter, "_fold", fold),
        _writes_without("uid", "resourceVersion")(),
    ):
        yield


def _claims(token: str) -> Mapping[str, Any]:
    claims: Mapping[str, Any] = orjson.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    return claims


async def _believes_claims(_: PodTokens, token: str) -> Any:
    bound = _claims(token)["kubernetes.io"]
    pod = bound.get("pod") or {}
    extra = {f"authentication.kubernetes.io/pod-{key}": [pod.get(key, "")] for key in ("name", "uid")}
    user = {"username": f"system:serviceaccount:{bound['namespace']}:default", "extra": extra}
    return {"authenticated": True, "user": user, "audiences": [names.PROGRESS_AUDIENCE]}


async def _takes_any_pod(tokens: PodTokens, token: str, target: AttemptPath, address: str) -> ReportingPod:
    bound = _claims(token)["kubernetes.io"]
    framework = str(bound.get("pod", {}).get("name", "")).partition("-")[0]
    return await _find(tokens, token, AttemptPath(bound["namespace"], framework, 0), address)


_TOKEN: Final = (Event("pod"), Event("token"))
"""Of a Pod of n1/f1."""

CASES: Final[tuple[tuple[str, Broken, Callable[[], object], str], ...]] = (
    (
        "W: forgets a checkpoint with the next report",
        _merges(_forgets_checkpoints),
        partial(reports.check, [Step(1.0, checkpoint=True), Step(61.0)]),
        "a checkpoint is lost|went back",
    ),
    (
        "W: takes the last step for that of the last checkpoint",
        _merges(_takes_any_step),
        partial(reports.check, [Step(1.0, checkpoint=True), Step(61.0)]),
        "a checkpoint has another step",
    ),
    (
        "W: drops what the clock of another replica makes old",
        _merges(_trusts_clocks),
        partial(reports.check_clocks, [(1, 1.0), (2, 1.0), (2, 1.0)]),
        "a change does not show",
    ),
    (
        "W: compares a report with those to the same replica only",
        _merges(_believes_its_memory),
        partial(reports.check, [Step(1.0), Step(61.0, 1)], replicas=2),
        "a change is lost",
    ),
    (
        "W: takes all Pods for one",
        partial(patch.object, Pending, "add", _adds_as_one),
        partial(reports.check, [Step(1.0), Step(61.0, pod="b"), Step(61.0, pod="a", advance=False)]),
        "a report that repeats the last counts as a change",
    ),
    (
        "W: drops the reports of a failed write",
        partial(patch.object, Pending, "add_all", lambda _pending, _newer: None),
        partial(
            reports.check,
            [
                Step(1.0),
                Step(61.0, fate="failed"),
                Step(0.005, fate="failed", checkpoint=True),
                Step(0.2, fate="failed"),
            ],
        ),
        "a checkpoint is lost",
    ),
    (
        "W: writes over the reports of another replica",
        _writes_without("resourceVersion"),
        partial(
            reports.check,
            [Step(1.0), Step(61.0, 1), Step(61.0, 0), Step(1.0, 1, advance=False, checkpoint=True), Step(61.0, 0)],
            replicas=2,
            interval=5,
        ),
        "went back",
    ),
    (
        "W: writes into the next attempt",
        _ignores_other_attempts,
        partial(reports.check_attempts, [(0, 0, False), (0, 1, True), (0, 1, False)]),
        "a report of another attempt is stored",
    ),
    (
        "T: believes what a token says of itself",
        partial(patch.object, PodTokens, "_ask", _believes_claims),
        partial(sending.check, [Event("pod"), Event("token", other=3), Event("report")]),
        "a forged token is taken",
    ),
    (
        "T: takes the tokens of other Frameworks",
        partial(patch.object, PodTokens, "find", _takes_any_pod),
        partial(sending.check, [*_TOKEN, Event("report", other=2)]),
        "a token of another Framework is taken",
    ),
    (
        "T: takes a token for as long as it was taken once",
        partial(patch.object, podtokens, "REVIEWED_SEC", 1e6),
        partial(sending.check, [*_TOKEN, Event("report"), Event("delete"), Event("report", wait=61.0)]),
        "the token of a deleted Pod is taken",
    ),
)
"""Names, flaws, tales that show them, and words of which one is in the error."""
