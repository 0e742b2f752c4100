"""Admission webhooks that deny Pods."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from aiohttp import web

from frameworkcontroller.backoff import Backoff
from frameworkcontroller.config.config import Config
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.machine.kernel import holds
from frameworkcontroller.manager.app import Controller
from tests.support.certificates import make_certificates
from tests.support.clusters import EMBEDDED, Cluster
from tests.support.frameworks import Frameworks, Json, codes, condition, role, tasks
from tests.support.frontdoor import Request, front_door
from tests.support.webhook import told, webhook

WITHOUT_WEBHOOKS: Final = (EMBEDDED, "1.36")
"""These API servers ask none about Pods: a front door answers in the words of one that does."""

Denying = Callable[[Json], AbstractContextManager[None]]


@pytest.fixture
async def denying(
    cluster: Cluster, pods: SimulatedRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Denying]:
    """Creations of Pods are denied with that Status while a block is left open. A controller is at work."""
    if not cluster.embedded:
        # On real time, its back-offs are a tenth as long.
        monkeypatch.setattr(holds, "HOLD_BACKOFF", Backoff(0.05, 1.5, 0.25))
    async with (
        front_door(await cluster.connection()) as door,
        Controller(Config(), door.connection, wall=cluster.wall),
    ):
        if cluster.name not in WITHOUT_WEBHOOKS:
            async with webhook(await cluster.client(), cluster.namespace, make_certificates(tmp_path)) as hook:

                @contextmanager
                def deny(denial: Json) -> Iterator[None]:
                    hook.denies = denial
                    yield
                    hook.denies = None

                yield deny
        else:

            @contextmanager
            def answer(denial: Json) -> Iterator[None]:
                body = told(denial)

                def rule(request: Request) -> web.Response | None:
                    if (request.verb, request.resource) != ("create", "pods"):
                        return None
                    return web.json_response(body, status=body["code"])

                with door.answering(rule):
                    yield

            yield answer


@pytest.fixture
async def frameworks(cluster: Cluster, denying: Denying) -> Frameworks:
    return Frameworks(await cluster.client(), cluster.namespace)


@pytest.mark.parametrize(
    ("denial", "code"),
    [
        ({"code": 403, "reason": "Forbidden", "message": "<no>"}, -310),
        ({"code": 400, "reason": "Invalid"}, -200),
        ({"code": 413, "message": "too much"}, -200),
    ],
)
async def test_a_denial_with_a_final_reason_completes_the_task(
    frameworks: Frameworks, denying: Denying, denial: dict[str, Any], code: int
) -> None:
    with denying(denial):
        await frameworks.create("f", role("a", 2))
        status = await frameworks.until_state("f", "Completed")
    assert codes(tasks(status)) == [code, code]
    diagnostics = tasks(status)[0]["attemptStatus"]["completionStatus"]["diagnostics"]
    assert "<" not in diagnostics
    answer = orjson.loads(diagnostics.removeprefix("Failed to create Pod: "))["ErrStatus"]
    expected = told(denial)
    order = [field for field in ("metadata", "status", "message", "reason", "details", "code") if field in expected]
    assert [*answer] == order
    assert answer == {field: expected[field] for field in order}


@pytest.mark.parametrize(
    "denial", [{"code": 403, "reason": "PolicyDenied", "message": "not yet"}, {"code": 403, "message": "not yet"}, {}]
)
async def test_any_other_denial_is_waited_for_and_told(
    frameworks: Frameworks, denying: Denying, denial: dict[str, Any]
) -> None:
    with denying(denial):
        await frameworks.create("f", role("a", 2))
        status = await frameworks.until("f", lambda status: condition(status, "Stalled").get("status") == "True")
        expected = told(denial)
        assert condition(status, "Stalled")["reason"] == "PodNotAnswered"
        # It names the Pod that was refused first; later the other one, too.
        assert condition(status, "Stalled")["message"].startswith(
            tuple(f"Cannot create Pod f-a-{index}: {expected['code']}: {expected['message']}" for index in (0, 1))
        )
        assert codes(tasks(status)) == [None, None]
    status = await frameworks.until_running("f", 2)
    assert [task["attemptStatus"]["id"] for task in tasks(status)] == [0, 0]
    assert condition(status, "Stalled")["status"] == "False"
