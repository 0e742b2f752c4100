"""Which tests pytest-xdist runs in the same worker, and which first."""

import re
from collections.abc import Callable
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

_PLANE: Final = re.compile(r"\[(?:.*-)?real-(1\.20|1\.36|assets)(?:-.*)?\]$|_on_a_real_control_plane\[(.*)\]$")
_ONE_BY_ONE: Final = ("tests/chaos/", "tests/property/")
"""Each of their tests takes long and shares nothing."""


def group(nodeid: str) -> str:
    """Tests of one group run in one worker: the tests of one file, or of one real control plane.

    So each plane is started once, and there are no more planes at work than versions.
    """
    if plane := _PLANE.search(nodeid):
        return f"control plane {plane[1] or plane[2]}"
    return nodeid if nodeid.startswith(_ONE_BY_ONE) else nodeid.partition("::")[0]


def rank(nodeid: str) -> int:
    """Lower ones begin earlier: first long and indivisible groups, last the shortest."""
    if _PLANE.search(nodeid):
        return 0
    return 2 if nodeid.startswith("tests/unit/") else 1


def encodable(value: Any) -> Any:
    """A report as it can be sent from a worker: UTF-8 has no lone surrogates, which tests may print and log."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {encodable(key): encodable(item) for key, item in value.items()}
        case list():
            return [encodable(item) for item in value]
        case tuple():
            return tuple(encodable(item) for item in value)
    return value


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Groups, in the order of collection."""

    def __init__(self, config: pytest.Config, log: Callable[..., Any]) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)
