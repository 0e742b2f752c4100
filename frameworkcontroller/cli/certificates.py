"""The certificate of a server: from the options ``--tls-cert`` and ``--tls-key``, and read again when it is renewed."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Final

from frameworkcontroller.commands.program import UsageError

_log: Final = logging.getLogger(__name__)

_CHECK_SEC: Final = 60.0


class Certificate:
    """A certificate chain and its key, in PEM files that may be replaced."""

    def __init__(self, cert: Path, key: Path) -> None:
        """Load them.

        Raises:
            OSError, ssl.SSLError: this is not possible.
        """
        self._cert, self._key = cert, key
        self._loaded = self._stamps()
        self.context = self._load(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))

    def renew(self) -> None:
        """Load them again if they were replaced. New connections get the new ones; unusable ones are logged."""
        try:
            stamps = self._stamps()
            if stamps == self._loaded:
                return
            # First elsewhere: a pair that does not match must not replace one that does.
            self._load(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
            self._load(self.context)
        except (OSError, ssl.SSLError) as error:
            _log.warning("Cannot load the renewed certificate %s: %s", self._cert, error)
        else:
            self._loaded = stamps
            _log.info("Loaded the renewed certificate %s", self._cert)

    async def watch(self) -> None:
        """Renew it until cancelled."""
        while True:
            await asyncio.sleep(_CHECK_SEC)
            self.renew()

    def _load(self, context: ssl.SSLContext) -> ssl.SSLContext:
        # An encrypted key is refused, not asked for.
        context.load_cert_chain(self._cert, self._key, password=lambda: "")
        return context

    def _stamps(self) -> list[tuple[int, int, int]]:
        found = [path.stat() for path in (self._cert, self._key)]
        return [(one.st_ino, one.st_size, one.st_mtime_ns) for one in found]


def certificate_of(cert: Path | None, key: Path | None) -> Certificate | None:
    """Return the certificate of the options, None without them.

    Raises:
        UsageError: they cannot be used.
    """
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise UsageError("--tls-cert and --tls-key belong together")
    for option, path in (("--tls-cert", cert), ("--tls-key", key)):
        try:
            path.open("rb").close()
        except OSError as error:
            raise UsageError(f"{option} {path}: cannot be read: {error.strerror}") from None
    try:
        return Certificate(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"--tls-cert {cert}, --tls-key {key}: {error}") from None
