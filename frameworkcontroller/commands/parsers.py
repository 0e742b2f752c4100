"""The parsers of ``frameworkcontroller`` and ``kubectl framework``, and the types of their arguments.

The module of a command is imported when the command runs: the controller and shell completion need the parser alone,
and need it fast.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NoReturn

from frameworkcontroller import __version__
from frameworkcontroller.api import names
from frameworkcontroller.api.problems import suggestion
from frameworkcontroller.api.status import Phase
from frameworkcontroller.commands.program import EXIT_OK, EXIT_USAGE
from frameworkcontroller.commands.shellcompletion import complete_names, complete_roles, complete_roles_to_scale

PLUGIN: Final = "kubectl framework"

SUPPRESSED: Final[dict[str, Any]] = {"default": argparse.SUPPRESS}
"""For options that may stand before or after a command: with a default, the later parser would overwrite the value."""

_PLUGIN_DESCRIPTION: Final = """\
Show and change Frameworks.

The cluster is the one that kubectl uses: the kubeconfig of --kubeconfig, $KUBECONFIG or ~/.kube/config, with its
current context and namespace as defaults.
"""

_PACKAGE: Final = __name__.partition(".")[0]
_KINDS: Final = frozenset({names.KIND.lower(), names.PLURAL, "fw"})
_NUMBER: Final = r"\d{1,9}(?:\.\d+)?"
_UNKNOWN_COMMAND: Final = re.compile(
    r"argument COMMAND: invalid choice: '(?P<word>[^']*)' \(choose from (?P<known>.*)\)"
)
_MOST_OF_ARRAY: Final = 10_000
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors take one line, without the usage that hides them."""

    error_format = "{prog}: {message}\nTry '{prog} --help'.\n"

    command_dest = ""
    """If set, the words after ``--`` are not parsed, and stored under this name."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the words before ``--`` if the others belong to a command."""
        if not self.command_dest or args is None:
            return super().parse_known_args(args, namespace)
        end = args.index("--") if "--" in args else len(args)
        options, unknown = super().parse_known_args(args[:end], namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}; the command to run comes after --")
        setattr(options, self.command_dest, list(args[end + 1 :]))
        return options, unknown

    def error(self, message: str) -> NoReturn:
        """Exit with the code for wrong usage."""
        unknown = _UNKNOWN_COMMAND.match(message)
        if unknown is not None:
            known = re.findall(r"[a-z-]+", unknown["known"])
            hint = suggestion(unknown["word"], known) or f"; the commands are {', '.join(known)}"
            message = f"unknown command {unknown['word']!r}{hint}"
        self.exit(EXIT_USAGE, self.error_format.format(prog=self.prog, message=message))


class PluginParser(Parser):
    """The parser of a kubectl plugin, with errors in kubectl's form."""

    error_format = "error: {message}\nSee '{prog} --help' for usage.\n"


def build_plugin_parser() -> Parser:
    """Return the parser of ``kubectl framework``."""
    parser = PluginParser(
        prog=PLUGIN, description=_PLUGIN_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--version", action="version", version=f"{PLUGIN} {__version__}", help="show the version and exit"
    )
    parser.set_defaults(log_level=None, log_format="klog")
    add_connection(parser)
    parser.set_defaults(kubeconfig=None, context=None, namespace=None)
    parser.set_defaults(command=lambda _options: _print_help(parser), usual_log_level="warning")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    add_commands(commands)
    _add_history(commands, "history")
    _add_cost(commands)
    return parser


def _print_help(parser: Parser) -> int:
    parser.print_help()
    return EXIT_OK


def add_commands(commands: Any) -> None:
    """Add the commands of ``kubectl framework``. Each sets ``command``, which takes the options and returns a code."""
    for add in (
        _add_run, _add_list, _add_status, _add_wait, _add_switches, _add_scale, _add_logs,
        _add_events, _add_lint, _add_top, _add_nodes, _add_timeline, _add_decompress, _add_completion,
    ):  # fmt: skip
        add(commands)


def add_operator_commands(commands: Any) -> None:
    """Add the commands for those who operate the controller, which ``kubectl framework`` does not have."""
    uninstall = _add(
        commands,
        "uninstall",
        "delete all Frameworks and their CRD",
        "Delete all Frameworks, wait until none of their Pods exists, and delete the CRD. History that the controller "
        "does not archive meanwhile is given up. Without --yes, only show the objects to delete (exit code 1).",
    )
    uninstall.add_argument("--yes", action="store_true", help="delete them")
    add_timeout(uninstall)
    uninstall.add_argument(
        "--archive-within",
        metavar="SPAN",
        type=span,
        default=60.0,
        help="give up the history of ended Frameworks if none is archived for this time (default: 60s)",
    )


def add_history_commands(commands: Any) -> Any:
    """Add the commands about the history and its archive. Return the group for further ones."""
    history = commands.add_parser(
        "history",
        help="commands about the history of Frameworks",
        description="Show the history of Frameworks, and run its archive.",
    )
    below = history.add_subparsers(title="commands", metavar="COMMAND", required=True, dest="history_command")
    _add_history(below, "show")
    _add_cost(below)
    _add_release_finalizers(below)
    return below


def _add_release_finalizers(commands: Any) -> None:
    parser = _add(
        commands,
        "release-finalizers",
        "release Frameworks whose history cannot be archived",
        "Remove the finalizer that keeps Frameworks until their history is in the archive, and show the lost history. "
        "Frameworks that are being deleted then go, after their Pods. Neither the archive nor the controller need run. "
        "A running controller adds the finalizer again to Frameworks that are not being deleted, until history.sink is "
        "none or history.onUnavailable is Drop. Exit code 0: none is left that has it.",
        module="history.release_finalizers",
    )
    _add_name(parser, "names", "names of Frameworks; without names, -n or -A releases all there", nargs="*")
    add_all_namespaces(parser)
    parser.add_argument("--dry-run", action="store_true", help="only show the history that would be lost")


# --- common to several commands ---


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a cluster and a namespace, as kubectl's do."""
    group = parser.add_argument_group("cluster")
    group.add_argument("-n", "--namespace", metavar="NAME", help="namespace (default: the context's)", **SUPPRESSED)
    group.add_argument("--context", metavar="NAME", help="context of the kubeconfig", **SUPPRESSED)
    group.add_argument("--kubeconfig", metavar="PATH", type=Path, help="kubeconfig to use", **SUPPRESSED)


def _add(
    commands: Any, name: str, summary: str, description: str, *, module: str = "", offline: bool = False, **more: Any
) -> Parser:
    """Add a command. ``module``: its module, if not of the command's name; ``offline``: it needs no cluster."""
    added: Parser = commands.add_parser(name, help=summary, description=description, **more)
    if not offline:
        add_connection(added)
    # Log lines of the client help people only when something is wrong.
    added.set_defaults(
        command=late(f"commands.{module or name}") if offline else _run_on_cluster,
        module=module or name,
        usual_log_level="warning",
    )
    return added


def late(module: str, function: str = "run") -> Callable[..., Any]:
    """Return a function that imports the module when it is called, and calls the function of it."""

    def work(*given: Any) -> Any:
        return getattr(import_module(f"{_PACKAGE}.{module}"), function)(*given)

    return work


def _run_on_cluster(options: argparse.Namespace) -> int:
    from frameworkcontroller.commands import invocation

    return invocation.run(late(f"commands.{options.module}"), options)


def add_serving(parser: argparse.ArgumentParser, address: str, about: str) -> None:
    """Add the options of a server. ``about``: the help of ``--address``, ``address``: its default."""
    parser.add_argument("--address", metavar="HOST:PORT", default=address, help=about)
    parser.add_argument("--tls-cert", metavar="FILE", type=Path, help="certificate chain, PEM: serve https")
    parser.add_argument("--tls-key", metavar="FILE", type=Path, help="private key of --tls-cert, PEM")
    parser.add_argument(
        "--audience", metavar="NAME", action="append", default=[], help="audience that tokens must have; repeatable"
    )


def _add_name(
    parser: argparse._ActionsContainer, dest: str = "name", about: str = "name of the Framework", **more: Any
) -> None:
    name = parser.add_argument(dest, metavar="NAME", type=framework, help=about, **more)
    name.completer = complete_names  # type: ignore[attr-defined] # argcomplete's


def add_all_namespaces(parser: argparse.ArgumentParser) -> None:
    """Add ``-A``."""
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="include all namespaces")


def add_timeout(parser: argparse.ArgumentParser, default: str = "none") -> None:
    """Add ``--timeout``."""
    about = f"give up after this time, such as 90s or 2h (default: {default})"
    parser.add_argument("--timeout", metavar="SPAN", type=span, help=about)


# --- the commands ---


def _add_run(commands: Any) -> None:
    parser = _add(
        commands,
        "run",
        "run a command as a Framework",
        "Create a Framework whose Tasks run a command, as they are or joined by a launcher (--preset). Exit code of "
        "--follow and --wait: 0 if it succeeded, else 1.",
        module="runframework",
        usage="%(prog)s [NAME] --image IMAGE [options] -- COMMAND [ARGUMENT ...]",
    )
    parser.add_argument(
        "name", metavar="NAME", type=framework, nargs="?", help="name of the Framework (default: a generated one)"
    )
    shape = parser.add_argument_group("Framework")
    shape.add_argument(
        "--image", metavar="IMAGE", help="image of the containers; required, and not pulled by a local cluster"
    )
    shape.add_argument(
        "--preset",
        choices=("distributed", "torchrun", "mpi", "jax", "tensorflow", "ray", "spark"),
        help="join the Tasks by this launcher or library",
    )
    shape.add_argument(
        "--nodes", "--tasks", dest="tasks", metavar="N", type=positive, default=1, help="number of workers (default: 1)"
    )
    shape.add_argument("--gpus", metavar="N", type=count, default=0, help="GPUs of each Task (nvidia.com/gpu)")
    shape.add_argument("--cpu", metavar="QUANTITY", type=quantity, help="CPUs of each Task, such as 4 or 500m")
    shape.add_argument("--memory", metavar="QUANTITY", type=quantity, help="memory of each Task, such as 16Gi")
    shape.add_argument(
        "--env", metavar="KEY=VALUE", type=key_and_value, action="append", default=[], help="a variable; repeatable"
    )
    shape.add_argument(
        "--code",
        metavar="PATH",
        action="append",
        default=[],
        help="file or folder to mount as /mnt/code/NAME; /mnt/code is the working directory, and first on PYTHONPATH; "
        "repeatable",
    )
    shape.add_argument("--queue", metavar="NAME", help="LocalQueue of Kueue")
    shape.add_argument("--priority", metavar="NAME", help="WorkloadPriorityClass of Kueue")
    shape.add_argument("--gang", action="store_true", help="start all Pods, or none")
    shape.add_argument("--progress", action="store_true", help="let the Tasks report progress")
    shape.add_argument("--retries", metavar="N", type=count, default=0, help="retries of the Framework (default: 0)")
    shape.add_argument("--deadline", metavar="SPAN", type=span, help="end it after this time, such as 90s or 2h")
    shape.add_argument("--ttl", metavar="SPAN", type=span, help="delete it this time after its end")
    sweep = parser.add_argument_group("array")
    sweep.add_argument(
        "--array",
        metavar="FIRST-LAST",
        type=array,
        help="create Frameworks NAME0, NAME1, ..., one for each value of the variable ARRAY_INDEX",
    )
    sweep.add_argument(
        "--at-most", metavar="N", type=positive, help="stay, and create the next one when fewer than N are not over"
    )
    then = parser.add_argument_group("afterwards")
    then.add_argument("-f", "--follow", action="store_true", help="print the logs of all Tasks until the end")
    then.add_argument("--wait", action="store_true", help="wait for the end")
    then.add_argument("--dry-run", action="store_true", help="create nothing, print the manifest")
    then.add_argument("-o", "--output", choices=("json", "yaml"), help="format of --dry-run (default: yaml)")
    parser.set_defaults(command=_run_run)
    parser.command_dest = "words"


def _run_run(options: argparse.Namespace) -> int:
    code: int = (late("commands.runframework", "dry_run") if options.dry_run else _run_on_cluster)(options)
    return code


def _add_list(commands: Any) -> None:
    parser = _add(commands, "list", "list Frameworks", "List Frameworks and their states.", aliases=["ls"])
    add_all_namespaces(parser)
    parser.add_argument("-l", "--selector", metavar="SELECTOR", help="only Frameworks whose labels match")
    parser.add_argument(
        "-o", "--output", choices=("wide", "json", "yaml", "name"), help="more columns, or a format for programs"
    )


def _add_status(commands: Any) -> None:
    parser = _add(
        commands,
        "status",
        "show the roles and Tasks of a Framework, and why they wait or failed",
        "Show a Framework as a tree of its roles and Tasks, with the reason of each Task that waits or failed. Equal "
        "Tasks of a large role are shown as groups, failed ones first.",
        module="showstatus",
    )
    _add_name(parser)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("-w", "--watch", action="store_true", help="update the tree until the Framework has completed")
    shape.add_argument("-o", "--output", choices=("json", "yaml"), help="print the object, its status decompressed")
    parser.add_argument("--all-tasks", action="store_true", help="show each Task in a line of its own")


def _add_wait(commands: Any) -> None:
    parser = _add(
        commands,
        "wait",
        "wait until Frameworks run, are suspended, have completed or have succeeded",
        "Wait for Frameworks, then print their states. Exit code 0: all met the condition (completed also if they "
        "failed); 1: one of them can no longer meet it (because it failed or was deleted, for example), or the timeout "
        "has expired.",
    )
    _add_name(parser, "names", "name of a Framework", nargs="+")
    parser.add_argument(
        "--for",
        dest="wanted",
        metavar="CONDITION",
        choices=(
            *("admitted", "running", "suspended", "completed", "succeeded"),
            *(f"phase={phase}" for phase in Phase),
        ),
        default="completed",
        help="phase=PHASE, such as phase=Succeeded; admitted: Kueue has admitted it from its queue; running: at least "
        "one Task runs; suspended: nothing runs, and spec.suspend is true; completed (the default): it is over, "
        "even if it failed; succeeded",
    )
    add_timeout(parser)


def _add_switches(commands: Any) -> None:
    started = "Start Frameworks whose executionType is Create. A stopped Framework cannot be started again."
    stopped = (
        "Stop Frameworks: delete their Pods and complete them with code -210. Their status stays. A stop cannot be "
        "undone."
    )
    suspended = (
        "Suspend Frameworks: end their attempts with code -240, which no retry policy counts, and start no other one "
        "until they are resumed. `wait --for suspended` waits until nothing of them runs."
    )
    resumed = "Resume suspended Frameworks: start their next attempts, in which all Tasks run from the beginning."
    for name, summary, description, wanted in (
        ("start", "start Frameworks that were only created", started, "Start"),
        ("stop", "stop Frameworks permanently", stopped, "Stop"),
        ("suspend", "suspend Frameworks until they are resumed", suspended, True),
        ("resume", "resume suspended Frameworks", resumed, False),
    ):
        parser = _add(commands, name, summary, description, module="execution")
        _add_name(parser, "names", "name of a Framework", nargs="+")
        parser.set_defaults(wanted=wanted)


def _add_scale(commands: Any) -> None:
    parser = _add(
        commands,
        "scale",
        "change the number of Tasks of running roles",
        "Set the number of Tasks of one or more roles in one step. Concurrent changes of the Framework are not "
        "overwritten. Tasks with the highest indexes are added and removed.",
        module="rescale",
    )
    _add_name(parser)
    # With nargs="+", argparse would not have parsed NAME yet when the shell completes this argument.
    roles = parser.add_argument("roles", metavar="ROLE=N", type=role_and_number, nargs="*", help="role and new number")
    roles.completer = complete_roles_to_scale  # type: ignore[attr-defined] # argcomplete's
    parser.add_argument(
        "--adjust-policy",
        action="store_true",
        help="adjust the role's completion policy and print each change: a minimum of all Tasks becomes the new "
        "number, one between 1 and all keeps its share (rounded up), and 1, 0 and -1 stay",
    )


def _add_events(commands: Any) -> None:
    parser = _add(
        commands,
        "events",
        "show the Events of a Framework and its Pods",
        "Show the Events of a Framework, of its attempt's ConfigMap and of its Pods, oldest first; without a name, the "
        "Events about all Frameworks, not about their Pods.",
        module="showevents",
    )
    _add_name(parser, nargs="?")
    add_all_namespaces(parser)
    parser.add_argument("-w", "--watch", action="store_true", help="show new Events as they arrive")


def _add_decompress(commands: Any) -> None:
    parser = _add(
        commands,
        "decompress",
        "show the object of a Framework with its status decompressed",
        "Print a Framework with taskRoleStatuses in place of taskRoleStatusesCompressed, which the controller stores "
        "for large Frameworks.",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    _add_name(source, nargs="?")
    source.add_argument("-f", "--file", metavar="FILE", type=Path, help="read this file, JSON or YAML; - is stdin")
    parser.add_argument("-o", "--output", choices=("json", "yaml"), default="json", help="default: json")
    parser.set_defaults(command=_run_decompress)


def _run_decompress(options: argparse.Namespace) -> int:
    code: int = (_run_on_cluster if options.file is None else late("commands.decompress", "run_on_file"))(options)
    return code


def _add_logs(commands: Any) -> None:
    parser = _add(
        commands,
        "logs",
        "print the merged logs of the containers of a Framework",
        "Print the logs of all Tasks of a Framework, of a role or of one Task, sorted by time, each line with its "
        "Task as prefix (worker[3], or worker[3]#1 in the Task's second attempt). With -f, follow the Pods of the "
        "current and of later attempts until the Framework has completed. Pods disappear soon after their end: then "
        "the logs come from the archive of the history, if one is named and keeps them.",
        module="mergedlogs",
    )
    _add_name(parser)
    tasks = parser.add_argument("target", metavar="ROLE[/INDEX]", type=target, nargs="?", default=(None, None))
    tasks.completer = complete_roles  # type: ignore[attr-defined] # argcomplete's
    parser.add_argument("-f", "--follow", action="store_true", help="print new lines as they are written")
    parser.add_argument(
        "--tail", metavar="N", type=count, help="last lines of each Task (default: all of one Task, 100 of several)"
    )
    parser.add_argument("--since", metavar="SPAN", type=span, help="only lines newer than this time, such as 90s or 2h")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("-c", "--container", metavar="NAME", help="container (default: the Pod's default, or its first)")
    which.add_argument("--all-containers", action="store_true", help="all containers, init containers included")
    parser.add_argument("-p", "--previous", action="store_true", help="the container before its last restart")
    parser.add_argument("--task", metavar="ROLE[/INDEX]", type=target, help="the same as ROLE[/INDEX]")
    attempts = parser.add_mutually_exclusive_group()
    attempts.add_argument("--attempt", metavar="N", type=count, help="of this attempt of the Framework, from 0")
    attempts.add_argument(
        "--all-attempts", action="store_true", help="of all attempts of the Framework and of its Tasks, oldest first"
    )
    parser.add_argument("--uid", metavar="UID", help="which of several Frameworks that have had this name")
    parser.add_argument("--raw", action="store_true", help="keep control characters on terminals")
    _add_archive(parser)
    parser.set_defaults(command=late("commands.mergedlogs", "run_anywhere"))


def _add_lint(commands: Any) -> None:
    parser = _add(
        commands,
        "lint",
        "check the Frameworks in files, without a cluster",
        "Check Frameworks before they are submitted. Print, by line, errors (an API server or the controller would "
        "refuse the Framework) and warnings (it would probably not work as intended). Exit code 1: there are errors.",
        module="lint.command",
        offline=True,
    )
    parser.add_argument("files", metavar="FILE", type=Path, nargs="+", help="YAML or JSON; - is standard input")
    parser.add_argument("--strict", action="store_true", help="exit code 1 for warnings, too")


def _add_timeline(commands: Any) -> None:
    parser = _add(
        commands,
        "timeline",
        "draw the attempts of a Framework over time",
        "Draw when the attempts of a Framework and of its Tasks waited, ran and ended. The status has the last attempt "
        "of each Task; the controller's log has the earlier ones.",
        module="timeline",
    )
    _add_name(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, required=True, help="output: FILE.svg, FILE.html, or - (SVG)"
    )
    parser.add_argument(
        "--history",
        metavar="LOG",
        type=Path,
        action="append",
        default=[],
        help="log of the controller, whose object snapshots hold the earlier attempts",
    )


def _add_top(commands: Any) -> None:
    parser = _add(
        commands,
        "top",
        "show totals of all Frameworks",
        "Count Frameworks and Tasks by state. List the Frameworks with the most retries, the Tasks that were slowest "
        "to start, and, if the cluster has the metrics API, the Frameworks that use the most CPU.",
    )
    add_all_namespaces(parser)
    parser.add_argument("--most", metavar="N", type=count, default=5, help="lines of each list (default: 5)")


def _add_nodes(commands: Any) -> None:
    parser = _add(
        commands,
        "nodes",
        "show the nodes on which attempts of Tasks fail",
        "Count the failed attempts of Tasks by node, from the archive of the history or from a folder of records, and "
        "compare them with other nodes. A node is suspect if Tasks of 3 or more Frameworks failed there, three times "
        "as often as on the other nodes, or more often.",
    )
    add_all_namespaces(parser)
    parser.add_argument(
        "--since", metavar="SPAN", type=span, default=span("7d"), help="only of this time (default: 7d)"
    )
    parser.add_argument("--most", metavar="N", type=positive, default=20, help="most lines to show (default: 20)")
    _add_archive(parser)
    parser.add_argument("-o", "--output", choices=("json", "yaml"), help="a format for programs")
    parser.set_defaults(command=late("commands.nodes", "run_anywhere"), name=None)


def _add_history(commands: Any, name: str) -> None:
    parser = _add(
        commands,
        name,
        "show past Frameworks, and the past attempts of one",
        "Show past attempts, from the archive of the history or from a folder of records: without NAME, the past "
        "Frameworks; with it, the attempts of that Framework; with --attempt, the Tasks of one of them; with --task, "
        "the attempts of one Task. The current attempt in the cluster is shown, too. With --failures, count the "
        "failed attempts of Tasks, with a rate for each node.",
        module="history.show",
    )
    _add_name(parser, nargs="?")
    add_all_namespaces(parser)
    parser.add_argument("--uid", metavar="UID", help="which of several Frameworks that have had this name")
    parser.add_argument("--attempt", metavar="N", type=count, help="the Tasks of this attempt of the Framework, from 0")
    parser.add_argument("--task", metavar="ROLE/INDEX", type=target, help="the attempts of this Task")
    parser.add_argument("--failed", action="store_true", help="with --attempt: only Tasks that failed")
    parser.add_argument("--most", metavar="N", type=count, default=100, help="most lines to show (default: 100)")
    # Its word may be the next argument: NAME comes before it.
    parser.add_argument(
        "--failures",
        metavar="BY",
        nargs="?",
        const="cause",
        choices=("cause", "code", "node", "role", "day"),
        help="count failures by cause (the default: code, and words without numbers, of the newest 5000), code, node, "
        "role or day",
    )
    parser.add_argument("--key", metavar="KEY", help="with --failures: the attempts of this group")
    parser.add_argument("--since", metavar="SPAN", type=span, help="with --failures: only of this time (such as 7d)")
    _add_archive(parser)
    parser.add_argument("-o", "--output", choices=("json", "yaml"), help="a format for programs")
    parser.set_defaults(command=late("commands.history.show", "run_anywhere"))


def _add_cost(commands: Any) -> None:
    parser = _add(
        commands,
        "cost",
        "show the resource-hours of past attempts",
        "Sum the resources that past attempts of Tasks held, times the hours, from the archive of the history or from "
        "a folder of records. Waiting: before the Pod ran. Useful: until the end of an attempt that succeeded, else "
        "until the last reported checkpoint or progress. Lost: the rest. An attempt counts on each day with its hours "
        "of that day.",
        module="showcost",
    )
    add_all_namespaces(parser)
    parser.add_argument(
        "--by",
        choices=("framework", "namespace", "queue", "user", "node", "code", "day"),
        help="by what to sum (default: framework; with -A, namespace)",
    )
    parser.add_argument("--since", metavar="SPAN", type=span, help="only the hours of this time (such as 7d)")
    parser.add_argument(
        "--resource",
        metavar="NAME",
        help="the resource to show and to sort by (default: the extended resource with most hours, such as "
        "nvidia.com/gpu, else cpu)",
    )
    parser.add_argument("--most", metavar="N", type=count, default=100, help="most lines to show (default: 100)")
    _add_archive(parser)
    parser.add_argument(
        "-o", "--output", choices=("wide", "csv", "json", "yaml"), help="all resources, or a format for programs"
    )
    parser.set_defaults(command=late("commands.showcost", "run_anywhere"), name=None)


def _add_archive(parser: Any) -> None:
    """Add the options that name the archive of the history."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--archive", metavar="URL", help="the archive's server (default: $FRAMEWORK_HISTORY_URL, or the kubeconfig's)"
    )
    source.add_argument("--dir", metavar="PATH", type=Path, help="a folder of records, which `sink: file` writes")
    parser.add_argument(
        "--token-file",
        metavar="PATH",
        type=Path,
        help="the bearer token for the archive (default: $FRAMEWORK_HISTORY_TOKEN_FILE, or else the kubeconfig's, over "
        "https and on loopback only)",
    )
    parser.add_argument("--ca-file", metavar="PATH", type=Path, help="the certificates that sign the archive's, in PEM")


def _add_completion(commands: Any) -> None:
    parser = _add(
        commands,
        "completion",
        "print the script for shell completion",
        "Print a script for the shell to read: source <(frameworkcontroller completion bash), the same with zsh, or "
        "frameworkcontroller completion fish | source. kubectl completes its plugin without a script.",
        offline=True,
        module="shellcompletion",
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")


# --- types of arguments ---


def span(text: str) -> float:
    """Parse ``90``, ``1.5s``, ``5m`` or ``1h30m`` to seconds."""
    if not re.fullmatch(rf"({_NUMBER}[smhd])+|{_NUMBER}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"not a duration such as 90s, 5m or 1h30m: {text!r}")
    total = sum(float(number) * _UNITS[unit] for number, unit in re.findall(rf"({_NUMBER})([smhd]?)", text))
    if total == 0:
        raise argparse.ArgumentTypeError(f"must be above 0: {text!r}")
    return total


def count(text: str) -> int:
    """Parse a number, 0 or more."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"not a number: {text!r}")
    return int(text)


def positive(text: str) -> int:
    """Parse a number, 1 or more."""
    number = count(text)
    if number == 0:
        raise argparse.ArgumentTypeError(f"must be at least 1: {text!r}")
    return number


def quantity(text: str) -> str:
    """Return a quantity of Kubernetes, 0 or more, as it is."""
    from frameworkcontroller.api.quantities import parse_quantity

    try:
        is_valid = parse_quantity(text) >= 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise argparse.ArgumentTypeError(f"not a quantity such as 4, 500m or 16Gi: {text!r}")
    return text


def key_and_value(text: str) -> tuple[str, str]:
    """Parse ``KEY=VALUE``."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"not KEY=VALUE: {text!r}")
    return key, value


def array(text: str) -> range:
    """Parse ``0-29``."""
    found = re.fullmatch(r"(\d{1,9})-(\d{1,9})", text, re.ASCII)
    numbers = range(int(found[1]), int(found[2]) + 1) if found else range(0)
    if not numbers:
        raise argparse.ArgumentTypeError(f"not FIRST-LAST, such as 0-29: {text!r}")
    if len(numbers) > _MOST_OF_ARRAY:
        raise argparse.ArgumentTypeError(f"must have at most {_MOST_OF_ARRAY} numbers: {text!r}")
    return numbers


def framework(text: str) -> str:
    """Parse the name of a Framework, with or without the kind that kubectl prints (``framework/train``)."""
    kind, slash, name = text.partition("/")
    plain = kind.lower().removesuffix(f".{names.GROUP}")
    return name if slash and plain in _KINDS else text


def role_and_number(text: str) -> tuple[str, int]:
    """Parse ``worker=4``."""
    role, equals, number = text.partition("=")
    # The API server knows the bounds.
    if not role or not equals or not re.fullmatch(r"\d{1,9}", number, re.ASCII):
        raise argparse.ArgumentTypeError(f"not ROLE=NUMBER: {text!r}")
    return role, int(number)


def target(text: str) -> tuple[str, int | None]:
    """Parse a role or a Task: ``worker``, ``worker/3`` or ``worker[3]``."""
    found = re.fullmatch(r"([a-z0-9]{1,63})(?:/(\d{1,9})|\[(\d{1,9})\])?", text, re.ASCII)
    if found is None:
        raise argparse.ArgumentTypeError(f"not ROLE or ROLE/INDEX: {text!r}")
    index = found[2] or found[3]
    return found[1], None if index is None else int(index)
