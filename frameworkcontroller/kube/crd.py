"""Installs or updates a CustomResourceDefinition, and waits until its resource is served."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from frameworkcontroller.backoff import exponential
from frameworkcontroller.kube import errors
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.discovery import answered, discovered
from frameworkcontroller.kube.resources import CRDS, Resource

_log: Final = logging.getLogger(__name__)

_FIRST_CHECK_SECONDS: Final = 0.1


class CrdError(errors.KubeError):
    """The resource type cannot be served; the message has the reason and a remedy."""


async def ensure_crd(
    client: KubeClient,
    manifest: Mapping[str, Any],
    *,
    namespace: str | None = None,
    check_interval: float = 1.0,
    timeout: float = 60.0,
) -> dict[str, Any]:
    """Create the CRD, or update it if it differs from ``manifest``, and return it once it is established.

    An update changes only the fields of the manifest. It keeps other labels and annotations, a conversion webhook,
    versions that the manifest does not have (of a newer release), and then also the storage version. An established
    CRD without differences costs one request.

    Without permission to write CRDs, the existing one is used, with a warning if it differs. Without permission to read
    them, the resource type must be served or, if discovery is forbidden, its objects (of ``namespace``) be listable.
    Transient errors are retried for ``timeout`` seconds, every ``check_interval`` seconds, at first more often.

    Raises CrdError: it is not established in time; another CRD has its names; it does not exist and may not be
    created; the server refuses the manifest. Raises the last KubeError after a timeout.
    """
    installation = _Installation(client, manifest, namespace)
    last: errors.KubeError = errors.SilenceError(f"{installation.named}: no answer came within {timeout:g} s")
    checks = 0
    failing = False
    try:
        async with asyncio.timeout(timeout):
            while True:
                checks += 1
                wait = exponential(_FIRST_CHECK_SECONDS, check_interval, checks)
                try:
                    return await installation.step()
                except _NotYet as state:
                    last = CrdError(f"{installation.named} was not established within {timeout:g} s: {state}")
                    failing = False
                except errors.KubeError as error:
                    if not errors.may_pass(error):
                        raise
                    if not failing:
                        _log.warning("Cannot install %s; retrying: %s", installation.named, error)
                    last = error
                    failing = True
                    if isinstance(error, errors.ApiError):
                        wait = max(wait, error.retry_after or 0.0)
                await asyncio.sleep(wait)
    except TimeoutError:
        raise last from None


class _NotYet(Exception):
    """The CRD is not established; the text describes its state."""


class _Installation:
    def __init__(self, client: KubeClient, manifest: Mapping[str, Any], namespace: str | None) -> None:
        self._name: str = manifest["metadata"]["name"]
        self.named = f"CustomResourceDefinition {self._name}"
        self._client = client
        self._manifest = manifest
        self._namespace = namespace
        # At most one write: a server that drops unknown fields would always differ.
        self._may_update = True

    async def step(self) -> dict[str, Any]:
        """Send the next requests. Return the CRD if it is established, else raise _NotYet."""
        try:
            crd = await answered(self._client.get(CRDS, self._name))
        except errors.NotFound:
            crd = await self._create()
        except errors.Forbidden as refused:
            return await self._accept_unread(refused)
        if crd["metadata"].get("deletionTimestamp"):
            raise _NotYet("it is being deleted, and cannot be created before that is over")
        wanted = updated(crd, self._manifest)
        if wanted is not None and self._may_update:
            crd = await self._update(crd, wanted)
        conditions = {condition.get("type"): condition for condition in crd.get("status", {}).get("conditions") or ()}
        if conditions.get("Established", {}).get("status") == "True":
            return crd
        names = conditions.get("NamesAccepted", {})
        if names.get("status") == "False":
            raise CrdError(
                f"{self.named}: its names are not accepted: {names.get('message')} "
                "(another CustomResourceDefinition has them; remove one of the two)"
            )
        states = [f"{kind} is {state.get('status')}: {state.get('message')}" for kind, state in conditions.items()]
        raise _NotYet("; ".join(states) or "the server has not processed it yet")

    async def _create(self) -> dict[str, Any]:
        try:
            crd = await answered(self._client.create(CRDS, orjson.dumps(self._manifest)))
        except errors.AlreadyExists as exists:
            raise _NotYet("it has just been created by another client") from exists
        except errors.Forbidden as refused:
            raise CrdError(
                f"{self.named} is not installed and may not be created from here, so install "
                f"it, for example with kubectl apply: {refused}"
            ) from refused
        except errors.ApiError as refused:
            if errors.may_pass(refused):
                raise
            raise CrdError(f"{self.named} was refused: {refused}") from refused
        self._may_update = False
        _log.info("Created %s", self.named)
        return crd

    async def _update(self, crd: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
        try:
            after = await answered(self._client.replace(CRDS, self._name, orjson.dumps(wanted)))
        except (errors.Conflict, errors.NotFound) as changed:
            raise _NotYet("it was changed by another client during its update") from changed
        except errors.Forbidden as refused:
            _log.warning("%s differs from this release's and may not be updated from here: %s", self.named, refused)
            after = crd
        except errors.ApiError as refused:
            if errors.may_pass(refused):
                raise
            raise CrdError(f"{self.named} could not be updated: {refused}") from refused
        self._may_update = False
        # The update of a server that drops unknown fields may change nothing.
        if after["metadata"].get("resourceVersion") != crd["metadata"].get("resourceVersion"):
            _log.info("Updated %s", self.named)
        return after

    async def _accept_unread(self, refused: errors.Forbidden) -> dict[str, Any]:
        """Check by discovery, which nearly every user may do, that the resource type is served."""
        spec = self._manifest["spec"]
        for version in spec["versions"]:
            try:
                served = await discovered(self._client, spec["group"], version["name"])
            except errors.NotFound:
                continue
            except errors.Forbidden:
                # Permissions may consist of a Role alone.
                await self._list(version["name"])
                return dict(self._manifest)
            if spec["names"]["plural"] in served:
                _log.info("%s is served; it may not be read from here", self.named)
                return dict(self._manifest)
        raise CrdError(
            f"{self.named} may not be read from here, and its resource type is not served, so "
            f"install it, for example with kubectl apply: {refused}"
        ) from refused

    async def _list(self, version: str) -> None:
        spec = self._manifest["spec"]
        resource = Resource(spec["group"], version, spec["names"]["plural"], spec["names"]["kind"])
        try:
            await answered(self._client.list(resource, self._namespace, limit=1), of_served=False)
        except (errors.Forbidden, errors.NotFound) as refused:
            raise CrdError(
                f"{self._name} cannot be listed: install its CRD, and permit its use: {refused}"
            ) from refused


def updated(existing: Mapping[str, Any], manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return ``existing`` with the fields of ``manifest``; None if there is no difference."""
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
            # The server has filled in defaults for names that the manifest omits.
            spec[key] = {**(existing["spec"].get(key) or {}), **value}
        else:
            spec[key] = value
    if spec.get("preserveUnknownFields") and "preserveUnknownFields" not in manifest["spec"]:
        # The default of v1beta1, which forbids defaults in the schema.
        spec["preserveUnknownFields"] = False
    return None if _normal(result) == _normal(existing) else result


def missing_fields(crd: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[str]:
    """Return the paths of the fields of ``manifest`` that the served ``crd`` lacks: its API server drops them.

    Of a field that is missing, not those in it.
    """
    if crd["spec"].get("preserveUnknownFields"):
        return []
    served = {version.get("name"): version for version in crd["spec"].get("versions") or () if version.get("served")}
    missing: dict[str, None] = {}
    for own in manifest["spec"]["versions"]:
        if own["name"] in served:
            missing.update(dict.fromkeys(_missing_below(_schema(served[own["name"]]), _schema(own), "")))
    return list(missing)


def _schema(version: Mapping[str, Any]) -> Mapping[str, Any]:
    return (version.get("schema") or {}).get("openAPIV3Schema") or {}


def _missing_below(served: Mapping[str, Any], own: Mapping[str, Any], path: str) -> Iterator[str]:
    if served.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in served:
        return
    if "items" in own:
        yield from _missing_below(served.get("items") or {}, own["items"], f"{path}[]")
    found = served.get("properties") or {}
    for name, field in (own.get("properties") or {}).items():
        below = f"{path}.{name}" if path else name
        if below in _ALWAYS_KEPT:
            continue
        if name in found:
            yield from _missing_below(found[name], field, below)
        else:
            yield below


_ALWAYS_KEPT: Final = frozenset({"apiVersion", "kind", "metadata"})


def _merged_versions(existing: list[Any], own: list[Any]) -> list[Any]:
    names = {version["name"] for version in own}
    others = [version for version in existing if version["name"] not in names]
    stored_by_others = any(version.get("storage") for version in others)
    # Exactly one version is stored. If it is an unknown one, a newer release has been installed before.
    mine = [{**version, "storage": False} if stored_by_others else version for version in own]
    order = {version["name"]: number for number, version in enumerate(existing)}
    return sorted([*mine, *others], key=lambda version: order.get(version["name"], len(order)))


def _normal(value: Any, key: str = "") -> Any:
    """Return the value without members that are equivalent to absent ones, which servers omit.

    A false difference costs a request without effect; a missed difference leaves an outdated schema.
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
