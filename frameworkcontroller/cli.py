"""The command line: ``frameworkcontroller`` runs the controller, and ``local`` a cluster to try it on."""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from frameworkcontroller import __version__, process
from frameworkcontroller.app import Controller
from frameworkcontroller.config import DEFAULT_CONFIG_FILE, Config, ConfigError, load_config
from frameworkcontroller.kube.connection import connect
from frameworkcontroller.kube.errors import ConnectionConfigError, KubeError
from frameworkcontroller.logs import FORMATS, LEVELS, configure_logging

_log: Final = logging.getLogger(__name__)

_DESCRIPTION: Final = """\
Runs many Pods on Kubernetes as one job, a Framework, with retries, completion rules and rescaling.

Without a command it runs the controller. Its configuration is ./frameworkcontroller.yaml if that is there; its API
server is named by the configuration, $KUBE_APISERVER_ADDRESS, $KUBECONFIG, ~/.kube/config or the Pod that it runs in.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit code: 0 all is well, 1 something failed, 2 it was asked for wrongly."""
    options = build_parser().parse_args(arguments)
    configure_logging(options.log_level or options.usual_log_level, options.log_format)
    try:
        code: int = options.command(options)
    except ConfigError as error:
        return process.fail(str(error), process.EXIT_USAGE)
    except KeyboardInterrupt:
        # Before or after signals are ours.
        return process.EXIT_INTERRUPTED
    return code


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # The usage that argparse prints before it hides the one line that matters.
        self.exit(process.EXIT_USAGE, f"{self.prog}: {message}\nTry '{self.prog} --help'.\n")


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands. What it parses has ``command``, which runs it and returns the exit code."""
    parser = _Parser(
        prog=process.PROGRAM, description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    _add_common(parser)
    parser.add_argument(
        "--version", action="version", version=f"{process.PROGRAM} {__version__}", help="show the version and exit"
    )
    parser.set_defaults(
        command=run_controller, config=None, log_level=None, usual_log_level="info", log_format=FORMATS[0]
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    local = commands.add_parser(
        "local",
        help="a cluster in this process, to try Frameworks on",
        description="A Kubernetes API server and a Pod runtime in this process, on loopback, and the controller on it.",
    )
    local_commands = local.add_subparsers(title="commands", metavar="COMMAND", required=True, dest="local_command")
    _add_up(local_commands)
    _add_run(local_commands)
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
    run.add_argument("--timeout", metavar="SECONDS", type=_seconds, help="give up after so long (default: never)")
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


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"not a number of seconds: {text!r}")
    return seconds


def run_controller(options: argparse.Namespace) -> int:
    """Run the controller until it is told to stop."""
    config = load_config(options.config or Path(DEFAULT_CONFIG_FILE), required=options.config is not None)
    return process.run(_run_controller(config))


async def _run_controller(config: Config) -> int:
    try:
        connection = await connect(address=config.kube_api_server_address, kubeconfig=config.kube_config_file_path)
    except ConnectionConfigError as error:
        return process.fail(str(error), process.EXIT_USAGE)
    controller = Controller(config, connection)
    settling = asyncio.create_task(_settle(controller), name="settling")
    process.stop_on_signals(lambda _number: controller.stop())
    try:
        await controller.run()
    except KubeError as error:
        _log.error("Cannot go on with %s (%s): %s", connection.server, connection.origin, error)
        return process.EXIT_FAILED
    except Exception:  # noqa: BLE001 - whatever it is, it belongs into the log, in one line
        _log.exception("Cannot go on")
        return process.EXIT_FAILED
    finally:
        settling.cancel()
    return process.EXIT_OK


async def _settle(controller: Controller) -> None:
    await controller.wait_ready()
    process.settle_garbage_collector()


# The embedded cluster is imported by its own commands alone: the controller has no use for it.


def _local_up(options: argparse.Namespace) -> int:
    from frameworkcontroller import localcli

    return localcli.up(options)


def _local_run(options: argparse.Namespace) -> int:
    from frameworkcontroller import localcli

    return localcli.run(options)
