"""A function that trains, in a module that the Tasks can import: they have no Airflow."""

import time
from pathlib import Path
from typing import Any


def train(day: str, rate: float = 0.5, until: str | None = None) -> dict[str, Any]:
    """Print the day, and fail if the rate is negative. ``until``: a file to wait for."""
    print(f"trains {day}")
    while until is not None and not Path(until).exists():
        time.sleep(0.05)
    if rate < 0:
        raise ValueError("the rate is negative")
    return {"day": day, "rate": rate}
