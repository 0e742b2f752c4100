"""Lean imports leave the process as they found it."""

import gc
import os
from contextlib import suppress

import pytest

from frameworkcontroller.cli.startup import lean_imports


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYDANTIC_DISABLE_PLUGINS", "some")
    monkeypatch.setattr(gc, "freeze", lambda: None)


def test_certificates_and_garbage_collector_are_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "mine.pem")
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    with suppress(ImportError), lean_imports():
        assert (os.environ["SSL_CERT_FILE"], os.environ["SSL_CERT_DIR"]) == (os.devnull, os.devnull)
        assert not gc.isenabled()
        raise ImportError
    assert os.environ["SSL_CERT_FILE"] == "mine.pem"
    assert "SSL_CERT_DIR" not in os.environ
    assert gc.isenabled()


def test_a_setting_of_plugins_stays() -> None:
    with lean_imports():
        pass
    assert os.environ["PYDANTIC_DISABLE_PLUGINS"] == "some"
