"""A cluster in one process: an API server and a Pod runtime on loopback, for trials and tests."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    """This package. Once it is imported, it hides the SDK's function ``frameworkcontroller.local``, and calls it."""

    def __call__(self, **options: Any) -> Any:
        return import_module("frameworkcontroller.sdk.syncclient").local(**options)


sys.modules[__name__].__class__ = _Package
