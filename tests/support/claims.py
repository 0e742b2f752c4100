"""Volume claims on API servers."""

from __future__ import annotations

import orjson

from frameworkcontroller.kube.resources import PERSISTENTVOLUMECLAIMS
from tests.support.eventually import eventually
from tests.support.frameworks import Frameworks, Json


def claim_spec() -> Json:
    """A spec that every API server accepts."""
    return {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "standard",
        "resources": {"requests": {"storage": "1Mi"}},
    }


async def claims_in(frameworks: Frameworks) -> dict[str, Json]:
    """The claims that exist and are not being deleted, by name."""
    found = orjson.loads(await frameworks.client.list(PERSISTENTVOLUMECLAIMS, frameworks.namespace))["items"]
    return {one["metadata"]["name"]: one for one in found if "deletionTimestamp" not in one["metadata"]}


async def until_claims_are(frameworks: Frameworks, names: set[str]) -> None:
    """Wait until only claims of these names exist."""

    async def are() -> None:
        assert {*await claims_in(frameworks)} == names

    await eventually(are)
