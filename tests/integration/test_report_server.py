"""The report server in a controller: answers, bounds, certificates, and the machine's knowledge of it."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from frameworkcontroller.api import names
from frameworkcontroller.config.config import Config, ConfigurationError, LeaderElection, ProgressReports
from frameworkcontroller.kube.resources import SECRETS
from frameworkcontroller.manager.app import Controller
from frameworkcontroller.manager.exposition import expose, registry_of
from frameworkcontroller.reports import service as report_service
from frameworkcontroller.reports.authority import AUTHORITY_LIFE, NEXT_BEFORE_END, SERVER_LIFE, SWITCH_BEFORE_END
from frameworkcontroller.reports.progresswriter import SLOW_SEC
from frameworkcontroller.reports.reporthandler import MAX_BODY_BYTES
from frameworkcontroller.reports.servercertificate import AUTHORITY_OBJECT
from tests.support.clusters import Cluster, embedded_cluster
from tests.support.eventually import until
from tests.support.frontdoor import front_door, refusal
from tests.support.reportsenders import NO_CHECK_TIME, Senders, senders
from tests.support.virtual_clock import VirtualClockLoop

DAY: Final = 86_400.0


@pytest.fixture
async def cluster(clock: VirtualClockLoop, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with embedded_cluster(tmp_path) as made:
        yield made


@pytest.fixture
async def sends(cluster: Cluster) -> AsyncIterator[Senders]:
    async with senders(cluster) as made:
        yield made


def config(**more: Any) -> Config:
    return Config(progress_reports=ProgressReports(bind_address="127.0.0.1:0"), namespace="default", **more)


def is_working(sends: Senders) -> bool:
    return sends.service.works_since is not None


def head_of(path: str, token: str, length: int) -> bytes:
    """The head of a report."""
    fields = {"Host": "x", "Authorization": f"Bearer {token}", "Content-Length": length}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode()


# --- answers and bounds ---


async def test_the_answers(sends: Senders) -> None:
    attempt = await sends.attempt()
    url, token = sends.url(attempt), await sends.token(await sends.pod(attempt))

    async def status(path: str = "", **options: Any) -> int:
        await asyncio.sleep(1.0)
        return (await sends.send(path or url, token, **options)).status

    assert await status(body=b"x" * (MAX_BODY_BYTES + 1)) == 413
    assert await status(body=b"{}") == 400
    assert await status(url.replace("/apis/progress/v1", "/apis/other/v1")) == 404
    assert await status(f"{url}/status") == 404
    assert await status(url.rpartition("/")[0] + "/01") == 404
    assert await status(step=1) == 200
    answer = await sends.send(url, token, step="x")
    assert "trainerStatus.step: 'x': must be a number" in answer.text
    assert (await sends.send(url, None)).headers["WWW-Authenticate"] == "Bearer"
    results = sends.service.results
    assert (results["accepted"], results["too_large"], results["invalid"], results["other"]) == (1, 1, 2, 3)
    assert "Python" not in answer.headers["Server"]


async def test_a_pod_that_reports_too_often_is_throttled_and_no_other(sends: Senders) -> None:
    attempt = await sends.attempt()
    noisy = await sends.token(await sends.pod(attempt, 0))
    other = await sends.token(await sends.pod(attempt, 1))
    url = sends.url(attempt)
    answers = [await sends.send(url, noisy, step=step) for step in range(8)]
    assert [one.status for one in answers] == [200] * 5 + [429] * 3
    assert answers[-1].headers["Retry-After"] == "1"
    assert (await sends.send(url, other, step=1)).status == 200
    await asyncio.sleep(1.0)
    assert (await sends.send(url, noisy, step=9)).status == 200


async def test_an_expired_token_is_refused(sends: Senders) -> None:
    attempt = await sends.attempt()
    url, token = sends.url(attempt), await sends.token(await sends.pod(attempt), seconds=600)
    await asyncio.sleep(598)
    assert (await sends.send(url, token, step=1)).status == 200
    await asyncio.sleep(3)
    assert (await sends.send(url, token, step=2)).status == 401


async def test_the_token_of_a_deleted_pod_is_taken_for_a_minute_at_most(sends: Senders) -> None:
    attempt = await sends.attempt()
    pod = await sends.pod(attempt)
    url, token = sends.url(attempt), await sends.token(pod)
    assert (await sends.send(url, token, step=1)).status == 200
    await sends.remove(pod)
    await asyncio.sleep(61)
    assert (await sends.send(url, token, step=2)).status == 401


async def test_a_cache_of_pods_ends_it_at_once(cluster: Cluster) -> None:
    gone: set[str] = set()
    async with senders(cluster, exists=lambda _namespace, name, _uid: name not in gone) as sends:
        attempt = await sends.attempt()
        pod = await sends.pod(attempt)
        url, token = sends.url(attempt), await sends.token(pod)
        assert (await sends.send(url, token, step=1)).status == 200
        await sends.remove(pod)
        gone.add(pod)
        await asyncio.sleep(6)
        assert (await sends.send(url, token, step=2)).status == 401


async def test_a_known_pod_does_not_wait_for_a_slow_api_server(cluster: Cluster) -> None:
    async with front_door(await cluster.connection()) as door, senders(cluster, connection=door.connection) as sends:
        attempt = await sends.attempt(interval="1")
        url, token = sends.url(attempt), await sends.token(await sends.pod(attempt))
        assert (await sends.send(url, token, step=1)).status == 200
        await sends.until(attempt, step=1)

        def fails(_request: Any) -> Any:
            return refusal(500, "InternalError", "no")

        loop = asyncio.get_running_loop()
        with door.answering(fails):
            began = loop.time()
            for step in range(2, 20):
                assert (await sends.send(url, token, step=step)).status == 200
                await asyncio.sleep(2.0)
            assert loop.time() - began < 40
            assert sends.service.writer.failing_since is not None
            assert not is_working(sends)
            await asyncio.sleep(120)
            assert sends.service.problem is not None
            assert "reports cannot be written for" in sends.service.problem
            refused = await sends.send(url, token, step=30)
            assert (refused.status, refused.headers["Retry-After"]) == (503, "5")
        await sends.until(attempt, step=19)
        # The review of the token is due, too.
        await until(lambda: is_working(sends))
        await until(lambda: sends.service.problem is None)
        since = sends.service.works_since
        assert since is not None
        assert since > began


async def test_a_write_without_an_answer_ends_the_knowledge(cluster: Cluster) -> None:
    """Before it fails: the silence must not count as a hang."""
    async with front_door(await cluster.connection()) as door, senders(cluster, connection=door.connection) as sends:
        attempt = await sends.attempt(interval="1")
        url, token = sends.url(attempt), await sends.token(await sends.pod(attempt))
        loop = asyncio.get_running_loop()
        with door.holding(lambda request: request.verb == "patch") as held:
            assert (await sends.send(url, token, step=1)).status == 200
            await until(lambda: len(held) == 1)
            assert is_working(sends)
            await asyncio.sleep(SLOW_SEC + 0.5)
            assert sends.service.writer.failing_since is None
            assert not is_working(sends)
            ended = loop.time()
        await sends.until(attempt, step=1)
        await until(lambda: is_working(sends))
        since = sends.service.works_since
        assert since is not None
        assert since >= ended


async def test_reviews_that_fail_are_probed(cluster: Cluster) -> None:
    async with front_door(await cluster.connection()) as door, senders(cluster, connection=door.connection) as sends:
        attempt = await sends.attempt()
        url, token = sends.url(attempt), await sends.token(await sends.pod(attempt))

        def forbids(request: Any) -> Any:
            return refusal(403, "Forbidden", "no") if request.resource == "tokenreviews" else None

        with door.answering(forbids):
            assert (await sends.send(url, token, step=1)).status == 503
            assert not is_working(sends)
        await until(lambda: is_working(sends))


async def test_a_stopping_server_writes_its_reports(cluster: Cluster) -> None:
    async with senders(cluster) as sends:
        attempt = await sends.attempt(interval="3600")
        url, token = sends.url(attempt), await sends.token(await sends.pod(attempt))
        for step in (1, 2):
            assert (await sends.send(url, token, step=step)).status == 200
            await asyncio.sleep(1.0)
        await sends.until(attempt, step=1)
        await sends.service.stop(2.0)
        await sends.until(attempt, step=2)


async def test_the_connections_of_an_address_are_bounded(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that opens connections, without and with a handshake, keeps no other one out, and they end."""
    monkeypatch.setattr(report_service, "MAX_CONNECTIONS_OF_ADDRESS", 4)
    async with senders(cluster) as sends:
        attempt = await sends.attempt()
        url, token = sends.url(attempt), await sends.token(await sends.pod(attempt))
        host, port = "127.0.0.1", int(sends.service.url.rpartition(":")[2])
        loop = asyncio.get_running_loop()

        async def closed(reader: asyncio.StreamReader) -> float:
            with suppress(ConnectionError):
                assert await reader.read() == b""
            return loop.time()

        idle = [await asyncio.open_connection(host, port) for _ in range(6)]
        ended = [asyncio.create_task(closed(reader)) for reader, _ in idle]
        began = loop.time()
        await until(lambda: sum(one.done() for one in ended) == 2)
        assert loop.time() - began < 5
        async with sends.connection("127.0.0.2") as (reader, writer):
            path = url.removeprefix(sends.service.url)
            body = b'{"trainerStatus": {"step": 1}}'
            writer.write(head_of(path, token, len(body)) + body)
            assert (await reader.readline()).split()[1] == b"200"
        # Handshakes end after ten seconds.
        await asyncio.gather(*ended)
        assert loop.time() - began < 15
        for _, one in idle:
            one.close()
        assert (await sends.send(url, token, step=2)).status == 200


async def test_a_slow_body_ends(sends: Senders) -> None:
    attempt = await sends.attempt()
    url, token = sends.url(attempt), await sends.token(await sends.pod(attempt))
    async with sends.connection() as (reader, writer):
        writer.write(head_of(url.removeprefix(sends.service.url), token, 9))
        loop = asyncio.get_running_loop()
        began = loop.time()
        with suppress(ConnectionError):
            assert await reader.read() == b""
        assert loop.time() - began < 30


# --- certificates ---


async def test_replicas_share_an_authority(cluster: Cluster) -> None:
    async with senders(cluster) as one, senders(cluster) as other:
        assert one.service.trusted == other.service.trusted
        attempt = await one.attempt()
        token = await one.token(await one.pod(attempt))
        assert (await one.send(other.url(attempt), token, step=1)).status == 200


async def test_certificates_are_renewed_while_it_serves(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over twenty years: a client trusts the server for at least a year after the beginning of its attempt."""
    ahead = 0.0

    def wall() -> float:
        return cluster.wall() + ahead

    trusted: list[str] = []
    async with senders(cluster, wall=wall, trusted_changed=trusted.append) as sends:
        certificate = sends.service._certificate

        def serves(authorities: str) -> bool:
            context = ssl.create_default_context(cadata=authorities)
            context.verify_flags |= NO_CHECK_TIME
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            client = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
            to_server, to_client = ssl.MemoryBIO(), incoming
            server = certificate.context.wrap_bio(to_server, to_client, server_side=True)
            for _ in range(10):
                for end in (client, server):
                    try:
                        end.do_handshake()
                    except ssl.SSLWantReadError:
                        pass
                    except ssl.SSLCertVerificationError:
                        return False
                    to_server.write(outgoing.read())
            return client.cipher() is not None

        first = trusted[-1]
        known: list[tuple[float, str]] = []
        while ahead < 2 * AUTHORITY_LIFE.total_seconds():
            await certificate.renew()
            assert certificate._pair is not None
            left = certificate._pair.end.timestamp() - wall()
            assert SERVER_LIFE.total_seconds() / 4 < left
            assert certificate._pair.end <= certificate._signer.end  # type: ignore[union-attr]
            assert serves(trusted[-1])
            known = [(since, text) for since, text in known if ahead - since <= 365 * DAY]
            assert not known or serves(known[0][1]), f"after {ahead / DAY} days"
            known.append((ahead, trusted[-1]))
            ahead += 15 * DAY
        assert not serves(first)


def test_the_periods_of_authorities_leave_a_year() -> None:
    assert NEXT_BEFORE_END - SWITCH_BEFORE_END >= SERVER_LIFE
    assert SWITCH_BEFORE_END.days >= 365


async def test_a_secret_without_an_authority_is_reported(cluster: Cluster) -> None:
    client = await cluster.client()
    body = {"metadata": {"name": AUTHORITY_OBJECT}, "data": {"ca.crt": "eA=="}}
    await client.create(SECRETS, orjson.dumps(body), "default")
    controller = Controller(config(), await cluster.connection(), wall=cluster.wall)
    with pytest.raises(ConfigurationError, match=rf"Secret default/{AUTHORITY_OBJECT}: ca\.crt is no certificate"):
        await controller.run()


async def test_a_port_in_use_is_reported(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = config().model_copy(update={"progress_reports": ProgressReports(bind_address=f"127.0.0.1:{port}")})
        controller = Controller(settings, await cluster.connection(), wall=cluster.wall)
        with pytest.raises(ConfigurationError, match=r"progressReports\.bindAddress: 127\.0\.0\.1:"):
            await controller.run()


# --- in a controller ---


async def test_the_machine_knows_the_server(cluster: Cluster) -> None:
    async with Controller(config(), await cluster.connection(), wall=cluster.wall) as controller:
        service = controller.report_service
        assert service is not None
        reporting = controller._driver.limits.reporting
        assert reporting is not None
        assert (reporting.url, reporting.ca_pem) == (service.url, service.trusted)
        assert reporting.audience == names.PROGRESS_AUDIENCE
        assert reporting.url_of("n", "f", 3) == f"{service.url}/apis/progress/v1/namespaces/n/frameworks/f/attempts/3"
        text = expose(registry_of(controller), "")[0].decode()
        assert 'frameworkcontroller_progress_reports_total{result="accepted"} 0.0' in text
        assert "frameworkcontroller_progress_failing 0.0" in text


async def test_without_a_server_nothing_is_known(cluster: Cluster) -> None:
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall) as controller:
        assert controller._driver.limits.reporting is None
        assert controller.reports_since() is None
        assert "frameworkcontroller_progress" not in expose(registry_of(controller), "")[0].decode()


def test_without_a_server_nothing_is_imported() -> None:
    program = (
        "import sys; import frameworkcontroller.manager.app, frameworkcontroller.manager.web; "
        "print([name for name in sys.modules if name.split('.')[0] == 'cryptography' or '.reports' in name])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ)
    assert ran.stdout == "[]\n"


async def test_knowledge_begins_again_with_the_watch_and_the_lease(cluster: Cluster) -> None:
    loop = asyncio.get_running_loop()
    election = LeaderElection(enabled=True, lease_namespace="default")
    options: dict[str, Any] = {"wall": cluster.wall, "instant": cluster.instant}
    async with (
        front_door(await cluster.connection()) as door,
        Controller(config(leader_election=election), door.connection, **options) as controller,
    ):
        await until(lambda: controller.reports_since() is not None)
        first = controller.reports_since()
        assert first is not None
        # Watches end every few minutes, and continue.
        await asyncio.sleep(1200)
        assert controller.reports_since() == first

        def no_configmaps(request: Any) -> Any:
            failing = request.verb in ("watch", "list") and request.resource == "configmaps"
            return refusal(500, "InternalError", "no") if failing else None

        with door.answering(no_configmaps):
            await until(lambda: controller.reports_since() is None, within=900)
        await until(lambda: controller.reports_since() is not None, within=900)
        second = controller.reports_since()
        assert second is not None
        assert second > first

        def nothing(_request: Any) -> Any:
            return refusal(500, "InternalError", "no")

        with door.answering(nothing):
            await until(lambda: not controller.leading, within=900)
            assert controller.reports_since() is None
        await until(lambda: controller.reports_since() is not None, within=900)
        third = controller.reports_since()
        assert third is not None
        assert second < third <= loop.time()


async def test_a_standby_takes_reports_and_knows_nothing(cluster: Cluster) -> None:
    election = LeaderElection(enabled=True, lease_namespace="default")
    options: dict[str, Any] = {"wall": cluster.wall, "instant": cluster.instant}
    async with Controller(config(leader_election=election), await cluster.connection(), **options) as leader:
        await until(lambda: leader.leading)
        standby = Controller(
            config(leader_election=election), await cluster.connection(), rng=random.Random(9), **options
        )
        async with standby:
            await until(lambda: leader.reports_since() is not None)
            assert standby.reports_since() is None
            assert standby.report_service is not None
            sends = Senders(cluster, await cluster.client(), standby.report_service)
            attempt = await sends.attempt()
            token = await sends.token(await sends.pod(attempt))
            assert (await sends.send(sends.url(attempt), token, step=4)).status == 200
            await sends.until(attempt, step=4)
