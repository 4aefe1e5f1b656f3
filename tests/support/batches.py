"""How large the batches of the tests' consumers are, where a test does not say."""

from __future__ import annotations

import os

_GIVEN = os.environ.get("BQ_PREFETCH", "auto")
PREFETCH: int | str = int(_GIVEN) if _GIVEN.isdecimal() else _GIVEN
"""``nox -s chaos`` asks three of them."""
