from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from babelqueue_carrier.frame import unframe

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/demo.py"))
NODE = EXAMPLES / "node_python" / "node"
needs_node = pytest.mark.skipif(
    not (shutil.which("node") and shutil.which("npm")), reason="node and npm are not on the PATH"
)
MARKS = {
    "fastapi_worker": pytest.mark.skipif(
        importlib.util.find_spec("fastapi") is None,
        reason="fastapi is not installed; nox -s demo_fastapi runs this example",
    ),
    "node_python": needs_node,
}


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(redis_url: str, tmp_path: Path) -> Run:
    """Run an example as its README says, with pages in the test's own folder."""
    env = {
        **os.environ,
        "PYTHONPATH": str(EXAMPLES),
        "BABELQUEUE_REDIS_URL": redis_url,
        "RESULTS": str(tmp_path),
    }

    def run(name: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(EXAMPLES / name / "demo.py"), *arguments],
            env={**env, **variables},
            check=False,
            capture_output=True,
            text=True,
            timeout=110,
        )

    return run


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in NAMES])
def test_an_example_runs_and_its_readme_has_a_command(name: str, run: Run, tmp_path: Path) -> None:
    """It checks its own traces, says what is wrong with them, and writes the pages it names."""
    readme = (EXAMPLES / name / "README.md").read_text()
    assert ".venv/bin/nox -s demo" in readme
    done = run(name)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = set(re.findall(r"results/([\w-]+\.html)", readme))
    assert {path.name for path in tmp_path.iterdir()} == pages


@needs_node
def test_a_trace_that_does_not_go_on_between_node_and_python_fails_the_demo(run: Run) -> None:
    """Without headers, deliveries have parents, but the wrong ones."""
    done = run("node_python", "--layout", "legacy", OTEL_PROPAGATORS="none")
    assert done.returncode == 1
    for service in ("stock", "billing", "shipping"):
        assert f"wrong: {service}: process" in done.stdout


def test_without_node_the_demo_says_where_to_get_it(run: Run) -> None:
    """And ends."""
    done = run("node_python", PATH="")
    assert done.returncode == 1
    assert "needs Node 20 or newer" in done.stderr
    assert "Traceback" not in done.stderr


def test_python_stands_in_where_there_is_no_php(run: Run) -> None:
    """With the same receipts in the same traces."""
    done = run("laravel_shared", PATH="")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Python stands in" in done.stdout
    assert "Python has a receipt from python: urn:shop:order:reminder" in done.stdout


@needs_node
def test_node_reads_and_writes_the_golden_frame() -> None:
    """Byte for byte what Python reads and writes."""
    script = """
    const { frame, unframe } = require("./babelqueue/envelope");
    const stored = require("node:fs").readFileSync(0, "utf8");
    const { body, headers } = unframe(stored);
    process.stdout.write(JSON.stringify([body, headers, frame(body, headers) === stored]));
    """
    stored = (EXAMPLES.parent / "tests" / "golden" / "frame.json").read_bytes()
    told = subprocess.run(
        [str(shutil.which("node")), "-e", script],
        cwd=NODE,
        input=stored,
        check=True,
        capture_output=True,
    )
    body, headers = unframe(stored)
    assert json.loads(told.stdout) == [body.decode(), headers, True]


def test_the_lock_file_pins_everything_and_holds_no_address() -> None:
    """Whatever registry is configured serves the demo, and serves what was tested."""
    text = (NODE / "package-lock.json").read_text()
    assert "://" not in text
    packages = json.loads(text)["packages"]
    assert all("integrity" in package for path, package in packages.items() if path)
    assert all(version[0].isdigit() for version in packages[""]["dependencies"].values())
