"""Whether OpenTelemetry is set up in this environment. Nothing of it is imported for that."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata

from babelqueue_redis.cli.checks import OK, WARNING, Check
from babelqueue_redis.cli.output import shown
from babelqueue_redis.cli.session import redacted

_OURS = "opentelemetry-instrumentation-babelqueue"
_TOLD = (
    "OTEL_SERVICE_NAME",
    "OTEL_TRACES_EXPORTER",
    "OTEL_METRICS_EXPORTER",
    "OTEL_LOGS_EXPORTER",
    "OTEL_PROPAGATORS",
    "OTEL_TRACES_SAMPLER",
    "OTEL_TRACES_SAMPLER_ARG",
)
"""Variables whose values hold no secrets."""
_EXPORTERS = ("opentelemetry-exporter-otlp", "opentelemetry-exporter-otlp-proto-http")
_EXPORTERS_GRPC = ("opentelemetry-exporter-otlp-proto-grpc",)


def check_telemetry(environment: Mapping[str, str] = os.environ) -> Iterator[Check]:
    """Look at packages, entry points and variables."""
    yield _packages()
    yield _entry_point()
    yield _switches(environment)
    yield _exporting(environment)
    yield _this_process()


def _packages() -> Check:
    wanted = ("opentelemetry-sdk", "opentelemetry-distro")
    found = {name: _version(name) for name in wanted}
    missing = [name for name, version in found.items() if not version]
    if not any(map(_version, (*_EXPORTERS, *_EXPORTERS_GRPC))):
        missing.append("opentelemetry-exporter-otlp")
    if missing:
        detail = f"{', '.join(missing)} not installed: nothing is recorded or sent"
        return Check("otel packages", WARNING, detail, f"pip install {' '.join(missing)}")
    told = ", ".join(f"{name} {version}" for name, version in found.items())
    return Check("otel packages", OK, told)


def _entry_point() -> Check:
    version = _version(_OURS)
    if not version:
        detail = f"{_OURS} is not installed: traces end at the queue"
        return Check("otel entry point", WARNING, detail, "pip install 'babelqueue-redis[otel]'")
    points = metadata.entry_points(group="opentelemetry_instrumentor")
    if "babelqueue_redis" not in {point.name for point in points}:
        fix = f"install {_OURS} again"
        return Check("otel entry point", WARNING, "babelqueue_redis is no entry point", fix)
    return Check("otel entry point", OK, f"babelqueue_redis, of {_OURS} {version}")


def _switches(environment: Mapping[str, str]) -> Check:
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return Check("otel switches", WARNING, "OTEL_SDK_DISABLED is true", "unset it")
    names = environment.get("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "")
    disabled = {name.strip() for name in names.split(",")}
    off = sorted(disabled & {"babelqueue_redis", "*"})
    if off:
        detail = f"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS names {', '.join(off)}"
        return Check("otel switches", WARNING, detail, "take it out")
    return Check("otel switches", OK, "nothing is switched off")


def _exporting(environment: Mapping[str, str]) -> Check:
    """Tell the variables that are set; of those that may hold a secret, the name only."""
    told = [
        f"{name}={shown(environment[name])}" if name in _TOLD else _quiet(name, environment[name])
        for name in sorted(environment)
        if name.startswith("OTEL_")
    ]
    if "OTEL_SERVICE_NAME" not in environment and "service.name" not in environment.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    ):
        detail = "; ".join(["the service has no name", *told])
        return Check("otel variables", WARNING, detail, "set OTEL_SERVICE_NAME")
    return Check("otel variables", OK, "; ".join(told))


def _quiet(name: str, value: str) -> str:
    return f"{name}={redacted(value)}" if name.endswith("_ENDPOINT") else f"{name} is set"


def _this_process() -> Check:
    site = getattr(sys.modules.get("sitecustomize"), "__file__", None) or ""
    if "auto_instrumentation" in site:
        return Check("otel process", OK, "this command was started by opentelemetry-instrument")
    detail = "this command was not started by opentelemetry-instrument"
    return Check("otel process", OK, f"{detail}; workers have to be, or instrument themselves")


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
