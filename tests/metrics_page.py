"""Reads a /metrics page as Prometheus does."""

from collections.abc import Iterable
from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families

from running_server import RunningServer

PREFIX = "paceline:"
COMMON_LABELS = {"model_name", "engine"}
METRIC_PARTS = ("_bucket", "_sum", "_count", "_total")


@dataclass(frozen=True)
class Family:
    """A metric as the page declares it."""

    kind: str
    labels: frozenset[str]


class MetricsPage:
    """Samples by name and labels; names without our prefix."""

    def __init__(self, text: str) -> None:
        self._samples: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
        self.families: dict[str, Family] = {}
        for family in text_string_to_metric_families(text):
            labels: set[str] = set()
            for sample in family.samples:
                assert sample.labels.keys() >= COMMON_LABELS, sample
                own = {key: value for key, value in sample.labels.items() if key not in COMMON_LABELS}
                labels |= own.keys() - {"le"}
                key = tuple(sorted(own.items()))
                name = sample.name.removeprefix(PREFIX)
                assert key not in self._samples.setdefault(name, {}), f"{sample} comes twice"
                self._samples[name][key] = sample.value
            self.families[family.name] = Family(family.type, frozenset(labels))

    def value(self, name: str, **labels: str) -> float:
        """One sample; 0 for a labelled one that has not been seen."""
        if labels:
            return self._samples.get(name, {}).get(tuple(sorted(labels.items())), 0.0)
        return self._samples[name][()]

    def by(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """The samples of a name that are not 0, by the values of these labels."""
        samples = self._samples.get(name, {})
        return {tuple(dict(key)[label] for label in labels): value for key, value in samples.items() if value}

    def names(self) -> Iterable[str]:
        """Names of samples, with the prefix."""
        return {PREFIX + name for name in self._samples}


def scrape(server: RunningServer, within_s: float = 5.0) -> MetricsPage:
    """The page now."""
    response = httpx.get(f"{server.url.removesuffix('/v1')}/metrics", timeout=within_s)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    return MetricsPage(response.text)
