"""The result of an action after each answer of an API server, through HTTP."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import orjson
import pytest

from frameworkcontroller.api.objects import Identity
from frameworkcontroller.controller.requestsender import send
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.machine.kernel.actions import (
    Action,
    ConfirmGone,
    ConfirmNone,
    Create,
    Delete,
    LeaveNewer,
    LookUp,
    Patch,
    Relabel,
    carry_out,
)
from frameworkcontroller.machine.kernel.exchanges import (
    Accepted,
    Created,
    Exists,
    Gone,
    Outdated,
    Patched,
    Remains,
    Result,
)
from frameworkcontroller.machine.kernel.requests import Kind, Refused, Target, Unanswered
from tests.support.faulty_server import Answer, FaultyServer, answer, drop, faulty_server, status

pytestmark = pytest.mark.virtual_clock

POD = Target(Kind.POD, "f-a-0", 0, "a", 0, "task-uid")
CONFIGMAP = Target(Kind.CONFIGMAP, "f-attempt")
SERVICE = Target(Kind.SERVICE, "f")
PATCH = Patch(SERVICE, "u", b'{"metadata":{"labels":{"a":"b"}}}', "7")
FRAMEWORK = Target(Kind.FRAMEWORK, "f")
CREATE = Create(POD, b'{"kind":"Pod"}', "cm-uid")
NOT_FOUND = status(404, "NotFound", details={"name": "f-a-0", "kind": "pods"})
DELETED = answer({"kind": "Status", "metadata": {}, "status": "Success"})
PAGE = "<html>not here</html>"
TAKEN = status(409, "AlreadyExists")
OTHER_UID = status(409, "Conflict")
FORBIDDEN = status(403, "Forbidden")
DYING = Identity("u", None, None, True, deletion_time=1769860800, deletion_grace_sec=30)
IMMUTABLE = status(422, "Invalid")


def found(uid: str, controller: str | None = None, *, deleting: bool = False) -> Answer:
    """An object, as much of it as is asked for."""
    metadata: dict[str, Any] = {"uid": uid}
    if controller is not None:
        metadata["ownerReferences"] = [{"uid": controller, "controller": True}]
    if deleting:
        metadata |= {"deletionTimestamp": "2026-01-31T12:00:00Z", "deletionGracePeriodSeconds": 30}
    return answer({"metadata": metadata})


@pytest.fixture
async def server() -> AsyncIterator[FaultyServer]:
    async with faulty_server() as running:
        yield running


@pytest.fixture
async def client(server: FaultyServer) -> AsyncIterator[KubeClient]:
    async with KubeClient(Connection.to_address(server.url), wall=lambda: 0.0) as client:
        yield client


async def result(client: KubeClient, action: Action) -> Result:
    """Carry the action out."""
    exchange = carry_out(action)
    try:
        request = next(exchange)
        while True:
            request = exchange.send(await send(client, request, "ns", "ns/f"))
    except StopIteration as end:
        became: Result = end.value
        return became


@pytest.mark.parametrize(
    ("action", "answers", "expected"),
    [
        (CREATE, [found("u")], Created("u")),
        (CREATE, [TAKEN, found("u", "cm-uid")], Exists(Identity("u", "cm-uid", None, False))),
        (CREATE, [TAKEN, found("u", deleting=True)], Exists(DYING)),
        (CREATE, [TAKEN, NOT_FOUND], Exists(None)),
        # A refusal that would complete the Task, after an earlier request whose answer was lost.
        (CREATE, [FORBIDDEN, found("u", "cm-uid")], Exists(Identity("u", "cm-uid", None, False))),
        (Delete(POD, "u"), [DELETED], Accepted()),
        (Delete(POD, "u"), [NOT_FOUND], Gone()),
        (Delete(POD, "u"), [OTHER_UID, found("v")], Gone()),
        (Delete(POD, "u"), [OTHER_UID, NOT_FOUND], Gone()),
        (Delete(POD, "u", confirm=True), [DELETED, NOT_FOUND], Gone()),
        (Delete(POD, "u", confirm=True), [DELETED, found("v")], Gone()),
        (Delete(POD, "u", confirm=True), [DELETED, found("u", deleting=True)], Remains),
        (LookUp(POD, "cm-uid"), [NOT_FOUND], Gone()),
        (LookUp(POD, "cm-uid"), [found("u", "somebody")], Gone()),
        (LookUp(POD, "cm-uid"), [found("u", "cm-uid")], Exists(Identity("u", "cm-uid", None, False))),
        (ConfirmNone(POD, "cm-uid"), [NOT_FOUND], Gone()),
        (ConfirmNone(POD, "cm-uid"), [found("u", "somebody")], Gone()),
        (ConfirmNone(POD, "cm-uid"), [found("u")], Gone()),
        (ConfirmNone(POD, "cm-uid"), [found("u", "cm-uid")], Exists(Identity("u", "cm-uid", None, False))),
        (LeaveNewer(POD), [], Remains),
        (ConfirmGone(POD, "u"), [NOT_FOUND], Gone()),
        (ConfirmGone(POD, "u"), [found("v")], Gone()),
        (ConfirmGone(POD, "u"), [found("u")], Remains),
        (Relabel(POD, "u", "f"), [answer({"metadata": {"resourceVersion": "8"}})], Accepted()),
        (Relabel(POD, "u", "f"), [NOT_FOUND], Gone()),
        (Relabel(POD, "u", "f"), [OTHER_UID, found("v")], Gone()),
        (Relabel(POD, "u", "f"), [IMMUTABLE, found("v")], Gone()),
        (Relabel(POD, "u", "f"), [IMMUTABLE, found("u")], Refused),
        (PATCH, [answer({"metadata": {"resourceVersion": "8"}})], Patched("8")),
        (PATCH, [found("u")], Unanswered),
        (PATCH, [NOT_FOUND], Gone()),
        (PATCH, [OTHER_UID, found("u")], Outdated()),
        (PATCH, [OTHER_UID, found("v")], Gone()),
        (PATCH, [IMMUTABLE, found("v")], Gone()),
        (PATCH, [IMMUTABLE, found("u")], Refused),
    ],
)
async def test_answers(
    server: FaultyServer, client: KubeClient, action: Action, answers: list[Answer], expected: Result | type[Result]
) -> None:
    server.then(*answers)
    became = await result(client, action)
    assert became == expected if not isinstance(expected, type) else isinstance(became, expected)
    assert not server.answers


@pytest.mark.parametrize("subresource", ["", "status"])
async def test_a_patch_has_its_preconditions(server: FaultyServer, client: KubeClient, subresource: str) -> None:
    server.then(answer({"metadata": {"resourceVersion": "8"}}))
    await result(client, replace(PATCH, subresource=subresource))
    assert server.seen[0].path.endswith("/status" if subresource else "/f")
    metadata = {"labels": {"a": "b"}, "uid": "u", "resourceVersion": "7"}
    assert orjson.loads(server.seen[0].body) == {"metadata": metadata}


@pytest.mark.parametrize(
    ("labels", "unlabelled"), [({"FC_FRAMEWORK_NAME": "f"}, False), ({"x": "y"}, True), (None, True)]
)
async def test_a_live_read_tells_whether_the_label_is_there(
    server: FaultyServer, client: KubeClient, labels: dict[str, str] | None, unlabelled: bool
) -> None:
    server.then(answer({"metadata": {"uid": "u", "labels": labels}}))
    became = await result(client, ConfirmGone(POD, "u"))
    assert isinstance(became, Remains)
    assert became.unlabelled is unlabelled


@pytest.mark.parametrize("code", [400, 401, 403, 413, 422, 429])
@pytest.mark.parametrize(
    "action", [CREATE, Delete(POD, "u"), ConfirmGone(POD, "u"), ConfirmNone(POD, "cm-uid"), LookUp(POD, "cm-uid")]
)
async def test_a_refusal_is_reported_unchanged(
    server: FaultyServer, client: KubeClient, action: Action, code: int
) -> None:
    server.then(status(code, "Odd", "because"))
    server.otherwise = NOT_FOUND
    became = await result(client, action)
    assert isinstance(became, Refused)
    assert (became.code, became.message) == (code, "because")
    assert orjson.loads(became.status_json)["message"] == "because"


@pytest.mark.parametrize(("code", "reason"), [(500, "Forbidden"), (503, "Invalid"), (409, "BadRequest")])
async def test_a_webhook_that_refuses_permanently_with_a_code_of_its_own_is_believed(
    server: FaultyServer, client: KubeClient, code: int, reason: str
) -> None:
    server.then(status(code, reason, "no"))
    server.otherwise = NOT_FOUND
    became = await result(client, CREATE)
    assert isinstance(became, Refused)
    assert (became.code, became.reason) == (code, reason)
    assert [seen.method for seen in server.seen] == ["POST", "GET"]


@pytest.mark.parametrize("code", [200, 302, 400, 403, 404, 413, 422, 502])
@pytest.mark.parametrize("action", [CREATE, Delete(POD, "u"), Delete(POD, "u", confirm=True), ConfirmGone(POD, "u")])
async def test_a_gateways_page_says_nothing_of_the_object(
    server: FaultyServer, client: KubeClient, action: Action, code: int
) -> None:
    # Neither that it is gone, nor that it is being deleted, nor that it will never be created.
    server.otherwise = answer(PAGE, code)
    became = await result(client, action)
    assert isinstance(became, Unanswered)


async def test_a_gateway_that_asks_for_patience_gets_it(server: FaultyServer, client: KubeClient) -> None:
    """An overloaded API server also answers with a page."""
    server.then(answer(PAGE, 429, Retry_After="7"))
    became = await result(client, CREATE)
    assert isinstance(became, Refused)
    assert became.retry_after_sec == 7


@pytest.mark.parametrize(
    "garbled",
    [{"deletionTimestamp": "soon"}, {"deletionGracePeriodSeconds": "30"}, {"ownerReferences": 7}, {"annotations": 7}],
)
async def test_an_object_that_cannot_be_read_says_nothing(
    server: FaultyServer, client: KubeClient, garbled: dict[str, Any]
) -> None:
    server.then(TAKEN, answer({"metadata": {"uid": "u", **garbled}}))
    assert isinstance(await result(client, CREATE), Unanswered)


async def test_the_requested_delay_is_reported(server: FaultyServer, client: KubeClient) -> None:
    server.then(status(429, "TooManyRequests", headers={"Retry_After": "7"}))
    became = await result(client, CREATE)
    assert isinstance(became, Refused)
    assert became.retry_after_sec == 7


@pytest.mark.parametrize("lost", [drop(), status(500, "InternalError"), status(504, "Timeout"), answer("no JSON")])
@pytest.mark.parametrize("action", [CREATE, ConfirmGone(POD, "u"), ConfirmNone(POD, "cm-uid"), LookUp(POD, "cm-uid")])
async def test_outcomes_that_remain_unknown(
    server: FaultyServer, client: KubeClient, action: Action, lost: Answer
) -> None:
    # Reads that found their connection closed are sent once more by the client library.
    server.otherwise = lost
    assert isinstance(await result(client, action), Unanswered)


@pytest.mark.parametrize("first", [TAKEN, FORBIDDEN, status(422, "Invalid")])
@pytest.mark.parametrize("look", [FORBIDDEN, status(429, "TooManyRequests"), status(500, "InternalError"), drop()])
async def test_a_read_that_fails_is_not_taken_for_a_refused_creation(
    server: FaultyServer, client: KubeClient, first: Answer, look: Answer
) -> None:
    """Else it would complete the Task, whose Pod may be there."""
    server.then(first, look)
    assert isinstance(await result(client, CREATE), Unanswered)


async def test_a_refusal_for_want_of_quota_is_believed_without_a_look(server: FaultyServer, client: KubeClient) -> None:
    server.then(status(403, "Forbidden", "exceeded quota: q"))
    assert isinstance(await result(client, CREATE), Refused)
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (Delete(POD, "u"), {"preconditions": {"uid": "u"}}),
        (Delete(POD, "u", force=True), {"preconditions": {"uid": "u"}, "gracePeriodSeconds": 0}),
        (Delete(POD, "u", resource_version="7"), {"preconditions": {"uid": "u", "resourceVersion": "7"}}),
        (Delete(CONFIGMAP, "u"), {"preconditions": {"uid": "u"}, "propagationPolicy": "Foreground"}),
        (Delete(FRAMEWORK, "u"), {"preconditions": {"uid": "u"}, "propagationPolicy": "Foreground"}),
    ],
)
async def test_every_deletion_has_its_preconditions(
    server: FaultyServer, client: KubeClient, action: Delete, expected: dict[str, Any]
) -> None:
    server.then(DELETED)
    await result(client, action)
    (seen,) = server.seen
    said = seen.json()
    assert {key: said[key] for key in said if key not in ("kind", "apiVersion")} == expected


async def test_an_object_that_exists_and_is_not_found_is_reported_in_the_api_servers_words(
    server: FaultyServer, client: KubeClient
) -> None:
    server.then(status(409, "AlreadyExists", 'leases "of-a-webhook" already exists'), NOT_FOUND)
    became = await result(client, CREATE)
    assert isinstance(became, Exists)
    assert became.message == 'leases "of-a-webhook" already exists'
