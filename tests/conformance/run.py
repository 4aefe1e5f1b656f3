"""Running cases: which ones, and what came out."""

from __future__ import annotations

from collections.abc import Iterator

from kit.redis_server import NoRedisError
from tests.conformance.sections import CHECKS, Skip
from tests.conformance.suite import Case, cases
from tests.support.server import redis_is_required

NEEDS_REDIS = ("redis", "redis_layout")


def select(names: list[str]) -> Iterator[tuple[str, list[Case]]]:
    """Give the cases of the named sections, or of all that this implementation answers."""
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        msg = f"no section {unknown[0]!r}; there are {', '.join(CHECKS)}"
        raise SystemExit(msg)
    for name in names or CHECKS:
        yield name, list(cases(name))


def verdict_of(case: Case) -> tuple[str, str]:
    """Run a case; return ``pass``, ``skip`` or ``fail``, and why."""
    try:
        CHECKS[case.section](case)
    except Skip as skip:
        return "skip", str(skip)
    except NoRedisError as error:
        return ("fail" if redis_is_required() else "skip"), str(error)
    except Exception as error:  # noqa: BLE001 - a case that raises is a case that fails
        return "fail", f"{type(error).__name__}: {error}"
    return "pass", ""
