"""The Frameworks that ``run`` makes of its options, and its refusals."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from frameworkcontroller.api.names import API_VERSION
from frameworkcontroller.cli.main import build_parser, kubectl_main
from frameworkcontroller.commands.parsers import build_plugin_parser
from frameworkcontroller.commands.program import UsageError
from frameworkcontroller.commands.runmanifest import Builder
from frameworkcontroller.sdk import presets
from frameworkcontroller.sdk.definitions import Framework, Progress, Resources, Retry
from frameworkcontroller.sdk.shippedcode import Code
from tests.support.cli import Ended, run_program

IMAGE = ["--image", "x"]
FULL = [
    "t", *IMAGE, "--nodes", "4", "--gpus", "8", "--cpu", "4", "--memory", "16Gi", "--env", "A=b=c", "--env", "B=",
    "--queue", "q", "--priority", "p", "--gang", "--progress", "--retries", "3", "--deadline", "2h", "--ttl", "90",
]  # fmt: skip
OPTIONS: presets.Options = {
    "name": "t", "image": "x", "resources": Resources(cpu="4", memory="16Gi", gpus=8), "env": {"A": "b=c", "B": ""},
    "queue": "q", "priority": "p", "gang": True, "progress": Progress(), "retry": Retry(3), "deadline": 7200, "ttl": 90,
}  # fmt: skip
PLAIN: presets.Options = {"name": "t", "image": "x"}
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "framework-ssh-0"}, "data": {}}


def builder(*arguments: str) -> Builder:
    return Builder(build_plugin_parser().parse_args(["run", *arguments]))


def warnings(*arguments: str) -> list[str]:
    made = builder(*arguments)
    return made.check(made.build())


@pytest.fixture(autouse=True)
def same_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presets, "_ssh_keys", lambda: SECRET)


@pytest.mark.parametrize(
    ("arguments", "made"),
    [
        (["t", *IMAGE, "--", "a", "-b", "--", "--help"], lambda: presets.command(["a", "-b", "--", "--help"], **PLAIN)),
        ([*IMAGE, "--", "a"], lambda: presets.command(["a"], image="x")),
        (["framework/t", *IMAGE, "--", "a"], lambda: presets.command(["a"], **PLAIN)),
        (["t", *IMAGE, "--tasks=3", "--", "a"], lambda: presets.command(["a"], tasks=3, **PLAIN)),
        (["t", *IMAGE], lambda: presets.command([], **PLAIN)),
        ([*FULL, "--", "a", "b"], lambda: presets.command(["a", "b"], tasks=4, **OPTIONS)),
        (
            [*FULL, "--preset", "torchrun", "--", "torchrun", "train.py", "--lr", "1"],
            lambda: presets.torchrun("train.py", args=["--lr", "1"], nodes=4, gpus_per_node=8, **OPTIONS),
        ),
        (
            [*FULL, "--preset", "torchrun", "--", "-m", "pack.train", "--lr", "1"],
            lambda: presets.torchrun("-m pack.train", args=["--lr", "1"], nodes=4, gpus_per_node=8, **OPTIONS),
        ),
        (
            [*FULL, "--preset", "distributed", "--", "a"],
            lambda: presets.distributed(["a"], nodes=4, gpus_per_node=8, **OPTIONS),
        ),
        ([*FULL, "--preset", "jax", "--", "a"], lambda: presets.jax(["a"], nodes=4, gpus_per_node=8, **OPTIONS)),
        ([*FULL, "--preset", "tensorflow", "--", "a"], lambda: presets.tensorflow(["a"], workers=4, **OPTIONS)),
        (
            [*FULL, "--preset", "mpi", "--", "mpirun", "-np", "8", "a"],
            lambda: presets.mpi(["-np", "8", "a"], workers=4, slots=8, **OPTIONS),
        ),
        (["t", *IMAGE, "--preset", "mpi", "--", "a"], lambda: presets.mpi(["a"], **PLAIN)),
        ([*FULL, "--preset", "ray", "--", "a"], lambda: presets.ray(["a"], workers=4, gpus_per_worker=8, **OPTIONS)),
        (
            [*FULL, "--preset", "spark", "--", "spark-submit", "a.py"],
            lambda: presets.spark(["a.py"], workers=4, cores=4, memory="15360m", **OPTIONS),
        ),
        (
            ["t", *IMAGE, "--preset", "spark", "--cpu", "500m", "--memory", "1Gi", "--", "a.py"],
            lambda: presets.spark(
                ["a.py"], cores=1, memory="1024m", **(PLAIN | {"resources": Resources(cpu="500m", memory="1Gi")})
            ),
        ),
        (["t", *IMAGE, "--preset", "spark", "--", "a.py"], lambda: presets.spark(["a.py"], **PLAIN)),
    ],
)
def test_it_is_the_framework_of_the_sdk(arguments: Sequence[str], made: Callable[[], Framework]) -> None:
    found = builder(*arguments)
    assert found.build().to_yaml() == made().to_yaml()
    found.check(found.build())


def test_both_programs_have_the_command() -> None:
    arguments = ["run", "t", *IMAGE, "-n", "ns", "--", "a", "-n", "other"]
    options = [parser().parse_args(arguments) for parser in (build_parser, build_plugin_parser)]
    assert [(one.words, one.namespace, one.name) for one in options] == [(["a", "-n", "other"], "ns", "t")] * 2


def test_code_is_shipped(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    paths = [tmp_path / "train.py", tmp_path / "lib"]
    for path in (paths[0], paths[1] / "x.py"):
        path.write_text("pass")
    made = builder("t", *IMAGE, "--code", str(paths[0]), "--code", str(paths[1]), "--", "python", "train.py").build()
    assert made == presets.command(["python", "train.py"], **(PLAIN | {"code": Code.files(*paths)}))


def test_an_array_has_a_framework_for_each_number() -> None:
    found = builder("t", *IMAGE, "--array", "9-10", "--env", "A=b", "--", "a", "$(ARRAY_INDEX)")
    group = "frameworkcontroller.microsoft.com"
    assert [found.build(index).to_dict() for index in (9, 10)] == [
        presets.command(
            ["a", "$(ARRAY_INDEX)"],
            name=f"t{index}",
            image="x",
            env={"A": "b", "ARRAY_INDEX": str(index)},
            labels={f"{group}/array": "t", f"{group}/array-index": str(index)},
        ).to_dict()
        for index in (9, 10)
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["my-job", *IMAGE, "--", "a"], '"my-job" is not the name of a Framework'),
        (["t", "--", "a"], "--image: is required"),
        (["t", *IMAGE, "--nodes", "20000", "--", "a"], "--nodes: 20000: must be at most 10000"),
        (["t", *IMAGE, "--retries", "9999999999", "--", "a"], "--retries: 9999999999: must be at most"),
        (["t", *IMAGE, "--deadline", "99999d", "--", "a"], "--deadline: 8639913600: must be at most"),
        (["t", *IMAGE, "--ttl", "99999d", "--", "a"], "--ttl: 8639913600: must be at most"),
        (["t", *IMAGE, "--queue", "A_b", "--", "a"], "--queue: 'A_b': must be the name of a LocalQueue"),
        (["t", *IMAGE, "--queue", "q", "--priority", "A_b", "--", "a"], "--priority: 'A_b': must be"),
        (["t", *IMAGE, "--code", "/absent", "--", "a"], "--code: '/absent': cannot be read: No such file or directory"),
        (["t"], "no command is given: -- COMMAND"),
        (["t", *IMAGE, "--preset", "torchrun", "--", "torchrun"], "no command is given: -- COMMAND"),
        (["t", *IMAGE, "--preset", "torchrun", "--", "/bin/python3", "a.py"], "--preset torchrun: '/bin/python3': "),
        ([*IMAGE, "--array", "0-3", "--", "a"], "--array: needs a NAME"),
        (["t" * 62, *IMAGE, "--array", "9-10", "--", "a"], f'"{"t" * 62}10" is not the name of a Framework'),
        (["t", *IMAGE, "--array", "0-3", "-f", "--", "a"], "--array: -f follows one Framework"),
        (["t", *IMAGE, "--at-most", "3", "--", "a"], "--at-most: is for --array"),
        (["t", *IMAGE, "--dry-run", "-f", "--", "a"], "--dry-run: runs nothing that -f could wait for"),
        (["t", *IMAGE, "-o", "yaml", "--", "a"], "-o: is for --dry-run"),
    ],
)
def test_an_invalid_framework_is_refused(arguments: Sequence[str], text: str) -> None:
    with pytest.raises(UsageError) as refused:
        warnings(*arguments)
    assert str(refused.value).startswith(text)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["t", "a", "-b"], "unrecognized arguments: a -b; the command to run comes after --"),
        (["--nodes", "0"], "argument --nodes/--tasks: must be at least 1: '0'"),
        (["--gpus", "x"], "argument --gpus: not a number: 'x'"),
        (["--memory", "3Q"], "argument --memory: not a quantity such as 4, 500m or 16Gi: '3Q'"),
        (["--cpu=-1"], "argument --cpu: not a quantity such as 4, 500m or 16Gi: '-1'"),
        (["--env", "A"], "argument --env: not KEY=VALUE: 'A'"),
        (["--env", "=a"], "argument --env: not KEY=VALUE: '=a'"),
        (["--array", "3"], "argument --array: not FIRST-LAST, such as 0-29: '3'"),
        (["--array", "3-2"], "argument --array: not FIRST-LAST, such as 0-29: '3-2'"),
        (["--array", "0-10000"], "argument --array: must have at most 10000 numbers: '0-10000'"),
        (["--preset", "horovod"], "argument --preset: invalid choice: 'horovod'"),
    ],
)
def test_wrong_options_are_named(capsys: pytest.CaptureFixture[str], arguments: Sequence[str], text: str) -> None:
    with pytest.raises(SystemExit) as ended:
        build_plugin_parser().parse_args(["run", *arguments, "--", "a"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(f"error: {text}")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["--nodes", "2", "--", "torchrun", "a.py"],
            ["each of the 2 Tasks starts a torchrun of its own; --preset torchrun joins them"],
        ),
        (["--nodes", "1", "--", "torchrun", "a.py"], []),
        (["--nodes", "2", "--preset", "torchrun", "--", "torchrun", "a.py"], []),
        (
            ["--", "a", "{{FC_TASK_INDX}}"],
            [
                "spec.taskRoles[0].task.pod.spec.containers[0].command[1]: {{FC_TASK_INDX}} is not a placeholder and "
                "stays unchanged; did you mean FC_TASK_INDEX?"
            ],
        ),
    ],
)
def test_likely_mistakes_are_warnings(arguments: Sequence[str], expected: Sequence[str]) -> None:
    assert warnings("t", *IMAGE, *arguments) == [f"warning: {one}" for one in expected]


@pytest.fixture
def dry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logging_as_before: None) -> Callable[..., Ended]:
    """Runs the command with --dry-run where there is no cluster."""
    monkeypatch.setenv("KUBECONFIG", os.fspath(tmp_path / "absent"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text("pass")
    return lambda *arguments: run_program("run", "--dry-run", *arguments, program=kubectl_main)


def test_a_dry_run_prints_the_manifest(dry: Callable[..., Ended]) -> None:
    code, out, err = dry("t", *IMAGE, "--code", "a.py", "-o", "yaml", "--", "python", "a.py")
    assert (code, err) == (0, "")
    made = presets.command(["python", "a.py"], **(PLAIN | {"code": Code.files("a.py")}))
    bodies = [made.to_dict(), *made.all_objects()]
    assert list(yaml.safe_load_all(out)) == bodies
    assert json.loads(dry("t", *IMAGE, "--code", "a.py", "-o", "json", "--", "python", "a.py").out)["items"] == bodies
    given = list(yaml.safe_load_all(dry("t", *IMAGE, "--code", "a.py", "-n", "ns", "--", "a").out))
    assert [body["metadata"]["namespace"] for body in given] == ["ns", "ns"]


def test_a_dry_run_without_a_name_names_the_command_that_takes_it(dry: Callable[..., Ended]) -> None:
    code, out, err = dry(*IMAGE, "--", "a")
    assert (code, "kubectl create -f -" in err) == (0, True)
    assert yaml.safe_load(out) == presets.command(["a"], image="x").to_dict()
    assert json.loads(dry(*IMAGE, "-o", "json", "--", "a").out)["apiVersion"] == API_VERSION


def test_a_dry_run_of_an_array_has_their_code_once(dry: Callable[..., Ended]) -> None:
    code, out, err = dry("t", *IMAGE, "--array", "0-2", "--code", "a.py", "--", "a")
    assert (code, err) == (0, "")
    found = [(body["kind"], body["metadata"]["name"]) for body in yaml.safe_load_all(out)]
    assert found[0] == ("Framework", "t0")
    assert [kind for kind, _ in found] == ["Framework", "ConfigMap", "Framework", "Framework"]


def test_a_refused_dry_run_prints_no_manifest(dry: Callable[..., Ended]) -> None:
    assert dry("t", "--", "a") == (2, "", "error: --image: is required\n")
