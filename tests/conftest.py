"""Settings for every test: how hypothesis searches, which event loop a test runs on, and against which clusters."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, settings

from tests.support import deadline
from tests.support.realcluster import ASSETS, VERSIONS, find_assets
from tests.support.virtual_clock import VirtualClockLoop

if TYPE_CHECKING:
    # At run time only by the fixtures that use them: unit tests start without the product's I/O.
    from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
    from frameworkcontroller.manager.app import Controller
    from tests.support.clusters import Cluster, ControlPlanes
    from tests.support.kubectl import Kubectl
    from tests.support.postgres import Postgres

# "ci" finds the same examples on every run, so that a red run is red again; "dev" searches elsewhere each time.
settings.register_profile(
    "ci", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("dev", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# A test that draws on a screen brings its own: "dumb" would leave it blank.
os.environ.pop("TERM", None)

_EMBEDDED: Final = "embedded"
_CLUSTERS: Final = (_EMBEDDED, *VERSIONS, ASSETS)
_CHOSEN = pytest.StashKey[list[str]]()
_MISSING = pytest.StashKey[list[str]]()


def _heed_signals() -> None:
    """Programs that tests start must obey signals that the tests' own parent ignored: SIGHUP by nohup, SIGINT by a
    shell's ``&``. That one is ignored is inherited, and the product respects it; a handler is not inherited.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


_heed_signals()


@pytest.fixture(autouse=True)
def _signal_handlers() -> Iterator[None]:
    """Restore the handlers of signals. A command that a test runs in this process ignores signals from its end on, and
    programs that later tests start would inherit that.
    """
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture(scope="module", autouse=True)
def _garbage() -> Iterator[None]:
    """Collect garbage at the end of each file: an unclosed resource fails a test of that file, not of another one."""
    yield
    gc.collect()


def pytest_addoption(parser: pytest.Parser) -> None:
    """--cluster, for the tests in integration/ and conformance/."""
    parser.addoption(
        "--cluster",
        default=os.environ.get("CLUSTER") or ",".join([_EMBEDDED] + [ASSETS] * ("KUBEBUILDER_ASSETS" in os.environ)),
        help=f"clusters to test on: some of {', '.join(_CLUSTERS)}, or all (default: the environment variable "
        f"CLUSTER, or else {_EMBEDDED}, and {ASSETS} where KUBEBUILDER_ASSETS is set)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Settle which of the wanted clusters this machine has; the embedded one stands in where it has none of them."""
    wanted = str(config.getoption("--cluster")).split(",")
    if "all" in wanted:
        wanted = [_EMBEDDED, *VERSIONS] + [ASSETS] * ("KUBEBUILDER_ASSETS" in os.environ)
    if unknown := set(wanted) - set(_CLUSTERS):
        raise pytest.UsageError(f"--cluster: no such cluster: {', '.join(sorted(unknown))}")
    missing = [name for name in wanted if name != _EMBEDDED and find_assets(name) is None]
    config.stash[_MISSING] = missing
    config.stash[_CHOSEN] = [name for name in wanted if name not in missing] or [_EMBEDDED]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which clusters the tests ran on, and which they did not find."""
    chosen = config.stash[_CHOSEN]
    terminalreporter.write_line(f"clusters: {', '.join(chosen)}")
    if missing := config.stash[_MISSING]:
        terminalreporter.write_line(
            f"WARNING: no control plane found for {', '.join(missing)}: nothing was tested on it"
            " (KUBEBUILDER_ASSETS can name a folder with etcd, kube-apiserver and kube-controller-manager)",
            yellow=True,
        )


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Virtual time for the tests that ask for it, by mark or by fixture, and for those on the embedded cluster."""
    fixtures = getattr(item, "fixturenames", ())
    if item.get_closest_marker("virtual_clock") or "clock" in fixtures:
        return {"virtual": VirtualClockLoop}
    if "cluster" not in fixtures:
        return {"real": asyncio.new_event_loop}
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {}
    for name in _clusters_of(item):
        if name == _EMBEDDED:
            factories["virtual"] = VirtualClockLoop
        else:
            factories["real"] = asyncio.new_event_loop
    # Without a cluster the test is skipped.
    return factories or {"real": asyncio.new_event_loop}


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(settings: Any) -> bool:
    """pytest-timeout's settings, with an end that no event loop swallows."""
    deadline.start(settings.timeout)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer() -> bool:
    """Goes with `pytest_timeout_set_timer`."""
    deadline.stop()
    return True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for a cluster, or a control plane of its own, runs once on each that was chosen."""
    if "cluster" in metafunc.fixturenames:
        metafunc.parametrize("cluster", _clusters_of(metafunc.definition), indirect=True)
    if "plane_name" in metafunc.fixturenames:
        metafunc.parametrize("plane_name", [name for name in _clusters_of(metafunc.definition) if name != _EMBEDDED])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the pairs of cluster and event loop that belong together; mark the tests in conformance/."""
    items[:] = [item for item in items if _loop_fits_cluster(item)]
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent / "conformance"):
            item.add_marker(pytest.mark.conformance)
    if hasattr(config, "workerinput"):
        from tests.support import distribution

        items.sort(key=lambda item: distribution.rank(item.nodeid))


def pytest_collection_finish() -> None:
    """Exempt the present objects from garbage collection: they stay, and each full collection would visit them."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Four at least: many tests wait for processes or for a real control plane."""
    return max(4, len(os.sched_getaffinity(0)))


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Reports that can be sent from one process to another."""
    from tests.support.distribution import encodable

    return encodable((yield))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Keep tests with shared resources together (tests/support/distribution.py)."""
    from tests.support.distribution import Scheduling

    return Scheduling(config, log)


def _clusters_of(test: pytest.Item) -> list[str]:
    """The chosen clusters that the test runs on: the marker ``newest`` leaves out older control planes."""
    older = VERSIONS[:-1] if test.get_closest_marker("newest") else ()
    return [name for name in test.config.stash[_CHOSEN] if name not in older]


def _loop_fits_cluster(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return True
    cluster = item.callspec.params.get("cluster")
    # pytest-asyncio gives the loop factory as a parameter of its own.
    factory = item.callspec.params.get("_asyncio_loop_factory")
    return cluster is None or factory is None or (cluster == _EMBEDDED) == (factory is VirtualClockLoop)


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """For tests that configure logging, as commands do for their process: afterwards it is as before."""
    root, ours = logging.getLogger(), logging.getLogger("frameworkcontroller")
    handlers, root_level, level = list(root.handlers), root.level, ours.level
    switches = {
        name: getattr(logging, name)
        for name in ("logThreads", "logProcesses", "logMultiprocessing", "logAsyncioTasks")
        if hasattr(logging, name)
    }
    yield
    root.handlers[:] = handlers
    root.setLevel(root_level)
    ours.setLevel(level)
    logging.captureWarnings(capture=False)
    for name, value in switches.items():
        setattr(logging, name, value)


@pytest.fixture
async def clock() -> VirtualClockLoop:
    """The virtual-time loop that the test runs on."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualClockLoop)
    return loop


@pytest.fixture(scope="session")
def control_planes() -> Iterator[ControlPlanes]:
    """The real control planes, started when a test first needs one."""
    from tests.support.clusters import ControlPlanes

    planes = ControlPlanes()
    try:
        yield planes
    finally:
        planes.stop()


@pytest.fixture
async def cluster(
    request: pytest.FixtureRequest, control_planes: ControlPlanes, tmp_path: Path
) -> AsyncIterator[Cluster]:
    """A cluster with the Framework CRD and a namespace of the test's own. Nothing runs Pods unless `pods` does."""
    from tests.support import clusters

    if request.param == _EMBEDDED:
        async with clusters.embedded_cluster(tmp_path) as here:
            yield here
    else:
        async with clusters.real_cluster(request.param, control_planes.get(request.param)) as here:
            yield here


@pytest.fixture
async def pods(cluster: Cluster) -> AsyncIterator[SimulatedRuntime]:
    """A simulated node of the cluster; through it a test can end containers, fail Pods and lose the node."""
    from tests.support import clusters

    async with clusters.simulated_node(cluster) as runtime:
        yield runtime


@pytest.fixture
async def controller(cluster: Cluster) -> AsyncIterator[Controller]:
    """A controller with the default configuration at work on the cluster."""
    from frameworkcontroller.config.config import Config
    from frameworkcontroller.manager.app import Controller

    async with Controller(Config(), await cluster.connection(), wall=cluster.wall) as controller:
        yield controller


@pytest.fixture
def kubectl(cluster: Cluster, tmp_path: Path) -> Kubectl:
    """kubectl, speaking to the cluster about the test's namespace; the test is skipped where there is none to use."""
    from tests.support.kubectl import Kubectl, find_kubectl

    program = find_kubectl()
    if isinstance(program, str):
        pytest.skip(program)
    return Kubectl(program, cluster.kubeconfig, cluster.namespace, tmp_path)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real PostgreSQL, started for the tests of this process."""
    from tests.support.postgres import running_postgres

    with running_postgres() as server:
        if server is None:
            pytest.skip("no PostgreSQL: initdb is neither in PATH nor in /usr/lib/postgresql")
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database, of each kind in turn."""
    if request.param == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        url = server.new_database()
        yield url
        server.drop_database(url)
        return
    # A disk that others use takes long to sync.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield f"sqlite:///{folder}/history.db"
