"""Local commands in place of known images; no image is pulled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class LocalImage:
    """The command on this machine for a container of an image, if it names none itself."""

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


class NoCommand(Exception):
    """A container without a command; the text says what to do."""


def repository(image: str) -> str:
    """The image's name without default registry, tag and digest: the key of `LocalImage`s."""
    name = image.partition("@")[0]
    head, slash, last = name.rpartition("/")
    name = head + slash + last.partition(":")[0]
    return name.removeprefix("docker.io/").removeprefix("library/")


def argv(container: Mapping[str, Any], images: Mapping[str, LocalImage]) -> list[str]:
    """The command line: ``command`` and ``args``, the command of a known image, or ``args`` alone.

    The last suits the many images without an entrypoint. Raises NoCommand.
    """
    command, args = list(container.get("command") or ()), list(container.get("args") or ())
    image = container.get("image") or ""
    if not command and (known := images.get(repository(image))) is not None:
        command = list(known.command)
    if not command and not args:
        raise NoCommand(
            f'container "{container["name"]}" has no command, and the local cluster does not pull its image "{image}": '
            "set a command, or use a real cluster"
        )
    return command + args
