"""The certificates of report servers: an authority of their own, in a Secret, and short-lived ones of replicas.

An authority lives for ten years. Two years before its end there is a next one, which clients trust from then on; it
signs from one year before the end. So a client that has got its authorities in the last year trusts every server.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFE: Final = timedelta(days=3650)
NEXT_BEFORE_END: Final = timedelta(days=730)
"""The next authority is made this long before the end of the current one."""

SWITCH_BEFORE_END: Final = timedelta(days=365)
"""The next authority signs from this time before the end of the current one."""

SERVER_LIFE: Final = timedelta(days=30)
RENEW_BEFORE_END: Final = timedelta(days=10)

_SKEW: Final = timedelta(minutes=10)
"""Clocks of clients may be behind."""

_CERT, _KEY, _NEXT_CERT, _NEXT_KEY = "ca.crt", "ca.key", "next.crt", "next.key"


class AuthorityError(Exception):
    """The content of the Secret is not an authority. The text names the fault."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(encoding, form, serialization.NoEncryption())

    @property
    def end(self) -> datetime:
        return self.certificate.not_valid_after_utc


@dataclass(frozen=True, slots=True)
class Authorities:
    """The content of the Secret."""

    current: KeyPair
    following: KeyPair | None = None

    def signer(self, now: float) -> KeyPair:
        """The authority that signs now."""
        switches = self.current.end - SWITCH_BEFORE_END
        return self.following if self.following is not None and _time(now) >= switches else self.current

    def trusted(self) -> str:
        """The certificates that clients trust, in PEM."""
        pairs = (self.current,) if self.following is None else (self.current, self.following)
        return b"".join(pair.certificate_pem for pair in pairs).decode()

    def at(self, now: float) -> Authorities:
        """These, with the changes that are due: the same object if there are none."""
        if _time(now) >= self.current.end - timedelta(days=1):
            return Authorities(self.following or new_authority(now)).at(now)
        if self.following is None and _time(now) >= self.current.end - NEXT_BEFORE_END:
            return Authorities(self.current, new_authority(now))
        return self


def new_authority(now: float) -> KeyPair:
    """Make an authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    # Each has a name of its own: clients find the issuer of a certificate by it.
    name = _name(f"frameworkcontroller-progress-{x509.random_serial_number():x}"[:63])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    public = key.public_key()
    builder = (
        _builder(name, name, public, now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )
    return KeyPair(builder.sign(key, hashes.SHA256()), key)


def issue(authority: KeyPair, host: str, now: float) -> KeyPair:
    """Make the certificate of a server that clients reach under that name or address."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key()
    try:
        names: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address(host))]
    except ValueError:
        names = [x509.DNSName(host)]
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    issuer = authority.certificate
    builder = (
        _builder(_name("frameworkcontroller-progress"), issuer.subject, public, now, SERVER_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()),
            critical=False,
        )
    )
    return KeyPair(builder.sign(authority.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: float, life: timedelta
) -> x509.CertificateBuilder:
    begin = _time(now)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - _SKEW)
        .not_valid_after(begin + life)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)


# --- the data of the Secret ---


def encode_authorities(authorities: Authorities) -> dict[str, str]:
    """The data of the Secret, in base64."""
    data = {_CERT: authorities.current.certificate_pem, _KEY: authorities.current.key_pem}
    if authorities.following is not None:
        data |= {_NEXT_CERT: authorities.following.certificate_pem, _NEXT_KEY: authorities.following.key_pem}
    return {key: base64.b64encode(value).decode() for key, value in data.items()}


def decode_authorities(data: Mapping[str, Any]) -> Authorities:
    """The authorities in the data of the Secret.

    Raises:
        AuthorityError: there are none.
    """
    current = _decode(data, _CERT, _KEY)
    return Authorities(current, _decode(data, _NEXT_CERT, _NEXT_KEY) if _NEXT_CERT in data else None)


def _decode(data: Mapping[str, Any], certificate_key: str, private_key: str) -> KeyPair:
    try:
        certificate = x509.load_pem_x509_certificate(base64.b64decode(data[certificate_key]))
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise AuthorityError(f"{certificate_key} is no certificate: {error}") from None
    try:
        key = serialization.load_pem_private_key(base64.b64decode(data[private_key]), None)
    except (KeyError, TypeError, ValueError, binascii.Error):
        # Without the error, which might quote the key.
        raise AuthorityError(f"{private_key} is no private key") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise AuthorityError(f"{private_key} is not the key of {certificate_key}")
    return KeyPair(certificate, key)
