"""The Helm chart: install, test, upgrade, uninstall and install again, while a Framework runs."""

import shutil
import tempfile
from pathlib import Path
from typing import Final

import pytest

from frameworkcontroller import __version__
from tests.e2e.stage import CONTROLLER, MANIFESTS, WITHIN, Play, Track, attempts_of, play
from tests.support.frameworks import codes, tasks
from tests.support.kubectl import Kubectl, find_helm

CHART: Final = MANIFESTS / "chart"
CRD: Final = "frameworks.frameworkcontroller.microsoft.com"
TEST: Final = "frameworkcontroller-test"
UNTIL_OVER: Final = "until [ -e /witness/.over ]; do sleep 1; done"

# For an API server before 1.25: README.md of the chart.
OLD: Final = ("--server-side=false", "--disable-openapi-validation", "--wait", "--timeout=5m")

if isinstance(helm_missing := find_helm(), str):
    pytest.skip(helm_missing, allow_module_level=True)


@play(Track.CONTROLLER)
async def test_a_release_from_install_to_reinstallation(play: Play) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        program = find_helm()
        assert isinstance(program, Path)
        helm = Kubectl(program, play.nodes.kubeconfig, CONTROLLER, Path(name))
        try:
            await _release(play, helm, Path(name))
        finally:
            await helm("uninstall", CONTROLLER, "--wait")
            await play.stage.install("overlays/single")
            await play.controllers()


async def _release(play: Play, helm: Kubectl, folder: Path) -> None:
    async def change(verb: str, chart: Path, *options: str, replicas: int = 1) -> None:
        values = (f"image.tag={__version__}", f"controller.replicas={replicas}")
        await helm.ok(verb, CONTROLLER, str(chart), *OLD, *options, *(f"--set={one}" for one in values))

    async def missing(*what: str) -> bool:
        return "NotFound" in (await play.stage.kubectl(CONTROLLER)("get", *what)).err

    def running() -> set[str]:
        return {pod["metadata"]["uid"] for pod in play.recorder.pods(play.namespace).values()}

    def framework() -> str:
        found: str = play.recorder.frameworks(play.namespace)["kept"]["metadata"]["uid"]
        return found

    def first() -> str:
        found: str = play.recorder.pods(CONTROLLER)[f"{CONTROLLER}-0"]["metadata"]["uid"]
        return found

    # It takes over the objects of the kustomizations.
    await change("install", _older_chart(folder), "--take-ownership")
    await play.controllers()

    await helm.ok("test", CONTROLLER, "--timeout=5m")
    await play.recorder.until(lambda: not play.recorder.frameworks(CONTROLLER), within=WITHIN)
    for kind in ("pod", "serviceaccount", "role", "rolebinding"):
        assert await missing(kind, TEST), kind

    await play.create("kept", play.role(number=2, script=UNTIL_OVER))
    await play.until_running("kept", 2)
    uid, pods = framework(), running()

    await change("upgrade", CHART)
    assert f"{CONTROLLER}-{__version__}" in await helm.ok("list")
    await play.controllers()
    before = first()
    await change("upgrade", CHART, "--set=config.workerNumber=3", replicas=2)
    await play.controllers(2)
    assert first() != before

    await helm.ok("uninstall", CONTROLLER, "--wait")
    await play.recorder.until(lambda: not play.recorder.pods(CONTROLLER), within=WITHIN)
    assert await missing("statefulset", CONTROLLER)
    assert "deletionTimestamp" not in (await play.kubectl.json("get", "crd", CRD))["metadata"]
    assert (framework(), running()) == (uid, pods)

    await change("install", CHART)
    play.say_over()
    status = await play.until_completed("kept")
    assert (codes(tasks(status)), attempts_of(status)) == ([0, 0], [0, 0])
    assert (framework(), set(play.recorder.pods_seen[play.namespace])) == (uid, pods)


def _older_chart(folder: Path) -> Path:
    chart = folder / "older"
    shutil.copytree(CHART, chart)
    metadata = chart / "Chart.yaml"
    metadata.write_text(metadata.read_text().replace(f"version: {__version__}", "version: 0.0.1", 1))
    return chart
