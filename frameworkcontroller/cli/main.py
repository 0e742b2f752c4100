"""The entry points: ``frameworkcontroller`` and its kubectl plugin.

The module of a command is imported when the command runs: people wait for its start, and the controller's memory is
limited.
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
from frameworkcontroller.commands.parsers import (
    SUPPRESSED,
    Parser,
    add_all_namespaces,
    add_commands,
    add_connection,
    add_history_commands,
    add_operator_commands,
    add_serving,
    add_timeout,
    build_plugin_parser,
    count,
    late,
    span,
)
from frameworkcontroller.commands.shellcompletion import complete_for_kubectl
from frameworkcontroller.logs import FORMATS, LEVELS, configure_logging

_DESCRIPTION: Final = """\
Run many Pods on Kubernetes as one job, a Framework, with retries, completion policies and rescaling.

Without a command, run the controller. Its configuration is ./frameworkcontroller.yaml, if that file exists. The
configuration, $KUBE_APISERVER_ADDRESS, $KUBECONFIG, ~/.kube/config or the controller's Pod names its API server.
"""


_CONTROLLER_OPTIONS: Final = frozenset({"--config", "--check-config", "--log-level", "--log-format"})
"""Each takes a value."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Return the exit code: 0 success, 1 failure, 2 wrong usage."""
    program.set_prefixes(as_plugin=False)
    words = sys.argv[1:] if arguments is None else arguments
    # The parsers of the other commands take as long as some imports.
    is_controller = len(words) % 2 == 0 and _CONTROLLER_OPTIONS.issuperset(words[::2])
    return _run(build_parser(commands=not is_controller or "_ARGCOMPLETE" in os.environ), words)


def kubectl_main(arguments: Sequence[str] | None = None) -> int:
    """Run as a plugin of kubectl, which has the commands for Frameworks only."""
    program.set_prefixes(as_plugin=True)
    return _run(build_plugin_parser(), arguments)


def kubectl_complete_main(arguments: Sequence[str] | None = None) -> int:
    """Complete ``kubectl framework`` for kubectl, whose arguments are the words after that."""
    return complete_for_kubectl(build_plugin_parser(), sys.argv[1:] if arguments is None else arguments)


def _run(parser: Parser, arguments: Sequence[str] | None) -> int:
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser, always_complete_options=False)
    options = parser.parse_args(arguments)
    configure_logging(options.log_level or options.usual_log_level, options.log_format)
    try:
        code: int = options.command(options)
        # A closed pipe is reported here, not by the interpreter at exit.
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        # The command has no handler of signals, or not yet, or no longer.
        return program.EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - reported there
        return program.exit_code_of(error, getattr(options, "extra", None))


def build_parser(*, commands: bool = True) -> Parser:
    """Return the parser of all commands. Each sets ``command``, which takes the options and returns a code.

    ``commands`` False: only of the controller, which is the program without a command.
    """
    parser = Parser(
        prog=program.PROGRAM, description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    _add_common(parser)
    parser.add_argument(
        "--version", action="version", version=f"{program.PROGRAM} {__version__}", help="show the version and exit"
    )
    parser.add_argument(
        "--check-config",
        metavar="FILE",
        type=Path,
        help="check a configuration as a start of the controller does, contact nothing, and exit",
    )
    parser.set_defaults(command=_run_controller, config=None, kubeconfig=None, context=None, namespace=None)
    parser.set_defaults(log_level=None, usual_log_level="info", log_format=FORMATS[0])
    if commands:
        _add_all_commands(parser.add_subparsers(title="commands", metavar="COMMAND"))
    return parser


def _add_all_commands(commands: Any) -> None:
    _add_local(commands)
    _add_dashboard(commands)
    add_commands(commands)
    add_operator_commands(commands)
    _add_history_serve(add_history_commands(commands))
    _add_print_manifests(commands)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", type=Path, help="configuration of the controller", **SUPPRESSED)
    levels = ", ".join(LEVELS)
    parser.add_argument(
        "--log-level", choices=list(LEVELS), metavar="LEVEL", help=f"least level to log: {levels}", **SUPPRESSED
    )
    parser.add_argument(
        "--log-format", choices=FORMATS, metavar="FORMAT", help="klog (the default) or json, on stderr", **SUPPRESSED
    )


def _add_local(commands: Any) -> None:
    local = commands.add_parser(
        "local",
        help="run a cluster in this process, to try Frameworks",
        description="Run a Kubernetes API server, a Pod runtime and the controller in this process, on loopback.",
    )
    commands = local.add_subparsers(title="commands", metavar="COMMAND", required=True, dest="local_command")
    up = commands.add_parser(
        "up",
        help="run a cluster for kubectl",
        description="Run a cluster with the controller until Ctrl-C, and print how to use it with kubectl.",
    )
    run = commands.add_parser(
        "run",
        help="run the Frameworks of files and show their progress",
        description=(
            "Start a cluster, create the objects in the files, show the progress and results of the Frameworks, and "
            "remove the cluster. Exit code 0: all Frameworks succeeded."
        ),
    )
    # For a parent process (sdk/localprocess.py).
    up.add_argument("--until-stdin-closes", action="store_true", help=argparse.SUPPRESS)
    for parser in (up, run):
        _add_common(parser)
        parser.add_argument(
            "--runtime",
            choices=("process", "simulated"),
            default="process",
            help="run containers as processes of this machine, without isolation (the default), or simulate them",
        )
        parser.add_argument(
            "--queue",
            metavar="QUOTA",
            help="provide a queue, as Kueue does, with this quota, such as cpu=8,memory=16Gi,nvidia.com/gpu=4",
        )
        parser.add_argument(
            "--nodes",
            metavar="COUNT",
            type=_node_count,
            default=1,
            help="nodes, up to 100: local-0, local-1 and so on (default: one, local)",
        )
        parser.add_argument(
            "--capacity",
            metavar="RESOURCES",
            help=(
                "resources of each node, such as cpu=4,nvidia.com/gpu=2; Pods then wait until their requests fit. Each "
                "container gets GPUs of its own; nvidia.com/gpu=auto shares this machine's, by nvidia-smi"
            ),
        )
    for parser in (up, run):
        parser.add_argument(
            "--map-volume",
            metavar="KIND:ID=DIRECTORY",
            action="append",
            default=[],
            help="use a directory in place of a network volume, such as nfs:SERVER:/PATH=DIRECTORY; may be repeated",
        )
    up.add_argument("--port", type=_port, default=0, help="port of the API server on 127.0.0.1 (default: a free one)")
    up.add_argument(
        "--kubeconfig",
        metavar="PATH",
        type=Path,
        help="kubeconfig to write (default: kubeconfig in the data directory)",
    )
    up.add_argument(
        "--data",
        metavar="DIR",
        type=Path,
        help="directory for volumes and logs of Pods (default: a temporary one, removed at the end)",
    )
    up.set_defaults(command=_run_local, extra="local", usual_log_level="info")
    run.add_argument("files", metavar="FILE", type=Path, nargs="+", help="manifests, YAML or JSON; - is standard input")
    add_timeout(run, default="1h without a terminal, else none")
    run.add_argument(
        "--logs", action="store_true", help="print the output of containers, each line with its Pod (and #attempt)"
    )
    # The progress shows the same as the log.
    run.set_defaults(command=_run_local, extra="local", usual_log_level="error")


def _add_dashboard(commands: Any) -> None:
    dashboard = commands.add_parser(
        "dashboard",
        help="serve web pages of Frameworks",
        description="Serve read-only web pages of Frameworks, of all namespaces or of -n, until Ctrl-C.",
    )
    _add_common(dashboard)
    add_connection(dashboard)
    add_all_namespaces(dashboard)
    add_serving(
        dashboard,
        "127.0.0.1:10282",
        "where to listen (default: 127.0.0.1:10282); beyond loopback, viewers need a token of the cluster",
    )
    dashboard.add_argument(
        "--history", metavar="URL", help="archive with past Frameworks, such as http://127.0.0.1:10281"
    )
    dashboard.add_argument(
        "--history-token-file", metavar="FILE", type=Path, help="token for the archive, if this server is on loopback"
    )
    dashboard.add_argument(
        "--history-ca-file", metavar="FILE", type=Path, help="the certificates that sign the archive's, in PEM"
    )
    dashboard.set_defaults(command=late("cli.dashboard"), extra="archive", usual_log_level="warning")


def _add_history_serve(commands: Any) -> None:
    serve = commands.add_parser(
        "serve",
        help="run the archive: take records, keep them in a database, show them",
        description=(
            "Run the archive of the history until a signal: take the records of controllers, keep them in a database, "
            "answer queries, and serve the pages. On loopback it asks for its own token, which the printed address "
            "contains; on other addresses for a bearer token of the cluster."
        ),
    )
    _add_common(serve)
    serve.add_argument(
        "--database",
        metavar="URL",
        help="sqlite:///PATH or postgresql://USER@HOST/NAME (default: $FRAMEWORK_HISTORY_DATABASE, else "
        "sqlite:///frameworkcontroller-history.db); a URL with a password belongs into the variable",
    )
    add_serving(serve, "127.0.0.1:10281", "to listen on (default: 127.0.0.1:10281)")
    serve.add_argument(
        "--follow",
        metavar="DIR",
        type=Path,
        action="append",
        default=[],
        help="also store the records of the files in this folder, which `sink: file` writes; may be repeated",
    )
    serve.add_argument(
        "--retention-days", metavar="N", type=count, help="remove Frameworks whose newest record is older than this"
    )
    serve.add_argument(
        "--retention-bytes", metavar="SIZE", help="remove the oldest Frameworks above this size, such as 50Gi"
    )
    serve.add_argument(
        "--retention-logs-age", metavar="SPAN", type=span, help="remove logs that are older, such as 30d"
    )
    serve.add_argument(
        "--retention-logs-bytes",
        metavar="SIZE",
        help="remove the oldest logs above this compressed size, such as 5Gi",
    )
    serve.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        help="on loopback: the token of this server, created if missing (default: next to the SQLite file); elsewhere: "
        "a further token that may send records",
    )
    serve.add_argument("--kubeconfig", metavar="PATH", type=Path, help="of the cluster that is asked about tokens")
    serve.add_argument("--context", metavar="NAME", help="context of the kubeconfig")
    pages = serve.add_mutually_exclusive_group()
    pages.add_argument("--live", action="store_true", help="show the cluster's Frameworks in the pages, too")
    pages.add_argument("--no-pages", action="store_true", help="serve the API without the pages")
    serve.set_defaults(command=late("cli.servehistory", "serve"), extra="archive", usual_log_level="info")


def _add_print_manifests(commands: Any) -> None:
    parser = commands.add_parser(
        "print-manifests",
        help="print the manifests that install the controller",
        description="Print the manifests of this release, to be applied by kubectl apply --server-side -f -. --config "
        "replaces their configuration.",
    )
    _add_common(parser)
    parser.add_argument("overlay", metavar="OVERLAY", nargs="?", default="base", help="default: base; see --list")
    parser.add_argument("components", metavar="COMPONENT", nargs="*", help="additions to the overlay; see --list")
    parser.add_argument("--image", metavar="NAME", help="image of all containers, such as registry.example/fc:0.1.0")
    parser.add_argument("--list", action="store_true", help="list overlays and components")
    parser.set_defaults(command=late("cli.printmanifests"), usual_log_level="warning")


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"not a port: {text!r}")
    return int(text)


def _node_count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 100:
        raise argparse.ArgumentTypeError(f"not a number from 1 to 100: {text!r}")
    return int(text)


def _run_controller(options: argparse.Namespace) -> int:
    if options.check_config is not None:
        return _check_config(options.check_config)
    from frameworkcontroller.cli.startup import lean_imports

    with lean_imports():
        from frameworkcontroller.cli import runcontroller

    return runcontroller.run(options)


def _check_config(file: Path) -> int:
    from frameworkcontroller.config.config import ConfigurationError, load_config

    try:
        load_config(file, required=True)
    except ConfigurationError as error:
        raise program.UsageError(str(error)) from None
    print(f"{file}: valid")  # noqa: T201 - the result
    return program.EXIT_OK


def _run_local(options: argparse.Namespace) -> int:
    try:
        import frameworkcontroller.local  # noqa: F401 - .dockerignore keeps it out of the image
    except ModuleNotFoundError:
        raise program.CommandError(
            "the embedded cluster is not part of the controller's image; install the package to run `local` commands"
        ) from None
    from frameworkcontroller.cli import local

    return local.up(options) if options.local_command == "up" else local.run(options)
