"""``frameworkcontroller`` without a command: run the controller until a signal."""

from __future__ import annotations

import argparse
import gc
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from frameworkcontroller.commands import program
from frameworkcontroller.config.config import DEFAULT_CONFIG_FILE, Config, ConfigurationError, load_config
from frameworkcontroller.kube.connection import connect
from frameworkcontroller.kube.errors import KubeError
from frameworkcontroller.manager.app import Controller
from frameworkcontroller.manager.web import WebError, WebServer

_log: Final = logging.getLogger(__name__)


def run(options: argparse.Namespace) -> int:
    """Run the controller until a signal. Return the exit code."""
    try:
        config = load_config(options.config or Path(DEFAULT_CONFIG_FILE), required=options.config is not None)
        return program.run(_run_controller(config))
    except ConfigurationError as error:
        raise program.UsageError(str(error)) from None


async def _run_controller(config: Config) -> int:
    connection = await connect(
        address=config.kube_api_server_address, kubeconfig=config.kube_config_file_path, absent_kubeconfig_ok=True
    )
    controller = Controller(config, connection)
    program.stop_on_signals(lambda _number: controller.stop())
    try:
        async with program.background(_tune_when_ready(controller)), web_of(controller, config):
            await controller.run()
    except WebError as error:
        raise program.UsageError(f"webAddress: {error}") from None
    except KubeError as error:
        _log.error("Cannot continue with %s (%s): %s", connection.server, connection.origin, error)
        return program.EXIT_FAILED
    return program.EXIT_OK


@asynccontextmanager
async def web_of(controller: Controller, config: Config) -> AsyncIterator[None]:
    """Serve metrics and health while inside, if the configuration enables them.

    Raises:
        WebError: the configured address cannot be used.
    """
    async with AsyncExitStack() as stack:
        if config.web is not None:
            try:
                await stack.enter_async_context(WebServer(controller, config.web, debug=config.web_debug))
            except WebError as error:
                if "web_address" in config.model_fields_set:
                    raise
                # The address is a default: a controller that ran without it must also run after an upgrade.
                _log.warning("Neither metrics nor health are served: %s; set webAddress to have them elsewhere", error)
        yield


async def _tune_when_ready(controller: Controller) -> None:
    tune_garbage_collector()
    await controller.wait_ready()
    # Without a collection before: it would walk the caches once more, while Frameworks wait.
    gc.freeze()


def tune_garbage_collector() -> None:
    """Exempt the objects of now from collection, and collect less often.

    Each full collection walks caches of many thousand objects, which are never garbage. Reference counts free the
    objects of a sync; cycles are rare. A collection of the second generation walks 300,000 objects in one turn of the
    event loop.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 5, 80)
