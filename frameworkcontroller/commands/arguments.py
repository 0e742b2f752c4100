"""What may be asked for on the command line: one parser for ``frameworkcontroller`` and for ``kubectl framework``.

Everything that a command needs is imported when it runs: the parser alone has to be quick, for the controller's start
and for completion by the shell.
"""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from frameworkcontroller import __version__

if TYPE_CHECKING:
    from frameworkcontroller.commands.session import Work

EXIT_USAGE: Final = 2
PLUGIN: Final = "kubectl framework"

_PLUGIN_DESCRIPTION: Final = """\
Shows how Frameworks get on, and why, and changes what they are to do.

The cluster is the one that kubectl would use: --kubeconfig, $KUBECONFIG or ~/.kube/config, and its current context
and namespace unless told otherwise.
"""

_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Parser(argparse.ArgumentParser):
    """argparse's, with errors in a line."""

    def error(self, message: str) -> NoReturn:
        """End with the exit code for what was asked for wrongly."""
        # The usage that argparse prints before it hides the one line that matters.
        self.exit(EXIT_USAGE, f"{self.prog}: {message}\nTry '{self.prog} --help'.\n")


def build_plugin_parser() -> Parser:
    """The parser of ``kubectl framework``: the commands for people alone."""
    parser = Parser(prog=PLUGIN, description=_PLUGIN_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--version", action="version", version=f"{PLUGIN} {__version__}", help="show the version and exit"
    )
    parser.set_defaults(log_level=None, log_format="klog")
    _add_connection(parser)
    parser.set_defaults(kubeconfig=None, context=None, namespace=None)
    add_commands(parser.add_subparsers(title="commands", metavar="COMMAND", required=True))
    return parser


def add_commands(commands: Any) -> None:
    """Add the commands for people. Each sets ``command``, as `cli.build_parser` says, and ``work``, for clusters."""
    _add_list(commands)
    _add_status(commands)


def seconds(text: str) -> float:
    """A number of seconds, above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"not a number of seconds: {text!r}")
    return number


def _span(text: str) -> float:
    """A span of time: ``90``, ``90s``, ``5m``, ``1h30m``; in seconds."""
    if not re.fullmatch(r"(\d+[smhd])+|\d+", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"not a span of time such as 90s, 5m or 1h30m: {text!r}")
    total = sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)([smhd]?)", text))
    if total == 0:
        raise argparse.ArgumentTypeError(f"must be above 0: {text!r}")
    return float(total)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"not a number: {text!r}")
    return int(text)


# --- what many of them have ---


def _add_connection(parser: argparse.ArgumentParser) -> None:
    # Without defaults, so that an option before a command is not undone by its absence after it.
    suppressed: Any = {"default": argparse.SUPPRESS}
    group = parser.add_argument_group("cluster")
    group.add_argument("-n", "--namespace", metavar="NAME", help="namespace (default: the context's)", **suppressed)
    group.add_argument("--context", metavar="NAME", help="context of the kubeconfig", **suppressed)
    group.add_argument("--kubeconfig", metavar="PATH", type=Path, help="kubeconfig to use", **suppressed)


def _command(commands: Any, name: str, help: str, description: str, **more: Any) -> argparse.ArgumentParser:  # noqa: A002
    added: argparse.ArgumentParser = commands.add_parser(name, help=help, description=description, **more)
    # They are people's: what the controller logs of its connections is of use to them only when something is wrong.
    added.set_defaults(usual_log_level="warning")
    return added


def _on_cluster(commands: Any, name: str, help: str, description: str, **more: Any) -> argparse.ArgumentParser:  # noqa: A002
    added = _command(commands, name, help, description, **more)
    _add_connection(added)
    added.set_defaults(command=_run_on_cluster)
    return added


def _add_name(parser: argparse.ArgumentParser, **more: Any) -> None:
    parser.add_argument("name", metavar="NAME", help="of the Framework", **more)


def _run_on_cluster(options: argparse.Namespace) -> int:
    from frameworkcontroller.commands import session

    return session.run(options.work(), options)


# --- one by one ---


def _add_list(commands: Any) -> None:
    parser = _on_cluster(commands, "list", "list Frameworks", "Lists Frameworks and how they stand.", aliases=["ls"])
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="those of all namespaces")
    parser.add_argument("-l", "--selector", metavar="SELECTOR", help="only those whose labels match")
    parser.add_argument(
        "-o", "--output", choices=("wide", "json", "yaml", "name"), help="more columns, or for programs"
    )
    parser.set_defaults(work=_list)


def _list() -> Work:
    from frameworkcontroller.commands import listing

    return listing.run


def _add_status(commands: Any) -> None:
    parser = _on_cluster(
        commands,
        "status",
        "show a Framework's roles and Tasks, and why they wait or failed",
        "Shows a Framework as a tree of its roles and Tasks, with the reason of each that waits or failed. Of many "
        "Tasks it shows groups of those that are alike, the most interesting first.",
    )
    _add_name(parser)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("-w", "--watch", action="store_true", help="go on showing it until it has completed")
    shape.add_argument("-o", "--output", choices=("json", "yaml"), help="the object, its status never compressed")
    parser.add_argument("--all-tasks", action="store_true", help="a line for each Task, however many there are")
    parser.set_defaults(work=_status)


def _status() -> Work:
    from frameworkcontroller.commands import status

    return status.run
