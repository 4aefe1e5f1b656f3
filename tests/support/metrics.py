"""Collected metrics of the process."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Metric


class Metrics:
    """A meter provider whose values can be looked at."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])

    @property
    def all(self) -> dict[str, Metric]:
        """Every metric that has a value, by name."""
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def points(self, name: str) -> list[Any]:
        """The data points of one metric."""
        metric = self.all.get(name)
        return list(metric.data.data_points) if metric else []

    def counts(self, name: str, *keys: str) -> dict[Any, float]:
        """How often something was recorded, or the value, by the values of attributes."""
        found: dict[Any, float] = {}
        for point in self.points(name):
            key = tuple((point.attributes or {}).get(key) for key in keys)
            found[key if len(keys) != 1 else key[0]] = getattr(point, "count", None) or point.value
        return found
