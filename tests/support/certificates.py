"""Throw-away certificates, made by the openssl program."""

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Certificates:
    """An authority, a server certificate for 127.0.0.1 and ``api.test``, and a client certificate, all as PEM files."""

    directory: Path

    @property
    def ca(self) -> Path:
        return self.directory / "ca.crt"

    def pair(self, name: str) -> tuple[Path, Path]:
        """Certificate and key of ``server`` or ``client``, or of another name for which `issue` was called."""
        return self.directory / f"{name}.crt", self.directory / f"{name}.key"

    def issue(self, name: str, *, alternative_names: str = "") -> None:
        """A certificate with this common name, signed by the authority."""
        certificate, key = self.pair(name)
        extensions = self.directory / f"{name}.ext"
        extensions.write_text(
            f"subjectAltName={alternative_names}\n" if alternative_names else "keyUsage=digitalSignature\n"
        )
        request = self.directory / f"{name}.csr"
        _openssl(
            "req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", request
        )
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.directory / "ca.key", "-days", "2"),
            *("-set_serial", str(abs(hash(name)) % 10**8), "-extfile", extensions, "-out", certificate),
        )

    def server_context(self, *, client_certificates: bool = False) -> ssl.SSLContext:
        """For a server; it asks for a client certificate if told so."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.ca))
        context.load_cert_chain(*self.pair("server"))
        # Python 3.13 would want extensions in client certificates that API servers do not ask for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.verify_mode = ssl.CERT_REQUIRED if client_certificates else ssl.CERT_NONE
        return context


def make_certificates(directory: Path) -> Certificates:
    """Certificates in this directory; skips the test if there is no openssl program."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl program to make certificates")
    made = Certificates(directory)
    key = directory / "ca.key"
    _openssl(
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=ca",
        "-keyout",
        key,
        "-out",
        made.ca,
    )
    made.issue("server", alternative_names="IP:127.0.0.1,DNS:api.test")
    made.issue("client")
    return made


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
