from __future__ import annotations

import ast
import re
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
from opentelemetry.instrumentation.babelqueue.version import __version__

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "babelqueue-carrier",
    "babelqueue-redis",
    "opentelemetry-instrumentation-babelqueue",
)
README = (ROOT / "README.md").read_text()


def commands(text: str) -> list[str]:
    """Return the set-up commands of a text."""
    return re.findall(r"^python3 -m venv .*$", text, re.MULTILINE)


def test_the_readme_has_two_commands_and_ci_runs_the_tests_one_word_for_word() -> None:
    """What a newcomer is told is what is checked."""
    demo, tests = commands(README)
    assert demo.endswith("-s demo")
    assert tests.endswith("-s tests")
    ci = (ROOT / ".ci/run").read_text()
    assert commands(ci) == [tests]
    assert "\n.venv/bin/nox -s demo_node\n" in README
    assert " .venv/bin/nox -s demo_node\n" in ci


def test_the_packages_share_one_version() -> None:
    """Wherever it is written."""
    assert {metadata.version(package) for package in PACKAGES} == {__version__}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_what_it_runs_on_and_brings_its_types(package: str) -> None:
    """A registry shows it, and type checkers look for the marker."""
    about = metadata.metadata(package)
    pythons = re.findall(r"Python :: (3\.\d+)", "\n".join(about.get_all("Classifier", [])))
    assert pythons == ["3.10", "3.11", "3.12", "3.13"]
    assert about["Requires-Python"] == ">=3.10"
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Description"].startswith(f"# {package}\n")
    assert len(list((ROOT / "packages" / package / "src").rglob("py.typed"))) == 1


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_carries_its_licence(package: str) -> None:
    """The same text everywhere."""
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert (ROOT / "packages" / package / "LICENSE").read_text() == text


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of a function's body, its docstring apart."""
    first = function.body[1] if ast.get_docstring(function) and len(function.body) > 1 else None
    start = first or function.body[0]
    return (function.end_lineno or 0) - start.lineno + 1


@pytest.mark.parametrize("package", PACKAGES)
def test_functions_and_modules_stay_small(package: str) -> None:
    """A newcomer finds the room for a change in a minute; beyond 300 and 25 lines look twice."""
    for path in (ROOT / "packages" / package / "src").rglob("*.py"):
        text = path.read_text()
        assert len(text.splitlines()) <= 400, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert code_lines(node) <= 60, f"{path}: {node.name}"


def test_every_dependency_is_justified() -> None:
    """In one line of CONTRIBUTING.md."""
    justified = set(re.findall(r"`([a-z0-9-]+)`", (ROOT / "CONTRIBUTING.md").read_text()))
    for path in [ROOT / "pyproject.toml", *(ROOT / "packages").glob("*/pyproject.toml")]:
        named = set(re.findall(r'"([a-z][a-z0-9-]+)(?:\[[a-z]+\])?[=>]=[^"]*"', path.read_text()))
        assert named - justified - set(PACKAGES) == set(), path


def test_no_machine_is_named() -> None:
    """No paths of a home directory, no addresses of a registry."""
    wanted = re.compile(r"/(?:root|home)/|/work/|pypi\.org|registry\.npmjs|files\.pythonhosted")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.is_file() and path != Path(__file__):
            assert not wanted.search(path.read_text(errors="ignore")), path
