"""The asyncio shell is the blocking one with ``await`` in it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import babelqueue_redis

HERE = Path(babelqueue_redis.__file__).parent
MIRRORED = (
    *("publisher", "consumer", "settler", "feed", "redis_worker"),
    *("seen_store", "queue", "job_store"),
)
"""Not mirrored, by name: driver, outbox, lane, worker, message_lanes, knocking, heartbeat,
shutdown and job_worker."""

NAMES = [
    (r"\bAsync(?=Redis)", ""),
    (r"\b__a(?=enter__|exit__)", "__"),
    (r"\bbabelqueue_redis\.aio\b", "babelqueue_redis.sync"),
    (r"\bredis\.asyncio\b", "redis"),
]


class Plain(ast.NodeTransformer):
    """Drops ``async`` and ``await``."""

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        """Make it a function."""
        self.generic_visit(node)
        return ast.FunctionDef(**{field: getattr(node, field) for field in node._fields})

    def visit_AsyncWith(self, node: ast.AsyncWith) -> Any:
        """Make it a ``with``."""
        self.generic_visit(node)
        return ast.With(**{field: getattr(node, field) for field in node._fields})

    def visit_Await(self, node: ast.Await) -> Any:
        """Make it what it awaits."""
        return self.visit(node.value)


def plain(path: Path) -> list[str]:
    """Return the statements of a module, as a blocking one has them, imports in order."""
    source = path.read_text()
    for pattern, replacement in NAMES:
        source = re.sub(pattern, replacement, source)
    tree = Plain().visit(ast.parse(source))
    dumped = [ast.unparse(ast.fix_missing_locations(node)) for node in tree.body]
    imports = [line for line in dumped if line.startswith(("from ", "import "))]
    return [*sorted(imports), *(line for line in dumped if line not in imports)]


@pytest.mark.parametrize("name", MIRRORED)
def test_the_shells_mirror_each_other(name: str) -> None:
    """A change in one of them is a change in both, docstrings included."""
    blocking, asynchronous = HERE / "sync" / f"{name}.py", HERE / "aio" / f"{name}.py"
    assert plain(asynchronous) == plain(blocking)
    assert "await " in asynchronous.read_text()
    assert "await " not in blocking.read_text()
