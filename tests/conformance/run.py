"""Running cases: which ones, and what came out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from importlib.metadata import version
from typing import Any

from kit.redis_server import NoRedisError
from tests.conformance.sections import CHECKS, SHELL_CHECKS, Skip
from tests.conformance.suite import VERSION, Case, cases
from tests.support.server import redis_is_required

SECTIONS = (*CHECKS, *SHELL_CHECKS)
SHELLS = ("sync", "aio")


def select(names: list[str]) -> Iterator[tuple[str, list[Case]]]:
    """Give the cases of the named sections, or of all that this implementation answers."""
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        msg = f"no section {unknown[0]!r}; there are {', '.join(SECTIONS)}"
        raise SystemExit(msg)
    for name in names or SECTIONS:
        yield name, list(cases(name))


def verdict_of(case: Case) -> tuple[str, str]:
    """Run a case, through both shells where it goes to Redis.

    Returns:
        ``pass``, ``skip`` or ``fail``, and why.
    """
    try:
        if case.section in CHECKS:
            CHECKS[case.section](case)
        else:
            for shell in SHELLS:
                SHELL_CHECKS[case.section](case, shell)
    except Skip as skip:
        return "skip", str(skip)
    except NoRedisError as error:
        return ("fail" if redis_is_required() else "skip"), str(error)
    except Exception as error:  # noqa: BLE001 - a case that raises is a case that fails
        return "fail", f"{type(error).__name__}: {error}"
    return "pass", ""


def results(verdicts: dict[Case, tuple[str, str]]) -> dict[str, Any]:
    """Return what the suite's results format says of a run."""
    sections: dict[str, dict[str, Any]] = {}
    for case, (status, reason) in verdicts.items():
        entry = {"status": status, "reason": reason} if reason else {"status": status}
        sections.setdefault(case.section, {})[case.id] = entry
    return {
        "sdk": "babelqueue-redis",
        "version": version("babelqueue-redis"),
        "conformance_version": VERSION,
        "generated_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "bindings": ["redis", "otel"],
        "sections": sections,
    }
