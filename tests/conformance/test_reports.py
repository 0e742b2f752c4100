"""Reports of progress with real tokens, on every API server alike: permissions and writes."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from frameworkcontroller.api import names
from frameworkcontroller.kube.resources import CONFIGMAPS, NAMESPACES
from frameworkcontroller.local.apiserver.accounttokens import API_AUDIENCE
from tests.support.clusters import Cluster
from tests.support.eventually import eventually
from tests.support.reportsenders import Senders, senders


@pytest.fixture
async def sends(cluster: Cluster) -> AsyncIterator[Senders]:
    cluster.skip_without_tokens()
    async with senders(cluster) as made:
        yield made


async def test_a_pod_reports_to_its_attempt(sends: Senders) -> None:
    attempt = await sends.attempt(interval="60")
    token = await sends.token(await sends.pod(attempt))
    metrics = [{"name": "current_step", "value": "3"}, {"name": "loss", "value": "0.5"}]
    answer = await sends.send(
        sends.url(attempt), token, progressPercentage=1, estimatedRemainingSeconds=60, metrics=metrics
    )
    assert (answer.status, answer.text) == (200, "{}")
    progress = await sends.until(attempt, percentage=1, remainingSeconds=60, step=3)
    assert progress["metrics"] == [{"name": "current_step", "value": 3.0}, {"name": "loss", "value": 0.5}]
    assert progress["lastReportTime"] == progress["lastChangeTime"]
    assert (await sends.data(attempt))["interval"] == "60"


async def test_a_checkpoint_is_written_at_once(sends: Senders) -> None:
    attempt = await sends.attempt(interval="3600")
    token = await sends.token(await sends.pod(attempt))
    assert (await sends.send(sends.url(attempt), token, step=1)).status == 200
    await sends.until(attempt, step=1)
    assert (await sends.send(sends.url(attempt), token, step=2, checkpoint=True)).status == 200
    progress = await sends.until(attempt, step=2)
    assert progress["lastCheckpointTime"] == progress["lastChangeTime"]


async def test_a_token_of_another_pod_of_the_attempt_is_taken(sends: Senders) -> None:
    attempt = await sends.attempt(interval="5")
    for index in range(2):
        token = await sends.token(await sends.pod(attempt, index))
        assert (await sends.send(sends.url(attempt), token, step=index)).status == 200
    await sends.until(attempt, step=1)
    assert len(orjson.loads((await sends.data(attempt))[names.REPORTERS_KEY])) == 2


async def test_foreign_tokens_are_refused(sends: Senders) -> None:
    attempt, other = await sends.attempt(), await sends.attempt("other", 3)
    own, pod_of_other, alone = await sends.pod(attempt), await sends.pod(other), await sends.pod(None)
    url = sends.url(attempt)

    async def refused(status: int, text: str, token: str | None, url: str = url) -> None:
        answer = await sends.send(url, token, step=1)
        assert (answer.status, text in answer.text) == (status, True), answer

    token = await sends.token(own)
    await refused(401, "Authorization", None)
    await refused(401, "not one of a Pod", await sends.token(own, API_AUDIENCE))
    await refused(401, "not one of a Pod", await sends.token(own, "frameworkcontroller-history"))
    await refused(401, "not one of a Pod", await sends.token(None))
    await refused(403, "other", await sends.token(pod_of_other))
    await refused(403, "belongs to no Framework", await sends.token(alone))
    await refused(403, sends.namespace, token, sends.url(attempt, "kube-system"))
    await refused(403, "train", token, sends.url(other))
    # Another attempt of the same Framework.
    attempt.id = 1
    await refused(403, "attempt 0", token, sends.url(attempt))
    attempt.id = 0
    assert await sends.progress(attempt) is None
    assert await sends.progress(other) is None


def forged(token: str, **claims: Any) -> str:
    """The token with other claims and its old signature."""
    head, body, signature = token.split(".")
    content = orjson.loads(base64.urlsafe_b64decode(body + "==")) | claims
    return f"{head}.{base64.urlsafe_b64encode(orjson.dumps(content)).decode().rstrip('=')}.{signature}"


async def test_forged_tokens_are_refused(sends: Senders) -> None:
    attempt = await sends.attempt()
    pod = await sends.pod(attempt)
    right, unbound = await sends.token(pod), await sends.token(None)
    content = orjson.loads(base64.urlsafe_b64decode(right.split(".")[1] + "=="))
    for token in (
        forged(right, exp=2**40),
        forged(unbound, **{"kubernetes.io": content["kubernetes.io"]}),
        right.rpartition(".")[0] + ".",
        right[:-6] + "AAAAAA",
    ):
        answer = await sends.send(sends.url(attempt), token, step=1)
        assert (answer.status, "does not accept" in answer.text) == (401, True), answer
    assert await sends.progress(attempt) is None


async def test_the_token_of_a_deleted_pod_ends_with_its_review(sends: Senders) -> None:
    attempt = await sends.attempt()
    pod = await sends.pod(attempt)
    token = await sends.token(pod)
    await sends.remove(pod)
    assert (await sends.send(sends.url(attempt), token, step=1)).status == 401
    # A new Pod of the same name does not make it valid.
    await sends.pod(attempt)
    sends.service.authentication.forget_refusals()
    assert (await sends.send(sends.url(attempt), token, step=1)).status == 401


async def test_a_late_report_of_an_earlier_attempt_changes_nothing(sends: Senders) -> None:
    first = await sends.attempt()
    token = await sends.token(await sends.pod(first))
    await sends.client.delete(CONFIGMAPS, names.configmap_name("train"), sends.namespace)

    second = await sends.attempt(attempt_id=1)
    answer = await sends.send(sends.url(first), token, step=9)
    assert answer.status in (401, 410), answer
    assert await sends.progress(second) is None


async def test_a_write_after_the_attempt_has_ended_changes_nothing(sends: Senders) -> None:
    """The ConfigMap is replaced between two reports to a server that knows the first."""
    first = await sends.attempt(interval="1")
    token = await sends.token(await sends.pod(first))
    assert (await sends.send(sends.url(first), token, step=1)).status == 200
    await sends.until(first, step=1)
    await sends.client.delete(CONFIGMAPS, names.configmap_name("train"), sends.namespace)
    second = await sends.attempt(attempt_id=1)

    async def gone() -> None:
        answer = await sends.send(sends.url(first), token, step=2)
        assert answer.status in (401, 410), answer

    await eventually(gone, within=120, every=1)
    assert await sends.progress(second) is None


async def test_a_token_of_another_namespace_is_refused(sends: Senders) -> None:
    attempt = await sends.attempt()
    elsewhere = f"{sends.namespace}-b"
    await sends.client.create(NAMESPACES, orjson.dumps({"metadata": {"name": elsewhere}}))
    url = sends.url(attempt)
    sends.namespace = elsewhere
    token = await sends.token(await sends.pod(await sends.attempt()))
    answer = await sends.send(url, token, step=1)
    assert (answer.status, elsewhere in answer.text) == (403, True)
