"""The command, called in this process or started as another one."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from babelqueue_redis.cli.app import app


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a call of the command came to."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Its one JSON document."""
        return json.loads(self.out)


Cli = Callable[..., Answer]
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def cli(redis_url: str) -> Cli:
    """Call the command with the tests' Redis."""

    def call(*words: str, url: str = redis_url, input: str | bytes | None = None) -> Answer:  # noqa: A002 - CliRunner's name
        env = {"BABELQUEUE_REDIS_URL": url, "COLUMNS": "80"}
        result = CliRunner(env=env).invoke(app, list(words), input=input)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    return call


@pytest.fixture
def start(redis_url: str, tmp_path: Path) -> Iterator[Start]:
    """Start the command in a folder of its own; end what does not end by itself."""
    started: list[subprocess.Popen[bytes]] = []

    def make(*words: str, tool: tuple[str, ...] = (), **env: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [*tool, sys.executable, "-m", "babelqueue_redis", *words],
            cwd=tmp_path,
            env={**os.environ, "BABELQUEUE_REDIS_URL": redis_url, "COLUMNS": "80", **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append(process)
        return process

    yield make
    for process in started:
        process.kill()
        process.communicate()
