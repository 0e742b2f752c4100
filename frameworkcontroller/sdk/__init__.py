"""The SDK for Python. Its names are in the package ``frameworkcontroller``, and for asyncio in its module ``aio``."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

_OF_MODULES: Final = {
    "frameworkcontroller.api.problems": "Problem",
    "frameworkcontroller.api.status": "Phase",
    "frameworkcontroller.sdk.definitions": "Claim Completion Framework Progress Resources Retry Role",
    "frameworkcontroller.sdk.exceptions": (
        "AlreadyExists Forbidden FrameworkError FrameworkFailed InvalidSpec LogUnavailable NotFound RemoteError "
        "RequestRefused Unreachable WaitTimeout"
    ),
    "frameworkcontroller.sdk.presets": "command distributed function jax mpi ray spark tensorflow torchrun",
    "frameworkcontroller.sdk.runstatus": (
        "Attempt LogLine ProgressStatus Result RoleStatus Status TaskFailure TaskStatus"
    ),
    "frameworkcontroller.sdk.shippedcode": "Code",
    "frameworkcontroller.sdk.syncclient": "Cluster Run connect local",
    "frameworkcontroller.sdk.taskrunner": "notice report",
}
PLACES: Final = {name: module for module, names in _OF_MODULES.items() for name in names.split()}
"""The modules of the public names."""

ASYNC: Final = {
    **dict.fromkeys(("Cluster", "connect", "local"), "frameworkcontroller.sdk.asyncclient"),
    "Run": "frameworkcontroller.sdk.asyncrun",
}
"""The modules of the names that differ for asyncio."""


def find(name: str, places: dict[str, str] = PLACES) -> Any:
    """Return the object of a public name. Raises AttributeError if there is none, or if a library is missing."""
    module = places.get(name)
    if module is None:
        raise AttributeError(f"module 'frameworkcontroller' has no attribute {name!r}")
    return getattr(import_module(module), name)
