"""The command line: ``frameworkcontroller`` runs the controller, ``local`` a cluster; the rest is for people.

What a command needs is imported when it runs: people wait for the others, and the controller's memory is dear.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from frameworkcontroller import __version__
from frameworkcontroller.commands import program
from frameworkcontroller.commands.argtypes import Parser, seconds
from frameworkcontroller.commands.parsers import add_commands, build_plugin_parser
from frameworkcontroller.logs import FORMATS, LEVELS, configure_logging

_DESCRIPTION: Final = """\
Runs many Pods on Kubernetes as one job, a Framework, with retries, completion rules and rescaling.

Without a command it runs the controller. Its configuration is ./frameworkcontroller.yaml if that is there; its API
server is named by the configuration, $KUBE_APISERVER_ADDRESS, $KUBECONFIG, ~/.kube/config or the Pod that it runs in.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit code: 0 all is well, 1 something failed, 2 it was asked for wrongly."""
    program.speak(as_plugin=False)
    return _run(build_parser(), arguments)


def kubectl_main(arguments: Sequence[str] | None = None) -> int:
    """Run it as a plugin of kubectl: the commands for people alone."""
    program.speak(as_plugin=True)
    return _run(build_plugin_parser(), arguments)


def kubectl_complete_main(arguments: Sequence[str] | None = None) -> int:
    """What kubectl runs to complete ``kubectl framework``: the arguments are the words after that."""
    from frameworkcontroller.commands.completion import complete_for_kubectl

    return complete_for_kubectl(build_plugin_parser(), sys.argv[1:] if arguments is None else arguments)


def _run(parser: Parser, arguments: Sequence[str] | None) -> int:
    if "_ARGCOMPLETE" in os.environ:
        from frameworkcontroller.commands.completion import complete

        complete(parser)
    options = parser.parse_args(arguments)
    configure_logging(options.log_level or options.usual_log_level, options.log_format)
    try:
        code: int = options.command(options)
    except program.CommandError as error:
        return program.fail(str(error), error.code)
    except KeyboardInterrupt:
        # Before or after signals are ours.
        return program.EXIT_INTERRUPTED
    except BrokenPipeError:
        return program.nobody_reads()
    return code


def build_parser() -> Parser:
    """The parser of all commands. What it parses has ``command``, which runs it and returns the exit code."""
    parser = Parser(
        prog=program.PROGRAM, description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    _add_common(parser)
    parser.add_argument(
        "--version", action="version", version=f"{program.PROGRAM} {__version__}", help="show the version and exit"
    )
    parser.set_defaults(
        command=_run_controller, config=None, log_level=None, usual_log_level="info", log_format=FORMATS[0]
    )
    parser.set_defaults(kubeconfig=None, context=None, namespace=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    local = commands.add_parser(
        "local",
        help="a cluster in this process, to try Frameworks on",
        description="A Kubernetes API server and a Pod runtime in this process, on loopback, and the controller on it.",
    )
    local_commands = local.add_subparsers(title="commands", metavar="COMMAND", required=True, dest="local_command")
    _add_up(local_commands)
    _add_run(local_commands)
    add_commands(commands)
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    # Without defaults, so that an option before a command is not undone by its absence after it.
    suppressed: Any = {"default": argparse.SUPPRESS}
    parser.add_argument("--config", metavar="FILE", type=Path, help="configuration of the controller", **suppressed)
    levels = ", ".join(LEVELS)
    parser.add_argument(
        "--log-level", choices=list(LEVELS), metavar="LEVEL", help=f"log from it upwards: {levels}", **suppressed
    )
    parser.add_argument(
        "--log-format", choices=FORMATS, metavar="FORMAT", help="klog (the default) or json, on stderr", **suppressed
    )


def _add_up(commands: Any) -> None:
    up = commands.add_parser(
        "up",
        help="keep a cluster running, to be used with kubectl",
        description="Runs a cluster with the controller until Ctrl-C, and says how kubectl gets at it.",
    )
    _add_common(up)
    _add_runtime(up)
    up.add_argument("--port", type=_port, default=0, help="port of the API server on 127.0.0.1 (default: any free one)")
    up.add_argument(
        "--kubeconfig",
        metavar="PATH",
        type=Path,
        help="where to write the kubeconfig (default: kubeconfig in the data directory)",
    )
    up.add_argument(
        "--data",
        metavar="DIR",
        type=Path,
        help="directory for volumes and logs of Pods (default: a temporary one, removed at the end)",
    )
    up.set_defaults(command=_local_up, usual_log_level="info")


def _add_run(commands: Any) -> None:
    run = commands.add_parser(
        "run",
        help="run the Frameworks of some files and show how they get on",
        description=(
            "Starts a cluster, creates what the files describe, shows how the Frameworks get on, says how each ended, "
            "and leaves nothing behind. Exit code 0: all of them succeeded."
        ),
    )
    run.add_argument("files", metavar="FILE", type=Path, nargs="+", help="manifests, YAML or JSON; - is standard input")
    _add_common(run)
    _add_runtime(run)
    run.add_argument("--timeout", metavar="SECONDS", type=seconds, help="give up after so long (default: never)")
    run.add_argument(
        "--logs",
        action="store_true",
        help="print what containers write, each line with its Pod (and #attempt) in front",
    )
    # What happens to Frameworks is shown anyway.
    run.set_defaults(command=_local_run, usual_log_level="error")


def _add_runtime(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runtime",
        choices=("process", "simulated"),
        default="process",
        help="run containers as processes of this machine, without isolation (the default), or only seemingly",
    )


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"not a port: {text!r}")
    return int(text)


def _run_controller(options: argparse.Namespace) -> int:
    from frameworkcontroller.cli import controller

    return controller.run(options)


def _local_up(options: argparse.Namespace) -> int:
    _require_local()
    from frameworkcontroller.cli import local

    return local.up(options)


def _local_run(options: argparse.Namespace) -> int:
    _require_local()
    from frameworkcontroller.cli import local

    return local.run(options)


def _require_local() -> None:
    """Raise CommandError where the embedded cluster is not installed: .dockerignore keeps it out of the image."""
    try:
        import frameworkcontroller.local  # noqa: F401 - only its presence matters
    except ModuleNotFoundError:
        raise program.CommandError(
            "the embedded cluster is not part of the controller's image; install the package to run `local` commands"
        ) from None
