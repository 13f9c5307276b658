"""The page of /metrics: the one owner of every metric of a server, in the API process.

Nothing is kept up to date in between: gauges and the engine's counters are asked for when the page is, histograms and
counts of requests are plain integers written as things happen (`requests`). So no gauge can outlive its cause. Names
carry the suffixes of vLLM's, with our prefix. docs/metrics.md lists them; a test compares it with a live page.
"""

from collections.abc import Iterator, Mapping

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from paceline.engine.client import EngineClient, EngineState
from paceline.observe.engine_families import counter_families, gauge_families
from paceline.observe.engine_reading import EngineReader, EngineReading
from paceline.observe.families import FamilyMaker
from paceline.observe.request_families import count_families, length_families, time_families
from paceline.observe.requests import RequestMetrics

CONTENT_TYPE = CONTENT_TYPE_LATEST
ENGINE_INDEX = "0"


class Metrics:
    """All metrics of one server."""

    def __init__(
        self, client: EngineClient, model_name: str, build: Mapping[str, str], cache: Mapping[str, str]
    ) -> None:
        """`build` and `cache`: facts that travel as labels; sizes of the cache are added once the engine knows them."""
        self.requests = RequestMetrics()
        self._client = client
        self._reader = EngineReader(client)
        self._make = FamilyMaker({"model_name": model_name, "engine": ENGINE_INDEX})
        self._build = build
        self._cache = cache

    async def page(self) -> bytes:
        """Every metric as of now, in Prometheus' text format."""
        registry = CollectorRegistry()
        registry.register(Page(self.families(await self._reader.read())))
        return generate_latest(registry)

    def families(self, reading: EngineReading) -> list[Metric]:
        """The families of one page."""
        make = self._make
        return [
            make.facts("build_info", "What is running.", self._build),
            *self._cache_families(),
            *gauge_families(make, reading),
            *counter_families(make, reading.counters),
            *count_families(make, self.requests),
            *time_families(make, self.requests),
            *length_families(make, self.requests),
        ]

    def _cache_families(self) -> Iterator[Metric]:
        if self._client.state is not EngineState.READY:
            return
        limits = self._client.limits
        sizes = {
            "block_size": str(limits.block_size),
            "num_gpu_blocks": str(limits.pool_tokens // limits.block_size),
        }
        yield self._make.facts("cache_config_info", "The KV cache's sizes and kind.", {**sizes, **self._cache})


class Page(Collector):
    """The families of one page, as a registry wants them."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        """The families."""
        return self._families
