from __future__ import annotations

import json

import jsonschema
import pytest

from tests.conformance.run import SECTIONS, results, select, verdict_of
from tests.conformance.suite import Case, SuiteUnavailableError, cases, fixture, manifest
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
        assert str(case) == "encode_reject/reject-repeated-key"
        pytest.skip(reason)
    assert status == "pass", reason


def test_results_are_what_the_suite_prescribes() -> None:
    """The file that ``nox -s conformance`` writes follows the suite's own schema."""
    found = list(cases("redis_delay"))
    document = results({case: verdict_of(case) for case in found})
    schema = json.loads(fixture("schema/results.schema.json"))
    jsonschema.validate(document, schema, format_checker=jsonschema.FormatChecker())
    assert document["sections"]["redis_delay"] == {case.id: {"status": "pass"} for case in found}


def test_the_suite_is_asked_whole() -> None:
    """Of the sections of our scope, so many cases; typed handlers stand for payload schemas."""
    sections = manifest()["sections"]
    ours = {name for name, about in sections.items() if about["scope"] in {"core", "redis", "otel"}}
    assert ours - set(SECTIONS) == {"payload_schema", "payload_schema_unicode"}
    assert sum(len(cases) for _, cases in select([])) == 337
