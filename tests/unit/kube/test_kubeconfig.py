"""Access by kubeconfigs, compared with kubernetes-asyncio's. The reader's errors: tests/unit/barrier."""

import base64
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from frameworkcontroller.kube.errors import ConnectionConfigError
from frameworkcontroller.kube.kubeconfig import ServerAccess, read_kubeconfig, read_service_account
from frameworkcontroller.kubeconfig.tls import Pem, Tls

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


async def by_library(path: str, context: str | None, address: str | None) -> ServerAccess:
    """The same access as kubernetes-asyncio reads it."""
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config.kube_config import ConfigNode, KubeConfigLoader, KubeConfigMerger

    read = Configuration()
    merged = KubeConfigMerger(path).config
    assert merged is not None
    for node in merged.value["contexts"]:
        # The library refuses https without a user.
        node.value["context"].setdefault("user", "anonymous")
    merged.value["users"].append(ConfigNode("anonymous", {"name": "anonymous", "user": {}}))
    for node in merged.value["clusters"] if address else ():
        node.value["cluster"]["server"] = address
    loader = KubeConfigLoader(merged, context, config_base_path=None)
    await loader.load_and_set(read)
    current = loader.current_context
    assert current is not None
    authority, certificate, key = (
        None if file is None else Path(file).read_bytes() for file in (read.ssl_ca_cert, read.cert_file, read.key_file)
    )
    return ServerAccess(
        server=read.host or "",
        authorization=read.api_key.get("BearerToken"),
        tls=Tls(authority, pem(certificate), pem(key), bool(read.verify_ssl), read.tls_server_name),
        proxy=read.proxy,
        namespace=current["context"].get("namespace"),
    )


def pem(content: bytes | None) -> Pem | None:
    return None if content is None else Pem(content)


def without_file_names(access: ServerAccess) -> ServerAccess:
    tls = access.tls
    if not access.server.startswith("https"):
        return replace(access, tls=Tls(verify=tls.verify))
    certificate, key = (pem(None if one is None else one.content) for one in (tls.certificate, tls.key))
    return replace(access, tls=replace(tls, certificate=certificate, key=key))


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
async def test_the_library_reads_the_same_access(
    tmp_path: Path, user: dict[str, Any] | None, more: dict[str, Any], context: str | None, address: str | None
) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("ca.crt", "a", "b", "sub/b"):
        (tmp_path / name).write_text(name)
    path = kubeconfig(tmp_path, user, **more)
    ours = await read_kubeconfig(path, context=context, address=address)
    theirs = await by_library(path, context, address)
    assert without_file_names(ours) == theirs
    assert ours.namespace == theirs.namespace


@pytest.mark.parametrize(
    ("user", "authorization"),
    [
        ({"username": "me", "password": "p"}, "Basic bWU6cA=="),
        ({"tokenFile": "t"}, "Bearer of-file"),
        ({"tokenFile": "t", "token": "stale"}, "Bearer of-file"),
        ({"tokenFile": "absent", "token": "last"}, "Bearer last"),
        ({"token": 5}, "Bearer 5"),
        ({"token": ""}, None),
        ({"token": " t\n"}, "Bearer t"),
        ({"token": "t", "exec": {"command": "absent"}}, "Bearer t"),
    ],
)
async def test_authorization(tmp_path: Path, user: dict[str, Any], authorization: str | None) -> None:
    (tmp_path / "t").write_text("of-file\n")
    access = await read_kubeconfig(kubeconfig(tmp_path, user))
    assert access.authorization == authorization
    assert access.renew_after == (60 if "tokenFile" in user else None)


@pytest.mark.parametrize(
    ("user", "more", "said"),
    [
        ({"client-certificate-data": "not base64!"}, {}, "client-certificate-data is not base64"),
        ({"tokenFile": "absent"}, {}, "token file .*/absent: No such file"),
    ],
)
async def test_a_setting_that_cannot_be_used_is_named(
    tmp_path: Path, user: dict[str, Any], more: dict[str, Any], said: str
) -> None:
    path = kubeconfig(tmp_path, user, **more)
    with pytest.raises(ConnectionConfigError, match=f"kubeconfig {path}: {said}"):
        await read_kubeconfig(path)


async def test_a_proxy_and_the_name_in_the_certificate(tmp_path: Path) -> None:
    access = await read_kubeconfig(kubeconfig(tmp_path, None, proxy_url="http://p:1", tls_server_name=5))
    assert (access.proxy, access.tls.server_name) == ("http://p:1", "5")


async def test_refreshed_tokens_are_written_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some identity providers replace the refresh token each time."""
    from kubernetes_asyncio.config.openid import OpenIDRequestor

    async def refresh_token(_self: object, old: str) -> dict[str, str]:
        return {"id_token": f"after {old}", "refresh_token": "second"}

    monkeypatch.setattr(OpenIDRequestor, "refresh_token", refresh_token)
    config = {"client-id": "i", "client-secret": "s", "idp-issuer-url": "https://i", "refresh-token": "first"}
    path = kubeconfig(tmp_path, {"auth-provider": {"name": "oidc", "config": config}}, certificate_authority_data=DATA)
    before = yaml.safe_load(Path(path).read_text())
    Path(path).write_text(Path(path).read_text() + "---\nnot: read\n")
    access = await read_kubeconfig(path)
    assert (access.authorization, access.renew_after) == ("Bearer after first", 60)
    after = yaml.safe_load(Path(path).read_text())
    assert after["users"][0]["user"]["auth-provider"]["config"] == {
        **config, "id-token": "after first", "refresh-token": "second",
    }  # fmt: skip
    assert {**after, "users": None} == {**before, "users": None}


@pytest.mark.parametrize(
    ("mode", "on_terminal", "interactive"),
    [
        ("IfAvailable", True, True),
        ("Never", True, False),
        ("IfAvailable", False, False),
        ("Always", True, True),
        ("Always", False, None),
    ],
)
async def test_a_plugin_may_use_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, on_terminal: bool, interactive: bool | None
) -> None:
    monkeypatch.setattr("os.isatty", lambda _: on_terminal)
    status = {"clientCertificateData": "certificate", "clientKeyData": "key"}
    version = "client.authentication.k8s.io/v1"
    credential = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
    (tmp_path / "plugin").write_text(f"#!/bin/sh\necho \"$KUBERNETES_EXEC_INFO\" > info\necho '{credential}'\n")
    (tmp_path / "plugin").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    plugin = {"apiVersion": version, "command": "./plugin", "interactiveMode": mode}
    path = kubeconfig(tmp_path, {"exec": plugin}, certificate_authority_data=DATA)
    if interactive is None:
        with pytest.raises(ConnectionConfigError, match="exec: it wants a terminal"):
            await read_kubeconfig(path)
        return
    access = await read_kubeconfig(path)
    assert access.tls == Tls(base64.b64decode(DATA), Pem(b"certificate"), Pem(b"key"))
    assert json.loads((tmp_path / "info").read_text())["spec"] == {"interactive": interactive}


def test_reading_imports_no_library_and_leaves_no_file(tmp_path: Path) -> None:
    user = {"client-certificate-data": DATA, "client-key-data": DATA}
    path = kubeconfig(tmp_path, user, certificate_authority_data=DATA)
    script = (
        "import asyncio, sys; from frameworkcontroller.kube.kubeconfig import read_kubeconfig; "
        f"access = asyncio.run(read_kubeconfig({path!r})); "
        "assert not any(name.startswith('kubernetes_asyncio') for name in sys.modules); "
        "print('KEY' in repr(access), 'BEGIN' in repr(access))"
    )
    (tmp_path / "tmp").mkdir()
    environ = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environ)
    assert said.stdout == "False False\n"
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("frameworkcontroller.kube.kubeconfig.SERVICE_ACCOUNT", str(tmp_path))
    for name, content in (("token", "secret\n"), ("ca.crt", "PEM"), ("namespace", "here\n")):
        (tmp_path / name).write_text(content)
    return tmp_path


async def test_a_service_account(account: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    access = await read_service_account(environ)
    assert access == ServerAccess(server="https://10.0.0.1:443", authorization="Bearer secret", tls=Tls(b"PEM"))
    assert (access.namespace, access.renew_after) == ("here", 60)
    (account / "namespace").unlink()
    assert (await read_service_account(environ)).namespace is None


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("token", "token is not there"),
        ("ca.crt", r"ca\.crt cannot be used: No such file"),
        ("KUBERNETES_SERVICE_PORT", r"\$KUBERNETES_SERVICE_PORT are not set"),
    ],
)
async def test_a_missing_part_of_a_service_account_is_named(account: Path, missing: str, said: str) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "443"}
    if environ.pop(missing, None) is None:
        (account / missing).unlink()
    with pytest.raises(ConnectionConfigError, match=f"^in-cluster configuration: .*{said}"):
        await read_service_account(environ)
