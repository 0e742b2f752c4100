"""The programs of examples/python, with containers. Only the one with PyTorch is left out."""

from tests.e2e.stage import Play, play
from tests.support.pythonprograms import SAYS, assert_they_work, kubeconfig_for

NEED_PYTHON = [name for name in SAYS if name != "script"]


@play()
async def test_programs_that_need_only_python(play: Play) -> None:
    kubeconfig = kubeconfig_for(play.nodes.kubeconfig, play.namespace, play.folder / "kubeconfig")
    await assert_they_work(kubeconfig, play.client, play.namespace, *NEED_PYTHON, logs=True)
