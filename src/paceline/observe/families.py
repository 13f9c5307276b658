"""Builds metric families for Prometheus: every one with our prefix, every sample with the labels of this server."""

from collections.abc import Mapping
from itertools import accumulate

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from paceline.core.histogram import HistogramState

PREFIX = "paceline:"

LabelledCounts = Mapping[tuple[str, ...], float]
"""Counts by the values of some labels."""


class FamilyMaker:
    """Makes families whose samples bear `labels` besides their own."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._names = tuple(labels)
        self._values = tuple(labels.values())

    def gauge(self, name: str, text: str, value: float) -> Metric:
        """One value that goes up and down."""
        family = GaugeMetricFamily(PREFIX + name, text, labels=self._names)
        family.add_metric(self._values, value)
        return family

    def gauges(self, name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
        """A value for each value of `label`."""
        family = GaugeMetricFamily(PREFIX + name, text, labels=(*self._names, label))
        for key, value in values.items():
            family.add_metric((*self._values, key), value)
        return family

    def facts(self, name: str, text: str, facts: Mapping[str, str]) -> Metric:
        """Labels that are the message; the value is 1."""
        family = GaugeMetricFamily(PREFIX + name, text, labels=(*self._names, *facts))
        family.add_metric((*self._values, *facts.values()), 1)
        return family

    def counter(self, name: str, text: str, value: float) -> Metric:
        """One value that only grows; its sample is called `name`_total."""
        family = CounterMetricFamily(PREFIX + name, text, labels=self._names)
        family.add_metric(self._values, value)
        return family

    def counters(self, name: str, text: str, labels: tuple[str, ...], values: LabelledCounts) -> Metric:
        """A growing value for each combination of `labels`."""
        family = CounterMetricFamily(PREFIX + name, text, labels=(*self._names, *labels))
        for key, value in values.items():
            family.add_metric((*self._values, *key), value)
        return family

    def histogram(self, name: str, text: str, state: HistogramState) -> Metric:
        """Cumulative buckets, the sum and the count."""
        bounds = [*map(floatToGoString, state.bounds), "+Inf"]
        family = HistogramMetricFamily(PREFIX + name, text, labels=self._names)
        family.add_metric(self._values, list(zip(bounds, accumulate(state.counts), strict=True)), state.total)
        return family
