"""Write the blocking shell from the asyncio one: ``nox -s sync``; ``--check`` only compares.

Every module of ``aio/`` has a twin in ``sync/`` that is the same text without ``async`` and
``await``, except the ones in ``BY_HAND``: threads and tasks differ there.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SHELLS = Path(__file__).parent / "src" / "babelqueue_redis"
BY_HAND = {
    *("__init__", "driver", "outbox", "worker", "message_lanes", "lane", "knocking"),
    *("heartbeat", "shutdown", "asking", "job_worker", "job_thread"),
}
SUBSTITUTIONS = (
    (r"\basync (?=def |with |for )", ""),
    (r"\bawait ", ""),
    (r"\bAsync(?=Redis|Job)", ""),
    (r"\b__a(?=enter__|exit__|iter__|next__)", "__"),
    (r"\bbabelqueue_redis\.aio\b", "babelqueue_redis.sync"),
    (r"\bredis\.asyncio\b", "redis"),
)


def twin_of(path: Path) -> Path:
    """Return where the blocking twin of an asyncio module stands."""
    return SHELLS / "sync" / path.name


def blocking(path: Path) -> str:
    """Return the text of the blocking twin of an asyncio module."""
    text = f"# Generated from aio/{path.name} by `nox -s sync`. Edit that file, not this one.\n"
    text += path.read_text("utf-8")
    for pattern, replacement in SUBSTITUTIONS:
        text = re.sub(pattern, replacement, text)
    for command in (("check", "--quiet", "--fix-only", "--select", "I"), ("format", "--quiet")):
        ruff = (sys.executable, "-m", "ruff", *command, "--stdin-filename", str(twin_of(path)), "-")
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main(*, check: bool) -> int:
    """Write every twin, or only compare; return 1 where one is not up to date."""
    stale = []
    for path in sorted((SHELLS / "aio").glob("*.py")):
        twin = twin_of(path)
        if path.stem in BY_HAND or (twin.exists() and twin.read_text("utf-8") == blocking(path)):
            continue
        stale.append(twin.name)
        if not check:
            twin.write_text(blocking(path), "utf-8")
    print(f"{'stale' if check else 'written'}: {', '.join(stale) or 'nothing'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    raise SystemExit(main(check="--check" in sys.argv))
