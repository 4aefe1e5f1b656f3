from __future__ import annotations

import pytest

from tests.conformance.run import select, verdict_of
from tests.conformance.sections import CHECKS
from tests.conformance.suite import Case, SuiteUnavailableError, manifest
from tests.support.server import redis_is_required


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per case of the suite."""
    if "case" not in metafunc.fixturenames:
        return
    try:
        found: list[Case] = [case for _, cases in select([]) for case in cases]
    except SuiteUnavailableError as error:
        if redis_is_required():
            raise
        metafunc.parametrize("case", [pytest.param(None, marks=pytest.mark.skip(str(error)))])
        return
    metafunc.parametrize("case", found, ids=str)


def test_a_case_of_the_public_suite_passes(case: Case) -> None:
    """What the suite of all SDKs asks holds here."""
    status, reason = verdict_of(case)
    if status == "skip":
        pytest.skip(reason)
    assert status == "pass", reason


def test_the_suite_is_asked_whole() -> None:
    """Of the sections of our scope, so many cases; what is not built yet is named here."""
    sections = manifest()["sections"]
    ours = {name for name, about in sections.items() if about["scope"] in {"core", "redis", "otel"}}
    missing = ours - set(CHECKS)
    assert missing == {
        "idempotency",
        "payload_schema",
        "payload_schema_unicode",
    }
    assert sum(len(cases) for _, cases in select([])) == 330
