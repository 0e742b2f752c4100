"""Where an API server is and how to prove who we are to it. (Signatures are final; the bodies follow.)"""

from __future__ import annotations

from collections.abc import Mapping


class Connection:
    """An API server's address, TLS settings and credentials."""

    server: str

    @classmethod
    def to_address(cls, address: str) -> Connection:
        """A connection to ``http[s]://host:port`` without credentials. Reads no environment and no files."""
        raise NotImplementedError


async def connect(
    *,
    address: str | None = None,
    kubeconfig: str | None = None,
    context: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Connection:
    """The connection that these settings mean, by the rules of behaviour.md."""
    raise NotImplementedError
