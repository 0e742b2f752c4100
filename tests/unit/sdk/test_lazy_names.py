"""The names of the package, and the cost of importing it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import frameworkcontroller
from frameworkcontroller import aio, sdk

IMPORT = """
import sys
before = set(sys.modules)
import frameworkcontroller{module}
for name in set(sys.modules) - before:
    root = name.partition(".")[0]
    if root not in sys.stdlib_module_names and root != "frameworkcontroller":
        print(name)
"""


def printed(program: str) -> list[str]:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return ended.stdout.split()


@pytest.mark.parametrize("module", ["", ".aio", ".sdk"])
def test_an_import_loads_no_library(module: str) -> None:
    assert printed(IMPORT.format(module=module)) == []


def test_every_name_is_there() -> None:
    for name in sdk.PLACES:
        assert getattr(frameworkcontroller, name) is not None
        assert name in dir(frameworkcontroller)
        assert getattr(aio, name) is not None
        assert name in dir(aio)
    differing = {name for name in sdk.PLACES if getattr(aio, name) is not getattr(frameworkcontroller, name)}
    assert differing == sdk.ASYNC.keys()


def test_aio_needs_no_import_of_its_own() -> None:
    assert printed("import frameworkcontroller as fc\nprint(fc.aio.connect.__module__)") == [
        "frameworkcontroller.sdk.asyncclient"
    ]


def test_the_package_of_the_local_cluster_does_not_hide_the_function() -> None:
    program = """
import frameworkcontroller as fc
{first}
import frameworkcontroller.local.resource_lists
try:
    fc.local(capacity=7)
except AttributeError as error:
    print(str(error).split()[0])
print(frameworkcontroller.local.resource_lists.__name__)
"""
    for first in ("", "fc.local"):
        assert printed(program.format(first=first)) == ["'int'", "frameworkcontroller.local.resource_lists"]


@pytest.mark.parametrize("module", [frameworkcontroller, aio])
def test_an_unknown_name(module: object) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Frame'"):
        _ = module.Frame  # type: ignore[attr-defined]
    assert not hasattr(module, "_private")
