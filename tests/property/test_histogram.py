"""Our histograms are those of prometheus_client, only cheaper."""

import prometheus_client
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from frameworkcontroller.manager.histogram import Histogram

BOUNDS = (0.001, 0.5, 1.0, 5.0)
values = st.sampled_from([0.0, 0.001, 0.0010001, 0.5, 0.75, 1.0, 5.0, 5.5, 1e9]) | st.floats(0, 10)


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), values)))
def test_they_serve_the_same(observed: list[tuple[str, float]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    cheap = Histogram("h_seconds", "Help.", ["name"], buckets=BOUNDS, registry=ours)
    costly = prometheus_client.Histogram("h_seconds", "Help.", ["name"], buckets=BOUNDS, registry=theirs)
    for name, value in observed:
        cheap.labels(name).observe(value)
        costly.labels(name).observe(value)
    expected = [line for line in generate_latest(theirs).decode().splitlines() if "_created" not in line]
    assert generate_latest(ours).decode().splitlines() == expected


def test_without_labels_it_is_there_from_the_start() -> None:
    registry = CollectorRegistry()
    Histogram("h", "Help.", buckets=BOUNDS, registry=registry)
    assert registry.get_sample_value("h_count") == 0
    assert registry.get_sample_value("h_bucket", {"le": "+Inf"}) == 0
