"""An environment and a process for each system: they need different redis-py."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
OURS = (
    *(f"-e{ROOT / 'packages' / name}" for name in ("babelqueue-carrier", "babelqueue-redis")),
    f"-e{ROOT / 'packages' / 'opentelemetry-instrumentation-babelqueue'}",
    "opentelemetry-sdk",
)
SYSTEMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ours": ("ours", OURS),
    "ours with hiredis": ("ours", (*OURS, "hiredis")),
    "sdk": ("sdk", ("babelqueue[otel,redis]==1.24.0", "opentelemetry-sdk")),
    "huey": ("huey_peer", ("huey==3.5.4", "redis", "hiredis")),
    "dramatiq": ("dramatiq_peer", ("dramatiq[redis]==2.2.1", "hiredis")),
    "saq": ("saq_peer", ("saq[redis]==0.26.4", "hiredis", "msgspec", "typing-extensions")),
    "taskiq": ("taskiq_peer", ("taskiq[orjson]==0.13.0", "taskiq-redis==1.2.4", "hiredis")),
}
"""The module of its peer, and what to install."""


class PeerError(RuntimeError):
    """A peer failed, and says how."""


def python_of(system: str, folder: Path) -> Path:
    """Make the environment of a system, unless it is there; return its interpreter."""
    home = folder / system.replace(" ", "-")
    python, made = home / "bin" / "python", home / "installed.json"
    wanted = json.dumps(SYSTEMS[system][1])
    if not made.exists() or made.read_text() != wanted:
        uv = shutil.which("uv")  # faster, where it is there
        venv: list[str | Path] = [uv, "venv", "-q"] if uv else [sys.executable, "-m", "venv"]
        pip: list[str | Path] = [python, "-m", "pip", "install"]
        if uv:
            pip = [uv, "pip", "install", "--python", python]
        subprocess.run([*venv, "--clear", home], check=True)
        subprocess.run([*pip, "-q", *SYSTEMS[system][1]], check=True)
        made.write_text(wanted)
    return python


class Peer:
    """The process of a system. It has the processors that this process has when it is started."""

    def __init__(self, python: Path, system: str, url: str) -> None:
        """Start it."""
        module = f"tests.benchmarks.peers.{SYSTEMS[system][0]}"
        env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
        self._system = system
        self._log = python.parents[1].joinpath("log").open("w+")
        self._process = subprocess.Popen(
            [python, "-m", module, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=ROOT,
            env=env,
        )

    def ask(self, work: str, n: int = 0, **options: Any) -> dict[str, Any]:
        """Let it do a piece of work; return what it measured.

        Raises:
            PeerError: It failed.
        """
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"work": work, "n": n, **options}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": self._said()}
        if "error" in answer:
            msg = f"{self._system} cannot {work}: {answer['error']}"
            raise PeerError(msg)
        return answer

    def _said(self) -> str:
        self._process.wait()
        self._log.seek(0)
        return f"it ended, and said {self._log.read()}"

    def end(self) -> None:
        """End it."""
        self._log.close()
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
