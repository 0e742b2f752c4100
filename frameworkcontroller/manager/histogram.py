"""Histograms for hot paths: an observation costs two additions and a binary search, and takes no lock.

Those of prometheus_client may be used by many threads at once, which ours never are, and cost some ten times more: a
sync observes several, and there may be thousands of syncs a second.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class Observations:
    """How often values were below which bound, and their sum. Belongs to one thread."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value; one that equals a bound is below it."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        """Become a time series of ``family``."""
        bounds = [*map(floatToGoString, self._bounds), "+Inf"]
        buckets = list(zip(bounds, map(float, accumulate(self._counts)), strict=True))
        family.add_metric(labels, buckets, self._sum)


class Histogram(Collector):
    """A family of histograms: one for each combination of label values that was ever asked for."""

    def __init__(
        self,
        name: str,
        documentation: str,
        labelnames: Sequence[str] = (),
        *,
        buckets: Sequence[float],
        registry: CollectorRegistry,
    ) -> None:
        """``buckets``: upper bounds, ascending, without infinity. Without labels there is one from the start."""
        self._name = name
        self._documentation = documentation
        self._labelnames = tuple(labelnames)
        self._buckets = buckets
        self._children: dict[tuple[str, ...], Observations] = {}
        if not labelnames:
            self.labels()
        registry.register(self)

    def labels(self, *values: str) -> Observations:
        """The histogram of these label values. To be asked for once and kept."""
        child = self._children.get(values)
        if child is None:
            child = self._children[values] = Observations(self._buckets)
        return child

    def collect(self) -> Iterator[Metric]:
        """All of them, as they are now."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=self._labelnames)
        for values, child in self._children.items():
            child.add_to(family, values)
        yield family
