"""Trust in an API server, and the client certificate."""

from __future__ import annotations

import ssl
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field


class TlsError(Exception):
    """Certificates that cannot be used; the text says why."""


@dataclass(frozen=True)
class Pem:
    """A certificate or a key."""

    content: bytes = field(repr=False)
    file: str | None = None
    """The file it was read from."""

    def as_file(self, stack: ExitStack) -> str:
        """Its file, or a temporary one that ``stack`` removes: the ssl module loads client certificates from files."""
        if self.file is not None:
            return self.file
        file = stack.enter_context(tempfile.NamedTemporaryFile())  # noqa: SIM115 - the stack closes it
        file.write(self.content)
        file.flush()
        return file.name


@dataclass(frozen=True)
class Tls:
    """TLS settings of a client. Two are equal if their contexts are."""

    ca: bytes | None = field(default=None, repr=False)
    """Certificates of the authorities, PEM. None: the system's."""
    certificate: Pem | None = None
    key: Pem | None = None
    """None: it is in the certificate's file."""
    verify: bool = True
    server_name: str | None = None
    """The name in the server's certificate, if it is not the host of the address."""

    def context(self) -> ssl.SSLContext:
        """A new context; the caller passes ``server_name`` to each connection. Raises TlsError."""
        try:
            # Comments in PEM may have any encoding; the ssl module takes ASCII. Empty text would mean the system's.
            ca = None if self.ca is None else self.ca.decode("ascii", "ignore") or "empty"
            context = ssl.create_default_context(cadata=ca)
        except (OSError, ValueError) as error:
            raise TlsError(f"its certificate authority cannot be used: {error}") from error
        # Python 3.13 sets it. Many clusters' own authorities do not comply, and other clients accept them.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate is not None:
            try:
                with ExitStack() as stack:
                    certificate = self.certificate.as_file(stack)
                    key = None if self.key is None else self.key.as_file(stack)
                    # Without one, OpenSSL asks the terminal for the password of an encrypted key.
                    context.load_cert_chain(certificate, key, password="")
            except OSError as error:
                raise TlsError(f"its client certificate cannot be used: {error}") from error
        return context
