"""The command ``bq-redis``, of the extra ``babelqueue-redis[cli]``."""

from __future__ import annotations

import importlib.util
import sys


def main() -> None:
    """Run the command; where the extra is not installed, say how to install it."""
    if importlib.util.find_spec("typer") is None or importlib.util.find_spec("rich") is None:
        sys.exit("bq-redis needs the extra: pip install 'babelqueue-redis[cli]'")
    from babelqueue_redis.cli.app import run  # noqa: PLC0415 - the extra may be missing

    run()
