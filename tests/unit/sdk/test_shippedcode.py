"""Code for Pods: files, repositories and claims."""

from __future__ import annotations

import base64
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from frameworkcontroller import Code, InvalidSpec, function
from frameworkcontroller.sdk.shippedcode import MAX_BYTES


def write(path: Path, text: str | bytes = "x = 1\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def flat(code: Code) -> dict[str, bytes]:
    return {name: base64.b64decode(data) for name, data in code.manifest()["binaryData"].items()}


def unpacked(code: Code) -> dict[str, bytes]:
    packed = flat(code)
    assert list(packed) == ["code.tgz"]
    with tarfile.open(fileobj=io.BytesIO(packed["code.tgz"])) as archive:
        files = {entry.name: archive.extractfile(entry) for entry in archive}
        return {name: file.read() for name, file in files.items() if file is not None}


def test_files_are_keys_of_a_configmap_named_by_its_content(tmp_path: Path) -> None:
    one, two = write(tmp_path / "a.py"), write(tmp_path / "b.txt", b"\xff")
    code = Code.files(one, two)
    assert flat(code) == {"a.py": b"x = 1\n", "b.txt": b"\xff"}
    body = code.manifest()
    assert (body["kind"], body["immutable"], body["metadata"]) == ("ConfigMap", True, {"name": code.configmap})
    assert Code.files(two, one) == code
    assert Code.files(two, one).configmap == code.configmap
    assert hash(Code.files(two, one)) == hash(code)
    assert repr(code) == "Code.files('a.py', 'b.txt')"
    write(one, "x = 2\n")
    assert Code.files(one, two).configmap != code.configmap


def test_folders_are_packed_the_same_each_time(tmp_path: Path) -> None:
    for name in ("p/__init__.py", "p/q/r.py", "p/__pycache__/r.pyc", "p/.git/config", "p/.venv/lib.py"):
        write(tmp_path / name)
    code = Code.files(tmp_path / "p")
    assert unpacked(code) == {"p/__init__.py": b"x = 1\n", "p/q/r.py": b"x = 1\n"}
    os.utime(tmp_path / "p" / "q" / "r.py", (1, 1))
    assert Code.files(tmp_path / "p").manifest() == code.manifest()


@pytest.mark.parametrize("name", ["ä.py", "my file.py", "..x", "a" * 254])
def test_a_name_that_is_no_key_is_packed(tmp_path: Path, name: str) -> None:
    code = Code.files(write(tmp_path / name))
    assert unpacked(code) == {name: b"x = 1\n"}


def test_a_link_keeps_its_name(tmp_path: Path) -> None:
    target = write(tmp_path / "store" / "4711")
    (tmp_path / "train.py").symlink_to(target)
    (tmp_path / "package").symlink_to(tmp_path / "store")
    assert flat(Code.files(tmp_path / "train.py")) == {"train.py": b"x = 1\n"}
    assert unpacked(Code.files(tmp_path / "package")) == {"package/4711": b"x = 1\n"}


def test_paths_are_relative_to_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "job" / "a.py")
    monkeypatch.chdir(tmp_path / "job")
    assert flat(Code.files("a.py", "./a.py")) == {"a.py": b"x = 1\n"}
    assert unpacked(Code.files(".")) == unpacked(Code.files("../job")) == {"job/a.py": b"x = 1\n"}


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (["missing.py"], "cannot be read: No such file or directory"),
        (["here.py", "missing.py"], "'missing.py': cannot be read: No such file or directory"),
        ([], "has no file"),
        (["empty"], "'empty': has no file"),
        (["here.py", "other/here.py"], "has the same name in the Pods as "),
    ],
)
def test_paths_that_cannot_be_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paths: list[str], words: str
) -> None:
    write(tmp_path / "here.py")
    write(tmp_path / "other" / "here.py")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidSpec) as caught:
        Code.files(*paths)
    assert str(caught.value).startswith("code")
    assert words in str(caught.value)


def test_too_large_is_refused_with_the_next_option(tmp_path: Path) -> None:
    large = write(tmp_path / "large", os.urandom(MAX_BYTES))
    with pytest.raises(InvalidSpec, match=r"bytes compressed, .* use Code\.git, Code\.claim or an image"):
        Code.files(large)
    room = write(tmp_path / "room", os.urandom(MAX_BYTES - 2000))
    assert set(unpacked(Code.files(room))) == {"room"}
    # The file that runs the function has no room in addition.
    with pytest.raises(InvalidSpec, match="bytes compressed"):
        function("m:f", code=Code.files(room))
    compressible = write(tmp_path / "compressible", b"x" * 2 * MAX_BYTES)
    assert set(unpacked(Code.files(compressible))) == {"compressible"}


def test_more_files_have_no_place_in_a_claim() -> None:
    with pytest.raises(InvalidSpec, match=r"must be Code\.files here, and is Code\.claim"):
        Code.claim("data").with_files({"a.py": b""})


# --- git ---


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with the branches main and feature/main, an annotated tag v1, and a tag and a branch of one name."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for name in ("first", "second", "third"):
        write(folder / name)
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", name)
    git(folder, "branch", "feature/main", "main~2")
    git(folder, "tag", "-a", "-m", "one", "v1", "main~1")
    git(folder, "tag", "both", "main~1")
    git(folder, "branch", "both", "main~2")
    return folder


def git(folder: Path, *words: str) -> str:
    own = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"]
    return subprocess.run(["git", *own, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize(
    ("name", "commit"),
    [
        ("main", "main"),
        ("feature/main", "main~2"),
        ("refs/heads/main", "main"),
        ("HEAD", "main"),
        ("v1", "main~1"),
        ("refs/tags/v1", "main~1"),
        ("both", "main~1"),
    ],
)
def test_a_branch_or_tag_is_resolved_once(repository: Path, name: str, commit: str) -> None:
    resolved = Code.git(str(repository), commit=name).resolved()
    wanted = git(repository, "rev-parse", f"{commit}^{{commit}}")
    assert resolved == Code.git(str(repository), commit=wanted)
    assert resolved.resolved() is resolved


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("repository", "has no such branch or tag"),
        ("nowhere", "fatal: '"),
    ],
)
def test_a_commit_that_cannot_be_resolved(repository: Path, place: str, words: str) -> None:
    with pytest.raises(InvalidSpec, match=rf"code\.commit: 'none': .*{words}"):
        Code.git(str(repository.parent / place), commit="none").resolved()


def test_without_git_nothing_is_resolved(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InvalidSpec, match=r"code\.commit: 'main': cannot be resolved to a commit: .*git"):
        Code.git(str(repository), commit="main").resolved()


POD = {"spec": {"containers": [{"name": "main", "image": "i"}], "initContainers": [{"name": "own"}]}}


def test_an_init_container_fetches_the_commit() -> None:
    spec = Code.git("https://host/repo", commit="c" * 40).mounted(POD)["spec"]
    first, own = spec["initContainers"]
    assert own == {"name": "own"}
    assert first["env"] == [{"name": "URL", "value": "https://host/repo"}, {"name": "COMMIT", "value": "c" * 40}]
    assert first["volumeMounts"] == [{"name": "code", "mountPath": "/mnt/code"}]
    assert spec["volumes"] == [{"name": "code", "emptyDir": {}}]


def test_the_init_container_works(repository: Path, tmp_path: Path) -> None:
    commit = git(repository, "rev-parse", "main~1")
    (first, _) = Code.git(str(repository), commit=commit).mounted(POD)["spec"]["initContainers"]
    (tmp_path / "mounted").mkdir()
    environ = {**os.environ, **{one["name"]: one["value"] for one in first["env"]}}
    subprocess.run(first["command"], cwd=tmp_path / "mounted", env=environ, check=True)
    assert sorted(one.name for one in (tmp_path / "mounted").iterdir()) == [".git", "first", "second"]


@pytest.mark.parametrize(("path", "sub_path"), [("", {}), ("a/b", {"subPath": "a/b"})])
def test_a_claim_is_mounted(path: str, sub_path: dict[str, str]) -> None:
    spec = Code.claim("data", path).mounted(POD)["spec"]
    assert spec["volumes"] == [{"name": "code", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}}]
    (main,) = spec["containers"]
    assert main["volumeMounts"] == [{"name": "code", "mountPath": "/mnt/code", "readOnly": True, **sub_path}]
    assert main["workingDir"] == "/mnt/code"
    assert Code.claim("data").configmap == ""
