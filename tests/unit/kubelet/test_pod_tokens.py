"""Tokens with an audience of their own in the volumes of local Pods."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import ObjectNotFound
from frameworkcontroller.kube.resources import SERVICEACCOUNTS, Resource
from frameworkcontroller.local.kubelet.downward import DownwardApi
from frameworkcontroller.local.kubelet.podsources import ContainerConfigError, PodSources
from frameworkcontroller.local.kubelet.volumes import make_volumes, renew_tokens, renewal_sec


class Api:
    """Answers TokenRequests with numbers."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.absent = False

    async def create(self, resource: Resource, body: bytes, namespace: str, *, name: str, subresource: str) -> bytes:
        assert (resource, subresource) == (SERVICEACCOUNTS, "token")
        if self.absent:
            raise ObjectNotFound('serviceaccounts "trainer" not found', code=404)
        self.asked.append({"namespace": namespace, "account": name, **orjson.loads(body)["spec"]})
        return orjson.dumps({"status": {"token": f"token-{len(self.asked)}"}})


def pod(*tokens: dict[str, Any], account: str | None = "trainer") -> dict[str, Any]:
    sources = [{"serviceAccountToken": token} for token in tokens]
    return {
        "metadata": {"name": "f-r-0", "namespace": "ns", "uid": "u"},
        "spec": {
            "volumes": [{"name": "reports", "projected": {"sources": sources}}],
            **({} if account is None else {"serviceAccountName": account}),
        },
    }


async def made(tmp_path: Path, api: Api, body: dict[str, Any]) -> dict[str, Path]:
    sources = PodSources(cast("KubeClient", api), "ns")
    access = {"token": b"the cluster's own"}
    return await make_volumes(body, tmp_path / "v", tmp_path / "c", DownwardApi(body, "127.0.0.9"), sources, access)


OWN = {"audience": "frameworkcontroller-progress", "path": "token", "expirationSeconds": 1000}


async def test_a_token_is_bound_to_the_pod(tmp_path: Path) -> None:
    api = Api()
    volumes = await made(tmp_path, api, pod(OWN, {"path": "cluster"}))
    assert (volumes["reports"] / "token").read_text() == "token-1"
    assert stat.S_IMODE((volumes["reports"] / "token").stat().st_mode) == 0o600
    assert (volumes["reports"] / "cluster").read_text() == "the cluster's own"
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "f-r-0", "uid": "u"}
    audiences = ["frameworkcontroller-progress"]
    assert api.asked == [
        {
            "namespace": "ns",
            "account": "trainer",
            "audiences": audiences,
            "expirationSeconds": 1000,
            "boundObjectRef": bound,
        }
    ]


async def test_the_default_account(tmp_path: Path) -> None:
    api = Api()
    await made(tmp_path, api, pod(OWN, account=None))
    assert api.asked[0]["account"] == "default"


async def test_it_is_renewed_in_place(tmp_path: Path) -> None:
    api, body = Api(), pod(OWN)
    volumes = await made(tmp_path, api, body)
    path = volumes["reports"] / "token"
    with path.open() as opened:
        await renew_tokens(body, volumes, PodSources(cast("KubeClient", api), "ns"), (os.getuid(), os.getgid()))
        # A reader of the former file is not disturbed.
        assert opened.read() == "token-1"
    assert path.read_text() == "token-2"
    assert [one.name for one in volumes["reports"].iterdir()] == ["token"]


@pytest.mark.parametrize(
    ("tokens", "seconds"),
    [
        ((), None),
        (({"path": "cluster"},), None),
        ((OWN,), 800.0),
        ((OWN, {**OWN, "path": "b", "expirationSeconds": 600}), 480.0),
        (({"audience": "a", "path": "token"},), 2880.0),
    ],
)
def test_the_time_of_the_renewal(tokens: tuple[dict[str, Any], ...], seconds: float | None) -> None:
    assert renewal_sec(pod(*tokens)) == seconds


async def test_a_missing_account_is_reported(tmp_path: Path) -> None:
    api = Api()
    api.absent = True
    with pytest.raises(ContainerConfigError, match='failed to fetch token: serviceaccounts "trainer" not found'):
        await made(tmp_path, api, pod(OWN))
