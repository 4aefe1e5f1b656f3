"""The Lua scripts. Each file's header names its KEYS, its ARGV and its reply."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any

from babelqueue_redis.core.command import Script


def _load(name: str) -> Script:
    source = resources.files(__name__).joinpath(f"{name}.lua").read_bytes()
    return Script.of(name, source)


EXTEND = _load("extend")
LEGACY_ADOPT = _load("legacy_adopt")
LEGACY_RESERVE = _load("legacy_reserve")
LEGACY_STUCK = _load("legacy_stuck")
LEGACY_SETTLE = _load("legacy_settle")
LEGACY_SWEEP = _load("legacy_sweep")
ZSET_PUBLISH = _load("zset_publish")
ZSET_MIGRATE = _load("zset_migrate")
ZSET_RESERVE = _load("zset_reserve")
ZSET_SETTLE = _load("zset_settle")
ZSET_RELEASE = _load("zset_release")
LEGACY_COUNTS = _load("legacy_counts")
ZSET_COUNTS = _load("zset_counts")
PURGE = _load("purge")
REDRIVE = _load("redrive")
JOBS_CANCEL = _load("jobs_cancel")
JOBS_CLAIM = _load("jobs_claim")
JOBS_COUNT = _load("jobs_count")
JOBS_ENQUEUE = _load("jobs_enqueue")
JOBS_EXTEND = _load("jobs_extend")
JOBS_LIST_KIND = _load("jobs_list_kind")
JOBS_LIST_STATUS = _load("jobs_list_status")
JOBS_PURGE = _load("jobs_purge")
JOBS_REAP = _load("jobs_reap")
JOBS_REINDEX = _load("jobs_reindex")
JOBS_RELEASE = _load("jobs_release")
JOBS_RETRY = _load("jobs_retry")
JOBS_SETTLE = _load("jobs_settle")

_BY_SHA = {made.sha: made for made in tuple(globals().values()) if isinstance(made, Script)}


def to_load(packed: Sequence[tuple[Any, ...]], loaded: set[bytes]) -> list[tuple[Any, ...]]:
    """Return the commands that load the scripts which ``packed`` call, and note them as loaded.

    Args:
        packed: What is about to be sent.
        loaded: The SHA-1 of each script that needs no loading any more.
    """
    called = {command[1] for command in packed if command[0] == "EVALSHA"} - loaded
    loaded |= called
    return [("SCRIPT", "LOAD", _BY_SHA[sha].source) for sha in called if sha in _BY_SHA]
