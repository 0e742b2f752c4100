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


def test_the_garbage_collector_is_as_before() -> None:
    with suppress(ImportError), lean_imports():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()


def test_a_setting_of_plugins_stays() -> None:
    with lean_imports():
        pass
    assert os.environ["PYDANTIC_DISABLE_PLUGINS"] == "some"
