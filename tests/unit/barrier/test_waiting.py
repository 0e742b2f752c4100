"""The wait of the barrier: its end, its timing, and bad answers."""

import json
import logging
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from frameworkcontroller.barrier import apiserver
from frameworkcontroller.barrier.apiserver import Server
from frameworkcontroller.barrier.exits import BarrierError
from frameworkcontroller.barrier.frameworkreader import Reader
from frameworkcontroller.barrier.lookup import problem_of
from frameworkcontroller.barrier.main import run
from frameworkcontroller.barrier.settings import Settings
from frameworkcontroller.barrier.waiting import Barrier
from tests.support.barrier_world import (
    CONFIGMAP_UID,
    ENVIRON,
    IDENTITY,
    UID,
    Answer,
    Clock,
    StubApi,
    compressed,
    framework,
    status,
    task,
    written,
)

READY = {"server": ["10.0.0.1"], "worker": ["10.0.1.1", "10.0.1.2"]}


@pytest.fixture
def api() -> Iterator[StubApi]:
    with StubApi() as stub:
        yield stub


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Names:
    """A resolver: the names that it does not know, and those that it was asked for."""

    def __init__(self) -> None:
        self.unknown: set[str] = set()
        self.asked: list[str] = []

    def __call__(self, name: str, timeout: float) -> str:
        assert timeout >= 1
        self.asked.append(name)
        return "Name or service not known" if name in self.unknown else ""


def wait(api: StubApi, clock: Clock, names: Names | None = None, /, **environ: str) -> dict[str, list[str]]:
    """The IPs with which the barrier is passed. Raises BarrierError."""
    settings = Settings({**ENVIRON, **environ})
    reader = Reader(Server(api.address), settings)
    _, ips = Barrier(reader, settings, clock, clock.sleep, random.Random(1), names or Names()).wait()
    return ips


def failure(api: StubApi, clock: Clock, names: Names | None = None, /, **environ: str) -> tuple[int, str]:
    """Exit code and text of a barrier that is not passed."""
    with pytest.raises(BarrierError) as caught:
        wait(api, clock, names, **environ)
    return caught.value.code, str(caught.value)


def depend(body: Any, role: str, other: str, *, started: bool = False) -> None:
    """Let a role depend on another one."""
    spec = next(item for item in body["spec"]["taskRoles"] if item["name"] == role)
    spec["dependsOn"] = [{"name": other, "status": "Ready"}]
    if started:
        statuses = body["status"]["attemptStatus"]["taskRoleStatuses"]
        next(item for item in statuses if item["name"] == role)["started"] = True


def task_of(ip: str) -> dict[str, Any]:
    """The Tasks of a role that has one, with that IP."""
    return {"taskStatuses": [task(0, ip)]}


class TestPassing:
    def test_at_once_when_every_task_has_an_ip(self, api: StubApi, clock: Clock) -> None:
        api.current = framework(READY)
        assert wait(api, clock) == READY
        assert clock.naps == []

    def test_compressed_status(self, api: StubApi, clock: Clock) -> None:
        api.current = compressed(framework(READY))
        assert wait(api, clock) == READY

    def test_roles_that_wait_for_this_one_are_left_out(self, api: StubApi, clock: Clock) -> None:
        body = api.current = framework({**READY, "late": [None], "later": [None], "other": [None]})
        depend(body, "late", "worker")
        depend(body, "later", "late", started=True)
        depend(body, "other", "server", started=True)
        clock.at(25, lambda: body["status"]["attemptStatus"]["taskRoleStatuses"][4].update(task_of("10.0.2.1")))
        assert wait(api, clock, FC_TASKROLE_NAME="worker") == {**READY, "other": ["10.0.2.1"]}
        assert len(clock.naps) > 1

    def test_roles_that_have_not_started_are_left_out(self, api: StubApi, clock: Clock) -> None:
        api.current = framework({**READY, "late": [None]})
        depend(api.current, "late", "server")
        depend(api.current, "worker", "server")
        assert wait(api, clock, FC_TASKROLE_NAME="worker") == READY
        assert wait(api, clock) == {"server": READY["server"]}

    def test_after_the_last_task_got_its_ip(self, api: StubApi, clock: Clock) -> None:
        api.current = framework({"worker": ["10.0.1.1", None]})
        clock.at(25, lambda: setattr(api, "current", framework({"worker": ["10.0.1.1", "10.0.1.2"]}, version=2)))
        assert wait(api, clock) == {"worker": ["10.0.1.1", "10.0.1.2"]}
        assert 25 <= clock.now - 1000 <= 25 + 12

    def test_before_there_is_a_status(self, api: StubApi, clock: Clock) -> None:
        fresh = framework(READY)
        del fresh["status"]
        api.current = fresh
        clock.at(15, lambda: setattr(api, "current", framework(READY)))
        assert wait(api, clock) == READY

    def test_the_specs_task_number_counts_not_the_statuss(self, api: StubApi, clock: Clock) -> None:
        rescaled = framework({"worker": ["10.0.1.1"]})
        rescaled["spec"]["taskRoles"][0]["taskNumber"] = 2
        api.current = rescaled
        assert failure(api, clock)[0] == 201

    def test_an_absent_task_number_is_one(self, api: StubApi, clock: Clock) -> None:
        sparse = framework({"worker": ["10.0.1.1"]})
        del sparse["spec"]["taskRoles"][0]["taskNumber"]
        api.current = sparse
        assert wait(api, clock) == {"worker": ["10.0.1.1"]}

    def test_tasks_to_be_deleted_count_for_nothing(self, api: StubApi, clock: Clock) -> None:
        """Neither is their address used, nor are they waited for."""
        shrinking = framework({"worker": ["10.0.1.1"]})
        tasks = shrinking["status"]["attemptStatus"]["taskRoleStatuses"][0]["taskStatuses"]
        tasks.append(task(1, None, deletion_pending=True))
        api.current = shrinking
        assert wait(api, clock) == {"worker": ["10.0.1.1"]}
        tasks[0]["deletionPending"] = True
        assert failure(api, clock)[0] == 201

    def test_a_role_that_left_the_spec_counts_for_nothing(self, api: StubApi, clock: Clock) -> None:
        shrinking = framework({"worker": ["10.0.1.1"], "old": [None]})
        del shrinking["spec"]["taskRoles"][1]
        api.current = shrinking
        assert wait(api, clock) == {"worker": ["10.0.1.1"]}

    def test_a_role_without_tasks(self, api: StubApi, clock: Clock) -> None:
        api.current = framework({"worker": ["10.0.1.1"], "spare": []})
        assert wait(api, clock) == {"worker": ["10.0.1.1"], "spare": []}

    def test_no_tasks_at_all(self, api: StubApi, clock: Clock) -> None:
        """The Pod that runs this is on its way out then; it is not to hold up anything."""
        api.current = framework({"worker": []})
        assert wait(api, clock) == {"worker": []}

    def test_ips_are_ordered_by_index(self, api: StubApi, clock: Clock) -> None:
        shuffled = framework({"worker": ["10.0.1.1", "10.0.1.2"]})
        shuffled["status"]["attemptStatus"]["taskRoleStatuses"][0]["taskStatuses"].reverse()
        api.current = shuffled
        assert wait(api, clock) == {"worker": ["10.0.1.1", "10.0.1.2"]}


class TestTimeout:
    def test_tasks_without_ip_end_in_201(self, api: StubApi, clock: Clock) -> None:
        api.current = framework({"server": ["10.0.0.1"], "worker": [None, "10.0.1.2", None, None]})
        assert failure(api, clock) == (
            201,
            "timed out after 600 s: 2 of 5 Tasks have an IP; still without: worker 0, 2-3",
        )
        assert clock.now - 1000 == 600

    def test_the_timeout_that_was_set(self, api: StubApi, clock: Clock) -> None:
        api.current = framework({"worker": [None]})
        assert failure(api, clock, BARRIER_CHECK_TIMEOUT_SEC="60")[0] == 201
        assert clock.now - 1000 == 60

    def test_a_last_look_at_the_timeout(self, api: StubApi, clock: Clock) -> None:
        api.current = framework({"worker": [None]})
        clock.at(59.9, lambda: setattr(api, "current", framework({"worker": ["10.0.1.1"]}, version=2)))
        assert wait(api, clock, BARRIER_CHECK_TIMEOUT_SEC="60", BARRIER_CHECK_INTERVAL_SEC="50") == {
            "worker": ["10.0.1.1"]
        }

    def test_an_api_server_out_of_reach_ends_in_1(self, api: StubApi, clock: Clock) -> None:
        with StubApi() as gone:
            pass
        code, text = failure(gone, clock)
        assert code == 1
        assert text == f"timed out after 600 s, at last because: {gone.address}: Connection refused"

    def test_the_last_look_says_which(self, api: StubApi, clock: Clock) -> None:
        """An API server that comes back in time to show that Tasks lack their IP has told all there is to know."""
        api.current = framework({"worker": [None]})
        api.answers = [status(500, "InternalError", "etcd is having a day")] * 3
        assert failure(api, clock)[0] == 201

        def out_of_order() -> None:
            api.answers = [status(503, "ServiceUnavailable", "later")] * 100

        clock.at(500, out_of_order)
        assert failure(api, clock)[0] == 1

    def test_many_missing_tasks_are_said_briefly(self, api: StubApi, clock: Clock) -> None:
        api.current = framework({"worker": [None, "10.0.0.1"] * 5000})
        assert failure(api, clock)[1].endswith(
            "5000 of 10000 Tasks have an IP; still without: worker 0, 2, 4, 6, 8, ..."
        )


class TestNames:
    def test_are_looked_up_after_all_tasks_have_an_ip(self, api: StubApi, clock: Clock) -> None:
        api.current = framework({"worker": [None]})
        names = Names()
        assert failure(api, clock, names, BARRIER_WAIT_FOR_NAME="a.f")[0] == 201
        assert names.asked == []
        api.current = framework(READY)
        assert wait(api, clock, names, BARRIER_WAIT_FOR_NAME="a.f, b.f.") == READY
        assert names.asked == ["a.f", "b.f."]

    def test_are_waited_for(self, api: StubApi, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        api.current = framework(READY)
        names = Names()
        names.unknown = {"b.f", "c.f"}
        clock.at(40, lambda: names.unknown.discard("b.f"))
        clock.at(90, lambda: names.unknown.discard("c.f"))
        wait(api, clock, names, BARRIER_WAIT_FOR_NAME="a.f,b.f,c.f")
        assert 90 <= clock.now - 1000 <= 90 + 12
        assert names.asked.count("a.f") == 1
        assert len(names.asked) < 20
        assert list(dict.fromkeys(caplog.messages)) == [
            "1 of 3 names resolve; not yet b.f: Name or service not known",
            "2 of 3 names resolve; not yet c.f: Name or service not known",
        ]

    def test_share_the_time_of_the_tasks(self, api: StubApi, clock: Clock) -> None:
        api.current = framework({"worker": [None]})
        clock.at(400, lambda: setattr(api, "current", framework({"worker": ["10.0.1.1"]}, version=2)))
        names = Names()
        names.unknown = {"a.f"}
        assert failure(api, clock, names, BARRIER_WAIT_FOR_NAME="a.f") == (
            201,
            "timed out after 600 s: 0 of 1 names resolve; not yet a.f: Name or service not known",
        )
        assert clock.now - 1000 == 600

    def test_of_pods_that_wait_for_this_one_end_in_210(self, api: StubApi, clock: Clock) -> None:
        api.current = framework({**READY, "late": [None]})
        depend(api.current, "late", "worker")
        names, role = Names(), {"FC_TASKROLE_NAME": "worker"}
        text = "$BARRIER_WAIT_FOR_NAME: 'train-late-0.f': TaskRole late waits for worker, the role of this Pod"
        assert failure(api, clock, names, BARRIER_WAIT_FOR_NAME="train-late-0.f", **role) == (210, text)
        others = "train-server-0.f,train-nobody-0.f,more-late-0.f,train-late-0-0"
        wait(api, clock, names, BARRIER_WAIT_FOR_NAME=others, **role)
        assert names.asked == others.split(",")

    def test_of_this_machine_resolve_and_others_do_not(self) -> None:
        assert problem_of("localhost", 30) == ""
        assert problem_of("nobody.invalid", 30) != ""

    def test_a_resolver_that_does_not_answer_holds_up_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        answered = threading.Event()
        monkeypatch.setattr("socket.getaddrinfo", lambda *_: answered.wait())
        assert problem_of("a.f", 0.01) == "no answer within 0 s"
        answered.set()


class TestHostfile:
    @pytest.mark.parametrize(("slots", "after"), [("", ""), ("8", " slots=8")])
    def test_has_the_tasks_of_the_roles_in_order(self, api: StubApi, tmp_path: Path, slots: str, after: str) -> None:
        api.current = framework({**READY, "other": ["fd00::1"]})
        asked = {"BARRIER_HOSTFILE_ROLES": "worker, server", "BARRIER_HOSTFILE_SLOTS": slots}
        assert run({**ENVIRON, **asked, "KUBE_APISERVER_ADDRESS": api.address}, tmp_path) == 0
        lines = ["10.0.1.1", "10.0.1.2", "10.0.0.1"]
        assert (tmp_path / "hostfile").read_text() == "".join(f"{ip}{after}\n" for ip in lines)
        assert (tmp_path / "hostfile").stat().st_mode & 0o777 == 0o644

    @pytest.mark.parametrize(
        ("role", "text"),
        [
            ("nobody", "'nobody' is no TaskRole"),
            ("late", "'late': TaskRole late waits for worker, the role of this Pod"),
        ],
    )
    def test_of_a_role_without_addresses_ends_in_210(self, api: StubApi, clock: Clock, role: str, text: str) -> None:
        api.current = framework({**READY, "late": [None]})
        depend(api.current, "late", "worker")
        environ = {"FC_TASKROLE_NAME": "worker", "BARRIER_HOSTFILE_ROLES": role}
        assert failure(api, clock, **environ) == (210, f"$BARRIER_HOSTFILE_ROLES: {text}")
        assert clock.naps == []

    def test_of_a_role_that_a_stale_cache_does_not_show(self, api: StubApi, clock: Clock) -> None:
        api.current = framework({"worker": READY["worker"]})
        api.lags = True
        api.current = framework(READY, version=2)
        assert wait(api, clock, BARRIER_HOSTFILE_ROLES="server") == READY

    def test_a_role_that_has_not_started_is_waited_for(self, api: StubApi, clock: Clock) -> None:
        body = api.current = framework({**READY, "late": [None]})
        depend(body, "late", "server")
        clock.at(25, lambda: body["status"]["attemptStatus"]["taskRoleStatuses"][2].update(task_of("10.0.2.1")))
        environ = {"FC_TASKROLE_NAME": "worker", "BARRIER_HOSTFILE_ROLES": "late"}
        assert wait(api, clock, **environ) == {**READY, "late": ["10.0.2.1"]}
        assert clock.naps


@pytest.mark.parametrize(
    ("coordinator", "line"),
    [
        ({"taskRole": "worker", "taskIndex": 1}, 'export FB_COORDINATOR_IP="10.0.1.2"'),
        ({"taskRole": "server"}, 'export FB_COORDINATOR_IP="10.0.0.1"'),
        ({"taskRole": "late"}, ""),
        (None, ""),
    ],
)
def test_the_ip_of_the_coordinator(api: StubApi, tmp_path: Path, coordinator: Any, line: str) -> None:
    api.current = framework({**READY, "late": [None]})
    depend(api.current, "late", "worker")
    api.current["spec"]["coordinator"] = coordinator
    assert run({**ENVIRON, "FC_TASKROLE_NAME": "worker", "KUBE_APISERVER_ADDRESS": api.address}, tmp_path) == 0
    lines = (tmp_path / "injector.sh").read_text().splitlines()
    assert [found for found in lines if "COORDINATOR" in found] == (
        [line, "printf '%s\\n' \"FB_COORDINATOR_IP=${FB_COORDINATOR_IP}\""] if line else []
    )


class TestNotFound:
    def test_ends_in_210_at_once(self, api: StubApi, clock: Clock) -> None:
        assert failure(api, clock) == (210, "there is no Framework team-a/train")
        assert clock.naps == []

    def test_only_if_it_is_not_just_unknown_to_the_cache(self, api: StubApi, clock: Clock) -> None:
        api.lags = True
        api.current = framework(READY)
        assert wait(api, clock) == READY

    def test_an_api_server_that_does_not_know_frameworks_yet_is_waited_for(self, api: StubApi, clock: Clock) -> None:
        """It answers 404 to everything of a CustomResourceDefinition for some moments after it was started."""
        api.current = framework(READY)
        api.answers = [(404, {"Content-Type": "text/plain"}, b"404 page not found\n")]
        assert wait(api, clock) == READY
        assert len(clock.naps) == 1

    def test_another_framework_of_that_name(self, api: StubApi, clock: Clock) -> None:
        api.current = framework(READY)
        assert wait(api, clock, **IDENTITY) == READY
        api.current["metadata"]["uid"] = "another"
        code, text = failure(api, clock, **IDENTITY)
        assert code == 210
        assert (
            text == f"the Framework team-a/train of this Pod is gone: the one of that name has UID another, not {UID}"
        )

    def test_a_cache_that_still_has_the_one_before(self, api: StubApi, clock: Clock) -> None:
        before = framework(READY)
        before["metadata"]["uid"] = "before"
        api.current = before
        api.lags = True
        api.current = framework(READY)
        assert wait(api, clock, **IDENTITY) == READY


class TestAttempt:
    def test_addresses_of_an_earlier_attempt_are_not_taken(self, api: StubApi, clock: Clock) -> None:
        identity = {**IDENTITY, "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID": f"3_{CONFIGMAP_UID}"}
        api.current = framework(READY, attempt=2)
        clock.at(5, lambda: setattr(api, "current", framework({"worker": ["10.0.9.1"]}, attempt=3, version=2)))
        assert wait(api, clock, **identity) == {"worker": ["10.0.9.1"]}

    def test_a_pod_of_an_attempt_that_is_over(self, api: StubApi, clock: Clock) -> None:
        api.current = framework(READY, attempt=1)
        code, text = failure(api, clock, **IDENTITY)
        assert code == 201
        assert "is over: the Framework is at 1_" in text
        assert clock.naps == []

    def test_an_attempt_whose_configmap_was_replaced(self, api: StubApi, clock: Clock) -> None:
        api.current = framework(READY)
        api.current["status"]["attemptStatus"]["configMapUID"] = "another"
        assert failure(api, clock, **IDENTITY)[0] == 201

    def test_a_next_attempt_that_has_no_configmap_yet(self, api: StubApi, clock: Clock) -> None:
        api.current = framework(READY, attempt=1)
        api.current["status"]["attemptStatus"].update(configMapUID=None, instanceUID=None)
        assert failure(api, clock, **IDENTITY)[0] == 201

    def test_without_the_variables_any_attempt_will_do(self, api: StubApi, clock: Clock) -> None:
        api.current = framework(READY, attempt=7)
        assert wait(api, clock) == READY


GARBAGE = [b"", b"<html>", b"[]", b'{"kind":"List"}', b"\xff\xfe", b'{"metadata":{}', b"[" * 100_000]


class TestBadAnswers:
    @pytest.mark.parametrize("body", GARBAGE, ids=lambda body: repr(body[:12]))
    def test_an_answer_that_is_no_framework_is_asked_for_again(self, api: StubApi, clock: Clock, body: bytes) -> None:
        api.current = framework(READY)
        api.answers = [(200, {}, body)]
        assert wait(api, clock) == READY
        assert len(clock.naps) == 1

    @pytest.mark.parametrize(
        "answer",
        [
            status(401, "Unauthorized", "Unauthorized"),
            status(403, "Forbidden", 'frameworks "train" is forbidden'),
            status(429, "TooManyRequests", "slow down"),
            status(500, "InternalError", "etcdserver: request timed out"),
            (302, {"Location": "http://127.0.0.1:1/"}, b""),
            (200, {"Content-Length": "oops"}, b"{}"),
        ],
        ids=lambda answer: str(answer[0]),
    )
    def test_a_refusal_is_tried_again(self, api: StubApi, clock: Clock, answer: Answer) -> None:
        api.current = framework(READY)
        api.answers = [answer]
        assert wait(api, clock) == READY
        assert len(clock.naps) == 1

    def test_a_large_one_that_cannot_be_read_does_not_become_an_unchanged_one(self, api: StubApi, clock: Clock) -> None:
        broken = framework({"worker": [*(["10.0.1.1"] * 999), "no-ip"]})
        api.current = broken
        code, text = failure(api, clock)
        assert (code, "'no-ip' does not appear to be" in text) == (1, True)

    def test_an_answer_without_end_is_not_read(
        self, api: StubApi, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(apiserver, "MOST_BYTES", 1 << 20)
        api.answers = [(200, {}, b" " * (2 << 20))]
        api.current = framework(READY)
        assert wait(api, clock) == READY
        assert len(clock.naps) == 1

    @pytest.mark.parametrize(
        "ip", ["10.0.0.1;reboot", "$(reboot)", "`reboot`", '"', "localhost", "10.0.0.256", 7, {}, True]
    )
    def test_an_invalid_ip_never_passes(self, api: StubApi, clock: Clock, ip: Any) -> None:
        api.current = framework({"worker": [ip]})
        assert failure(api, clock)[0] == 1

    @pytest.mark.parametrize("role", ["a b", "a;reboot", "A", "", "a-b", "a\n"])
    def test_an_invalid_role_never_passes(self, api: StubApi, clock: Clock, role: str) -> None:
        api.current = framework({role: ["10.0.0.1"]})
        assert failure(api, clock)[0] == 1


class TestLoad:
    def test_many_barriers_do_not_ask_in_step(self, api: StubApi, clock: Clock) -> None:
        api.current = framework({"worker": [None]})
        failure(api, clock)
        naps = clock.naps[:-1]
        assert all(8 <= nap <= 12 for nap in naps)
        assert len(set(naps)) == len(naps)

    def test_while_waiting_only_the_cache_is_asked(self, api: StubApi, clock: Clock) -> None:
        api.current = framework({"worker": [None]})
        clock.at(35, lambda: setattr(api, "current", framework({"worker": ["10.0.1.1"]}, version=2)))
        wait(api, clock)
        assert api.requests[-2:] == ["cached", "live"]
        assert set(api.requests[:-1]) == {"cached"}

    def test_a_large_framework_is_read_only_when_it_has_changed(self, api: StubApi, clock: Clock) -> None:
        ips: list[str | None] = ["10.0.1.1"] * 999
        api.current = framework({"worker": [*ips, None]})
        clock.at(35, lambda: setattr(api, "current", framework({"worker": [*ips, None]}, version=2)))
        clock.at(65, lambda: setattr(api, "current", framework({"worker": [*ips, "10.0.1.2"]}, version=3)))
        assert len(wait(api, clock)["worker"]) == 1000
        assert api.requests.count("cached") == 3
        assert api.requests.count("live") == 1
        assert api.requests.count("metadata") >= 5

    def test_a_server_without_metadata_only_is_understood(self, api: StubApi, clock: Clock) -> None:
        """It then answers the whole to the question for the metadata."""
        ips: list[str | None] = ["10.0.1.1"] * 999
        api.current = framework({"worker": [*ips, None]})
        whole: Answer = (200, {}, json.dumps(api.current).encode())
        api.answers = [whole, whole]
        clock.at(15, lambda: setattr(api, "current", framework({"worker": [*ips, "10.0.1.2"]}, version=3)))
        assert len(wait(api, clock)["worker"]) == 1000

    def test_retry_after_is_kept(self, api: StubApi, clock: Clock) -> None:
        api.current = framework(READY)
        code, headers, body = status(429, "TooManyRequests", "slow down")
        api.answers = [(code, {**headers, "Retry-After": "30"}, body)]
        wait(api, clock)
        assert 30 <= clock.naps[0] <= 36

    def test_a_retry_after_beyond_reason_is_not(self, api: StubApi, clock: Clock) -> None:
        api.current = framework(READY)
        code, headers, body = status(503, "ServiceUnavailable", "gone fishing")
        api.answers = [(code, {**headers, "Retry-After": "9999"}, body)]
        wait(api, clock)
        assert clock.naps == [60]

    def test_a_slow_server_is_asked_less_often(self, api: StubApi, clock: Clock) -> None:
        api.current = framework({"worker": [None]})
        slow = api.answer

        def answer(path: str, headers: object) -> tuple[int, object, bytes]:
            clock.now += 3
            return slow(path, headers)  # type: ignore[arg-type]  # the stub passes its own parameters on

        api.answer = answer  # type: ignore[assignment,method-assign]  # slowed down
        failure(api, clock)
        assert all(nap == pytest.approx(30) for nap in clock.naps[:-1])


class TestSettings:
    @pytest.mark.parametrize(
        ("environ", "text"),
        [
            ({"FC_FRAMEWORK_NAME": ""}, "$FC_FRAMEWORK_NAME is not set"),
            ({"FC_FRAMEWORK_NAMESPACE": ""}, "$FC_FRAMEWORK_NAMESPACE is not set"),
            ({"FC_FRAMEWORK_NAME": "a-b"}, "$FC_FRAMEWORK_NAME cannot be the name of one: 'a-b'"),
            ({"FC_FRAMEWORK_NAME": "a\n"}, "$FC_FRAMEWORK_NAME cannot be"),
            ({"FC_FRAMEWORK_NAMESPACE": "../x"}, "$FC_FRAMEWORK_NAMESPACE cannot be"),
            ({"BARRIER_CHECK_INTERVAL_SEC": "4"}, "_INTERVAL_SEC must be a whole number of seconds, at least 5: '4'"),
            ({"BARRIER_CHECK_INTERVAL_SEC": "ten"}, "'ten'"),
            ({"BARRIER_CHECK_INTERVAL_SEC": "5.5"}, "'5.5'"),
            ({"BARRIER_CHECK_INTERVAL_SEC": "-10"}, "'-10'"),
            ({"BARRIER_CHECK_TIMEOUT_SEC": "59"}, "from 60 to 1200: '59'"),
            ({"BARRIER_CHECK_TIMEOUT_SEC": "1201"}, "from 60 to 1200: '1201'"),
            ({"FC_FRAMEWORK_ATTEMPT_INSTANCE_UID": "$(X)"}, "must be {id}_{uid}: '$(X)'"),
            ({"BARRIER_WAIT_FOR_NAME": "{{FC_COORDINATOR_HOST}}"}, "'{{FC_COORDINATOR_HOST}}' cannot be"),
            ({"BARRIER_WAIT_FOR_NAME": "a..b"}, "$BARRIER_WAIT_FOR_NAME: 'a..b' cannot be the name of a host"),
            ({"BARRIER_WAIT_FOR_NAME": "a,"}, "'' cannot be"),
            ({"BARRIER_WAIT_FOR_NAME": "a:80"}, "'a:80' cannot be"),
            ({"BARRIER_WAIT_FOR_NAME": "a" * 64}, "cannot be"),
            ({"BARRIER_WAIT_FOR_NAME": "a." * 127}, "cannot be"),
            ({"BARRIER_WAIT_FOR_NAME": "a, a"}, "$BARRIER_WAIT_FOR_NAME: 'a' is there twice"),
            ({"BARRIER_HOSTFILE_ROLES": "wor-ker"}, "_ROLES: 'wor-ker' cannot be the name of a TaskRole"),
            ({"BARRIER_HOSTFILE_ROLES": "a,b,a"}, "$BARRIER_HOSTFILE_ROLES: 'a' is there twice"),
            ({"BARRIER_HOSTFILE_SLOTS": "0"}, "$BARRIER_HOSTFILE_SLOTS must be a number from 1 to 999999: '0'"),
            ({"BARRIER_HOSTFILE_SLOTS": "8.5"}, "'8.5'"),
            ({"BARRIER_HOSTFILE_SLOTS": "8"}, "_SLOTS: '8' has no effect without $BARRIER_HOSTFILE_ROLES"),
        ],
    )  # fmt: skip
    def test_a_bad_one_ends_in_210_and_is_named(self, environ: dict[str, str], text: str) -> None:
        with pytest.raises(BarrierError) as caught:
            Settings({**ENVIRON, **environ})
        assert caught.value.code == 210
        assert text in str(caught.value)

    def test_bounds_are_included_and_empty_is_default(self) -> None:
        environ = {"BARRIER_CHECK_INTERVAL_SEC": "5", "BARRIER_CHECK_TIMEOUT_SEC": "1200"}
        assert (Settings({**ENVIRON, **environ}).interval, Settings({**ENVIRON, **environ}).timeout) == (5, 1200)
        empty = Settings({**ENVIRON, **dict.fromkeys(environ, ""), "FC_FRAMEWORK_UID": ""})
        assert (empty.interval, empty.timeout, empty.uid, empty.attempt) == (10, 600, None, None)


class TestRun:
    @pytest.mark.parametrize("pack", [lambda plain: plain, compressed], ids=["raw", "compressed"])
    def test_framework_json_is_readable_however_it_was_stored(self, api: StubApi, tmp_path: Path, pack: type) -> None:
        plain = framework(READY)
        plain["spec"]["description"] = 'ä "quoted" \u2028 $(thing)'
        api.current = pack(plain)
        assert run({**ENVIRON, **IDENTITY, "KUBE_APISERVER_ADDRESS": api.address}, tmp_path) == 0
        assert written(tmp_path) == plain
        assert sorted(file.name for file in tmp_path.iterdir()) == ["framework.json", "injector.sh"]

    def test_files_are_readable_for_all_users(self, api: StubApi, tmp_path: Path) -> None:
        api.current = framework(READY)
        assert run({**ENVIRON, "KUBE_APISERVER_ADDRESS": api.address}, tmp_path) == 0
        modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
        assert modes == {"framework.json": 0o644, "injector.sh": 0o755}

    def test_files_of_an_earlier_run_are_replaced(self, api: StubApi, tmp_path: Path) -> None:
        for name in ("framework.json", "injector.sh"):
            (tmp_path / name).write_text("old")
        api.current = framework(READY)
        assert run({**ENVIRON, "KUBE_APISERVER_ADDRESS": api.address}, tmp_path) == 0
        assert written(tmp_path) == api.current
        assert "old" not in (tmp_path / "injector.sh").read_text()

    def test_nothing_is_written_unless_passed(self, api: StubApi, tmp_path: Path) -> None:
        assert run({**ENVIRON, "KUBE_APISERVER_ADDRESS": api.address}, tmp_path) == 210
        assert list(tmp_path.iterdir()) == []

    def test_a_directory_that_takes_no_files_is_said_before_waiting(
        self, api: StubApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        api.current = framework({"worker": [None]})
        absent = tmp_path / "absent"
        assert run({**ENVIRON, "KUBE_APISERVER_ADDRESS": api.address}, absent) == 1
        assert caplog.messages[-1] == f"cannot write to {absent}: No such file or directory"
        assert api.requests == []

    def test_progress_is_logged_once_per_change(
        self, api: StubApi, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        api.current = framework({"worker": [None, None]})
        clock.at(25, lambda: setattr(api, "current", framework({"worker": ["10.0.1.1", None]}, version=2)))
        clock.at(45, lambda: setattr(api, "current", framework({"worker": ["10.0.1.1", "10.0.1.2"]}, version=3)))
        wait(api, clock)
        assert caplog.messages == [
            "0 of 2 Tasks have an IP; still without: worker 0-1",
            "1 of 2 Tasks have an IP; still without: worker 1",
        ]

    def test_an_unchanging_wait_is_logged_now_and_then(
        self, api: StubApi, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        api.current = framework({"worker": [None]})
        failure(api, clock)
        assert 8 <= len(caplog.messages) <= 11


def test_one_stub_serves_many_at_a_time(api: StubApi, tmp_path: Path) -> None:
    """The Pods of a Framework wait together, each for all."""
    api.current = framework(READY)
    environ = {**ENVIRON, **IDENTITY, "KUBE_APISERVER_ADDRESS": api.address}
    codes: list[int] = []

    def one(number: int) -> None:
        directory = tmp_path / str(number)
        directory.mkdir()
        codes.append(run(environ, directory))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [0] * 8
    assert {json.dumps(written(tmp_path / str(number))) for number in range(8)} == {json.dumps(api.current)}
