"""Settings for every test: how hypothesis searches."""

import os

from hypothesis import HealthCheck, settings

# "ci" finds the same examples on every run, so that a red run is red again; "dev" searches elsewhere each time.
settings.register_profile(
    "ci", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("dev", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
