"""Answers of real control planes, for the tests to replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson


def load(name: str) -> Any:
    """The recorded answers called ``name``."""
    return orjson.loads((Path(__file__).parent / f"{name}.json").read_bytes())
