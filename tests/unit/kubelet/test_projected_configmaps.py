"""ConfigMaps in projected volumes, which follow changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from frameworkcontroller.local.kubelet.podsources import PodSources
from frameworkcontroller.local.kubelet.volumes import has_projected_configmaps, renew_configmaps


class Sources(PodSources):
    """One ConfigMap. ``data`` None: there is none."""

    def __init__(self, data: dict[str, str] | None) -> None:
        self.data = data

    async def entries(self, kind: str, reference: Mapping[str, Any]) -> Mapping[str, bytes] | None:
        assert (kind, reference["name"]) == ("configmap", "c")
        return None if self.data is None else {key: value.encode() for key, value in self.data.items()}


def pod(**reference: Any) -> dict[str, Any]:
    source = {"configMap": {"name": "c", "optional": True, **reference}}
    return {"spec": {"volumes": [{"name": "v", "projected": {"sources": [source]}}]}}


@pytest.mark.parametrize("gone", [{}, None])
async def test_a_file_comes_changes_and_goes(tmp_path: Path, gone: dict[str, str] | None) -> None:
    sources = Sources({"other": "x"})
    manifest = pod(items=[{"key": "notice", "path": "deep/notice"}])
    file = tmp_path / "deep" / "notice"

    async def renewed() -> str | None:
        await renew_configmaps(manifest, {"v": tmp_path}, sources)
        return file.read_text() if file.exists() else None

    assert await renewed() is None
    sources.data = {"notice": "first"}
    assert await renewed() == "first"
    inode = file.stat().st_ino
    assert await renewed() == "first"
    assert file.stat().st_ino == inode, "a file that has not changed is not written"
    sources.data = {"notice": "second"}
    assert await renewed() == "second"
    sources.data = gone
    assert await renewed() is None
    assert [one.name for one in tmp_path.iterdir()] == ["deep"]


def test_other_pods_cost_nothing() -> None:
    assert has_projected_configmaps(pod())
    assert not has_projected_configmaps({"spec": {"volumes": [{"name": "v", "configMap": {"name": "c"}}]}})
    assert not has_projected_configmaps({"spec": {}})
