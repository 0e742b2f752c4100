"""The command ``frameworkcontroller`` itself: the controller, until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from frameworkcontroller.commands import program
from frameworkcontroller.config.config import DEFAULT_CONFIG_FILE, Config, ConfigError, load_config
from frameworkcontroller.kube.connection import connect
from frameworkcontroller.kube.errors import ConnectionConfigError, KubeError
from frameworkcontroller.manager.app import Controller
from frameworkcontroller.manager.web import WebError, WebServer

_log: Final = logging.getLogger(__name__)


def run(options: argparse.Namespace) -> int:
    """Run the controller until it is told to stop."""
    try:
        config = load_config(options.config or Path(DEFAULT_CONFIG_FILE), required=options.config is not None)
    except ConfigError as error:
        return program.fail(str(error), program.EXIT_USAGE)
    return program.run(_run_controller(config))


async def _run_controller(config: Config) -> int:
    try:
        connection = await connect(
            address=config.kube_api_server_address, kubeconfig=config.kube_config_file_path, absent_kubeconfig_ok=True
        )
        controller = Controller(config, connection)
    except (ConnectionConfigError, ConfigError) as error:
        return program.fail(str(error), program.EXIT_USAGE)
    settling = asyncio.create_task(_settle(controller), name="settling")
    program.stop_on_signals(lambda _number: controller.stop())
    try:
        async with web_of(controller, config):
            await controller.run()
    except WebError as error:
        return program.fail(f"webAddress: {error}", program.EXIT_USAGE)
    except KubeError as error:
        _log.error("Cannot go on with %s (%s): %s", connection.server, connection.origin, error)
        return program.EXIT_FAILED
    except Exception:  # noqa: BLE001 - whatever it is, it belongs into the log, in one line
        _log.exception("Cannot go on")
        return program.EXIT_FAILED
    finally:
        settling.cancel()
    return program.EXIT_OK


@asynccontextmanager
async def web_of(controller: Controller, config: Config) -> AsyncIterator[None]:
    """Metrics and health, for as long as it is within, if they are wanted.

    Raises:
        WebError: they cannot be served where the configuration says.
    """
    async with AsyncExitStack() as stack:
        if config.web is not None:
            try:
                await stack.enter_async_context(WebServer(controller, config.web, debug=config.web_debug))
            except WebError as error:
                if "web_address" in config.model_fields_set:
                    raise
                # Nobody asked for it there: a controller that ran well without it must do so after an upgrade.
                _log.warning("Neither metrics nor health are served: %s; set webAddress to have them elsewhere", error)
        yield


async def _settle(controller: Controller) -> None:
    await controller.wait_ready()
    program.settle_garbage_collector()
