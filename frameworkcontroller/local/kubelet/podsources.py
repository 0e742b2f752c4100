"""Reads the ConfigMaps, Secrets and claims that a Pod refers to."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import orjson

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import NotFound
from frameworkcontroller.kube.resources import CONFIGMAPS, PERSISTENTVOLUMECLAIMS, SECRETS, SERVICEACCOUNTS
from frameworkcontroller.local.kubelet.volumebinder import decode_claim


class ContainerConfigError(Exception):
    """A reference of a Pod is missing, perhaps temporarily; the text is a kubelet's."""


class PodSources:
    """The ConfigMaps, Secrets and claims of one namespace. Every read may raise KubeError."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def entries(self, kind: str, reference: Mapping[str, Any]) -> Mapping[str, bytes] | None:
        """All entries of a ``configmap`` or ``secret``; None if it does not exist and the reference is optional.

        Raises ConfigError if it is required.
        """
        name = reference.get("name") or reference.get("secretName") or ""
        try:
            body = orjson.loads(
                await self._client.get(CONFIGMAPS if kind == "configmap" else SECRETS, name, self._namespace)
            )
        except NotFound:
            if reference.get("optional"):
                return None
            raise ContainerConfigError(f'{kind} "{name}" not found') from None
        if kind == "secret":
            return {key: base64.b64decode(value) for key, value in (body.get("data") or {}).items()}
        return {
            **{key: base64.b64decode(value) for key, value in (body.get("binaryData") or {}).items()},
            **{key: value.encode() for key, value in (body.get("data") or {}).items()},
        }

    async def token(self, pod: Mapping[str, Any], source: Mapping[str, Any]) -> bytes:
        """A token of the Pod's ServiceAccount, bound to the Pod, for the source's audience. Raises ConfigError."""
        metadata, account = pod["metadata"], pod["spec"].get("serviceAccountName") or "default"
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        spec = {
            "audiences": [source["audience"]],
            "expirationSeconds": source.get("expirationSeconds") or 3600,
            "boundObjectRef": bound,
        }
        body = orjson.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
        try:
            answer = await self._client.create(
                SERVICEACCOUNTS, body, self._namespace, name=account, subresource="token"
            )
        except NotFound as error:
            raise ContainerConfigError(f"failed to fetch token: {error}") from None
        token: str = orjson.loads(answer)["status"]["token"]
        return token.encode()

    async def claim(self, name: str) -> str:
        """The uid of a bound PersistentVolumeClaim. Raises ConfigError if it cannot be used now."""
        try:
            body = orjson.loads(await self._client.get(PERSISTENTVOLUMECLAIMS, name, self._namespace))
        except NotFound:
            raise ContainerConfigError(f'persistentvolumeclaim "{name}" not found') from None
        claim = decode_claim(body)
        if claim.deleting or not claim.bound:
            raise ContainerConfigError(
                f'persistentvolumeclaim "{name}" {"is being deleted" if claim.deleting else "not bound"}'
            )
        return claim.uid

    async def entry(self, kind: str, reference: Mapping[str, Any]) -> str | None:
        """The value at the reference's ``key``, or None if it is absent and optional. Raises ConfigError."""
        entries = await self.entries(kind, reference)
        key = reference.get("key") or ""
        if entries is not None and key in entries:
            return entries[key].decode(errors="surrogateescape")
        if entries is None or reference.get("optional"):
            return None
        raise ContainerConfigError(f"couldn't find key {key} in {kind} {self._namespace}/{reference.get('name')}")
