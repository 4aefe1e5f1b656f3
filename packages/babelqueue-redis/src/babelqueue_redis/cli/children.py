"""The processes of a worker, and what becomes of each."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from babelqueue_redis.cli.probe import is_fresh, start_deaf

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
_STABLE = 60.0
"""Seconds after which a process that crashes is started again at once."""


@dataclasses.dataclass
class Child:
    """One place among the processes, and who has it.

    Attributes:
        command: What to start.
        health: The file that it touches while it is healthy.
        say: Tells people.
        due: When it is to be started, by the monotonic clock.
        failures: How many times in a row it crashed soon.
        kill_at: When it has to be gone.
    """

    command: list[str]
    health: Path
    say: Callable[[str], None]
    due: float = 0.0
    failures: int = 0
    kill_at: float | None = None
    killed: bool = False
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0

    def start(self) -> None:
        """Start it, in a session of its own: what a terminal sends, the parent passes on.

        Its standard input is a pipe that nobody writes to. It ends when the parent does.
        """
        self.health.unlink(missing_ok=True)
        self.killed, self.kill_at, self.started = False, None, time.monotonic()
        self.process = subprocess.Popen(  # noqa: S603 - this very command
            [*self.command, "--child", str(self.health)],
            stdin=subprocess.PIPE,
            start_new_session=True,
            env=_environment(),
        )
        self.say(f"process {self.process.pid} started")

    def healthy(self) -> bool:
        """Tell whether it runs and says that it is well."""
        return self.process is not None and is_fresh(self.health)

    def signal(self, patience: float) -> None:
        """Ask it to end; the second time, at once."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            if self.kill_at is None:
                self.kill_at = time.monotonic() + patience

    def ended(self) -> int | None:
        """Return how it ended, once; ``None`` while it goes on. Too late is killed."""
        if self.process is None:
            return None
        code = self.process.poll()
        if code is None:
            if self.kill_at is not None and time.monotonic() >= self.kill_at and not self.killed:
                self.say(f"process {self.process.pid} does not end: it is killed")
                self.process.kill()
                self.killed = True
            return None
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process = None
        return code

    def start_again(self, code: int) -> None:
        """Plan when it is started again after it ended by itself."""
        lasted = time.monotonic() - self.started
        self.failures = 0 if lasted > _STABLE else self.failures + 1
        pause = min(_FIRST_PAUSE * 2 ** (self.failures - 1), _LONGEST_PAUSE) if self.failures else 0
        self.due = time.monotonic() + pause
        self.say(f"a process ended with {_meaning(code)}; the next one starts in {pause:.0f} s")


def end_with_parent() -> None:
    """End this process, a child, when its parent does: then its standard input ends."""
    lifeline = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

    def wait() -> None:
        while os.read(lifeline, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    start_deaf(wait, "babelqueue-lifeline")


def _environment() -> dict[str, str]:
    """Return the environment of a child: ``opentelemetry-instrument`` shall see to it as well.

    It works by a ``sitecustomize`` on the path, and older ones take that off the path again.
    """
    environment = dict(os.environ)
    file = getattr(sys.modules.get("sitecustomize"), "__file__", None)
    if file is not None:
        folder = str(Path(file).parent)
        path = [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]
        if "auto_instrumentation" in folder and folder not in path:
            environment["PYTHONPATH"] = os.pathsep.join([folder, *path])
    return environment


def _meaning(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
