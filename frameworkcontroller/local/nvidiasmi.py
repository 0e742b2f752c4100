"""The GPUs of this machine, as nvidia-smi lists them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

_TIMEOUT_SECONDS: Final = 30.0
"""Without persistence mode, the driver initializes each GPU first."""

_GPU: Final = re.compile(r"^GPU (\d+): ", re.MULTILINE)
_UUID: Final = re.compile(r"\(UUID: ([^)\s]+)\)")


class GpusUnknownError(Exception):
    """nvidia-smi gives no list of GPUs; the text says why."""


async def find_gpus(environment: Mapping[str, str] = os.environ, *, timeout: float = _TIMEOUT_SECONDS) -> list[str]:
    """The GPUs of this process, as in CUDA_VISIBLE_DEVICES: those that it names, or all of the machine.

    Raises GpusUnknownError, also if there is none.
    """
    listed = await _list(timeout)
    found, uuids = _GPU.findall(listed), _UUID.findall(listed)
    if (own := environment.get("CUDA_VISIBLE_DEVICES")) is not None:
        # As CUDA reads it. Unlike CUDA, skip an invalid entry instead of the rest, too.
        named = dict.fromkeys(entry.strip() for entry in own.split(","))
        known = {entry for entry in named for uuid in uuids if entry and uuid.startswith(entry)} | set(found)
        found = [entry for entry in named if entry in known]
        if not found:
            raise GpusUnknownError(f"CUDA_VISIBLE_DEVICES is {own!r}, which names no GPU that nvidia-smi lists")
    if not found:
        raise GpusUnknownError("nvidia-smi lists no GPU")
    return found


async def _list(timeout: float) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            *("nvidia-smi", "-L"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise GpusUnknownError("nvidia-smi is not on PATH") from None
    except OSError as error:
        raise GpusUnknownError(f"nvidia-smi cannot be run: {error.strerror}") from None
    try:
        async with asyncio.timeout(timeout):
            output, _ = await process.communicate()
    except TimeoutError:
        raise GpusUnknownError(f"nvidia-smi has not answered within {timeout:g} s") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            # In a system call of a broken driver, not even this ends it.
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await process.wait()
    text = output.decode(errors="replace")
    if process.returncode:
        line = text.strip().partition("\n")[0] or "it printed nothing"
        raise GpusUnknownError(f"nvidia-smi failed with exit code {process.returncode}: {line}")
    return text
