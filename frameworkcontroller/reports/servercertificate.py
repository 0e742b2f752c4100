"""Keeps the certificate of a report server, and the authority that signs it, from expiring."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable
from typing import Any, Final

import orjson

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from frameworkcontroller.kube.resources import SECRETS
from frameworkcontroller.reports.authority import (
    RENEW_BEFORE_END,
    Authorities,
    AuthorityError,
    KeyPair,
    decode_authorities,
    encode_authorities,
    issue,
    new_authority,
)

_log: Final = logging.getLogger(__name__)

AUTHORITY_OBJECT: Final = "frameworkcontroller-progress"
CHECK_SEC: Final = 3600.0
_MAX_CONFLICTS: Final = 5


class ServerCertificate:
    """The certificate of one server. ``context`` always serves the current one."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        host: str,
        *,
        wall: Callable[[], float],
        changed: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``host``: the name or address of the server. ``changed``: takes the trusted authorities, when they change."""
        self._client = client
        self._namespace = namespace
        self._host = host
        self._wall = wall
        self._changed = changed
        self._pair: KeyPair | None = None
        self._signer: KeyPair | None = None
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Connections are short.
        self.context.num_tickets = 1
        self.trusted = ""

    async def renew(self) -> None:
        """Read or make the authority, and issue a certificate if that is due.

        Raises:
            KubeError: the Secret can be neither read nor written.
            AuthorityError: the Secret has no authority.
        """
        authorities = await self._authorities()
        now = self._wall()
        signer = authorities.signer(now)
        known = self._signer
        ends = self._pair is None or self._pair.end.timestamp() - RENEW_BEFORE_END.total_seconds() <= now
        if ends or known is None or known.certificate != signer.certificate:
            self._pair, self._signer = issue(signer, self._host, now), signer
            _load(self.context, self._pair)
            _log.info("Issued the certificate of the report server for %s, valid until %s", self._host, self._pair.end)
        if authorities.trusted() != self.trusted:
            self.trusted = authorities.trusted()
            self._changed(self.trusted)

    async def keep(self) -> None:
        """Renew it until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SEC)
            try:
                await self.renew()
            except (KubeError, AuthorityError) as error:
                _log.warning("Cannot renew the certificate of the report server: %s", error)

    async def _authorities(self) -> Authorities:
        for _ in range(_MAX_CONFLICTS):
            try:
                found = orjson.loads(await self._client.get(SECRETS, AUTHORITY_OBJECT, self._namespace))
            except NotFound:
                made = Authorities(new_authority(self._wall()))
                body = self._body(made)
                try:
                    await self._client.create(SECRETS, body, self._namespace)
                except AlreadyExists:
                    # Of another replica: that one counts.
                    continue
                _log.info(
                    "Made an authority for report servers, in the Secret %s/%s", self._namespace, AUTHORITY_OBJECT
                )
                return made
            try:
                authorities = decode_authorities(found.get("data") or {})
            except AuthorityError as error:
                hint = "delete it to have a new one made"
                raise AuthorityError(f"Secret {self._namespace}/{AUTHORITY_OBJECT}: {error}; {hint}") from None
            due = authorities.at(self._wall())
            if due is authorities:
                return due
            body = self._body(due, found["metadata"]["resourceVersion"])
            try:
                await self._client.replace(SECRETS, AUTHORITY_OBJECT, body, self._namespace)
            except (Conflict, NotFound):
                continue
            return due
        raise AuthorityError(f"Secret {self._namespace}/{AUTHORITY_OBJECT}: changes all the time")

    def _body(self, authorities: Authorities, version: str | None = None) -> bytes:
        metadata: dict[str, Any] = {"name": AUTHORITY_OBJECT, "namespace": self._namespace}
        if version is not None:
            metadata["resourceVersion"] = version
        return orjson.dumps(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": metadata,
                "type": "Opaque",
                "data": encode_authorities(authorities),
            }
        )


def _load(context: ssl.SSLContext, pair: KeyPair) -> None:
    """Let new connections get this certificate."""
    # Python loads keys from files only; this one is in memory.
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(pair.key_pem + pair.certificate_pem)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
