from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
FOLDERS = sorted(path for path in EXAMPLES.iterdir() if path.is_dir() and path.name != "kit")


@pytest.mark.parametrize("folder", [f for f in FOLDERS if not f.name.startswith("_")], ids=str)
def test_an_example_runs_and_its_readme_has_a_command(folder: Path, redis_url: str) -> None:
    """It checks its own traces, and says what is wrong with them."""
    assert "```" in (folder / "README.md").read_text()
    env = {**os.environ, "PYTHONPATH": str(EXAMPLES), "BABELQUEUE_REDIS_URL": redis_url}
    done = subprocess.run(
        [sys.executable, str(folder / "demo.py")],
        env=env,
        check=False,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
