"""The connection of the barrier to the API server."""

import base64
import json
import re
import shutil
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from frameworkcontroller.barrier.apiserver import Server, connect
from frameworkcontroller.barrier.exits import BarrierError, CheckFailed
from frameworkcontroller.kubeconfig.reader import Kubeconfig
from tests.support.barrier_world import StubApi, status

GROUP = "client.authentication.k8s.io"
PLUGIN = {"apiVersion": f"{GROUP}/v1", "command": "aws"}

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl here")


class Certificates(NamedTuple):
    """One self-made certificate that is authority, server and client at once."""

    certificate: Path
    key: Path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("certificates")
    made = Certificates(folder / "tls.crt", folder / "tls.key")
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-subj", "/CN=cluster", "-addext", "subjectAltName=IP:127.0.0.1,DNS:kubernetes.default.svc", "-days", "2",
            "-keyout", str(made.key), "-out", str(made.certificate),
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    return made


@pytest.fixture
def plain() -> Iterator[StubApi]:
    with StubApi() as api:
        yield api


@pytest.fixture
def secure(certificates: Certificates) -> Iterator[StubApi]:
    """With TLS, and content with clients that have no certificate."""
    with StubApi(server_tls(certificates)) as api:
        yield api


def server_tls(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.certificate, certificates.key)
    return context


def ask(server: Server) -> int:
    """Ask for something; the code of the answer."""
    return server.get("/healthz", "application/json", 5)[0]


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def kubeconfig(cluster: dict[str, Any], user: dict[str, Any] | None = None) -> dict[str, Any]:
    """A kubeconfig as tools write it, with another cluster, user and context that are not meant."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "clusters": [
            {"name": "other", "cluster": {"server": "https://other.invalid"}},
            {"name": "arn:aws:eks:us-east-1:1:cluster/c", "cluster": cluster},
        ],
        "contexts": [
            {"name": "other", "context": {"cluster": "other", "user": "other"}},
            {
                "name": "admin@c",
                "context": {"cluster": "arn:aws:eks:us-east-1:1:cluster/c", "user": "me", "namespace": "default"},
            },
        ],
        "current-context": "admin@c",
        "users": [{"name": "other", "user": {"exec": {"command": "aws"}}}, {"name": "me", "user": user or {}}],
    }


def stored(tmp_path: Path, config: Any) -> dict[str, str]:
    """An environment with such a kubeconfig."""
    path = tmp_path / "kubeconfig"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return {"KUBECONFIG": str(path)}


class TestOrder:
    def test_a_bare_address_gets_no_credentials(self, plain: StubApi) -> None:
        assert ask(connect({"KUBE_APISERVER_ADDRESS": plain.address})) == 404
        assert "Authorization" not in plain.headers[0]

    def test_a_kubeconfig_goes_before_the_pod(self, plain: StubApi, tmp_path: Path) -> None:
        environ = stored(tmp_path, kubeconfig({"server": plain.address}, {"token": "secret"}))
        assert ask(connect({**environ, "KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "1"})) == 404
        assert plain.headers[0]["Authorization"] == "Bearer secret"

    def test_an_address_replaces_the_kubeconfigs(self, plain: StubApi, tmp_path: Path) -> None:
        environ = stored(tmp_path, kubeconfig({"server": "https://other.invalid"}, {"token": "secret"}))
        assert ask(connect({**environ, "KUBE_APISERVER_ADDRESS": plain.address})) == 404
        assert plain.headers[0]["Authorization"] == "Bearer secret"

    def test_the_usual_kubeconfig(self, plain: StubApi, tmp_path: Path) -> None:
        (tmp_path / ".kube").mkdir()
        (tmp_path / ".kube" / "config").write_text(json.dumps(kubeconfig({"server": plain.address})))
        assert ask(connect({"HOME": str(tmp_path)})) == 404

    def test_nothing_at_all(self) -> None:
        with pytest.raises(BarrierError, match="no API server is known"):
            connect({})

    @pytest.mark.parametrize(
        "address", ["10.0.0.1:6443", "ftp://a", "http://", "https://u:p@a", "http://a:x", "http://a?b"]
    )
    def test_an_invalid_address(self, address: str) -> None:
        with pytest.raises(BarrierError, match=r"\$KUBE_APISERVER_ADDRESS must be http\[s\]://host:port") as refused:
            connect({"KUBE_APISERVER_ADDRESS": address})
        assert "u:p" not in str(refused.value)

    def test_an_address_with_a_path(self, plain: StubApi) -> None:
        ask(connect({"KUBE_APISERVER_ADDRESS": plain.address + "/k8s/clusters/c-1/"}))
        assert plain.requests == ["live"]

    def test_no_proxy_gets_to_see_the_token(
        self, plain: StubApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for variable in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
            monkeypatch.setenv(variable, "http://127.0.0.1:9")
        assert ask(connect(stored(tmp_path, kubeconfig({"server": plain.address}, {"token": "secret"})))) == 404


@needs_openssl
class TestInCluster:
    @pytest.fixture
    def account(self, tmp_path: Path, certificates: Certificates) -> Path:
        (tmp_path / "ca.crt").write_bytes(certificates.certificate.read_bytes())
        (tmp_path / "token").write_text("first\n")
        return tmp_path

    @staticmethod
    def environ(api: StubApi) -> dict[str, str]:
        return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.port)}

    def test_the_token_is_read_for_each_request(self, secure: StubApi, account: Path) -> None:
        server = connect(self.environ(secure), str(account))
        assert ask(server) == 404
        (account / "token").write_text("second")
        assert ask(server) == 404
        assert [headers["Authorization"] for headers in secure.headers] == ["Bearer first", "Bearer second"]

    def test_a_server_with_another_authority_gets_no_token(self, secure: StubApi, account: Path) -> None:
        with pytest.raises(CheckFailed, match="CERTIFICATE_VERIFY_FAILED"):
            ask(Server(secure.address, Kubeconfig({}, {"tokenFile": str(account / "token")})))
        assert secure.headers == []

    @pytest.mark.parametrize("missing", ["token", "ca.crt"])
    def test_without_a_service_account(self, secure: StubApi, account: Path, missing: str) -> None:
        (account / missing).unlink()
        with pytest.raises(BarrierError, match=missing):
            connect(self.environ(secure), str(account))

    def test_a_token_that_vanishes_may_come_back(self, secure: StubApi, account: Path) -> None:
        server = connect(self.environ(secure), str(account))
        (account / "token").unlink()
        with pytest.raises(CheckFailed, match="token: No such file"):
            ask(server)

    @pytest.mark.parametrize("content", ["", "\n", "two words", "se\ncret", "\u00e4"])
    def test_a_token_that_is_none_is_not_quoted(self, secure: StubApi, account: Path, content: str) -> None:
        server = connect(self.environ(secure), str(account))
        (account / "token").write_text(content)
        with pytest.raises(CheckFailed) as caught:
            ask(server)
        assert str(caught.value) == f"token file {account / 'token'} holds no token"

    def test_ipv6(self, account: Path) -> None:
        server = connect({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}, str(account))
        assert server.address == "https://[fd00::1]:443"


@needs_openssl
class TestTls:
    def test_authority_in_a_file_next_to_the_kubeconfig(
        self, secure: StubApi, tmp_path: Path, certificates: Certificates
    ) -> None:
        (tmp_path / "ca.pem").write_bytes(certificates.certificate.read_bytes())
        config = kubeconfig({"server": secure.address, "certificate-authority": "ca.pem"})
        assert ask(connect(stored(tmp_path, config))) == 404

    def test_authority_in_the_kubeconfig(self, secure: StubApi, tmp_path: Path, certificates: Certificates) -> None:
        cluster = {"server": secure.address, "certificate-authority-data": encoded(certificates.certificate)}
        assert ask(connect(stored(tmp_path, kubeconfig(cluster)))) == 404

    def test_no_verification(self, secure: StubApi, tmp_path: Path) -> None:
        config = kubeconfig({"server": secure.address, "insecure-skip-tls-verify": True})
        assert ask(connect(stored(tmp_path, config))) == 404

    def test_the_name_on_the_certificate(self, secure: StubApi, tmp_path: Path, certificates: Certificates) -> None:
        cluster = {
            "server": f"https://localhost:{secure.port}",
            "certificate-authority-data": encoded(certificates.certificate),
        }
        with pytest.raises(CheckFailed, match="CERTIFICATE_VERIFY_FAILED"):
            ask(connect(stored(tmp_path, kubeconfig(cluster))))
        cluster["tls-server-name"] = "kubernetes.default.svc"
        assert ask(connect(stored(tmp_path, kubeconfig(cluster)))) == 404

    @pytest.mark.parametrize("inline", [True, False])
    def test_client_certificate(self, tmp_path: Path, certificates: Certificates, inline: bool) -> None:
        context = server_tls(certificates)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificates.certificate)
        with StubApi(context) as strict:
            cluster = {
                "server": strict.address,
                "certificate-authority-data": encoded(certificates.certificate),
            }
            user = (
                {
                    "client-certificate-data": encoded(certificates.certificate),
                    "client-key-data": encoded(certificates.key),
                }
                if inline
                else {"client-certificate": str(certificates.certificate), "client-key": str(certificates.key)}
            )
            assert ask(connect(stored(tmp_path, kubeconfig(cluster, user)))) == 404
            with pytest.raises(CheckFailed):
                ask(connect(stored(tmp_path, kubeconfig(cluster))))

    def test_no_key_is_left_lying_about(
        self, tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        temporary = tmp_path / "tmp"
        temporary.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        user = {
            "client-certificate-data": encoded(certificates.certificate),
            "client-key-data": encoded(certificates.key),
        }
        connect(stored(tmp_path, kubeconfig({"server": "https://127.0.0.1:1"}, user)))
        assert list(temporary.iterdir()) == []

    def test_without_a_certificate_no_temporary_folder_is_needed(
        self, plain: StubApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
        assert ask(connect(stored(tmp_path, kubeconfig({"server": plain.address}, {"token": "secret"})))) == 404

    def test_an_encrypted_key_is_refused_not_asked_about(self, tmp_path: Path, certificates: Certificates) -> None:
        locked = tmp_path / "locked.key"
        subprocess.run(
            ["openssl", "ec", "-in", certificates.key, "-aes256", "-passout", "pass:secret", "-out", locked],
            check=True, capture_output=True,
        )  # fmt: skip
        user = {"client-certificate": str(certificates.certificate), "client-key": str(locked)}
        with pytest.raises(BarrierError, match="its client certificate cannot be used"):
            connect(stored(tmp_path, kubeconfig({"server": "https://127.0.0.1:1"}, user)))

    @pytest.mark.parametrize(
        ("section", "user"),
        [
            ({"certificate-authority": "absent.crt"}, {}),
            ({"certificate-authority-data": "bm90IGEgY2VydGlmaWNhdGU="}, {}),
            ({}, {"client-certificate": "absent.crt", "client-key": "absent.key"}),
            ({}, {"client-certificate-data": "bm90IGE="}),
        ],
    )
    def test_an_unusable_setting_is_refused(
        self, tmp_path: Path, section: dict[str, str], user: dict[str, str]
    ) -> None:
        with pytest.raises(BarrierError, match="cannot be used"):
            connect(stored(tmp_path, kubeconfig({"server": "https://127.0.0.1:1", **section}, user)))


class TestKubeconfig:
    def test_a_token_file_is_read_again(self, plain: StubApi, tmp_path: Path) -> None:
        (tmp_path / "tok").write_text("first")
        environ = stored(tmp_path, kubeconfig({"server": plain.address}, {"tokenFile": "tok", "token": "stale"}))
        server = connect(environ)
        ask(server)
        (tmp_path / "tok").write_text("second")
        ask(server)
        (tmp_path / "tok").unlink()
        ask(server)
        assert [headers["Authorization"] for headers in plain.headers] == [
            "Bearer first",
            "Bearer second",
            "Bearer stale",
        ]

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            ({"current-context": ""}, "no current-context is set"),
            ({"current-context": "nowhere"}, "there is no context 'nowhere'"),
            ({"clusters": None}, "there is no cluster 'arn:aws:eks:us-east-1:1:cluster/c'"),
            ({"users": []}, "there is no user 'me'"),
            ({"users": {"me": {}}}, "users must be a list of mappings"),
            ({"users": [{"name": "me", "user": 5}]}, "user 'me' is not a mapping"),
            ({"users": [{"name": "me", "user": {"auth-provider": {"name": "gcp"}}}]}, "auth-provider is not supported"),
            (
                {"users": [{"name": "me", "user": {"username": "a", "token": "secret"}}]},
                "its user has both a token and",
            ),
            ({"users": [{"name": "me", "user": {"as-groups": ["a"]}}]}, "it impersonates groups, a UID or"),
            ({"users": [{"name": "me", "user": {"as": "a", "as-groups": "b"}}]}, "as-groups must be a list of text"),
            ({"users": [{"name": "me", "user": {"exec": {"command": "aws"}}}]}, "exec: its apiVersion is none of"),
            ({"users": [{"name": "me", "user": {"exec": {"apiVersion": f"{GROUP}/v1"}}}]}, "exec: it names no command"),
            (
                {"users": [{"name": "me", "user": {"exec": {**PLUGIN, "interactiveMode": "Always"}}}]},
                "exec: it wants a terminal",
            ),
            ({"users": [{"name": "me", "user": {"exec": {**PLUGIN, "args": "a"}}}]}, "args must be a list of text"),
            ({"users": [{"name": "me", "user": {"exec": {**PLUGIN, "env": [1]}}}]}, "env must be a list of mappings"),
            ({"users": [{"name": "me", "user": {"token": 7}}]}, "token must be text"),
            ({"users": [{"name": "me", "user": {"token": "a\nb: secret"}}]}, "its token contains characters"),
            ({"users": [{"name": "me", "user": {"client-key-data": "%"}}]}, "client-key-data is not base64"),
        ],
    )
    def test_an_error_names_the_fault(self, tmp_path: Path, change: dict[str, Any], text: str) -> None:
        environ = stored(tmp_path, {**kubeconfig({"server": "https://127.0.0.1:1"}), **change})
        with pytest.raises(BarrierError) as caught:
            connect(environ)
        assert str(caught.value).startswith(f"kubeconfig {environ['KUBECONFIG']}: {text}")
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize(
        ("section", "text"),
        [
            ({}, "its cluster names no server"),
            ({"server": "127.0.0.1"}, "must be http"),
            ({"server": "https://a", "proxy-url": "http://b"}, "proxy-url is not supported"),
            ({"server": "https://a", "insecure-skip-tls-verify": "yes"}, "must be true or false"),
        ],
    )
    def test_an_error_names_the_fault_of_the_cluster(self, tmp_path: Path, section: dict[str, Any], text: str) -> None:
        with pytest.raises(BarrierError, match=text):
            connect(stored(tmp_path, kubeconfig(section)))

    def test_files_that_are_not_there(self, tmp_path: Path) -> None:
        for paths in (f"{tmp_path}/a", f"{tmp_path}/a:{tmp_path}/b"):
            with pytest.raises(BarrierError, match=f"kubeconfig {paths}: no such file"):
                connect({"KUBECONFIG": paths})


class TestUsers:
    def test_user_and_password(self, plain: StubApi, tmp_path: Path) -> None:
        ask(
            connect(stored(tmp_path, kubeconfig({"server": plain.address}, {"username": "m\u00e4", "password": "p:w"})))
        )
        given_to = base64.b64decode(plain.headers[0]["Authorization"].partition("Basic ")[2]).decode()
        assert given_to == "m\u00e4:p:w"

    def test_impersonation(self, plain: StubApi, tmp_path: Path) -> None:
        user = {"token": "t", "as": "jane", "as-uid": "7", "as-groups": ["dev", "ops"], "as-user-extra": {"a/b": ["v"]}}
        ask(connect(stored(tmp_path, kubeconfig({"server": plain.address}, user))))
        (said,) = plain.raw_headers
        assert [(name, value) for name, value in said if name.startswith(("Auth", "Imp"))] == [
            ("Authorization", "Bearer t"),
            ("Impersonate-User", "jane"),
            ("Impersonate-Uid", "7"),
            ("Impersonate-Group", "dev"),
            ("Impersonate-Group", "ops"),
            ("Impersonate-Extra-a%2Fb", "v"),
        ]


class PluginFile:
    """A credential plugin next to the kubeconfig, which counts its runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "plugin"
        self.prints({"token": "of-plugin"})

    def prints(self, status: dict[str, Any], version: str = "v1") -> None:
        """Have it print these credentials."""
        credential = {"apiVersion": f"{GROUP}/{version}", "kind": "ExecCredential", "status": status}
        self.says(f"cat <<'END'\n{json.dumps(credential)}\nEND")

    def says(self, script: str) -> None:
        """Have it run this."""
        record = 'echo x >> runs; echo "$KUBERNETES_EXEC_INFO" > info; echo "$1 $REGION" > given'
        self.file.write_text(f'#!/bin/sh\ncd "$(dirname "$0")"\n{record}\n{script}\n')
        self.file.chmod(0o755)

    @property
    def runs(self) -> int:
        return len((self.folder / "runs").read_text().splitlines())

    def user(self, **more: Any) -> dict[str, Any]:
        """A user with it."""
        return {"exec": {"apiVersion": f"{GROUP}/v1", "command": "./plugin", **more}}


def printing(version: str, status: str) -> str:
    """A script that prints credentials."""
    return f"""echo '{{"apiVersion": "{GROUP}/{version}", "kind": "ExecCredential", "status": {status}}}'"""


@pytest.fixture
def plugin(tmp_path: Path) -> PluginFile:
    return PluginFile(tmp_path)


class TestPlugins:
    def test_it_runs_once_for_many_requests(self, plain: StubApi, tmp_path: Path, plugin: PluginFile) -> None:
        user = plugin.user(args=["get-token"], env=[{"name": "REGION", "value": "eu"}])
        server = connect(stored(tmp_path, kubeconfig({"server": plain.address}, user)))
        ask(server)
        ask(server)
        assert [headers["Authorization"] for headers in plain.headers] == ["Bearer of-plugin"] * 2
        assert plugin.runs == 1
        assert (tmp_path / "given").read_text() == "get-token eu\n"
        info = json.loads((tmp_path / "info").read_text())
        assert info == {"apiVersion": f"{GROUP}/v1", "kind": "ExecCredential", "spec": {"interactive": False}}

    def test_it_gets_the_cluster_on_request(self, plain: StubApi, tmp_path: Path, plugin: PluginFile) -> None:
        extensions = [{"name": "other", "extension": 1}, {"name": f"{GROUP}/exec", "extension": {"audience": "a"}}]
        cluster = {"server": plain.address, "insecure-skip-tls-verify": True, "extensions": extensions}
        ask(connect(stored(tmp_path, kubeconfig(cluster, plugin.user(provideClusterInfo=True)))))
        assert json.loads((tmp_path / "info").read_text())["spec"]["cluster"] == {
            "server": plain.address,
            "insecure-skip-tls-verify": True,
            "config": {"audience": "a"},
        }

    def test_it_runs_again_when_its_credentials_expire(
        self, plain: StubApi, tmp_path: Path, plugin: PluginFile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = [1_800_000_000.0]
        monkeypatch.setattr(time, "time", lambda: now[0])
        server = connect(stored(tmp_path, kubeconfig({"server": plain.address}, plugin.user())))
        plugin.prints({"token": "a", "expirationTimestamp": "2027-01-15T09:00:10.5+01:00"})
        ask(server)
        now[0] += 9
        ask(server)
        assert plugin.runs == 1
        now[0] += 1
        ask(server)
        assert plugin.runs == 2

    def test_it_runs_again_after_a_refusal(self, plain: StubApi, tmp_path: Path, plugin: PluginFile) -> None:
        server = connect(stored(tmp_path, kubeconfig({"server": plain.address}, plugin.user())))
        plain.answers = [status(401, "Unauthorized", "no")]
        assert [ask(server), ask(server)] == [401, 404]
        assert plugin.runs == 2

    def test_a_token_goes_before_it(self, plain: StubApi, tmp_path: Path, plugin: PluginFile) -> None:
        ask(connect(stored(tmp_path, kubeconfig({"server": plain.address}, {"token": "own", **plugin.user()}))))
        assert plain.headers[0]["Authorization"] == "Bearer own"
        assert not (tmp_path / "runs").exists()

    @needs_openssl
    def test_a_certificate(self, tmp_path: Path, plugin: PluginFile, certificates: Certificates) -> None:
        context = server_tls(certificates)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificates.certificate)
        pair = {
            "clientCertificateData": certificates.certificate.read_text(),
            "clientKeyData": certificates.key.read_text(),
        }
        plugin.prints(pair)
        with StubApi(context) as strict:
            cluster = {"server": strict.address, "certificate-authority-data": encoded(certificates.certificate)}
            assert ask(connect(stored(tmp_path, kubeconfig(cluster, plugin.user())))) == 404

    @pytest.mark.parametrize(
        ("script", "said"),
        [
            ("echo secret; exit 7", "failed with 7"),
            ("echo secret", "printed no ExecCredential"),
            ("echo '{}'", "printed no ExecCredential"),
            (printing("v1beta1", "{}"), "of .*/v1$"),
            (printing("v1", "{}"), "neither a token nor"),
            (printing("v1", '{"clientCertificateData": "secret"}'), "neither a token nor"),
            (printing("v1", '{"clientCertificateData": "secret", "clientKeyData": "secret"}'), "cannot be used"),
            (printing("v1", '{"token": "secret key"}'), "printed no"),
            (printing("v1", '{"token": "secret", "expirationTimestamp": "tomorrow"}'), "printed no"),
        ],
    )
    def test_one_that_fails_may_succeed_later(
        self, plain: StubApi, tmp_path: Path, plugin: PluginFile, script: str, said: str
    ) -> None:
        server = connect(stored(tmp_path, kubeconfig({"server": plain.address}, plugin.user())))
        plugin.says(script)
        with pytest.raises(CheckFailed, match=f"credential plugin {re.escape(str(plugin.file))}.*{said}") as caught:
            ask(server)
        assert "secret" not in str(caught.value)
        plugin.prints({"token": "of-plugin"})
        assert ask(server) == 404

    def test_one_that_is_not_there(self, plain: StubApi, tmp_path: Path, plugin: PluginFile) -> None:
        server = connect(
            stored(tmp_path, kubeconfig({"server": plain.address}, plugin.user(command="no-such-program")))
        )
        with pytest.raises(CheckFailed, match="credential plugin no-such-program: command not found"):
            ask(server)
