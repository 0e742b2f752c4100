"""Names of the wire contract (docs/write-a-framework.md#what-is-put-into-a-pod)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.api import names

NAMES = st.from_regex(r"\A[a-z0-9]{1,63}\Z")


def test_the_group() -> None:
    assert names.API_VERSION == "frameworkcontroller.microsoft.com/v1"
    assert (names.KIND, names.PLURAL) == ("Framework", "frameworks")
    assert names.CRD_NAME == "frameworks.frameworkcontroller.microsoft.com"


def test_names_of_objects() -> None:
    assert names.configmap_name("f") == "f-attempt"
    assert names.pod_name("f", "worker", 12) == "f-worker-12"
    assert names.attempt_instance_uid(3, "uid") == "3_uid"


@pytest.mark.parametrize("name", ["a", "0", "abc123", "z" * 63])
def test_valid_names(name: str) -> None:
    assert names.is_valid_name(name)


@pytest.mark.parametrize("name", ["", "A", "a-b", "a.b", "a_b", "z" * 64, "a\n", "\u0663"])
def test_invalid_names(name: str) -> None:
    assert not names.is_valid_name(name)


@given(NAMES, NAMES, st.integers(0, 10_000))
def test_pod_names_split_on_the_dash_into_exactly_three(framework: str, role: str, index: int) -> None:
    name = names.pod_name(framework, role, index)
    assert name.split("-") == [framework, role, str(index)]
    assert names.split_pod_name(name) == (framework, role, index)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "f",
        "f-a",
        "f-a-0-1",
        "f-a-",
        "f-a-x",
        "f-a--1",
        "f-a-01",
        "f-a-1 ",
        "f-a-\u0663",
        "f-a-+1",
        f"f-a-{'1' * 5000}",
    ],
)
def test_other_names_belong_to_no_task(name: str) -> None:
    assert names.split_pod_name(name) is None
