"""What is measured, with whom it is compared, and what is to be reached."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.bench_contenders import Contender, Measure


def _ours(work: str = "consume", note: str = "", n: int = 0, **options: Any) -> Contender:
    return Contender("ours", work, options, note, n)


def _sdk(work: str = "consume", note: str = "", n: int = 0, **options: Any) -> Contender:
    return Contender("sdk", work, options, note, n)


def _fast(work: str = "consume", **options: Any) -> Contender:
    return Contender("ours with hiredis", work, options)


DRAMATIQ = Contender("dramatiq", "consume", n=500)
SAQ_TASKS = Contender("saq", "publish", {"tasks": 100}, n=300)
SAQ_CONSUME = Contender("saq", "consume", n=300)
ZSET: dict[str, Any] = {"layout": "zset"}
_SPEED = (
    Measure(
        "publish",
        "publish one",
        500,
        (
            _ours("publish"),
            _fast("publish"),
            _sdk("publish"),
            Contender("huey", "publish"),
            Contender("dramatiq", "publish"),
            Contender("saq", "publish", n=200),
        ),
        {"sdk": (1.7, 2.3), "huey": (1.3, 1.8)},
        charted=True,
    ),
    Measure(
        "publish_many",
        "publish a hundred at once",
        5000,
        (_ours("publish_many"), _sdk("publish", n=500)),
        {"sdk": (12, 20)},
        charted=True,
    ),
    Measure(
        "publish_tasks",
        "publish from a hundred tasks",
        5000,
        (_ours("publish_tasks"), SAQ_TASKS),
    ),
    Measure(
        "consume_1",
        "consume one at a time (prefetch=1)",
        500,
        (
            _ours(prefetch=1),
            Contender("ours with hiredis", "consume", {"prefetch": 1}),
            _sdk(n=200),
            DRAMATIQ,
        ),
        {"sdk": (4, 5), "dramatiq": (1.4, 2)},
        charted=True,
    ),
    Measure(
        "consume",
        "consume with the defaults",
        4000,
        (_ours(), _fast(), _ours(note="prefetch=100", prefetch=100), _sdk(n=200), DRAMATIQ),
        {"sdk": (25, 35), "dramatiq": (9, 12)},
        charted=True,
    ),
    Measure(
        "zset_publish",
        "publish one, zset",
        500,
        (_ours("publish", **ZSET), _sdk("publish", **ZSET)),
    ),
    Measure(
        "zset_publish_many",
        "publish a hundred at once, zset",
        5000,
        (_ours("publish_many", **ZSET), _sdk("publish", n=500, **ZSET)),
    ),
    Measure(
        "zset_1",
        "consume one at a time, zset",
        500,
        (_ours(prefetch=1, **ZSET), _sdk(n=200, **ZSET)),
        {"sdk": (4, 5)},
    ),
    Measure("zset", "consume with the defaults, zset", 4000, (_ours(**ZSET), _sdk(n=200, **ZSET))),
    Measure(
        "asyncio",
        "consume in asyncio, a hundred at a time",
        4000,
        (
            _ours("consume_async", prefetch=100, concurrency=100),
            _ours("consume_async", note="defaults"),
            SAQ_CONSUME,
            Contender("taskiq", "consume", n=200),
        ),
        {"saq": (10, 15), "taskiq": (10, 15)},
        charted=True,
    ),
    Measure(
        "traced",
        "consume one at a time, traced",
        400,
        (
            _ours(traced=True, prefetch=1),
            _sdk(note="its helper", n=200, traced=True),
            _sdk(note="not traced", n=200),
        ),
        {"sdk, its helper": (1, 3.5), "sdk, not traced": (1, 1)},
        charted=True,
    ),
    Measure(
        "jobs_enqueue",
        "jobs: enqueue",
        400,
        (
            _ours("enqueue"),
            Contender("saq", "publish", n=200),
        ),
        {"saq": (2, 2)},
    ),
    Measure(
        "jobs_run",
        "jobs: claim and complete",
        200,
        (_ours("run_jobs"), Contender("saq", "run_jobs", n=100)),
        {"saq": (3, 3)},
    ),
    Measure(
        "jobs_enqueue_many",
        "jobs: enqueue a hundred at once",
        2000,
        (_ours("enqueue_many"), SAQ_TASKS),
        {"saq": (10, 10)},
    ),
    Measure(
        "jobs_run_many",
        "jobs: claim and complete a hundred at once",
        1000,
        (_ours("run_jobs", batch=100), SAQ_CONSUME),
        {"saq": (10, 10)},
    ),
)
_SIZES = tuple(
    Measure(
        f"size_{work}_{name}",
        f"{work} {name}",
        n,
        (_ours(work, size=size), _sdk(work, size=size)),
        rounds=rounds,
        both=False,
    )
    for name, size, n, rounds in (
        ("0.2kB", 0, 200, 15),
        ("10kB", 10_000, 100, 8),
        ("1MB", 1_000_000, 4, 3),
    )
    for work in ("publish", "consume")
)
_COST = (
    Measure(
        "depth",
        "consume one at a time from a long queue",
        500,
        tuple(
            _ours("deep", note=f"{waiting:,} wait".replace(",", " "), waiting=waiting, prefetch=1)
            for waiting in (1_000_000, 100_000, 1_000)
        ),
        {"ours, 1 000 wait": (1 / 1.1, 1)},
        rounds=10,
        both=False,
    ),
    Measure(
        "stuck",
        "consume one at a time behind 100 000 stuck ones",
        500,
        (
            _ours("deep", note="100 000 stuck", stuck=100_000, prefetch=1),
            _ours("deep", note="none stuck", prefetch=1),
        ),
        {"ours, none stuck": (1 / 1.1, 1)},
        rounds=8,
        both=False,
    ),
    Measure(
        "consumers",
        "consume from one queue with several processes",
        4000,
        tuple(_ours("shared", note=f"{k} of them", workers=k) for k in (1, 2, 4)),
        rounds=3,
    ),
    Measure(
        "latency",
        "idle latency, median",
        10,
        (
            _ours("latency"),
            _ours("latency", note="zset", **ZSET),
            _sdk("latency"),
            _sdk("latency", note="zset", **ZSET),
        ),
        unit="ms",
        most=2,
        rounds=2,
        both=False,
    ),
    Measure(
        "memory",
        "memory of a worker",
        2000,
        (_ours("memory"),),
        unit="MiB",
        rounds=1,
        both=False,
    ),
    Measure(
        "expiring",
        "script call that brings back some of 30 000 reservations, mean",
        30_000,
        (_ours("expiring"),),
        unit="ms",
        most=5,
        rounds=5,
        both=False,
    ),
)
MEASURES = {measure.name: measure for measure in (*_SPEED, *_SIZES, *_COST)}
