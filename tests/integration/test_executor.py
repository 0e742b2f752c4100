"""What each answer of an API server means for an action: the machine relies on every word of it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import orjson
import pytest
from aiohttp import web

from frameworkcontroller.api.objects import Framework, Identity
from frameworkcontroller.api.spec import parse_spec
from frameworkcontroller.controller.executor import MAX_IN_FLIGHT, Executor
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.machine.model import (
    Accepted,
    Action,
    Cleanup,
    Confirm,
    Create,
    Created,
    Delete,
    Exists,
    Gone,
    Kind,
    NotAttempted,
    Outcome,
    Refresh,
    Refused,
    Relabel,
    Remains,
    Result,
    Target,
    Unanswered,
)
from tests.support.faulty_server import Answer, FaultyServer, answer, drop, faulty_server, status

pytestmark = pytest.mark.virtual_clock

SUBJECT = Framework("ns", "f", "framework-uid", 1, False, parse_spec({}))
POD = Target(Kind.POD, "f-a-0", 0, "a", 0, "task-uid")
CONFIGMAP = Target(Kind.CONFIGMAP, "f-attempt")
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
async def executor(server: FaultyServer) -> AsyncIterator[Executor]:
    async with KubeClient(Connection.to_address(server.url), wall=lambda: 0.0) as client:
        yield Executor(client)


async def carried_out(executor: Executor, actions: Sequence[Action]) -> list[Outcome]:
    async with executor.begin(SUBJECT, actions) as batch:
        outcomes = await batch.news()
        assert batch.done
        return outcomes


async def result(executor: Executor, action: Action) -> Result:
    """What became of the action."""
    (outcome,) = await carried_out(executor, [action])
    assert outcome.action is action
    return outcome.result


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
        (Cleanup(POD, "cm-uid"), [NOT_FOUND], Gone()),
        (Cleanup(POD, "cm-uid"), [found("u", "somebody")], Gone()),
        (Cleanup(POD, "cm-uid"), [found("u")], Gone()),
        (Cleanup(POD, "cm-uid"), [found("u", "cm-uid")], Exists(Identity("u", "cm-uid", None, False))),
        (Refresh(POD), [], Remains),
        (Confirm(POD, "u"), [NOT_FOUND], Gone()),
        (Confirm(POD, "u"), [found("v")], Gone()),
        (Confirm(POD, "u"), [found("u")], Remains),
        (Relabel(POD, "u"), [found("u")], Accepted()),
        (Relabel(POD, "u"), [NOT_FOUND], Gone()),
        (Relabel(POD, "u"), [OTHER_UID, found("v")], Gone()),
        (Relabel(POD, "u"), [IMMUTABLE, found("v")], Gone()),
        (Relabel(POD, "u"), [IMMUTABLE, found("u")], Refused),
    ],
)
async def test_answers(
    server: FaultyServer, executor: Executor, action: Action, answers: list[Answer], expected: Result | type[Result]
) -> None:
    server.then(*answers)
    became = await result(executor, action)
    assert became == expected if not isinstance(expected, type) else isinstance(became, expected)
    assert not server.answers


@pytest.mark.parametrize(
    ("labels", "unlabelled"), [({"FC_FRAMEWORK_NAME": "f"}, False), ({"x": "y"}, True), (None, True)]
)
async def test_a_live_read_tells_whether_the_label_is_there(
    server: FaultyServer, executor: Executor, labels: dict[str, str] | None, unlabelled: bool
) -> None:
    server.then(answer({"metadata": {"uid": "u", "labels": labels}}))
    became = await result(executor, Confirm(POD, "u"))
    assert isinstance(became, Remains)
    assert became.unlabelled is unlabelled


@pytest.mark.parametrize("code", [400, 401, 403, 413, 422, 429])
@pytest.mark.parametrize("action", [CREATE, Delete(POD, "u"), Confirm(POD, "u"), Cleanup(POD, "cm-uid")])
async def test_a_refusal_is_told_as_it_is(server: FaultyServer, executor: Executor, action: Action, code: int) -> None:
    server.then(status(code, "Odd", "because"))
    server.otherwise = NOT_FOUND
    became = await result(executor, action)
    assert isinstance(became, Refused)
    assert (became.code, became.message) == (code, "because")
    assert orjson.loads(became.status_json)["message"] == "because"


@pytest.mark.parametrize(("code", "reason"), [(500, "Forbidden"), (503, "Invalid"), (409, "BadRequest")])
async def test_a_webhook_that_refuses_for_good_with_a_code_of_its_own_is_believed(
    server: FaultyServer, executor: Executor, code: int, reason: str
) -> None:
    server.then(status(code, reason, "no"))
    server.otherwise = NOT_FOUND
    became = await result(executor, CREATE)
    assert isinstance(became, Refused)
    assert (became.code, became.reason) == (code, reason)
    assert [seen.method for seen in server.seen] == ["POST", "GET"]


@pytest.mark.parametrize("reason", ["", "PolicyDenied"])
async def test_a_webhook_that_refuses_for_now_holds_back_the_others(
    server: FaultyServer, executor: Executor, reason: str
) -> None:
    server.otherwise = status(403, reason, "no")
    outcomes = await carried_out(executor, pods(20))
    assert [type(outcome.result) for outcome in outcomes] == [Refused] + [NotAttempted] * 19
    assert len(server.seen) == 1


@pytest.mark.parametrize("code", [200, 302, 400, 403, 404, 413, 422, 502])
@pytest.mark.parametrize("action", [CREATE, Delete(POD, "u"), Delete(POD, "u", confirm=True), Confirm(POD, "u")])
async def test_a_gateways_page_says_nothing_of_the_object(
    server: FaultyServer, executor: Executor, action: Action, code: int
) -> None:
    # Neither that it is gone, nor that it is being deleted, nor that it will never be created.
    server.otherwise = answer(PAGE, code)
    became = await result(executor, action)
    assert isinstance(became, Unanswered)


async def test_a_gateway_that_asks_for_patience_gets_it(server: FaultyServer, executor: Executor) -> None:
    """An API server that has too much to do answers with a page, too."""
    server.then(answer(PAGE, 429, Retry_After="7"))
    became = await result(executor, CREATE)
    assert isinstance(became, Refused)
    assert became.retry_after_sec == 7


@pytest.mark.parametrize(
    "garbled",
    [{"deletionTimestamp": "soon"}, {"deletionGracePeriodSeconds": "30"}, {"ownerReferences": 7}, {"annotations": 7}],
)
async def test_an_object_that_cannot_be_read_says_nothing(
    server: FaultyServer, executor: Executor, garbled: dict[str, Any]
) -> None:
    server.then(TAKEN, answer({"metadata": {"uid": "u", **garbled}}))
    assert isinstance(await result(executor, CREATE), Unanswered)


async def test_how_long_to_wait_is_told(server: FaultyServer, executor: Executor) -> None:
    server.then(status(429, "TooManyRequests", headers={"Retry_After": "7"}))
    became = await result(executor, CREATE)
    assert isinstance(became, Refused)
    assert became.retry_after_sec == 7


@pytest.mark.parametrize("lost", [drop(), status(500, "InternalError"), status(504, "Timeout"), answer("no JSON")])
@pytest.mark.parametrize("action", [CREATE, Confirm(POD, "u"), Cleanup(POD, "cm-uid")])
async def test_what_may_or_may_not_have_been_done(
    server: FaultyServer, executor: Executor, action: Action, lost: Answer
) -> None:
    # Reads that found their connection closed are sent once more by the client library.
    server.otherwise = lost
    assert isinstance(await result(executor, action), Unanswered)


@pytest.mark.parametrize("first", [TAKEN, FORBIDDEN, status(422, "Invalid")])
@pytest.mark.parametrize("look", [FORBIDDEN, status(429, "TooManyRequests"), status(500, "InternalError"), drop()])
async def test_a_read_that_fails_is_not_taken_for_a_refused_creation(
    server: FaultyServer, executor: Executor, first: Answer, look: Answer
) -> None:
    """Else it would complete the Task, whose Pod may be there."""
    server.then(first, look)
    assert isinstance(await result(executor, CREATE), Unanswered)


async def test_a_refusal_for_want_of_quota_is_believed_without_a_look(server: FaultyServer, executor: Executor) -> None:
    server.then(status(403, "Forbidden", "exceeded quota: q"))
    assert isinstance(await result(executor, CREATE), Refused)
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (Delete(POD, "u"), {"preconditions": {"uid": "u"}}),
        (Delete(POD, "u", force=True), {"preconditions": {"uid": "u"}, "gracePeriodSeconds": 0}),
        (Delete(CONFIGMAP, "u"), {"preconditions": {"uid": "u"}, "propagationPolicy": "Foreground"}),
        (Delete(FRAMEWORK, "u"), {"preconditions": {"uid": "u"}, "propagationPolicy": "Foreground"}),
    ],
)
async def test_every_deletion_says_what_it_means(
    server: FaultyServer, executor: Executor, action: Delete, expected: dict[str, Any]
) -> None:
    server.then(DELETED)
    await carried_out(executor, [action])
    (seen,) = server.seen
    said = seen.json()
    assert {key: said[key] for key in said if key not in ("kind", "apiVersion")} == expected


async def test_an_object_that_exists_and_is_not_found_is_told_in_the_api_servers_words(
    server: FaultyServer, executor: Executor
) -> None:
    server.then(status(409, "AlreadyExists", 'leases "of-a-webhook" already exists'), NOT_FOUND)
    became = await result(executor, CREATE)
    assert isinstance(became, Exists)
    assert became.message == 'leases "of-a-webhook" already exists'


async def test_nothing_more_is_started_after_a_name_that_is_taken_by_nobody(
    server: FaultyServer, executor: Executor
) -> None:
    server.then(TAKEN)
    server.otherwise = NOT_FOUND
    outcomes = await carried_out(executor, pods(3))
    assert [type(outcome.result) for outcome in outcomes] == [Exists, NotAttempted, NotAttempted]


async def test_nothing_more_is_started_after_the_first_refusal(server: FaultyServer, executor: Executor) -> None:
    actions = pods(200)
    server.then(found("u0"), found("u1"), found("u2"))
    server.otherwise = status(403, "Forbidden", "exceeded quota: q")
    outcomes = await carried_out(executor, actions)
    assert {outcome.action for outcome in outcomes} == set(actions)
    kinds = [type(outcome.result) for outcome in outcomes]
    assert kinds.count(Created) == 3
    assert 1 <= kinds.count(Refused) <= MAX_IN_FLIGHT
    assert kinds.count(NotAttempted) == 200 - 3 - kinds.count(Refused)
    assert len(server.seen) == 200 - kinds.count(NotAttempted)


async def test_the_first_refusal_is_the_last_request(server: FaultyServer, executor: Executor) -> None:
    server.otherwise = status(403, "Forbidden", "exceeded quota: q")
    outcomes = await carried_out(executor, pods(200))
    assert [type(outcome.result) for outcome in outcomes] == [Refused] + [NotAttempted] * 199
    assert len(server.seen) == 1


async def test_a_refusal_that_completes_one_task_does_not_hold_back_the_others(
    server: FaultyServer, executor: Executor
) -> None:
    """A large role with a bad template would else be tried one Task per sync."""

    async def invalid(request: web.BaseRequest) -> web.StreamResponse:
        return await (status(422, "Invalid") if request.method == "POST" else NOT_FOUND)(request)

    actions = [Create(Target(Kind.POD, f"f-a-{index}", 0, "a", index), b"{}", "cm-uid") for index in range(20)]
    server.otherwise = invalid
    outcomes = await carried_out(executor, actions)
    assert [type(outcome.result) for outcome in outcomes] == [Refused] * 20


def pods(number: int) -> list[Create]:
    return [Create(Target(Kind.POD, f"f-a-{index}", 0, "a", index), b"{}", "cm-uid") for index in range(number)]


async def slowly(request: web.BaseRequest) -> web.StreamResponse:
    """Creates a Pod in a second."""
    await asyncio.sleep(1)
    return await found("uid")(request)


async def test_all_others_follow_once_the_first_creation_succeeds(server: FaultyServer, executor: Executor) -> None:
    server.otherwise = slowly
    async with executor.begin(SUBJECT, pods(200)) as batch:
        heard = [len(await batch.news(1.5))]
        while not batch.done:
            heard.append(len(await batch.news(1)))
    assert heard == [1, 50, 50, 50, 49]


async def test_what_is_under_way_is_not_done_twice(server: FaultyServer, executor: Executor) -> None:
    server.otherwise = slowly
    actions = pods(3)
    async with executor.begin(SUBJECT, actions) as batch:
        first = await batch.news(1.5)
        assert [outcome.action for outcome in first] == actions[:1]
        assert [action.target in batch for action in actions] == [False, True, True]
        # What was told of may be asked for again: whoever asks has heard of the first time.
        batch.add(actions[:1])
        rest = await batch.news()
    assert [outcome.action for outcome in rest] == [actions[1], actions[2], actions[0]]
    assert len(server.seen) == 4


async def test_a_batch_that_is_stopped_tells_of_what_was_under_way(server: FaultyServer, executor: Executor) -> None:
    server.otherwise = slowly
    actions = pods(100)
    async with executor.begin(SUBJECT, actions) as batch:
        assert len(await batch.news(1.5)) == 1
        batch.stop()
        outcomes = await batch.news()
        assert batch.done
    assert [type(outcome.result) for outcome in outcomes] == [Created] * 50 + [NotAttempted] * 49
    assert len(server.seen) == 51


async def test_an_interruption_stops_what_has_not_begun(server: FaultyServer, executor: Executor) -> None:
    server.otherwise = slowly
    actions = pods(100)
    async with executor.begin(SUBJECT, actions, interrupted=lambda: len(server.seen) >= 3) as batch:
        outcomes = await batch.news()
    assert [type(outcome.result) for outcome in outcomes].count(Created) == len(server.seen)
    assert {outcome.action for outcome in outcomes} == set(actions)
    assert 3 <= len(server.seen) <= 51


async def test_what_ended_while_nobody_waited_is_told_of(server: FaultyServer, executor: Executor) -> None:
    server.otherwise = slowly
    async with executor.begin(SUBJECT, pods(20)) as batch:
        await batch.news(1.5)
        await asyncio.sleep(5)
        assert not batch.done
        assert len(await batch.news()) == 19
        assert batch.done


async def test_what_is_not_to_be_created_any_more_is_not(server: FaultyServer, executor: Executor) -> None:
    server.otherwise = slowly
    actions = pods(3)
    wanted = set(actions)
    async with executor.begin(SUBJECT, actions, wanted=wanted.__contains__) as batch:
        assert len(await batch.news(0.5)) == 0
        wanted.clear()
        outcomes = await batch.news()
        assert batch.done
    assert [(outcome.action, type(outcome.result)) for outcome in outcomes] == [
        (actions[0], Created),
        (actions[1], NotAttempted),
        (actions[2], NotAttempted),
    ]
    assert len(server.seen) == 1


async def test_a_batch_that_is_left_gives_up_what_is_under_way(server: FaultyServer, executor: Executor) -> None:
    server.otherwise = slowly
    async with executor.begin(SUBJECT, pods(20)) as batch:
        await batch.news(1.5)
    # Its slots are free again, all of them.
    began = asyncio.get_running_loop().time()
    async with executor.begin(SUBJECT, [Delete(Target(Kind.POD, f"p{index}"), "u") for index in range(50)]) as batch:
        assert len(await batch.news()) == 50
    assert asyncio.get_running_loop().time() == pytest.approx(began + 1)


async def test_an_error_that_nobody_foresaw_is_raised_where_somebody_waits(server: FaultyServer) -> None:
    class Broken:
        async def create(self, *_: object, **__: object) -> bytes:
            raise ValueError("no such thing")

    executor = Executor(cast(KubeClient, Broken()))
    async with executor.begin(SUBJECT, pods(3)) as batch:
        with pytest.raises(ValueError, match="no such thing"):
            await batch.news()
