"""Installs a CustomResourceDefinition, or brings it up to date, and waits until its resource is served."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Any, Final

import orjson

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    KubeError,
    NotFound,
    SilenceError,
    TransportError,
    may_pass,
)
from frameworkcontroller.kube.resources import CRDS, Resource

_log: Final = logging.getLogger(__name__)

_FIRST_CHECK_SECONDS: Final = 0.1


class CrdError(KubeError):
    """The resource type cannot be served as it must; the message says why, and what to do."""


async def ensure_crd(
    client: KubeClient,
    manifest: Mapping[str, Any],
    *,
    namespace: str | None = None,
    check_interval: float = 1.0,
    timeout: float = 60.0,
) -> dict[str, Any]:
    """Create the CRD, or update it if it differs from ``manifest``, and return it once it is established.

    An update changes what the manifest speaks of and nothing else: labels and annotations of others, a conversion
    webhook, versions that the manifest does not know (of a newer release) and which version is stored then all stay.
    One that is established and up to date costs a single request.

    Whoever may not write CRDs goes on with the one that is there, with a warning if it differs; if CRDs may not even be
    read, it is enough that the resource type is served or, if that cannot be told either, that its objects can be
    listed (those of ``namespace``, if it is given). A server that cannot be reached, or is overloaded, is asked again
    until ``timeout`` seconds have passed; checks are ``check_interval`` seconds apart, the first ones less.

    Raises CrdError: not established in time; its names are taken by another CRD; it is not there and may not be
    created; the server refuses the manifest. Raises another KubeError if that is how it stood at the end of the time.
    """
    task = _Installation(client, manifest, namespace)
    try:
        async with asyncio.timeout(timeout):
            return await task.run(check_interval)
    except TimeoutError:
        if task.trouble is not None:
            raise task.trouble from None
        if task.stands is None:
            raise SilenceError(f"CustomResourceDefinition {task.name}: no answer came within {timeout:g} s") from None
        raise CrdError(
            f"CustomResourceDefinition {task.name} was not established within {timeout:g} s: {task.stands}"
        ) from None


class _Installation:
    def __init__(self, client: KubeClient, manifest: Mapping[str, Any], namespace: str | None) -> None:
        self.name: str = manifest["metadata"]["name"]
        self.stands: str | None = None
        """How it stood when last looked at; None if no answer has come yet."""
        self.trouble: KubeError | None = None
        """Why the last request failed, if it did."""
        self._client = client
        self._manifest = manifest
        self._namespace = namespace
        # Not what was just written either: a server that drops what it does not know would be asked to no end.
        self._is_to_be_updated = True

    async def run(self, check_interval: float) -> dict[str, Any]:
        pause = min(_FIRST_CHECK_SECONDS, check_interval)
        while True:
            wait = pause
            try:
                served = await self._step()
                self.trouble = None
            except Passing as passing:
                error = passing.error
                if self.trouble is None:
                    _log.warning("CustomResourceDefinition %s: trying again: %s", self.name, error)
                self.trouble = error
                wait = max(wait, (error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0)
            else:
                if served is not None:
                    return served
            await asyncio.sleep(wait)
            pause = min(2 * pause, check_interval)

    async def _step(self) -> dict[str, Any] | None:
        """Do the next thing that is to be done; the CRD, if that was all."""
        try:
            crd: dict[str, Any] | None = await answered(self._client.get(CRDS, self.name))
        except NotFound:
            crd = await self._create()
        except Forbidden as refused:
            return await self._accept_unseen(refused)
        if crd is None:
            return None
        if crd["metadata"].get("deletionTimestamp"):
            self.stands = "it is being deleted, until which it cannot be created again"
            return None
        wanted = updated(crd, self._manifest)
        if wanted is not None and self._is_to_be_updated:
            crd = await self._update(crd, wanted)
            if crd is None:
                return None
        conditions = {condition.get("type"): condition for condition in crd.get("status", {}).get("conditions") or ()}
        if conditions.get("Established", {}).get("status") == "True":
            return crd
        names = conditions.get("NamesAccepted", {})
        if names.get("status") == "False":
            raise CrdError(
                f"CustomResourceDefinition {self.name}: its names are not accepted: {names.get('message')} "
                "(another CustomResourceDefinition has them; remove one of the two)"
            )
        self.stands = (
            "; ".join(
                f"{kind} is {condition.get('status')}: {condition.get('message')}"
                for kind, condition in conditions.items()
            )
            or "the server has not looked at it yet"
        )
        return None

    async def _create(self) -> dict[str, Any] | None:
        try:
            crd = await answered(self._client.create(CRDS, orjson.dumps(self._manifest)))
        except AlreadyExists:
            return None
        except Forbidden as refused:
            raise CrdError(
                f"CustomResourceDefinition {self.name} is not installed and may not be created from here, so install "
                f"it, for example with kubectl apply: {refused}"
            ) from refused
        except ApiError as refused:
            raise CrdError(f"CustomResourceDefinition {self.name} was refused: {refused}") from refused
        self._is_to_be_updated = False
        _log.info("Created CustomResourceDefinition %s", self.name)
        return crd

    async def _update(self, crd: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any] | None:
        try:
            after = await answered(self._client.replace(CRDS, self.name, orjson.dumps(wanted)))
        except (Conflict, NotFound):
            return None
        except Forbidden as refused:
            self._is_to_be_updated = False
            _log.warning(
                "CustomResourceDefinition %s differs from this release's and may not be updated from here: %s",
                self.name,
                refused,
            )
            return crd
        except ApiError as refused:
            raise CrdError(
                f"CustomResourceDefinition {self.name} could not be brought up to date: {refused}"
            ) from refused
        self._is_to_be_updated = False
        # An old server drops the parts of the schema that it does not know; then this changes nothing each time.
        if after["metadata"].get("resourceVersion") != crd["metadata"].get("resourceVersion"):
            _log.info("Brought CustomResourceDefinition %s up to date", self.name)
        return after

    async def _accept_unseen(self, refused: Forbidden) -> dict[str, Any] | None:
        """Everybody may see which resource types are served: enough to go on, if ours is."""
        spec = self._manifest["spec"]
        for version in spec["versions"]:
            try:
                asked = self._client.raw("GET", f"/apis/{spec['group']}/{version['name']}")
                listing = await answered(asked, of_served=False)
            except NotFound:
                continue
            except Forbidden:
                # Nearly everybody: but what is permitted by a Role alone may be all that is permitted.
                await self._list(version["name"])
                return dict(self._manifest)
            if any(resource.get("name") == spec["names"]["plural"] for resource in listing.get("resources") or ()):
                _log.info("CustomResourceDefinition %s is served; it may not be read from here", self.name)
                return dict(self._manifest)
        raise CrdError(
            f"CustomResourceDefinition {self.name} may not be read from here, and its resource type is not served, so "
            f"install it, for example with kubectl apply: {refused}"
        ) from refused

    async def _list(self, version: str) -> None:
        spec = self._manifest["spec"]
        resource = Resource(spec["group"], version, spec["names"]["plural"], spec["names"]["kind"])
        try:
            await answered(self._client.list(resource, self._namespace, limit=1), of_served=False)
        except (Forbidden, NotFound) as refused:
            raise CrdError(f"{self.name} cannot be listed: install its CRD, and permit its use: {refused}") from refused


class Passing(Exception):
    """Something that may pass, and so is neither an answer nor a refusal."""

    def __init__(self, error: KubeError) -> None:
        super().__init__(str(error))
        self.error = error


async def answered(asked: Awaitable[bytes], *, of_served: bool = True) -> dict[str, Any]:
    """The object that is answered. ``of_served``: if the resource type is not, the API server says so in plain text.

    Raises:
        ApiError: the API server refuses.
        Passing: it did not get to that; a gateway's page does not count, whatever its code.
    """
    try:
        return _object(await asked)
    except KubeError as error:
        if may_pass(error) and (of_served or not isinstance(error, NotFound)):
            raise Passing(error) from error
        raise


def _object(answer: bytes) -> dict[str, Any]:
    """The object that was answered. Raises TransportError if it is none: a proxy's page, or what a bad line left."""
    with suppress(ValueError):
        body = orjson.loads(answer)
        if isinstance(body, dict) and (isinstance(body.get("metadata"), dict) or "resources" in body):
            return body
    raise TransportError(f"the API server's answer is not an object: {answer[:100]!r}")


def updated(existing: Mapping[str, Any], manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """``existing`` with what ``manifest`` speaks of brought up to date; None if it is already."""
    result = {**existing, "metadata": dict(existing["metadata"]), "spec": dict(existing["spec"])}
    for kind in ("labels", "annotations"):
        own = manifest["metadata"].get(kind)
        if own:
            result["metadata"][kind] = {**(existing["metadata"].get(kind) or {}), **own}
    spec = result["spec"]
    for key, value in manifest["spec"].items():
        if key == "versions":
            spec[key] = _merged_versions(existing["spec"].get(key) or [], value)
        elif key == "names":
            # Those that are left out have defaults, which the server has filled in.
            spec[key] = {**(existing["spec"].get(key) or {}), **value}
        else:
            spec[key] = value
    if spec.get("preserveUnknownFields") and "preserveUnknownFields" not in manifest["spec"]:
        # As v1beta1 had it by default; it forbids defaults in the schema.
        spec["preserveUnknownFields"] = False
    return None if _normal(result) == _normal(existing) else result


def _merged_versions(existing: list[Any], own: list[Any]) -> list[Any]:
    names = {version["name"] for version in own}
    others = [version for version in existing if version["name"] not in names]
    stored_by_others = any(version.get("storage") for version in others)
    # Exactly one version is stored. If that is one that we do not know, a newer release has been here.
    mine = [{**version, "storage": False} if stored_by_others else version for version in own]
    order = {version["name"]: number for number, version in enumerate(existing)}
    return sorted([*mine, *others], key=lambda version: order.get(version["name"], len(order)))


def _normal(value: Any, key: str = "") -> Any:
    """Without the members that a server leaves out when it writes an object, being the same as absent ones.

    Too much of a difference costs a request that changes nothing; a difference too few, an outdated schema.
    """
    if key in ("default", "enum", "example"):
        return value
    if isinstance(value, Mapping):
        members = {name: _normal(member, name) for name, member in value.items()}
        if key in ("properties", "labels", "annotations"):
            return members
        return {
            name: member
            for name, member in members.items()
            if not (member is None or member is False or member in ("", []) or (name == "priority" and member == 0))
        }
    if isinstance(value, list):
        return [_normal(member) for member in value]
    return value
