"""What arguments may become when the shell completes them; asked for only then."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any


def completed_by(completer: Callable[..., list[str]], action: argparse.Action) -> None:
    """Have argcomplete ask ``completer`` for what the argument may become."""
    action.completer = completer  # type: ignore[attr-defined]


def complete_names(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:  # noqa: ARG001 - argcomplete's names
    """Names of Frameworks."""
    from frameworkcontroller.commands import completion

    return completion.framework_names(parsed_args)


def complete_roles(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:  # noqa: ARG001 - argcomplete's names
    """Names of the roles of the Framework that was named."""
    from frameworkcontroller.commands import completion

    return completion.role_names(parsed_args)


def complete_roles_to_scale(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """The same, for ``ROLE=N``."""
    return [f"{role}=" for role in complete_roles(prefix, parsed_args)]
