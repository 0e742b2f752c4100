"""Connections as kubeconfig files, service accounts and plain addresses mean them, tried on a server."""

import asyncio
import base64
import os
import socket
import stat
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from frameworkcontroller.kube import errors
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection, connect
from frameworkcontroller.kube.errors import ConnectionConfigError
from frameworkcontroller.kube.kubeconfig import ServerAccess
from frameworkcontroller.kube.resources import PODS
from tests.support.certificates import Certificates, make_certificates
from tests.support.faulty_server import FaultyServer, answer, faulty_server, status
from tests.support.virtual_clock import VirtualClockLoop


@pytest.fixture
async def server() -> AsyncIterator[FaultyServer]:
    async with faulty_server() as running:
        running.otherwise = answer()
        yield running


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def kubeconfig(
    path: Path,
    server: str,
    user: Mapping[str, Any] | None = None,
    cluster: Mapping[str, Any] | None = None,
    **more: Any,
) -> str:
    context = {"cluster": "c", **({"user": "u"} if user is not None else {})}
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "x",
                "contexts": [{"name": "x", "context": context}],
                "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
                "users": [{"name": "u", "user": dict(user)}] if user is not None else [],
                **more,
            }
        )
    )
    return str(path)


def service_account(directory: Path, token: str, ca: bytes) -> None:
    directory.mkdir(exist_ok=True)
    (directory / "token").write_text(token)
    (directory / "ca.crt").write_bytes(ca)


async def ask(connection: Connection) -> bytes:
    async with KubeClient(connection) as client:
        return await client.get(PODS, "a", "ns")


# Which setting counts.


async def test_an_address_alone_means_no_credentials(server: FaultyServer, tmp_path: Path) -> None:
    connection = await connect(address=server.url, environ={})
    await ask(connection)
    assert "Authorization" not in server.seen[0].headers
    assert connection.origin == "kubeApiServerAddress"


async def test_the_environments_address(server: FaultyServer, tmp_path: Path) -> None:
    connection = await connect(environ={"KUBE_APISERVER_ADDRESS": server.url + "/"})
    await ask(connection)
    assert connection.origin == "$KUBE_APISERVER_ADDRESS"
    assert server.seen[0].path == "/api/v1/namespaces/ns/pods/a"


async def test_the_environments_kubeconfigs_are_merged(server: FaultyServer, tmp_path: Path) -> None:
    first = kubeconfig(tmp_path / "k1", server.url, {"token": "secret"})
    second = kubeconfig(tmp_path / "k2", "http://elsewhere:1", {"token": "other"})
    environ = {"KUBECONFIG": os.pathsep.join([str(tmp_path / "absent"), first, second])}
    await ask(await connect(environ=environ))
    assert server.seen[0].headers["Authorization"] == "Bearer secret"


async def test_the_kubeconfig_of_the_home_directory(server: FaultyServer, tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path / ".kube" / "config", server.url, {"username": "me", "password": "pass"})
    await ask(await connect(environ={"KUBECONFIG": ""}))
    assert server.seen[0].headers["Authorization"] == "Basic " + base64.b64encode(b"me:pass").decode()


async def test_an_empty_setting_means_none_in_any_environment(server: FaultyServer, tmp_path: Path) -> None:
    """As in the original: how a controller is made to use its Pod's service account."""
    environ = {
        "KUBE_APISERVER_ADDRESS": "http://192.0.2.1:1",
        "KUBECONFIG": kubeconfig(tmp_path / "k", server.url, {"token": "secret"}),
    }
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path / ".kube" / "config", server.url, {"token": "secret"})
    only_file = await connect(address="", environ=environ)
    assert (only_file.server, only_file.origin) == (server.url, f"kubeconfig {tmp_path / 'k'}")
    only_address = await connect(kubeconfig="", environ=environ)
    assert (only_address.server, only_address.origin) == ("http://192.0.2.1:1", "$KUBE_APISERVER_ADDRESS")
    assert await only_address.headers() == []
    with pytest.raises(ConnectionConfigError, match="not in a Pod"):
        await connect(address="", kubeconfig="", environ=environ)


async def test_a_variable_that_names_no_file_is_passed_over(
    server: FaultyServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As in the original: on to the usual file, and then to the Pod's service account."""
    environ = {"KUBECONFIG": os.pathsep.join([str(tmp_path / "absent"), str(tmp_path / "gone")])}
    with pytest.raises(ConnectionConfigError, match="not in a Pod"):
        await connect(environ=environ, absent_kubeconfig_ok=True)
    assert caplog.messages == [f"Ignoring $KUBECONFIG, which names no existing file: {environ['KUBECONFIG']}"]
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path / ".kube" / "config", server.url, {"token": "usual"})
    await ask(await connect(environ=environ, absent_kubeconfig_ok=True))
    kubeconfig(tmp_path / "gone", server.url, {"token": "second"})
    await ask(await connect(environ=environ, absent_kubeconfig_ok=True))
    assert [request.headers["Authorization"] for request in server.seen] == ["Bearer usual", "Bearer second"]
    # A file that the configuration itself names must exist.
    with pytest.raises(ConnectionConfigError, match="absent: no such file"):
        await connect(kubeconfig=str(tmp_path / "absent"), environ={}, absent_kubeconfig_ok=True)


async def test_an_address_overrides_the_kubeconfigs_server(server: FaultyServer, tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "k", "https://192.0.2.1:6443", {"token": "secret"})
    before = Path(path).read_bytes()
    connection = await connect(address=server.url, kubeconfig=path, environ={})
    await ask(connection)
    assert server.seen[0].headers["Authorization"] == "Bearer secret"
    assert connection.origin == f"kubeApiServerAddress, with kubeconfig {path}"
    assert Path(path).read_bytes() == before


async def test_to_act_as_another_user(server: FaultyServer, tmp_path: Path) -> None:
    user = {"token": "t", "as": "jane", "as-groups": ["dev", "ops"], "as-user-extra": {"scopes": ["view"]}}
    await ask(await connect(kubeconfig=kubeconfig(tmp_path / "k", server.url, user), environ={}))
    headers = server.seen[0].headers
    assert headers["Impersonate-User"] == "jane"
    assert headers["Impersonate-Group"] == "dev, ops"
    assert headers["Impersonate-Extra-scopes"] == "view"


# The error names its file.


OF_CLUSTER = "current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\nclusters: "
OF_USER = (
    "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
    "clusters: [{name: c, cluster: {server: 'https://h:1'}}]\nusers: "
)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("a: [", "line 1: it is not YAML"),
        ("", "no current-context"),
        ("[]", "it is not a mapping"),
        ("clusters: {}", "no current-context"),
        ("current-context: x", "there is no context 'x'"),
        ("current-context: x\ncontexts: [{name: x}]", "context 'x' names no cluster"),
        ("current-context: x\ncontexts: [{name: x, context: 5}]", "context 'x' is not a mapping"),
        ("current-context: x\ncontexts: [{name: x, context: {}}]", "context 'x' names no cluster"),
        (OF_CLUSTER.removesuffix("clusters: "), "there is no cluster 'c'"),
        (OF_CLUSTER + "[{name: c, cluster: {}}]", "cluster 'c' is not a mapping|names no server"),
        (OF_USER + "[]", "there is no user 'u'"),
        (OF_CLUSTER + "[{name: c, cluster: {server: 'ftp://h:1'}}]", "must be http"),
        (
            OF_CLUSTER + "[{name: c, cluster: {server: 'https://h:1', certificate-authority: /absent/ca.crt}}]",
            "/absent/ca.crt",
        ),
        (OF_USER + "[{name: u, user: {exec: {command: x}}}]", "apiVersion"),
    ],
)
async def test_a_bad_kubeconfig(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "bad"
    path.write_text(content)
    with pytest.raises(ConnectionConfigError, match=complaint) as refused:
        await connect(kubeconfig=str(path), environ={})
    assert str(path) in str(refused.value)


async def test_an_absent_kubeconfig(tmp_path: Path) -> None:
    for setting in ({"kubeconfig": str(tmp_path / "absent")}, {"environ": {"KUBECONFIG": str(tmp_path / "absent")}}):
        with pytest.raises(ConnectionConfigError, match="absent: no such file"):
            await connect(**{"environ": {}, **setting})  # type: ignore[arg-type]  # of several types


@pytest.mark.parametrize(
    "address",
    [
        "api:6443",
        "ftp://api:1",
        "https://",
        "https://api:port",
        "http://api:99999",
        "http://me:pw@api:1",
        "http://a:1?x=1",
    ],
)
async def test_a_bad_address(tmp_path: Path, address: str) -> None:
    with pytest.raises(
        ConnectionConfigError, match=r"\$KUBE_APISERVER_ADDRESS must be http\[s\]://host:port"
    ) as refused:
        await connect(environ={"KUBE_APISERVER_ADDRESS": address})
    assert "pw" not in str(refused.value)


async def test_nothing_configured_and_not_in_a_pod(tmp_path: Path) -> None:
    with pytest.raises(
        ConnectionConfigError, match=r"no kubeApiServerAddress.*not in a Pod: .*KUBERNETES_SERVICE_HOST"
    ):
        await connect(environ={})


async def test_a_proxy_with_tls_before_a_server_without() -> None:
    environ = {"HTTP_PROXY": "https://proxy:1"}
    assert (await connect(address="http://h:1", kubeconfig="", environ=environ)).tls is not None
    assert (await connect(address="http://h:1", kubeconfig="", environ={})).tls is None


async def test_a_proxy_of_another_kind_is_refused_without_its_password(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "k", "https://h:1", {}, {"proxy-url": "socks5://me:secret@proxy:1"})
    with pytest.raises(ConnectionConfigError, match="socks5 proxy") as refused:
        await connect(kubeconfig=path, environ={})
    assert "secret" not in str(refused.value)


async def test_proxies(tmp_path: Path) -> None:
    environ = {"HTTPS_PROXY": "http://from-environment:1"}
    plain = kubeconfig(tmp_path / "k1", "https://api.example:1", {})
    assert (await connect(kubeconfig=plain, environ=environ)).proxy == "http://from-environment:1"
    own = kubeconfig(tmp_path / "k2", "https://api.example:1", {}, {"proxy-url": "http://own:1"})
    assert (await connect(kubeconfig=own, environ=environ)).proxy == "http://own:1"


# TLS.


async def test_tls_with_a_client_certificate(certificates: Certificates, tmp_path: Path) -> None:
    certificate, key = certificates.pair("client")
    user = {
        "client-certificate-data": base64.b64encode(certificate.read_bytes()).decode(),
        "client-key-data": base64.b64encode(key.read_bytes()).decode(),
    }
    async with faulty_server(ssl_context=certificates.server_context(client_certificates=True)) as server:
        server.otherwise = answer()
        path = kubeconfig(tmp_path / "k", server.url, user, {"certificate-authority": str(certificates.ca)})
        assert await ask(await connect(kubeconfig=path, environ={})) == b"{}"


class Deaf:
    """A server with TLS, in a thread, that answers neither a request nor that its client ends TLS."""

    def __init__(self, certificates: Certificates) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        self._tls = certificates.server_context()
        self.asked = asyncio.Event()
        self.left = asyncio.Event()

    async def serve(self) -> None:
        """Serve one connection until its client has left."""
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._serve, loop)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._listener:
            accepted, _ = self._listener.accept()
        with self._tls.wrap_socket(accepted, server_side=True) as secure:
            while not secure.recv(65536).endswith(b"\r\n\r\n"):
                pass
            loop.call_soon_threadsafe(self.asked.set)
            bare = socket.socket(fileno=secure.detach())
        with bare, suppress(ConnectionError):
            while bare.recv(65536):
                pass
        loop.call_soon_threadsafe(self.left.set)


async def test_a_cancelled_request_leaves_no_connection(certificates: Certificates, tmp_path: Path) -> None:
    server = Deaf(certificates)
    serving = asyncio.create_task(server.serve())
    path = kubeconfig(tmp_path / "k", server.url, {}, {"certificate-authority": str(certificates.ca)})
    async with KubeClient(await connect(kubeconfig=path, environ={})) as client:
        asking = asyncio.create_task(client.list(PODS, "ns"))
        await server.asked.wait()
        asking.cancel()
        await asyncio.wait([asking])
    # Sooner than TLS without an answer is given up.
    await asyncio.wait_for(server.left.wait(), 20)
    await serving


async def test_tls_trust(certificates: Certificates, tmp_path: Path) -> None:
    async with faulty_server(ssl_context=certificates.server_context()) as server:
        server.otherwise = answer()
        distrusted = kubeconfig(tmp_path / "k1", server.url)
        with pytest.raises(errors.TransportError, match=r"(?i)certificate") as refused:
            await ask(await connect(kubeconfig=distrusted, environ={}))
        assert not refused.value.maybe_sent
        careless = kubeconfig(tmp_path / "k2", server.url, {}, {"insecure-skip-tls-verify": True})
        assert await ask(await connect(kubeconfig=careless, environ={})) == b"{}"
        ca = {"certificate-authority": str(certificates.ca)}
        named = kubeconfig(tmp_path / "k3", server.url, {}, {**ca, "tls-server-name": "api.test"})
        assert await ask(await connect(kubeconfig=named, environ={})) == b"{}"
        misnamed = kubeconfig(tmp_path / "k4", server.url, {}, {**ca, "tls-server-name": "other.test"})
        with pytest.raises(errors.TransportError, match=r"(?i)certificate"):
            await ask(await connect(kubeconfig=misnamed, environ={}))


async def test_a_rotated_client_certificate_is_used_for_new_connections(
    certificates: Certificates, tmp_path: Path
) -> None:
    certificates.issue("rotated")
    names: list[str] = []

    async def who(request: Any) -> Any:
        subject = request.transport.get_extra_info("peercert")["subject"]
        names.append(dict(pair[0] for pair in subject)["commonName"])
        return await (status(401, "Unauthorized") if len(names) == 2 else answer())(request)

    mine, my_key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def install(name: str) -> None:
        certificate, key = certificates.pair(name)
        mine.write_bytes(certificate.read_bytes())
        my_key.write_bytes(key.read_bytes())

    install("client")
    async with faulty_server(ssl_context=certificates.server_context(client_certificates=True)) as server:
        server.otherwise = who
        user = {"client-certificate": "tls.crt", "client-key": "tls.key"}
        path = kubeconfig(tmp_path / "k", server.url, user, {"certificate-authority": str(certificates.ca)})
        async with KubeClient(await connect(kubeconfig=path, environ={})) as client:
            await client.get(PODS, "a", "ns")
            install("rotated")
            await client.get(PODS, "a", "ns")
            await client.get(PODS, "a", "ns")
    assert names == ["client", "client", "rotated", "rotated"]
    assert server.connections == 2


# Credentials get old.


@pytest.mark.virtual_clock
async def test_a_service_accounts_token_is_read_again_every_minute(
    certificates: Certificates, tmp_path: Path, clock: VirtualClockLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with faulty_server(ssl_context=certificates.server_context()) as server:
        server.otherwise = answer()
        monkeypatch.setattr("frameworkcontroller.kube.kubeconfig.SERVICE_ACCOUNT", str(tmp_path / "sa"))
        service_account(tmp_path / "sa", "first\n", certificates.ca.read_bytes())
        environ = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": server.url.rpartition(":")[2],
            "HTTPS_PROXY": "http://127.0.0.1:1",
        }
        connection = await connect(environ=environ)
        assert (connection.origin, connection.proxy) == ("in-cluster configuration", None)
        async with KubeClient(connection) as client:
            await client.get(PODS, "a", "ns")
            service_account(tmp_path / "sa", "second\n", certificates.ca.read_bytes())
            await asyncio.sleep(59)
            await client.get(PODS, "a", "ns")
            await asyncio.sleep(2)
            await client.get(PODS, "a", "ns")
    tokens = [request.headers["Authorization"] for request in server.seen]
    assert tokens == ["Bearer first", "Bearer first", "Bearer second"]


@pytest.mark.virtual_clock
async def test_a_401_renews_the_credentials_once_for_all(server: FaultyServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    path = kubeconfig(tmp_path / "k", server.url, {"tokenFile": str(tmp_path / "token")})

    async def second_only(request: Any) -> Any:
        good = request.headers["Authorization"] == "Bearer second"
        return await (answer() if good else status(401, "Unauthorized"))(request)

    server.otherwise = second_only
    async with KubeClient(await connect(kubeconfig=path, environ={})) as client:
        (tmp_path / "token").write_text("second\n")
        bodies = await asyncio.gather(*(client.create(PODS, b"{}", "ns") for _ in range(5)))
        assert bodies == [b"{}"] * 5
        async with client.watch(PODS, resource_version="1"):
            pass
    assert len(server.seen) == 11, "each of the five was refused once; the watch never"


@pytest.mark.virtual_clock
async def test_credentials_that_stay_refused_are_not_renewed_in_a_circle(
    server: FaultyServer, tmp_path: Path, clock: VirtualClockLoop
) -> None:
    server.otherwise = status(401, "Unauthorized")
    connection = await connect(kubeconfig=kubeconfig(tmp_path / "k", server.url, {"token": "bad"}), environ={})
    async with KubeClient(connection) as client:
        for expected in (2, 3, 4):
            with pytest.raises(errors.ApiError, match="told to refuse"):
                await client.get(PODS, "a", "ns")
            assert len(server.seen) == expected
        await asyncio.sleep(6)
        with pytest.raises(errors.ApiError, match="told to refuse"):
            await client.get(PODS, "a", "ns")
    assert len(server.seen) == 6


@pytest.mark.virtual_clock
async def test_a_renewal_that_fails_keeps_the_old_credentials(
    server: FaultyServer, tmp_path: Path, clock: VirtualClockLoop, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "token").write_text("first\n")
    path = kubeconfig(tmp_path / "k", server.url, {"tokenFile": str(tmp_path / "token")})
    async with KubeClient(await connect(kubeconfig=path, environ={})) as client:
        await client.get(PODS, "a", "ns")
        (tmp_path / "token").unlink()
        for _ in range(50):
            await asyncio.sleep(2)
            await client.get(PODS, "a", "ns")
        (tmp_path / "token").write_text("second\n")
        await asyncio.sleep(40)
        await client.get(PODS, "a", "ns")
    assert {request.headers["Authorization"] for request in server.seen[:-1]} == {"Bearer first"}
    assert server.seen[-1].headers["Authorization"] == "Bearer second"
    assert len(caplog.records) == 2, "at 60 s and half a minute later, not with each request"


@pytest.mark.virtual_clock
async def test_a_renewal_outlasts_the_request_that_began_it(server: FaultyServer, clock: VirtualClockLoop) -> None:
    # A claim of the lease is given up after five seconds: were the renewal, too, no later claim would fare better.
    began = 0

    async def plugin() -> ServerAccess:
        nonlocal began
        began += 1
        await asyncio.sleep(8)
        return ServerAccess(server.url, authorization="Bearer second", renew_after=3600)

    first = ServerAccess(server.url, authorization="Bearer first", renew_after=60)
    async with KubeClient(Connection(first, origin="", renew=plugin)) as client:
        await client.get(PODS, "a", "ns")
        await asyncio.sleep(60)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await client.get(PODS, "a", "ns")
        await asyncio.sleep(2)
        async with asyncio.timeout(0.5):
            await client.get(PODS, "a", "ns")
        await asyncio.sleep(2)
        await client.get(PODS, "a", "ns")
    assert [seen.headers["Authorization"] for seen in server.seen] == ["Bearer first", "Bearer first", "Bearer second"]
    assert began == 1


@pytest.mark.virtual_clock
async def test_a_renewal_that_fails_fails_once_for_all(server: FaultyServer, clock: VirtualClockLoop) -> None:
    began = 0

    async def plugin() -> ServerAccess:
        nonlocal began
        began += 1
        await asyncio.sleep(60)
        raise ConnectionConfigError("nobody there")

    async def refused(seconds: float) -> None:
        await asyncio.sleep(seconds)
        with pytest.raises(errors.ApiError, match="told to refuse"):
            await client.get(PODS, "a", "ns")

    server.otherwise = status(401, "Unauthorized")
    first = ServerAccess(server.url, authorization="Bearer first")
    async with KubeClient(Connection(first, origin="", renew=plugin)) as client:
        start = clock.time()
        await asyncio.gather(*(refused(number) for number in range(10)))
        assert clock.time() - start == pytest.approx(60, abs=1)
    assert began == 1


async def test_a_kubeconfig_that_now_names_another_server_is_not_followed(
    server: FaultyServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = kubeconfig(tmp_path / "k", server.url, {"token": "mine"})
    connection = await connect(kubeconfig=path, environ={})
    kubeconfig(tmp_path / "k", "https://192.0.2.1:1", {"token": "of the other"})
    server.then(status(401, "Unauthorized"))
    with pytest.raises(errors.ApiError, match="told to refuse"):
        await ask(connection)
    assert [request.headers["Authorization"] for request in server.seen] == ["Bearer mine"]
    assert "restart" in caplog.text


def plugin(path: Path, *, lifetime: int | None = None) -> dict[str, Any]:
    """An exec credential plugin that counts its runs, and gives the count as token."""
    expiry = ""
    if lifetime is not None:
        when = datetime.now(UTC).timestamp() + lifetime
        expiry = f', "expirationTimestamp": "{datetime.fromtimestamp(when, UTC):%Y-%m-%dT%H:%M:%SZ}"'
    path.write_text(
        f"#!/bin/sh\necho run >> {path}.runs\nn=$(wc -l < {path}.runs)\n"
        'echo \'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
        f'"status":{{"token":"\'$(echo $n)\'"{expiry}}}}}\'\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), "interactiveMode": "Never"}}


async def test_an_exec_plugin_runs_again_after_a_refusal(server: FaultyServer, tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "k", server.url, plugin(tmp_path / "plugin"))
    connection = await connect(kubeconfig=path, environ={})
    await ask(connection)
    server.then(status(401, "Unauthorized"))
    await ask(connection)
    assert [request.headers["Authorization"] for request in server.seen] == ["Bearer 1", "Bearer 1", "Bearer 2"]


async def test_an_exec_plugins_token_is_renewed_before_it_expires(server: FaultyServer, tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "k", server.url, plugin(tmp_path / "plugin", lifetime=1000))
    connection = await connect(kubeconfig=path, environ={})
    assert connection.access.renew_after == pytest.approx(800, abs=2)


async def test_an_exec_plugin_that_fails_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": ["-c", "1/0"]}}
    path = kubeconfig(tmp_path / "k", "https://h:1", user)
    with pytest.raises(ConnectionConfigError, match=r"kubeconfig .*/k: credential plugin .* failed with 1"):
        await connect(kubeconfig=path, environ={})
    assert "ZeroDivisionError" in capfd.readouterr().err


async def test_a_missing_exec_plugin_is_named_with_its_hint(tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "absent-plugin"}}
    path = kubeconfig(tmp_path / "k", "https://h:1", user)
    with pytest.raises(ConnectionConfigError, match=r"/k: credential plugin absent-plugin: command not found$"):
        await connect(kubeconfig=path, environ={})
    user["exec"]["installHint"] = "Install it by\n  apt install absent-plugin\n"
    path = kubeconfig(tmp_path / "k", "https://h:1", user)
    with pytest.raises(ConnectionConfigError, match=r"not found\. Install it by apt install absent-plugin$"):
        await connect(kubeconfig=path, environ={})
