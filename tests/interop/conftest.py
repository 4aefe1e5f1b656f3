"""Who the peers are."""

from __future__ import annotations

import pytest

from tests.interop.laravel.peers import laravel_version


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which Laravel the tests spoke to."""
    found = laravel_version()
    spoken = f"real Laravel ({found}) and" if found else "no real Laravel here, only"
    terminalreporter.write_line(f"interop: {spoken} the stand-in of our own")
