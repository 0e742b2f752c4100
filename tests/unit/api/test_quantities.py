"""Quantities of resources: exact for any input, and in the canonical form of an API server."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.api.quantities import Amounts, format_quantity, parse_quantity, pod_requests

UNITS = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{unit: Fraction(1000**power) for power, unit in enumerate(("", "k", "M", "G", "T", "P", "E"))},
    **{unit: Fraction(1024**power) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}
NUMBERS = st.from_regex(r"\A[0-9]{1,19}(\.[0-9]{1,12})?\Z") | st.from_regex(r"\A\.[0-9]{1,12}\Z")


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1", "1"),
        ("1.5", "1500m"),
        ("500m", "500m"),
        ("1000m", "1"),
        ("2Gi", "2Gi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1k", "1k"),
        ("1e3", "1k"),
        ("0", "0"),
        ("100u", "100u"),
        ("0.1m", "100u"),
        ("1n", "1n"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("1.0000000001", "1000000001n"),
        ("9223372036854775807", "9223372036854775807"),
        ("100Ei", "9223372036854775807"),
        ("1e9999", "9223372036854775807"),
        ("-1e9999", "-9223372036854775807"),
        ("1e-9999", "1n"),
    ],
)
def test_the_canonical_form(text: str, canonical: str) -> None:
    assert format_quantity(parse_quantity(text), text) == canonical


def test_any_amount_can_be_formatted() -> None:
    total = Amounts()
    total.add(Amounts.of({"cpu": "1e9999"}), 10_000)
    assert total.formatted() == {"cpu": f"{(2**63 - 1) * 10}k"}


def test_the_units_of_another_quantity() -> None:
    assert format_quantity(parse_quantity("2Gi")) == "2147483648"
    assert format_quantity(parse_quantity("2147483648"), "4Gi") == "2Gi"


@pytest.mark.parametrize("text", ["", "x", "1X", "1 Gi x", "--1", None, "1e", "1e99999", "1" * 257])
def test_invalid_quantities(text: Any) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        parse_quantity(text)


@given(NUMBERS, st.sampled_from(sorted(UNITS)))
def test_parsing_is_exact_to_a_billionth_and_rounds_up(number: str, unit: str) -> None:
    exact = Fraction(number) * UNITS[unit] * 10**9
    assert Fraction(parse_quantity(number + unit)) * 10**9 == min(math.ceil(exact), (2**63 - 1) * 10**9)
    assert parse_quantity(f"-{number}{unit}") == -parse_quantity(number + unit)


@given(NUMBERS, st.sampled_from(sorted(UNITS)))
def test_a_formatted_amount_is_the_same_amount_in_its_shortest_form(number: str, unit: str) -> None:
    amount = parse_quantity(number + unit)
    text = format_quantity(amount, unit)
    assert parse_quantity(text) == amount
    assert format_quantity(parse_quantity(text), text) == text
    assert "." not in text


@given(st.lists(st.tuples(NUMBERS, st.sampled_from(sorted(UNITS))), min_size=1, max_size=5), st.integers(1, 10_000))
def test_a_sum_is_exact(terms: list[tuple[str, str]], times: int) -> None:
    total = Amounts()
    for number, unit in terms:
        total.add(Amounts.of({"cpu": number + unit}), times)
    exact = sum(Fraction(parse_quantity(number + unit)) for number, unit in terms) * times
    assert Fraction(total.by_name["cpu"]) == exact
    assert parse_quantity(total.formatted()["cpu"]) == min(exact, 2**63 - 1)


def container(requests: Any = None, limits: Any = None, **fields: Any) -> dict[str, Any]:
    return {"resources": {"requests": requests, "limits": limits}, **fields}


@pytest.mark.parametrize(
    ("spec", "requests"),
    [
        (None, {}),
        ({"containers": None}, {}),
        ({"containers": [container({"cpu": "100m"}), container({"cpu": 1})]}, {"cpu": "1100m"}),
        ({"containers": [container(limits={"gpu": 1}), container({"cpu": "1"}, {"cpu": 2})]}, {"cpu": "1", "gpu": "1"}),
        # An init container runs before the others.
        ({"containers": [container({"cpu": 2})], "initContainers": [container({"cpu": 1})]}, {"cpu": "2"}),
        ({"containers": [container({"cpu": 2})], "initContainers": [container({"cpu": 3})]}, {"cpu": "3"}),
        # A sidecar runs with the containers, and with the init containers after it.
        (
            {
                "containers": [container({"cpu": 1})],
                "initContainers": [container({"cpu": 3}), container({"cpu": 1}, restartPolicy="Always")],
            },
            {"cpu": "3"},
        ),
        (
            {
                "containers": [container({"cpu": 1})],
                "initContainers": [container({"cpu": 1}, restartPolicy="Always"), container({"cpu": 3})],
            },
            {"cpu": "4"},
        ),
        ({"containers": [container({"cpu": 1, "gpu": 1})], **container({"cpu": 4})}, {"cpu": "4", "gpu": "1"}),
        ({"containers": [container({"memory": "1Gi"})], "overhead": {"memory": "128Mi"}}, {"memory": "1152Mi"}),
        # The API server refuses such a Pod.
        ({"containers": [container({"cpu": "much", "memory": "1"}), 7]}, {"memory": "1"}),
        ({"containers": [{"resources": []}, {"resources": {"requests": [1]}}]}, {}),
    ],
)
def test_the_requests_of_a_pod(spec: Any, requests: dict[str, str]) -> None:
    assert pod_requests(spec).formatted() == requests


def test_an_amount_is_a_decimal() -> None:
    assert parse_quantity(1.5) == Decimal("1.5")


requests = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["1", "-2", "3k", "4Mi", "1500m"]), max_size=3)
init_containers = st.lists(
    st.builds(lambda needs, kind: container(needs, restartPolicy=kind), requests, st.sampled_from(["Always", None]))
)


@given(init_containers)
def test_an_init_container_runs_with_the_sidecars_before_it(containers: list[dict[str, Any]]) -> None:
    sidecars, most = Amounts(), Amounts()
    for one in containers:
        beside = Amounts.of(one["resources"]["requests"])
        if one["restartPolicy"] == "Always":
            sidecars.add(beside)
            beside = Amounts()
        beside.add(sidecars)
        most.raise_to(beside)
    total = Amounts()
    total.add(sidecars)
    total.raise_to(most)
    assert pod_requests({"initContainers": containers}).formatted() == total.formatted()
