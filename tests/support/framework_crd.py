"""The CustomResourceDefinition of Frameworks, read once: hundreds of tests install it."""

from functools import cache
from typing import Any

import orjson
import yaml

from tests.support.realcluster import CRD


@cache
def crd_json() -> bytes:
    """The manifest in crd/ as JSON."""
    return orjson.dumps(yaml.safe_load(CRD.read_text()))


def crd_manifest() -> dict[str, Any]:
    """The manifest in crd/, a copy of the caller's own."""
    manifest: dict[str, Any] = orjson.loads(crd_json())
    return manifest
