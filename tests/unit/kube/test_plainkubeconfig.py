"""Kubeconfig files that are read without the library mean what they mean to the library."""

import base64
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from frameworkcontroller.kube.kubeconfig import Access, read_by_library, read_kubeconfig
from frameworkcontroller.kube.plainkubeconfig import read_plain_kubeconfig

DATA = base64.b64encode(b"-----BEGIN CERTIFICATE-----\n").decode()


def kubeconfig(
    folder: Path,
    user: dict[str, Any] | None,
    *,
    server: str = "https://h:6443/",
    context: dict[str, Any] | None = None,
    **cluster: Any,
) -> str:
    chosen: dict[str, Any] = {"cluster": "c", **(context or {})}
    if user is not None:
        chosen["user"] = "u"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [
            {"name": "other", "context": {"cluster": "c", "namespace": "there"}},
            {"name": "x", "context": chosen},
        ],
        "clusters": [
            {"name": "c", "cluster": {"server": server, **{k.replace("_", "-"): v for k, v in cluster.items()}}}
        ],
        "users": [] if user is None else [{"name": "u", "user": user}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(content))
    return str(path)


def meaning(access: Access) -> list[object]:
    """What the access is, with what its temporary files hold in their place."""
    files = [access.ca_file, access.client_cert_file, access.client_key_file]
    held = [Path(file).read_bytes() if file and Path(file).exists() else file for file in files]
    return [
        access.server, access.authorization, access.impersonate, access.verify, access.tls_server_name, access.proxy,
        access.namespace, access.renew_after, *held,
    ]  # fmt: skip


PLAIN: list[tuple[dict[str, Any] | None, dict[str, Any]]] = [
    (None, {}),
    ({}, {}),
    ({"token": "t"}, {}),
    ({"token": "t"}, {"server": "http://h:1", "certificate_authority_data": DATA}),
    ({"token": "t"}, {"context": {"namespace": "n"}}),
    ({"token": "t"}, {"certificate_authority": "ca.crt"}),
    ({"token": "t"}, {"certificate_authority": "sub/../ca.crt", "tls_server_name": "name"}),
    ({"client-certificate-data": DATA, "client-key-data": DATA}, {"certificate_authority_data": DATA}),
    ({"client-certificate": "a", "client-key": "sub/b", "token": "t"}, {"certificate_authority_data": DATA}),
    (
        {"client-certificate": "a", "client-certificate-data": DATA, "client-key": "b"},
        {"insecure_skip_tls_verify": True},
    ),
]


@pytest.mark.parametrize(("user", "more"), PLAIN)
@pytest.mark.parametrize(("context", "address"), [(None, None), ("other", None), (None, "https://elsewhere:1")])
async def test_it_means_the_same(
    tmp_path: Path, user: dict[str, Any] | None, more: dict[str, Any], context: str | None, address: str | None
) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("ca.crt", "a", "b", "sub/b"):
        (tmp_path / name).write_text(name)
    path = kubeconfig(tmp_path, user, **more)
    assert read_plain_kubeconfig(path, context, address) is not None
    ours = await read_kubeconfig(path, context=context, address=address)
    assert meaning(ours) == meaning(await read_by_library(path, context=context, address=address, wall=time.time))


@pytest.mark.parametrize(
    ("user", "more"),
    [
        ({"username": "me", "password": "p"}, {}),
        ({"exec": {"command": "x"}}, {}),
        ({"tokenFile": "t"}, {}),
        ({"token": "t", "as": "somebody"}, {}),
        ({"token": 5}, {}),
        ({"token": ""}, {}),
        ({"token": " t"}, {}),
        ({"token": "t"}, {"certificate_authority": "absent"}),
        ({"client-certificate-data": "not base64!"}, {}),
        ({"token": "t"}, {"proxy_url": "http://p:1"}),
        ({"token": "t"}, {"server": ""}),
        ({"token": "t"}, {"context": {"cluster": "absent"}}),
        ({"token": "t"}, {"context": {"user": "absent"}, "tls_server_name": 5}),
    ],
)
def test_the_rest_is_left_to_the_library(tmp_path: Path, user: dict[str, Any], more: dict[str, Any]) -> None:
    assert read_plain_kubeconfig(kubeconfig(tmp_path, user, **more), None, None) is None


@pytest.mark.parametrize("content", ["", "[]", "a: [", "contexts: 5\ncurrent-context: x", "&a [*a]"])
def test_what_is_no_kubeconfig_is_left_to_the_library(tmp_path: Path, content: str) -> None:
    (tmp_path / "config").write_text(content)
    assert read_plain_kubeconfig(str(tmp_path / "config"), None, None) is None
    assert read_plain_kubeconfig(str(tmp_path / "absent"), None, None) is None
    assert read_plain_kubeconfig(f"{tmp_path}/config:{tmp_path}/config", None, None) is None


@pytest.mark.parametrize("user", [{"token": "t"}, {"tokenFile": "a"}])
async def test_a_file_that_was_cleaned_away_is_written_again(tmp_path: Path, user: dict[str, Any]) -> None:
    # Many systems clean /tmp of what is ten days old; credentials are read for as long as the controller runs.
    (tmp_path / "a").write_text("token")
    path = kubeconfig(tmp_path, user, certificate_authority_data=DATA)
    for _ in range(2):
        file = (await read_kubeconfig(path)).ca_file
        assert file is not None
        assert Path(file).read_bytes() == base64.b64decode(DATA)
        Path(file).unlink()


def test_it_needs_no_library_and_leaves_no_key_behind(tmp_path: Path) -> None:
    user = {"client-certificate-data": DATA, "client-key-data": DATA}
    path = kubeconfig(tmp_path, user, certificate_authority_data=DATA)
    script = (
        "import asyncio, sys, os; from frameworkcontroller.kube.kubeconfig import read_kubeconfig; "
        f"access = asyncio.run(read_kubeconfig({path!r})); "
        "assert oct(os.stat(access.client_key_file).st_mode)[-3:] == '600'; "
        "assert not any(name.startswith('kubernetes_asyncio') for name in sys.modules); "
        "print(access.client_key_file)"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not Path(said.stdout.strip()).exists()
