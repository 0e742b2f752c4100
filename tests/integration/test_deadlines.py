"""Deadlines and retention of one Framework, with a whole controller (docs/failures-and-retries.md, "Deadlines")."""

import pytest

from tests.support.exposure import Exposure
from tests.support.frameworks import Frameworks, policy, role

pytestmark = [pytest.mark.usefixtures("controller"), pytest.mark.newest]


async def test_a_hung_framework_ends_by_its_deadline(frameworks: Frameworks) -> None:
    always = {"maxRetryCount": -2}
    await frameworks.create("f", role("a", 2), activeDeadlineSeconds=3, retryPolicy=always)
    status = await frameworks.until_state("f", "Completed")
    completion = status["attemptStatus"]["completionStatus"]
    assert (completion["code"], completion["phrase"]) == (-250, "FrameworkActiveDeadlineExceeded")
    assert status["accumulatedPastExecutionTimeSeconds"] >= 3
    assert status["attemptStatus"]["id"] == 0
    await frameworks.assert_nothing_left("f")


async def test_a_deadline_that_is_set_while_the_framework_runs_ends_it(frameworks: Frameworks) -> None:
    await frameworks.create("f", role("a", 1))
    await frameworks.until_running("f", 1)
    await frameworks.set("f", activeDeadlineSeconds=1)
    status = await frameworks.until_state("f", "Completed")
    assert status["attemptStatus"]["completionStatus"]["code"] == -250


async def test_a_pod_that_does_not_run_in_time_fails_its_task(frameworks: Frameworks) -> None:
    slow = role("a", 1, simulate={"prepare-seconds": 1000}, task={"preRunningDeadlineSeconds": 2})
    await frameworks.create("f", slow, role("b", 1))
    await frameworks.until_running("f", 1)
    await frameworks.set("f", taskRoles__0__frameworkAttemptCompletionPolicy=policy(1))
    status = await frameworks.until_state("f", "Completed")
    completion = status["attemptStatus"]["completionStatus"]
    assert (completion["code"], completion["trigger"]["taskRoleName"]) == (-260, "a")


async def test_a_completed_framework_is_deleted_after_its_own_time(frameworks: Frameworks) -> None:
    exposure = Exposure(frameworks.client, frameworks.namespace)
    async with exposure.following():
        await frameworks.create("f", role("a", 1, simulate={"run-seconds": 0.1}), ttlSecondsAfterFinished=3)
        await frameworks.until_gone("f")
        await exposure.until_last("Completed")
