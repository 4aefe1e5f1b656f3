"""A TCP proxy that can cut the link before a reply, hold replies back, or lead elsewhere."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit


class Proxy:
    """Forwards to a Redis; counts what passes; cuts where it is told to."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.lead_to(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pattern: bytes | None = None
        self._cuts = 0
        self._held: bytes | None = None
        self._may_pass = threading.Event()
        self.seen: list[bytes] = []
        self.is_loading = False
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}{parts.path}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_before_the_reply_to(self, pattern: bytes, times: int = 1) -> None:
        """Let the next requests that hold ``pattern`` through, and close instead of replying."""
        self._pattern, self._cuts = pattern, times

    def hold_the_reply_to(self, pattern: bytes) -> None:
        """Let the next request that holds ``pattern`` through, and keep what its link answers."""
        self._may_pass.clear()
        self._held = pattern

    @property
    def holds(self) -> bool:
        """Whether the request came whose reply is to be held back, and was not let go."""
        return self._held is None and not self._may_pass.is_set()

    def let_go(self) -> None:
        """Send on what was held back."""
        self._may_pass.set()

    def lead_to(self, url: str) -> None:
        """Connect whoever comes from now on to another server."""
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 6379)

    def requests_with(self, pattern: bytes) -> int:
        """Count the requests that reached the server and hold ``pattern``."""
        return sum(pattern in request for request in self.seen)

    def close(self) -> None:
        """Accept nobody any more, and hold nothing back."""
        self._may_pass.set()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                inner, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(inner,), daemon=True).start()

    def _serve(self, inner: socket.socket) -> None:
        muted, late = threading.Event(), threading.Event()
        with contextlib.suppress(OSError), inner, socket.create_connection(self._target) as outer:
            ends = (outer, inner, muted, late)
            pump = threading.Thread(target=self._pump_back, args=ends, daemon=True)
            pump.start()
            while request := inner.recv(1 << 20):
                self.seen.append(request)
                if self.is_loading:
                    inner.sendall(b"-LOADING Redis is loading the dataset in memory\r\n")
                    continue
                cut = self._pattern is not None and self._pattern in request and self._cuts > 0
                if cut:
                    self._cuts -= 1
                    muted.set()
                if self._held is not None and self._held in request:
                    self._held = None
                    late.set()
                outer.sendall(request)
                if cut:
                    # The server closes its side after ours, once it has run the command.
                    outer.shutdown(socket.SHUT_WR)
                    pump.join()
                    return

    def _pump_back(
        self,
        outer: socket.socket,
        inner: socket.socket,
        muted: threading.Event,
        late: threading.Event,
    ) -> None:
        with contextlib.suppress(OSError):
            while reply := outer.recv(1 << 20):
                if late.is_set():
                    self._may_pass.wait()
                if not muted.is_set():
                    inner.sendall(reply)
        with contextlib.suppress(OSError):
            if not muted.is_set():
                inner.shutdown(socket.SHUT_RDWR)  # the server hung up: so does the proxy


@contextlib.contextmanager
def proxy_to(url: str) -> Iterator[Proxy]:
    """Run a proxy for as long as the block lasts."""
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
