"""The command line: arguments, errors and exit codes."""

import argparse
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest

from frameworkcontroller import __version__
from frameworkcontroller.cli.main import build_parser, kubectl_main, main
from frameworkcontroller.commands import program
from frameworkcontroller.commands.parsers import Parser, build_plugin_parser

PYTHON = [sys.executable, "-W", "error::DeprecationWarning", "-m", "frameworkcontroller"]

BARE = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONUNBUFFERED": "1"}
"""An environment that names no API server."""


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The first line of the error for these arguments."""
    with pytest.raises(SystemExit) as caught:
        build_parser().parse_args(arguments)
    said = capsys.readouterr()
    assert (caught.value.code, said.out) == (2, "")
    first, second = said.err.splitlines()
    assert second.startswith("Try 'frameworkcontroller")
    return first


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--bogus"], "frameworkcontroller: unrecognized arguments: --bogus"),
        (["--log-level", "loud"], "frameworkcontroller: argument --log-level: invalid choice: 'loud'"),
        (["--log-format", "xml"], "frameworkcontroller: argument --log-format: invalid choice: 'xml'"),
        (["--config"], "frameworkcontroller: argument --config: expected one argument"),
        (["stauts"], "frameworkcontroller: unknown command 'stauts'; did you mean status?"),
        (["xyzzy"], "frameworkcontroller: unknown command 'xyzzy'; the commands are local, "),
        (["local"], "frameworkcontroller local: the following arguments are required: COMMAND"),
        (["local", "down"], "frameworkcontroller local: unknown command 'down'; the commands are up, run"),
        (["local", "run"], "frameworkcontroller local run: the following arguments are required: FILE"),
        (["local", "run", "f", "--timeout", "0"], "frameworkcontroller local run: argument --timeout: must be above 0"),
        (
            ["local", "run", "f", "--timeout", "nan"],
            "frameworkcontroller local run: argument --timeout: not a duration",
        ),
        (
            ["local", "run", "f", "--timeout", "1.m"],
            "frameworkcontroller local run: argument --timeout: not a duration",
        ),
        (
            ["local", "run", "f", "--timeout", "9" * 10],
            "frameworkcontroller local run: argument --timeout: not a durat",
        ),
        (["local", "run", "f", "--runtime", "docker"], "frameworkcontroller local run: argument --runtime: invalid"),
        (["local", "up", "--port", "70000"], "frameworkcontroller local up: argument --port: not a port: '70000'"),
        (["local", "up", "--port", "-1"], "frameworkcontroller local up: argument --port: not a port: '-1'"),
        (["local", "up", "file"], "frameworkcontroller: unrecognized arguments: file"),
    ],
)
def test_bad_arguments(capsys: pytest.CaptureFixture[str], arguments: list[str], error: str) -> None:
    assert refused(capsys, *arguments).startswith(error)


@pytest.mark.usefixtures("logging_as_before")
def test_the_plugin_alone_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert kubectl_main([]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("usage: kubectl framework ")
    assert said.err == ""


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["status"],
            ["error: the following arguments are required: NAME", "See 'kubectl framework status --help' for usage."],
        ),
        (["decompress", "-f", "absent"], ["error: absent: cannot be read: No such file or directory"]),
    ],
)
def test_the_plugin_speaks_as_kubectl_does(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: list[str]
) -> None:
    try:
        with pytest.raises(SystemExit) as ended:
            sys.exit(kubectl_main(arguments))
    finally:
        program.set_prefixes(as_plugin=False)
    heard = capsys.readouterr()
    assert (ended.value.code, heard.out, heard.err.splitlines()) == (2, "", said)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {"config": None, "log_level": None, "usual_log_level": "info", "log_format": "klog"}),
        (["--config", "a.yaml", "--log-level", "debug"], {"config": Path("a.yaml"), "log_level": "debug"}),
        (["--log-format", "json"], {"log_format": "json"}),
        (
            ["local", "up"],
            {"port": 0, "runtime": "process", "kubeconfig": None, "data": None, "usual_log_level": "info"},
        ),
        (
            ["local", "up", "--port", "8080", "--runtime", "simulated", "--kubeconfig", "k", "--data", "d"],
            {"port": 8080, "runtime": "simulated", "kubeconfig": Path("k"), "data": Path("d")},
        ),
        (
            ["local", "run", "a.yaml", "-", "--timeout", "1m1.5s"],
            {"files": [Path("a.yaml"), Path("-")], "timeout": 61.5, "runtime": "process", "usual_log_level": "error"},
        ),
        # An option that all commands have may stand before or after them.
        (["--log-level", "error", "--config", "c", "local", "run", "a"], {"log_level": "error", "config": Path("c")}),
        (["local", "run", "a", "--log-level", "error", "--config", "c"], {"log_level": "error", "config": Path("c")}),
        (["--log-level", "info", "local", "up", "--log-level", "error"], {"log_level": "error", "config": None}),
    ],
)
def test_arguments(arguments: list[str], expected: dict[str, object]) -> None:
    parsed = vars(build_parser().parse_args(arguments))
    assert {name: parsed[name] for name in expected} == expected


def modules_below(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The modules of all commands, including those in groups, without the ones in `cli`."""
    (commands,) = (action.choices for action in parser._actions if action.metavar == "COMMAND")
    assert isinstance(commands, dict)
    for name, below in commands.items():
        if name in ("local", "dashboard", "serve", "print-manifests"):
            continue
        if any(action.metavar == "COMMAND" for action in below._actions):
            yield from modules_below(below)
        else:
            yield below.get_default("module")


@pytest.mark.parametrize("build", [build_parser, build_plugin_parser])
def test_every_command_has_its_module(build: Callable[[], Parser]) -> None:
    modules = list(modules_below(build()))
    assert len(modules) >= (19 if build is build_parser else 17)
    for module in modules:
        assert callable(import_module(f"frameworkcontroller.commands.{module}").run)


def command(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PYTHON, *arguments],
        cwd=folder,
        env=BARE | environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_version_and_help(tmp_path: Path) -> None:
    version = command("--version", folder=tmp_path)
    assert (version.returncode, version.stdout) == (0, f"frameworkcontroller {__version__}\n")
    told = command("--help", folder=tmp_path)
    assert (told.returncode, told.stderr) == (0, "")
    for option in ("--config FILE", "--log-level", "--log-format", "--version", "local"):
        assert option in told.stdout
    assert "FILE" in command("local", "run", "--help", folder=tmp_path).stdout


@pytest.mark.parametrize("arguments", [["up"], ["run", "file.yaml"]])
def test_local_commands_in_an_image_without_the_embedded_cluster(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "frameworkcontroller.local", None)
    monkeypatch.setattr("frameworkcontroller.cli.main.configure_logging", lambda *_: None)  # for the other tests
    assert main(["local", *arguments]) == 1
    assert capsys.readouterr().err == (
        "frameworkcontroller: the embedded cluster is not part of the controller's image; "
        "install the package to run `local` commands\n"
    )


def test_no_api_server_is_named(tmp_path: Path) -> None:
    ended = command(folder=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("frameworkcontroller: no API server is configured")
    assert "Traceback" not in ended.stderr


def test_bad_configuration(tmp_path: Path) -> None:
    (tmp_path / "frameworkcontroller.yaml").write_text("workerNumber: 0\nbogus: 1\n")
    ended = command(folder=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        "frameworkcontroller: frameworkcontroller.yaml:1: workerNumber: 0: must be above 0\n"
        "frameworkcontroller: frameworkcontroller.yaml:2: bogus: unknown key\n"
    )


def test_named_configuration_must_be_there(tmp_path: Path) -> None:
    ended = command("--config", "absent.yaml", folder=tmp_path)
    assert (ended.returncode, ended.stderr) == (2, "frameworkcontroller: absent.yaml: no such file\n")


def test_named_kubeconfig_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "frameworkcontroller.yaml").write_text("kubeConfigFilePath: absent\n")
    ended = command(folder=tmp_path)
    assert (ended.returncode, ended.stderr) == (2, "frameworkcontroller: kubeconfig absent: no such file\n")


def test_a_kubeconfig_of_the_environment_must_be_there_for_commands_only(tmp_path: Path) -> None:
    ended = command(folder=tmp_path, KUBECONFIG="absent")
    assert ended.returncode == 2
    assert "Ignoring $KUBECONFIG, which names no existing file: absent\n" in ended.stderr
    assert "frameworkcontroller: no API server is configured" in ended.stderr
    ended = command("list", folder=tmp_path, KUBECONFIG="absent")
    assert ended.returncode != 0
    assert "kubeconfig absent: no such file" in ended.stderr


@contextmanager
def running(*arguments: str, folder: Path, until: str) -> Iterator[subprocess.Popen[str]]:
    """The command as a process that has said ``until`` on stderr."""
    with subprocess.Popen(arguments, cwd=folder, env=BARE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if until in line:
                    break
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_ends_it_in_good_order_even_while_it_waits_for_its_api_server(tmp_path: Path, number: int) -> None:
    (tmp_path / "frameworkcontroller.yaml").write_text("kubeApiServerAddress: http://127.0.0.1:1\n")
    with running(*PYTHON, folder=tmp_path, until="retrying") as process:
        process.send_signal(number)
        # Again at once, as a terminal and a wrapper would: that is no second one.
        process.send_signal(number)
        _, errors = process.communicate(timeout=600)
    assert process.returncode == 0
    assert "stopping; another one exits at once" in errors
    assert errors.splitlines()[-1].endswith("] Stopped")
    assert "Traceback" not in errors


def test_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    script = """
        import asyncio, sys
        from frameworkcontroller.commands import program

        async def main():
            program.stop_on_signals(lambda number: print("stopping", file=sys.stderr, flush=True))
            print("ready", file=sys.stderr, flush=True)
            await asyncio.sleep(3600)

        program.run(main())
    """
    with running(sys.executable, "-c", textwrap.dedent(script), folder=tmp_path, until="ready") as process:
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        assert process.stderr.readline() == "stopping\n"
        began = time.monotonic()
        while process.poll() is None and time.monotonic() - began < 300:
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)
    assert process.returncode == 128 + signal.SIGINT
    assert time.monotonic() - began > 0.4
