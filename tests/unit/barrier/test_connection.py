"""Where the barrier finds the API server, and how each proves itself to the other."""

import base64
import json
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from frameworkcontroller import barrier
from frameworkcontroller.barrier import CheckFailed, Server, SettingsError, connect
from tests.support.barrier_world import StubApi

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

    def test_an_address_replaces_that_of_the_kubeconfig(self, plain: StubApi, tmp_path: Path) -> None:
        environ = stored(tmp_path, kubeconfig({"server": "https://other.invalid"}, {"token": "secret"}))
        assert ask(connect({**environ, "KUBE_APISERVER_ADDRESS": plain.address})) == 404
        assert plain.headers[0]["Authorization"] == "Bearer secret"

    def test_the_usual_kubeconfig(self, plain: StubApi, tmp_path: Path) -> None:
        (tmp_path / ".kube").mkdir()
        (tmp_path / ".kube" / "config").write_text(json.dumps(kubeconfig({"server": plain.address})))
        assert ask(connect({"HOME": str(tmp_path)})) == 404

    def test_nothing_at_all(self) -> None:
        with pytest.raises(SettingsError, match="no API server is known"):
            connect({})

    @pytest.mark.parametrize(
        "address", ["10.0.0.1:6443", "ftp://a", "http://", "https://u:p@a", "http://a:x", "http://a?b"]
    )
    def test_what_is_no_address(self, address: str) -> None:
        with pytest.raises(SettingsError, match=r"\$KUBE_APISERVER_ADDRESS must be http\[s\]://host:port"):
            connect({"KUBE_APISERVER_ADDRESS": address})

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

    def test_the_token_is_read_anew_for_each_request(self, secure: StubApi, account: Path) -> None:
        server = connect(self.environ(secure), str(account))
        assert ask(server) == 404
        (account / "token").write_text("second")
        assert ask(server) == 404
        assert [headers["Authorization"] for headers in secure.headers] == ["Bearer first", "Bearer second"]

    def test_a_server_with_another_authority_gets_no_token(
        self, secure: StubApi, account: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        with pytest.raises(CheckFailed, match="CERTIFICATE_VERIFY_FAILED"):
            ask(Server(secure.address, "test", token=lambda: "secret"))
        assert secure.headers == []

    @pytest.mark.parametrize("missing", ["token", "ca.crt"])
    def test_without_a_service_account(self, secure: StubApi, account: Path, missing: str) -> None:
        (account / missing).unlink()
        with pytest.raises(SettingsError, match=missing):
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
    def test_authority_in_a_file_beside_the_kubeconfig(
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

    def test_an_encrypted_key_is_refused_not_asked_about(self, tmp_path: Path, certificates: Certificates) -> None:
        locked = tmp_path / "locked.key"
        subprocess.run(
            ["openssl", "ec", "-in", certificates.key, "-aes256", "-passout", "pass:secret", "-out", locked],
            check=True, capture_output=True,
        )  # fmt: skip
        user = {"client-certificate": str(certificates.certificate), "client-key": str(locked)}
        with pytest.raises(SettingsError, match="its client certificate cannot be used"):
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
    def test_what_cannot_be_used_is_a_bad_setting(
        self, tmp_path: Path, section: dict[str, str], user: dict[str, str]
    ) -> None:
        with pytest.raises(SettingsError, match="cannot be used"):
            connect(stored(tmp_path, kubeconfig({"server": "https://127.0.0.1:1", **section}, user)))


class TestKubeconfig:
    def test_a_token_file_is_read_anew(self, plain: StubApi, tmp_path: Path) -> None:
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
            ({"current-context": ""}, "it has no current-context"),
            ({"current-context": "nowhere"}, "it has no context nowhere"),
            ({"clusters": None}, "it has no cluster arn:aws:eks:us-east-1:1:cluster/c"),
            ({"users": {}}, "it has no user me"),
            ({"users": [{"name": "me", "user": None}]}, "user me is not a mapping"),
            ({"users": [{"name": "me", "user": {"exec": {"command": "aws"}}}]}, "exec is not supported: only tokens"),
            ({"users": [{"name": "me", "user": {"username": "a"}}]}, "username is not supported"),
            ({"users": [{"name": "me", "user": {"as": "a"}}]}, "as is not supported"),
            ({"users": [{"name": "me", "user": {"token": 7}}]}, "token must be text"),
            ({"users": [{"name": "me", "user": {"token": "a\nb: secret"}}]}, "its token holds characters"),
            ({"users": [{"name": "me", "user": {"client-key-data": "%"}}]}, "client-key-data is not base64"),
        ],
    )
    def test_what_is_wrong_is_said(self, tmp_path: Path, change: dict[str, Any], text: str) -> None:
        environ = stored(tmp_path, {**kubeconfig({"server": "https://127.0.0.1:1"}), **change})
        with pytest.raises(SettingsError) as caught:
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
    def test_what_is_wrong_with_the_cluster_is_said(self, tmp_path: Path, section: dict[str, Any], text: str) -> None:
        with pytest.raises(SettingsError, match=text):
            connect(stored(tmp_path, kubeconfig(section)))

    def test_files_that_are_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(SettingsError, match="No such file"):
            connect({"KUBECONFIG": str(tmp_path / "absent")})
        with pytest.raises(SettingsError, match="several files are not supported"):
            connect({"KUBECONFIG": f"{tmp_path}/a:{tmp_path}/b"})

    @pytest.mark.parametrize("text", ["{", "", "- a", "\x00", "clusters: [", "a: b\n  c: d"])
    def test_what_is_no_kubeconfig(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(SettingsError, match="kubeconfig"):
            connect(stored(tmp_path, text))


def parse(text: str) -> Any:
    return barrier._parse(text)


BY_KUBECTL = """\
apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: LS0tLS1CRUdJTg==
    extensions:
    - extension:
        last-update: Sat, 21 Nov 2026 00:00:00 UTC
        version: v1.33.0
      name: cluster_info
    server: https://192.168.49.2:8443
  name: minikube
contexts:
- context:
    cluster: minikube
    namespace: ""
    user: 'it''s me'
  name: minikube
current-context: minikube
kind: Config
preferences: {}
users:
- name: it's me
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      args:
      - --region
      - us-east-1
      command: aws
      env: null
      interactiveMode: IfAvailable
      provideClusterInfo: false
"""

BY_HAND = """\
# made by hand
---
apiVersion: v1
kind:   Config   # of course
clusters:
    -   name: "a \\u00e4 \\"b\\""
        cluster: {"server": "https://a:1"}
    -
        name: b # second
        cluster:
            server: https://b:2/path#fragment
            insecure-skip-tls-verify: true
users: []
"quoted key": ~
'and another':
nothing:
"""

PIECES = [
    *["a", "b", "key", "no", "true", "null", "~", "1", "12:30", "2001-01-01", "<<", "=", "\u00e4", "\u00a0", "\u2028"],
    *[": ", ":", "- ", "-", "?", "#", " #", "'", '"', "{}", "[]", "]", "}", ",", "&x", "*x", "|", ">", "%", "@", "\\"],
    *["\n", "\n  ", "\n    ", "\n- ", "\n  - ", " ", "\t", "\r\n", "\r", "\x00", "\x85", "...", "---", " ..."],
]


class TestYaml:
    @pytest.mark.parametrize(
        "text", [BY_KUBECTL, BY_HAND, "a: b", "- a\n- - b\n  - c\n- d: e\n  f: g\n-\n", "\r\na: b\r\n"]
    )
    def test_reads_as_a_whole_reader_does(self, text: str) -> None:
        assert parse(text) == yaml.safe_load(text)

    @pytest.mark.parametrize(
        ("text", "line"),
        [
            ("a: |\n  text", 1),
            ("a: >-\n  text", 1),
            ("a: &anchor b", 1),
            ("a: *anchor", 1),
            ("a: !!str b", 1),
            ("<<: *base", 1),
            ("a: [b, c]", 1),
            ("a: {b: c}", 1),
            ("a: 'one\n  two'", 1),
            ('a: "\\x41"', 1),
            ("a: b\n\tc: d", 2),
            ("a: b\n c: d", 2),
            ("a:\n  b: c\n d: e", 3),
            ("a: one\n   two", 2),
            ("? a\n: b", 1),
            ("a: b\na: c", 2),
            ("a: b\n---\nc: d", 2),
            ("a: b\n...\n", 2),
            ("%YAML 1.2\n---\na: b", 1),
            ("a: b: c", 1),
            ("a: - b", 1),
            ("just text", 1),
            ("a: @b", 1),
            ("\n" + "\n".join(" " * depth + "a:" for depth in range(100)) + " b", 53),
        ],
    )
    def test_refuses_the_rest_with_its_line(self, text: str, line: int) -> None:
        with pytest.raises(
            barrier._Unusable, match=rf"^line {line}: .* kubectl config view --raw --flatten --minify -o json"
        ):
            parse(text)

    @given(
        st.recursive(
            st.none() | st.booleans() | st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=20),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text("abcdef-/.", min_size=1, max_size=8), inner, max_size=3)
            ),
            max_leaves=12,
        )
    )
    def test_never_reads_anything_but_what_was_written(self, value: Any) -> None:
        """What a real writer writes is read back, or refused; never misread."""
        config = {"top": value}
        text = yaml.safe_dump(config, allow_unicode=True)
        try:
            assert parse(text) == config
        except barrier._Unusable:
            assert needs_more_than_the_simple(text)

    @given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
    def test_agrees_with_a_whole_reader_or_refuses(self, text: str) -> None:
        assume(not text.lstrip().startswith("{"))
        try:
            mine = parse(text)
        except barrier._Unusable:
            return
        assert same(mine, yaml.load(text, Loader=yaml.BaseLoader))


def same(mine: Any, texts: Any) -> bool:
    """Whether a value is what these texts mean. The reader that gives them takes every scalar for text."""
    if isinstance(mine, dict) and isinstance(texts, dict):
        return mine.keys() == texts.keys() and all(same(value, texts[key]) for key, value in mine.items())
    if isinstance(mine, list) and isinstance(texts, list):
        return len(mine) == len(texts) and all(map(same, mine, texts))
    if mine is None:
        return texts in (None, "", "null", "~")
    if isinstance(mine, bool):
        return bool(texts == str(mine).lower())
    return bool(texts == mine)


def needs_more_than_the_simple(text: str) -> bool:
    """Whether the writer used folded lines, escapes that JSON does not know, `?` keys and the like."""
    lines = text.splitlines()
    return any(mark in text for mark in ('"', "? ", "'", "|", ">", "...")) or any(
        not line.lstrip(" -").partition(": ")[0].rstrip(":") for line in lines
    )
