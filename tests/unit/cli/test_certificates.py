"""Certificates of servers: renewed without a restart, and only by ones that can be used."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from pathlib import Path

import pytest

from frameworkcontroller.cli.certificates import Certificate, certificate_of
from frameworkcontroller.commands.program import UsageError
from tests.support.certificates import Certificates, make_certificates


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path)


async def subject(port: int, certificates: Certificates) -> str:
    """The common name of the server's certificate on a new connection."""
    context = ssl.create_default_context(cafile=certificates.ca)
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        found = writer.get_extra_info("peercert")["subject"]
        return str(dict(one[0] for one in found)["commonName"])
    finally:
        writer.close()


async def test_new_connections_get_the_renewed_certificate(certificates: Certificates, tmp_path: Path) -> None:
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def replace(name: str) -> None:
        for source, target in zip(certificates.pair(name), (cert, key), strict=True):
            shutil.copy(source, target)

    for name in ("first", "second"):
        certificates.issue(name, alternative_names="IP:127.0.0.1")
    replace("first")
    used = Certificate(cert, key)
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=used.context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await subject(port, certificates) == "first"
        replace("second")
        used.renew()
        assert await subject(port, certificates) == "second"
        # A key of another certificate, half a file, and none: the last pair stays.
        shutil.copy(certificates.pair("first")[1], key)
        used.renew()
        assert await subject(port, certificates) == "second"
        cert.write_text("-----BEGIN")
        used.renew()
        cert.unlink()
        used.renew()
        assert await subject(port, certificates) == "second"
        replace("first")
        used.renew()
        assert await subject(port, certificates) == "first"


def test_options_that_cannot_be_used(certificates: Certificates, tmp_path: Path) -> None:
    cert, _ = certificates.pair("server")
    assert certificate_of(None, None) is None
    with pytest.raises(UsageError, match="belong together"):
        certificate_of(cert, None)
    with pytest.raises(UsageError, match=r"--tls-key .*none: cannot be read"):
        certificate_of(cert, tmp_path / "none")
    with pytest.raises(UsageError, match=r"--tls-cert .*, --tls-key .*"):
        certificate_of(cert, certificates.pair("client")[1])
