"""Every promise is asked of both layouts and both shells."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["legacy", "zset"])
def layout(request: pytest.FixtureRequest) -> str:
    """Both layouts."""
    return str(request.param)


@pytest.fixture(params=["sync", "aio"])
def kind(request: pytest.FixtureRequest) -> str:
    """Both shells."""
    return str(request.param)
