"""The command ``frameworkcontroller`` itself: the controller, until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import logging
from pathlib import Path
from typing import Final

from frameworkcontroller import process
from frameworkcontroller.app import Controller
from frameworkcontroller.config import DEFAULT_CONFIG_FILE, Config, ConfigError, load_config
from frameworkcontroller.kube.connection import connect
from frameworkcontroller.kube.errors import ConnectionConfigError, KubeError

_log: Final = logging.getLogger(__name__)


def run(options: argparse.Namespace) -> int:
    """Run the controller until it is told to stop."""
    try:
        config = load_config(options.config or Path(DEFAULT_CONFIG_FILE), required=options.config is not None)
    except ConfigError as error:
        return process.fail(str(error), process.EXIT_USAGE)
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
