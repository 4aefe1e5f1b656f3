"""Marks for a module or a test that is asked twice, whichever fixtures take it there."""

from __future__ import annotations

import pytest

BOTH = {"layout": ("legacy", "zset"), "kind": ("sync", "aio")}
"""A fixture that a mark ``both`` names, and the two values that it then takes in turn."""

both_layouts = pytest.mark.both("layout")
both_shells = pytest.mark.both("kind")
