"""Having a CustomResourceDefinition in place: created, brought up to date, and established."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import KubeError, NotFound, TransportError
from frameworkcontroller.kube.resources import CRDS

_OURS: Final = ("group", "scope", "names")


class CrdNotEstablished(KubeError):
    """The API server holds the CustomResourceDefinition but does not serve it. The text says why."""


async def ensure_crd(client: KubeClient, manifest: dict[str, Any], *, interval: float, timeout: float) -> None:
    """Have the CustomResourceDefinition ``manifest`` in place, and wait until it is served.

    One that exists is replaced only if it lacks something of ``manifest``. What others put there stays: labels,
    annotations, versions of theirs, conversion. Asks every ``interval`` seconds whether it is established.

    Raises:
        CrdNotEstablished: not within ``timeout`` seconds, or its names are another's.
        KubeError: the API server refuses, or does not answer; AlreadyExists and Conflict if somebody did the same.
    """
    name = manifest["metadata"]["name"]
    try:
        live = _parse(await client.get(CRDS, name))
    except NotFound:
        live = _parse(await client.create(CRDS, orjson.dumps(manifest)))
    else:
        wanted = _updated(live, manifest)
        if not _covers(live["spec"], wanted["spec"]):
            live = _parse(await client.replace(CRDS, name, orjson.dumps(wanted)))
    try:
        async with asyncio.timeout(timeout):
            while not _established(live):
                await asyncio.sleep(interval)
                live = _parse(await client.get(CRDS, name))
    except TimeoutError:
        conditions = (live.get("status") or {}).get("conditions") or "none"
        raise CrdNotEstablished(
            f"CustomResourceDefinition {name} is not established after {timeout:g} s; its conditions: {conditions}"
        ) from None


def _updated(live: dict[str, Any], manifest: dict[str, Any]) -> dict[str, Any]:
    """``live`` with the spec brought up to ``manifest``."""
    spec = dict(live["spec"])
    for field in _OURS:
        spec[field] = {**spec[field], **manifest["spec"][field]} if field == "names" else manifest["spec"][field]
    versions = manifest["spec"]["versions"]
    ours = {version["name"] for version in versions}
    # Objects may be stored in a version that we do not know: it has to stay, though no longer as the stored one.
    others = [{**version, "storage": False} for version in spec["versions"] if version["name"] not in ours]
    spec["versions"] = [*versions, *others]
    # Left over from apiextensions v1beta1; with it, the schema's defaults would be refused.
    if spec.get("preserveUnknownFields"):
        spec["preserveUnknownFields"] = False
    return {**live, "spec": spec}


def _covers(live: Any, wanted: Any) -> bool:
    """Whether ``live`` has all that ``wanted`` has; an API server adds defaults of its own."""
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(key in live and _covers(live[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return isinstance(live, list) and len(live) == len(wanted) and all(map(_covers, live, wanted))
    return bool(live == wanted)


def _established(crd: dict[str, Any]) -> bool:
    conditions = {item["type"]: item for item in (crd.get("status") or {}).get("conditions") or ()}
    names = conditions.get("NamesAccepted")
    if names is not None and names["status"] == "False":
        raise CrdNotEstablished(
            f"CustomResourceDefinition {crd['metadata']['name']}: its names are not accepted: {names.get('message')}"
        )
    return bool(conditions.get("Established", {}).get("status") == "True")


def _parse(answer: bytes) -> dict[str, Any]:
    try:
        body = orjson.loads(answer)
        if isinstance(body, dict) and isinstance(body.get("spec"), dict):
            return body
    except orjson.JSONDecodeError:
        pass
    raise TransportError(f"the API server's answer is not a CustomResourceDefinition: {answer[:100]!r}")
