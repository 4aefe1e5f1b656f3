"""How others learn whether a worker is healthy: a file, or HTTP."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from babelqueue_redis.errors import ConfigurationError

TOUCHED_EVERY = 1.0
"""Seconds between two touches of a health file."""
FRESH = 5.0
"""Seconds after its last touch during which a child's file counts."""
_SLOWEST = 5.0
"""Seconds that a client of the probe may take."""


@contextlib.contextmanager
def touched(healthy: Callable[[], bool], file: Path) -> Iterator[None]:
    """Touch a file every second while ``healthy()``; remove it in the end."""
    over = threading.Event()

    def touch() -> None:
        while not over.wait(TOUCHED_EVERY):
            if healthy():
                with contextlib.suppress(OSError):  # a full disk is no reason to end a worker
                    file.touch()

    if not file.parent.is_dir():
        msg = f"--health-file cannot be written: there is no folder {file.parent}"
        raise ConfigurationError(msg)
    thread = start_deaf(touch, "babelqueue-health-file")
    try:
        yield
    finally:
        over.set()
        thread.join()
        file.unlink(missing_ok=True)


@contextlib.contextmanager
def served(healthy: Callable[[], bool], host: str, port: int) -> Iterator[int]:
    """Answer HTTP requests with 200 while ``healthy()``, else with 503; give the port."""

    class Handler(BaseHTTPRequestHandler):
        timeout = _SLOWEST

        def do_GET(self) -> None:
            is_healthy = healthy()
            body = json.dumps({"healthy": is_healthy}).encode()
            self.send_response(200 if is_healthy else 503)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 - http.server's names

        def log_message(self, *_: object) -> None:
            """Say nothing: a probe comes every few seconds."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except (OSError, OverflowError) as error:
        msg = f"the health probe cannot listen on {host}:{port}: {error}"
        raise ConfigurationError(msg) from error
    server.daemon_threads = True
    thread = start_deaf(server.serve_forever, "babelqueue-health-port")
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def is_fresh(file: Path) -> bool:
    """Tell whether a health file was touched just now."""
    try:
        return time.time() - file.stat().st_mtime < FRESH
    except OSError:
        return False


def start_deaf(function: Callable[[], object], name: str) -> threading.Thread:
    """Start a thread that no signal is delivered to: that would not wake the main thread."""
    thread = threading.Thread(target=function, name=name, daemon=True)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    thread.start()
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return thread
