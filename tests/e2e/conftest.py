"""Two nodes with the shipped images and manifests, for all plays of a session."""

import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from frameworkcontroller import __version__
from tests.e2e.stage import BUSYBOX, ENDED_PODS_KEPT, PYTHON, PlayFunction, Stage
from tests.support.images import image_store
from tests.support.kubectl import find_kubectl
from tests.support.nodes import running_nodes, why_not

BARRIER: Final = "frameworkcontroller/frameworkbarrier:latest"

# Those that a container may be asked to run by these names; the rest is reached by `busybox NAME`.
_APPLETS: Final = (
    "sh",
    "sleep",
    "echo",
    "kill",
    "cat",
    "wc",
    "env",
    "sort",
    "grep",
    "mkdir",
    "dd",
    "true",
    "wget",
    "tail",
)

# As by Kubernetes' defaults, a node is lost after 40 s, and Pods stay for 5 min on one that is not ready: with the
# kit's 10 s and 5 s, a kubelet that gets no processor for a moment would lose all of its Pods.
_FLAGS: Final = {
    "APISERVER_FLAGS": "--default-not-ready-toleration-seconds=300",
    "CONTROLLER_MANAGER_FLAGS": f"--terminated-pod-gc-threshold={ENDED_PODS_KEPT}"
    " --node-monitor-grace-period=40s --node-startup-grace-period=60s",
}

_TIMEOUT: Final = 3600
"""Seconds: whichever play comes first waits for the images and the nodes, and others for those that run before them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--training", action="store_true", help="play also what needs PyTorch, whose image takes minutes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Plays end by their conditions, and take longer than other tests."""
    if not config.getoption("--training", default=False):
        left_out = [item for item in items if item.get_closest_marker("training")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(_TIMEOUT))


@pytest.fixture(scope="session")
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """The stage, with the controller installed on it."""
    if (why := why_not()) is not None:
        pytest.skip(why)
    kubectl = find_kubectl()
    assert isinstance(kubectl, Path)
    with tempfile.TemporaryDirectory(prefix="e2e-", dir="/var/tmp") as name, ThreadPoolExecutor(1) as pool:
        folder = Path(name)
        archive = pool.submit(_archive, folder)
        with running_nodes(3, _FLAGS) as nodes:
            stage = Stage(nodes, folder / "shared", kubectl, folder)
            try:
                stage.wait(stage.open())
                nodes.import_images(archive.result())
                stage.wait(stage.keep_free(nodes.names[-1]))
                stage.wait(stage.define_queues())
                stage.wait(stage.install("overlays/single"))
                functions = ((item.nodeid, getattr(item, "function", None)) for item in request.session.items)
                plays = [(key, one) for key, one in functions if isinstance(one, PlayFunction)]
                stage.wait(stage.start([(key, one.track, one.coroutine) for key, one in plays]))
                yield stage
                # A container that has ended must not have written since.
                assert stage.violations() == []
            finally:
                stage.close()


def _archive(folder: Path) -> Path:
    """All images: the product's two, of its Dockerfile, and stand-ins for the images of the examples."""
    busybox = folder / "busybox"
    busybox.mkdir()
    shutil.copy("/bin/busybox", busybox / "busybox")
    for applet in _APPLETS:
        (busybox / applet).symlink_to("busybox")
    made = {
        "frameworkcontroller": f"docker.io/library/frameworkcontroller:{__version__}",
        "frameworkbarrier": f"docker.io/{BARRIER}",
        # A Debian with Python, which the product's own images stand on.
        "runtime": f"docker.io/library/{PYTHON}",
        "busybox": f"docker.io/library/{BUSYBOX}",
    }
    with image_store() as images:
        images.make_base()
        for target in ("frameworkcontroller", "frameworkbarrier", "runtime"):
            images.build(target)
        images.from_scratch("busybox", {"/bin": busybox})
        images.export(made, folder / "images.tar")
    return folder / "images.tar"
