"""Every way to a server: TLS, a socket file, users with odd passwords and few rights."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis

from babelqueue_redis import Outcome, PublishError
from kit.redis_server import NoRedisError, free_port
from tests.support.shells import Shell

Start = Callable[..., str]
Serve = Callable[..., None]
RIGHTS = ("+@read", "+@write", "+@blocking", "+@scripting", "+@connection", "+time", "-@dangerous")
"""What docs/failure-semantics.md asks for."""


@pytest.fixture
def serve(shell: Shell, queue: str, layout: str) -> Serve:
    """Publish and handle a message through a link."""

    def go_round(client: Any) -> None:
        shell.make("publisher", client, queue, layout=layout).publish("urn:a", {})
        consumer = shell.make("consumer", client, queue, {"urn:a": lambda _: None}, layout=layout)
        assert consumer.poll(1) is Outcome.ACKED
        assert consumer.poll(0.05) is None

    return go_round


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    """A self-signed certificate of 127.0.0.1, and its key."""
    names = str(tmp_path / "redis.crt"), str(tmp_path / "redis.key")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-out", names[0], "-keyout", names[1]]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl")
    return names


@pytest.fixture
def tls_url(own_server: Start, certificate: tuple[str, str]) -> str:
    """A server that speaks TLS."""
    files = ("--tls-cert-file", certificate[0], "--tls-key-file", certificate[1])
    for _ in range(3):  # somebody may take the port first
        port = free_port()
        with contextlib.suppress(NoRedisError):
            own_server("--tls-port", str(port), "--tls-auth-clients", "no", *files)
            return f"rediss://127.0.0.1:{port}/0"
    pytest.skip("this Redis was built without TLS")


def test_tls_serves(tls_url: str, certificate: tuple[str, str], serve: Serve, shell: Shell) -> None:
    """By URL and by client."""
    serve(f"{tls_url}?ssl_ca_certs={certificate[0]}")
    serve(shell.client(tls_url, ssl_ca_certs=certificate[0]))


def test_a_certificate_that_nobody_signed_is_refused(tls_url: str, serve: Serve) -> None:
    """The checks are the client's own."""
    with pytest.raises(PublishError, match="was not stored") as caught:
        serve(tls_url)
    assert "CERTIFICATE_VERIFY_FAILED" in str(caught.value)


def test_a_socket_file_serves(own_server: Start, tmp_path: Path, serve: Serve) -> None:
    """``unix://``."""
    path = tmp_path / "redis.sock"
    own_server("--unixsocket", str(path))
    serve(f"unix://{path}")


@pytest.mark.parametrize("password", ["p/w:@#?&= %[]", "pässwörd", "''\"\\", "a+b"])
def test_a_user_with_few_rights_and_an_odd_password_serves(
    own_server: Start, serve: Serve, shell: Shell, queue: str, layout: str, password: str
) -> None:
    """Quoted in a URL, and as it is for a client."""
    url = own_server()
    key = queue if layout == "legacy" else f"queues:{queue}"
    words = ("ACL", "SETUSER", "wörker", "on", f">{password}", f"~{key}*")
    with redis.Redis.from_url(url) as admin:
        admin.execute_command(*words, *RIGHTS)
    user = quote("wörker", safe="")
    serve(url.replace("redis://", f"redis://{user}:{quote(password, safe='')}@"))
    serve(shell.client(url, username="wörker", password=password))
