"""What an image stands for here, where none is pulled: the commands of a few known ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class LocalImage:
    """Stands in for an image: what to run of this machine when a container of it names no command."""

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


class NoCommand(Exception):
    """A container that says nothing of what to run; the text says what to do."""


def repository(image: str) -> str:
    """The image's name without registry defaults, tag and digest: what `LocalImage`s are known by."""
    name = image.partition("@")[0]
    head, slash, last = name.rpartition("/")
    name = head + slash + last.partition(":")[0]
    return name.removeprefix("docker.io/").removeprefix("library/")


def argv(container: Mapping[str, Any], images: Mapping[str, LocalImage]) -> list[str]:
    """What to run: ``command`` and ``args``, the command of a known image, or ``args`` alone.

    The last is right for the many images that have no entrypoint of their own. Raises NoCommand.
    """
    command, args = list(container.get("command") or ()), list(container.get("args") or ())
    image = container.get("image") or ""
    if not command and (known := images.get(repository(image))) is not None:
        command = list(known.command)
    if not command and not args:
        raise NoCommand(
            f'container "{container["name"]}" has no command, and its image "{image}" is not pulled here, where '
            "containers run as local processes: give the container a command, or run it on a cluster that pulls images"
        )
    return command + args
