"""Settings for every test: how hypothesis searches, and which event loop a test runs on."""

import asyncio
import os
from collections.abc import Callable, Mapping

import pytest
from hypothesis import HealthCheck, settings

from tests.support.virtual_clock import VirtualClockLoop

# "ci" finds the same examples on every run, so that a red run is red again; "dev" searches elsewhere each time.
settings.register_profile(
    "ci", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("dev", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Virtual time for the tests that ask for it, by mark or by fixture."""
    if item.get_closest_marker("virtual_clock") or "clock" in getattr(item, "fixturenames", ()):
        return {"virtual": VirtualClockLoop}
    return {"real": asyncio.new_event_loop}


@pytest.fixture
async def clock() -> VirtualClockLoop:
    """The virtual-time loop that the test runs on."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualClockLoop)
    return loop
