"""What may be asked for on the command line: one parser for ``frameworkcontroller`` and for ``kubectl framework``.

Everything that a command needs is imported when it runs: the parser alone has to be quick, for the controller's start
and for completion by the shell.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from frameworkcontroller import __version__
from frameworkcontroller.commands.argtypes import Parser, PluginParser, count, framework, role_and_number, span, target
from frameworkcontroller.commands.completers import (
    complete_names,
    complete_roles,
    complete_roles_to_scale,
    completed_by,
)

if TYPE_CHECKING:
    from frameworkcontroller.commands.invocation import Work

PLUGIN: Final = "kubectl framework"

_PLUGIN_DESCRIPTION: Final = """\
Shows how Frameworks get on, and why, and changes what they are to do.

The cluster is the one that kubectl would use: --kubeconfig, $KUBECONFIG or ~/.kube/config, and its current context
and namespace unless told otherwise.
"""


def build_plugin_parser() -> Parser:
    """The parser of ``kubectl framework``: the commands for people alone."""
    parser = PluginParser(
        prog=PLUGIN, description=_PLUGIN_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
    _add_wait(commands)
    _add_start_and_stop(commands)
    _add_scale(commands)
    _add_logs(commands)
    _add_events(commands)
    _add_lint(commands)
    _add_top(commands)
    _add_timeline(commands)
    _add_decompress(commands)
    _add_completion(commands)


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


def _add_name(parser: argparse._ActionsContainer, **more: Any) -> None:
    completed_by(
        complete_names, parser.add_argument("name", metavar="NAME", type=framework, help="of the Framework", **more)
    )


def _add_names(parser: argparse.ArgumentParser) -> None:
    completed_by(
        complete_names, parser.add_argument("names", metavar="NAME", type=framework, nargs="+", help="of a Framework")
    )


def _run_on_cluster(options: argparse.Namespace) -> int:
    from frameworkcontroller.commands import invocation

    return invocation.run(options.work(), options)


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
    from frameworkcontroller.commands.list import run

    return run


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


def _add_wait(commands: Any) -> None:
    parser = _on_cluster(
        commands,
        "wait",
        "wait until Frameworks run, have completed or have succeeded",
        "Waits, and says how they stand then. Exit code 0: all are as was asked; 1: that cannot be any more (one has "
        "failed, say, or was deleted), or the time is up.",
    )
    _add_names(parser)
    parser.add_argument(
        "--for",
        dest="wanted",
        choices=("running", "completed", "succeeded"),
        default="completed",
        help="running: any Task of it runs; completed (the default): it has ended, whichever way; succeeded",
    )
    parser.add_argument("--timeout", metavar="SPAN", type=span, help="give up after so long, such as 90s or 2h")
    parser.set_defaults(work=_wait)


def _wait() -> Work:
    from frameworkcontroller.commands import wait

    return wait.run


def _add_start_and_stop(commands: Any) -> None:
    start = _on_cluster(
        commands,
        "start",
        "start Frameworks that were only created",
        "Starts Frameworks whose executionType is Create. One that was stopped cannot be started again.",
    )
    stop = _on_cluster(
        commands,
        "stop",
        "stop Frameworks for good",
        "Stops Frameworks: their Pods are deleted, they complete with code -210, and their status stays to be looked "
        "at. It cannot be undone.",
    )
    for parser, wanted in ((start, "Start"), (stop, "Stop")):
        _add_names(parser)
        parser.set_defaults(work=_execution, wanted=wanted)


def _execution() -> Work:
    from frameworkcontroller.commands import startstop

    return startstop.run


def _add_scale(commands: Any) -> None:
    parser = _on_cluster(
        commands,
        "scale",
        "change how many Tasks roles have, while they run",
        "Sets the number of Tasks of one or several roles in one step, safe against others who change the Framework "
        "meanwhile. Tasks with the highest indexes are the ones that come and go.",
    )
    _add_name(parser)
    # Not "+": what is before it would not be parsed while this is completed.
    roles = parser.add_argument("roles", metavar="ROLE=N", type=role_and_number, nargs="*", help="role, and new number")
    completed_by(complete_roles_to_scale, roles)
    parser.add_argument(
        "--adjust-policy",
        action="store_true",
        help="change the role's completion policy along: a minimum that was all Tasks becomes all of the new number, "
        "one between 1 and all keeps its share (rounded up), and 1, 0 and -1 stay; what was changed is said",
    )
    parser.set_defaults(work=_scale)


def _scale() -> Work:
    from frameworkcontroller.commands import scale

    return scale.run


def _add_events(commands: Any) -> None:
    parser = _on_cluster(
        commands,
        "events",
        "show what was told of a Framework and its Pods",
        "Shows the Events of a Framework, of its attempt's ConfigMap and of its Pods, the newest last; without a name, "
        "those of all Frameworks themselves.",
    )
    _add_name(parser, nargs="?")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="those of all namespaces")
    parser.add_argument("-w", "--watch", action="store_true", help="go on showing them as they come")
    parser.set_defaults(work=_events)


def _events() -> Work:
    from frameworkcontroller.commands import events

    return events.run


def _add_decompress(commands: Any) -> None:
    parser = _on_cluster(
        commands,
        "decompress",
        "show a Framework's object with its status readable",
        "Prints a Framework with taskRoleStatuses in place of taskRoleStatusesCompressed, which the controller stores "
        "of large ones.",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    _add_name(source, nargs="?")
    source.add_argument("-f", "--file", metavar="FILE", type=Path, help="a file in its place, JSON or YAML; - is stdin")
    parser.add_argument("-o", "--output", choices=("json", "yaml"), default="json", help="default: json")
    parser.set_defaults(command=_run_decompress, work=_decompress)


def _run_decompress(options: argparse.Namespace) -> int:
    if options.file is None:
        return _run_on_cluster(options)
    from frameworkcontroller.commands import decompress

    return decompress.run_on_file(options)


def _decompress() -> Work:
    from frameworkcontroller.commands import decompress

    return decompress.run


def _add_logs(commands: Any) -> None:
    parser = _on_cluster(
        commands,
        "logs",
        "print what the containers of a Framework write, merged over its Tasks",
        "Prints the logs of all Tasks of a Framework, of a role or of one Task, merged by time, each line with its "
        "Task (worker[3], and worker[3]#1 in the Task's second attempt). With -f it goes on with the Pods of attempts "
        "to come, until the Framework has completed. The logs of a Pod are gone with it, soon after it has ended.",
    )
    _add_name(parser)
    which_tasks = parser.add_argument("target", metavar="ROLE[/INDEX]", type=target, nargs="?", default=(None, None))
    completed_by(complete_roles, which_tasks)
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what is written from now on")
    parser.add_argument(
        "--tail",
        metavar="N",
        type=count,
        help="only the last lines of each Task (default: all of one Task, 100 of many)",
    )
    parser.add_argument("--since", metavar="SPAN", type=span, help="nothing older, such as 90s or 2h")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("-c", "--container", metavar="NAME", help="container (default: the Pod's default, or its first)")
    which.add_argument("--all-containers", action="store_true", help="all of them, init containers too")
    parser.add_argument("-p", "--previous", action="store_true", help="of the container before its last restart")
    parser.set_defaults(work=_logs)


def _logs() -> Work:
    from frameworkcontroller.commands import logs

    return logs.run


def _add_lint(commands: Any) -> None:
    parser = _command(
        commands,
        "lint",
        "check the Frameworks in files, without a cluster",
        "Checks Frameworks before they are submitted and says, line by line, what an API server or the controller "
        "would refuse (errors), and what would not do what was likely meant (warnings). Exit code 1: there are errors.",
    )
    parser.add_argument("files", metavar="FILE", type=Path, nargs="+", help="YAML or JSON; - is standard input")
    parser.add_argument("--strict", action="store_true", help="exit code 1 for warnings, too")
    parser.set_defaults(command=_lint)


def _lint(options: argparse.Namespace) -> int:
    from frameworkcontroller.commands.lint import command

    return command.run(options)


def _add_timeline(commands: Any) -> None:
    parser = _on_cluster(
        commands,
        "timeline",
        "draw a Framework's attempts over time",
        "Draws when the attempts of a Framework and of its Tasks waited, ran and ended. The status knows the last "
        "attempt of each Task; those before are drawn as well if the controller's log is given.",
    )
    _add_name(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        required=True,
        help="what to write: FILE.svg, FILE.html, or - (SVG)",
    )
    parser.add_argument(
        "--history",
        metavar="LOG",
        type=Path,
        action="append",
        default=[],
        help="a file with log lines of the controller: the object snapshots in it tell of earlier attempts",
    )
    parser.set_defaults(work=_timeline)


def _timeline() -> Work:
    from frameworkcontroller.commands.timeline import command

    return command.run


def _add_top(commands: Any) -> None:
    parser = _on_cluster(
        commands,
        "top",
        "show all Frameworks in one view",
        "Counts Frameworks and Tasks by state and says which are retried most, which Tasks were slowest to start, and, "
        "where the cluster has the metrics API, what uses most CPU.",
    )
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="those of all namespaces")
    parser.add_argument("--most", metavar="N", type=count, default=5, help="lines of each list (default: 5)")
    parser.set_defaults(work=_top)


def _top() -> Work:
    from frameworkcontroller.commands import top

    return top.run


def _add_completion(commands: Any) -> None:
    parser = _command(
        commands,
        "completion",
        "print what makes a shell complete commands and names",
        "Prints a script for the shell: source <(frameworkcontroller completion bash), or the same with zsh, or "
        "frameworkcontroller completion fish | source. kubectl completes its plugin by itself.",
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
    parser.set_defaults(command=_completion)


def _completion(options: argparse.Namespace) -> int:
    from frameworkcontroller.commands import completion

    return completion.print_script(options)
