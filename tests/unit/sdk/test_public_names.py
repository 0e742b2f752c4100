"""The names that users import: each is documented, with its methods."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from frameworkcontroller import aio, sdk


def public(value: Any) -> Iterator[tuple[str, Any]]:
    """The object, and the public members that its class defines in the SDK."""
    yield value.__qualname__, value
    if inspect.isclass(value):
        for owner in value.__mro__:
            if owner.__module__.startswith("frameworkcontroller."):
                for name, member in vars(owner).items():
                    function = getattr(member, "__func__", getattr(member, "fget", member))
                    if not name.startswith("_") and inspect.isfunction(function):
                        yield f"{value.__qualname__}.{name}", function


@pytest.mark.parametrize("name", sdk.PLACES)
def test_a_public_name_is_documented(name: str) -> None:
    values = {sdk.find(name)} | ({getattr(aio, name)} if name in sdk.ASYNC else set())
    # A dataclass without a docstring gets its signature.
    assert [
        path
        for value in values
        for path, item in public(value)
        if not item.__doc__ or item.__doc__.startswith(f"{name}(")
    ] == []
