"""Kubeconfigs are read as kubectl reads them."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.kubeconfig.reader import Kubeconfig, KubeconfigError, _document, _read

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

ONE = {"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}
"""What each of these says."""

VALID = {
    "flow": "{current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}]}",
    "anchors": """\
current-context: &name c
contexts: [{name: *name, context: {<<: &both {cluster: c}, user: u}}]
""",
    "several documents": """\
%YAML 1.1
---
current-context: c
contexts:
- name: c
  context: {cluster: c, user: u}
...
---
current-context: other
""",
    "tags": """\
!!map
current-context: !!str c
contexts: !<tag:example.com,2000:list>
- !context {name: !!str c, context: !!map {cluster: !own c, user: u}}
""",
    "block scalars": """\
current-context: |-
  c
contexts:
- name: >-
    c
  context:
    cluster: "\\x63"
    user: 'u'
""",
    "question marks": """\
? current-context
: c
? contexts
:
  - ? name
    : c
    ? "context"
    : {"cluster":"c",
user:   u}
""",
    "byte order mark": "\ufeff" + json.dumps(ONE),
    "tabs and comments": "current-context:\tc\t# c\ncontexts: [{name: c,\tcontext: {cluster: c, user: u}}]\t# d\r\n",
}


class TestYaml:
    @pytest.mark.parametrize("text", VALID.values(), ids=VALID)
    def test_any_valid_yaml_is_read(self, text: str) -> None:
        assert parse(text) == ONE

    def test_other_encodings(self) -> None:
        assert _document(VALID["flow"].encode("utf-16")) == ONE

    def test_kubectls_own_output(self) -> None:
        assert parse(BY_KUBECTL) == yaml.safe_load(BY_KUBECTL)

    def test_numbers_and_times_are_text(self) -> None:
        texts = ["0123", "1e3", "12:30", "2001-01-01", "0x1", ".inf", "="]
        assert parse("a:\n" + "".join(f"- {text}\n" for text in texts)) == {"a": texts}
        assert parse("a: [yes, true, Off, ~, null]") == {"a": [True, True, False, None, None]}

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("a: b\n\tc: secret", "line 2: it is not YAML: found character"),
            ("a: [secret", "line 1: it is not YAML: expected ',' or ']'"),
            ("a: *secret", "line 1: it is not YAML: found undefined alias"),
            ("a: secret\n b: c", "line 2: it is not YAML: mapping values"),
            ("a: secret\x00", "it is not YAML"),
            ("? [secret]\n: b", "line 1: it is not YAML: found unhashable key"),
            ("- " * 5000 + "secret", "it is nested too deeply"),
            ("[" * 100_000, "it is nested too deeply"),
            ("a: !!int secret", "it is not YAML: ValueError"),
            ("a: &a [secret, *a]", "line 1: it is not YAML: found unconstructable recursive node"),
            ("a: &a {b: *a}", "line 1: it is not YAML: found unconstructable recursive node"),
        ],
    )
    def test_an_error_names_the_line_and_quotes_no_content(self, text: str, said: str) -> None:
        with pytest.raises(KubeconfigError) as caught:
            parse(text)
        assert str(caught.value).startswith(said)
        assert "secret" not in str(caught.value).replace("'secret'", "")

    @given(
        st.recursive(
            st.none() | st.booleans() | st.text(max_size=20),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
            max_leaves=12,
        ),
        st.booleans(),
    )
    def test_round_trip(self, value: Any, flow: bool) -> None:
        assert parse(yaml.safe_dump({"top": value}, default_flow_style=flow)) == {"top": value}


def parse(text: str) -> Any:
    return _document(text.encode())


AS_KUBECTL = {
    **VALID,
    "several JSON documents": '{"current-context": "a"}{"current-context": "b"}',
    "text after JSON": '{"current-context": "a"} b',
    "JSON with a comma too many": '{"current-context": "a",}',
    "an invalid second document": "current-context: a\n---\n{{{",
    "an empty first document": "---\n---\ncurrent-context: a\n",
    "an empty file": "",
    "a null": "null",
    "a list": "[]",
    "a number": "5",
    "duplicate keys": "current-context: a\ncurrent-context: b\n",
    "nulls": "current-context: null\ncontexts: null\n",
    "a mapping for a list": "contexts: {a: b}",
    "unknown keys": "current-context: a\nextra: [b]\n",
    "another letter case": "Current-Context: a",
    "a boolean for a text": "current-context: yes",
    "no YAML": "[",
    "a value that contains itself": "users: [{name: a, user: {exec: &a {b: *a}}}]",
}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl here")
@pytest.mark.parametrize("text", AS_KUBECTL.values(), ids=AS_KUBECTL)
def test_it_reads_like_kubectl(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    said = kubectl_reads(tmp_path / "config", tmp_path)
    try:
        ours, entries = _read(str(tmp_path / "config"), several=False)
    except KubeconfigError:
        assert said is None
    else:
        assert said is not None
        assert said["current-context"] == ours
        assert [entry["name"] for entry in said["contexts"] or ()] == [name for _, name in entries]


def kubectl_reads(files: object, home: Path) -> Any:
    """The kubeconfig as kubectl prints it, None if kubectl refuses it."""
    done = subprocess.run(
        ["kubectl", "config", "view", "--raw", "--output=json"],
        env={"KUBECONFIG": str(files), "HOME": str(home), "PATH": os.environ["PATH"]},
        capture_output=True, check=False, timeout=600,
    )  # fmt: skip
    return json.loads(done.stdout) if done.returncode == 0 else None


def stored(folder: Path, **content: Any) -> str:
    """A file in a folder of its own."""
    folder.mkdir()
    path = folder / "config"
    path.write_text(yaml.safe_dump({key.replace("_", "-"): value for key, value in content.items()}))
    return str(path)


class TestSeveralFiles:
    @pytest.fixture
    def paths(self, tmp_path: Path) -> list[str]:
        return [
            str(tmp_path / "absent"),
            stored(
                tmp_path / "1",
                contexts=[{"name": "a", "context": {"cluster": "c", "user": "u"}}],
                clusters=[{"name": "c", "cluster": {"server": "https://one", "certificate-authority": "ca.crt"}}],
            ),
            stored(
                tmp_path / "2",
                current_context="a",
                clusters=[{"name": "c", "cluster": {"server": "https://two", "tls-server-name": "two"}}],
                users=[{"name": "u", "user": {"tokenFile": "../token", "exec": {"command": "./plugin"}}}],
            ),
            stored(tmp_path / "3", current_context="b", users=[{"name": "u", "user": {"token": "three"}}]),
        ]

    def test_the_first_current_context_and_the_first_entry_of_a_name_count(
        self, tmp_path: Path, paths: list[str]
    ) -> None:
        config = Kubeconfig.read(":".join(paths))
        assert config.cluster == {"server": "https://one", "certificate-authority": str(tmp_path / "1" / "ca.crt")}
        assert config.user == {
            "tokenFile": str(tmp_path / "token"),
            "exec": {"command": str(tmp_path / "2" / "plugin")},
        }

    @pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl here")
    def test_kubectl_merges_them_likewise(self, tmp_path: Path, paths: list[str]) -> None:
        said = kubectl_reads(":".join(paths), tmp_path)
        assert said["current-context"] == "a"
        assert [entry["cluster"]["server"] for entry in said["clusters"]] == ["https://one"]
        assert [entry["user"].get("token") for entry in said["users"]] == [None]

    def test_the_file_at_fault_is_named(self, tmp_path: Path, paths: list[str]) -> None:
        (tmp_path / "bad").write_text("[")
        with pytest.raises(KubeconfigError, match=f"^{tmp_path}/bad: line 1: it is not YAML"):
            Kubeconfig.read(":".join([*paths, str(tmp_path / "bad")]))
