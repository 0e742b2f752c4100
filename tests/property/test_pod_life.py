"""Invariants of a kubelet, for any fate of a Pod's containers and any moment of its deletion."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.local.kubelet.container import ContainerTime, Stage, Termination, Trouble
from frameworkcontroller.local.kubelet.lifecycle import PodFailure, PodLife, Prepare, Start, Stop
from frameworkcontroller.local.kubelet.pod import TERMINAL, ContainerKind
from frameworkcontroller.local.kubelet.podstatus import PodStatusView
from tests.support.pods import pod_manifest, record

WALL = 1_767_225_600.0

pods = st.builds(
    lambda inits, mains, policy, deadline: pod_manifest(
        *({"name": f"m{number}"} for number in range(mains)),
        inits=tuple(
            {"name": f"i{number}", **({"restartPolicy": "Always"} if sidecar else {})}
            for number, sidecar in enumerate(inits)
        ),
        restartPolicy=policy,
        **({"activeDeadlineSeconds": deadline} if deadline else {}),
    ),
    st.lists(st.booleans(), max_size=3),
    st.integers(1, 3),
    st.sampled_from(["Never", "OnFailure", "Always"]),
    st.sampled_from([None, None, 50]),
)

happenings = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.sampled_from([0.0, 1.0, 5.0, 11.0, 40.0, 700.0])),
        st.tuples(st.just("prepared"), st.booleans()),
        st.tuples(st.just("started"), st.integers(0, 5)),
        st.tuples(st.just("refused"), st.integers(0, 5)),
        st.tuples(st.just("exited"), st.tuples(st.integers(0, 5), st.sampled_from([0, 0, 1, 137]))),
        st.tuples(st.just("terminate"), st.sampled_from([0, 5, 30])),
        st.tuples(st.just("kill"), st.none()),
        st.tuples(st.just("fail"), st.none()),
    ),
    max_size=60,
)


class Watcher:
    """Drives one life, answers for its runtime, and checks each step."""

    def __init__(self, manifest: dict[str, Any]) -> None:
        self.seconds = 0.0
        self.life = PodLife(record(manifest), self.now)
        self.view = PodStatusView(self.life, "test")
        self.preparing = False
        self.prepared = False
        self.running: set[str] = set()
        self.ending = False
        self.stopped: set[str] = set()
        self.instances: dict[str, int] = {}
        self.final: str | None = None
        self.began = False

    @property
    def now(self) -> ContainerTime:
        return ContainerTime(100.0 + self.seconds, WALL + self.seconds)

    def step(self) -> None:
        for command in self.life.step(self.now):
            match command:
                case Prepare():
                    assert not self.preparing
                    assert not self.prepared
                    self.preparing = True
                case Start(name, instance):
                    self.check_start(name, instance)
                    self.running.add(name)
                    self.stopped.discard(name)
                case Stop(name, grace):
                    assert name in self.running
                    assert grace >= 0
                    self.stopped.add(name)
        assert self.life.step(self.now) == [], "asked again for what it has asked for"
        self.check()

    def check_start(self, name: str, instance: int) -> None:
        assert self.prepared
        assert not self.ending
        assert name not in self.running
        assert instance == self.instances.get(name, -1) + 1
        self.instances[name] = instance
        containers = {container.spec.name: container for container in self.life.containers}
        for other in self.life.containers:
            if other.spec.name == name:
                break
            if other.spec.kind is ContainerKind.INIT:
                assert containers[name].spec.kind is not ContainerKind.MAIN or other.succeeded
                assert other.succeeded
            elif other.spec.kind is ContainerKind.SIDECAR:
                assert other.begun

    def check(self) -> None:
        life = self.life
        assert life.dead == (not self.running)
        status = self.view.render(self.now)
        if status["phase"] in TERMINAL:
            assert not self.running, "a terminal phase while something runs"
            assert self.final in (None, status["phase"])
            self.final = status["phase"]
            for container in status["containerStatuses"]:
                assert "running" not in container["state"]
                assert not container["ready"]
        else:
            assert self.final is None, "a terminal phase was taken back"
        self.began = self.began or status["phase"] == "Running"
        if self.began:
            assert status["phase"] != "Pending"
        if self.ending and self.running:
            mains = {
                item.spec.name for item in life.containers if item.live and item.spec.kind is not ContainerKind.SIDECAR
            }
            assert (mains or self.running) <= self.stopped, "something that must end was not asked to"
        for container in [*status.get("initContainerStatuses", ()), *status["containerStatuses"]]:
            assert len(container["state"]) == 1
            assert container["restartCount"] == max(0, self.instances.get(container["name"], 0))

    def happen(self, what: str, detail: Any) -> None:
        names = [container.spec.name for container in self.life.containers]
        match what:
            case "wait":
                self.seconds += detail
                deadline = self.life.record.active_deadline
                if deadline is not None and self.seconds >= deadline and not self.life.ended:
                    self.ending = True
            case "prepared" if self.preparing:
                self.preparing = False
                if detail:
                    self.prepared = True
                    self.life.prepared("127.16.1.1")
                else:
                    self.life.unprepared(Trouble("FailedMount", "no"), self.now)
            case "started" | "refused" if detail < len(names):
                container = self.life.containers[detail]
                if container.stage is Stage.STARTING and what == "started":
                    self.life.started(names[detail], self.now)
                elif container.stage is Stage.STARTING:
                    self.life.refused(names[detail], Trouble("CreateContainerConfigError", "no"), self.now)
                    self.running.discard(names[detail])
                    self.instances[names[detail]] -= 1
            case "exited" if detail[0] < len(names) and names[detail[0]] in self.running:
                name, code = names[detail[0]], detail[1]
                self.running.discard(name)
                self.life.exited(name, Termination(code, "x", self.now.wall), self.now)
            case "terminate":
                self.ending = True
                self.life.terminate(detail, self.now)
            case "kill":
                self.ending = True
                self.life.kill()
            case "fail":
                self.ending = self.ending or not self.life.ended
                self.life.fail(PodFailure("Evicted", "out"), self.now)


@given(pods, happenings)
def test_a_life_keeps_its_promises(manifest: dict[str, Any], history: list[tuple[str, Any]]) -> None:
    watcher = Watcher(manifest)
    watcher.step()
    for what, detail in history:
        watcher.happen(what, detail)
        watcher.step()
    # It can be ended in any state.
    watcher.happen("terminate", 5)
    watcher.step()
    for _ in range(8):
        for index, container in enumerate(watcher.life.containers):
            if container.spec.name in watcher.stopped and container.live:
                watcher.happen("exited", (index, 137))
                watcher.step()
    assert watcher.life.dead
