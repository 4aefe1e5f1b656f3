from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis

from babelqueue_redis import (
    ConfigurationError,
    PublishError,
    RedisConsumer,
    RedisPublisher,
    TransportError,
    lua,
)
from babelqueue_redis.core.command import Command
from babelqueue_redis.layouts import LegacyLayout
from babelqueue_redis.sync.driver import Driver
from kit.redis_server import free_port
from tests.support.proxy import proxy_to
from tests.support.reserving import reserved
from tests.support.server import Client

Make = Callable[..., RedisConsumer]


@pytest.mark.parametrize("forgotten", ["legacy_sweep", "legacy_reserve"])
def test_a_script_may_be_unknown_within_a_trip(private_client: Client, forgotten: str) -> None:
    """The others of the trip have run; the unknown one runs then."""
    driver, layout = Driver(private_client), LegacyLayout("orders", 90)
    known = {"legacy_sweep": lua.LEGACY_RESERVE, "legacy_reserve": lua.LEGACY_SWEEP}[forgotten]
    private_client.script_load(known.source)
    driver.send(layout.publish([(b"a", {})]))
    taken = reserved(driver, layout)
    assert taken is not None
    assert taken.body == b"a"


def test_a_unix_socket_serves(own_server: Callable[..., str], tmp_path: Any) -> None:
    """With the path as the address."""
    path = tmp_path / "redis.sock"
    own_server("--unixsocket", str(path))
    publisher = RedisPublisher(f"unix://{path}", "orders")
    assert publisher.publish("urn:a", {})
    assert publisher._destination.address == str(path)
    assert publisher._destination.port is None


def test_an_idle_connection_that_the_server_closed_is_replaced(
    client: Client, publisher: RedisPublisher, queue: str
) -> None:
    """A publish after a long pause does not pay for it with an error."""
    publisher.publish("urn:a", {})
    driver = publisher._driver
    ours = driver.send(Command("CLIENT", (), ("ID",), int))
    client.client_kill_filter(_id=ours)
    driver._own.used -= 5  # the pause
    publisher.publish("urn:a", {})
    assert client.llen(queue) == 2


def test_threads_do_not_share_a_connection(
    publisher: RedisPublisher, client: Client, queue: str
) -> None:
    """A publisher may be shared between them."""
    errors: list[BaseException] = []

    def publish() -> None:
        try:
            for _ in range(50):
                publisher.publish("urn:a", {})
        except BaseException as error:  # noqa: BLE001 - reported below
            errors.append(error)

    threads = [threading.Thread(target=publish) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert client.llen(queue) == 400


def test_a_forked_child_does_not_use_its_parents_connection(
    publisher: RedisPublisher, client: Client, queue: str
) -> None:
    """Both go on, each with a link of its own."""
    publisher.publish("urn:parent", {})
    parent = publisher._driver._own.connection
    child = os.fork()
    if child == 0:
        code = 1
        try:
            publisher.publish("urn:child", {})
            code = 0 if publisher._driver._own.connection is not parent else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    publisher.publish("urn:parent", {})
    assert publisher._driver._own.connection is parent
    assert client.llen(queue) == 3


INTERRUPTED = """
import random, signal, sys
sys.modules["hiredis"] = None  # its C code does not survive exceptions that come from outside
import redis
from babelqueue_redis import TransportError
from babelqueue_redis.core.command import Command
from babelqueue_redis.sync.driver import Driver

url, seen, fresh = sys.argv[1], sys.argv[2] == "seen", sys.argv[3] == "fresh"
if seen:
    from opentelemetry.instrumentation.redis import RedisInstrumentor
    RedisInstrumentor().instrument()

class Alarm(Exception): pass
armed = False
def ring(*_):
    if armed: raise Alarm
signal.signal(signal.SIGALRM, ring)

echo = lambda text: Command("ECHO", (), (text,), bytes.decode)
database = lambda reply: reply.decode().partition(" db=")[2][0]
where = lambda: Command("CLIENT", (), ("INFO",), database)
driver, interrupted = Driver(redis.Redis.from_url(url.replace("/0", "/5")), shows_spans=seen), 0
for i in range(1500):
    if fresh:
        driver.close()
    longest = 0.0012 if fresh else 0.0002
    try:
        armed = True
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00001, longest))
        assert driver.send(echo(str(i))) == str(i)
    except Exception as error:
        # redis-py 5.2 makes an error of its own of some, UnboundLocalError among them
        assert isinstance(error, (Alarm, TransportError)) or isinstance(error.__context__, Alarm)
        interrupted += 1
    armed = False
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert driver.send(echo("after")) == "after"
    assert driver.send(where()) == "5"
print(interrupted)
"""


@pytest.mark.parametrize("sight", ["unseen", "seen"])
@pytest.mark.parametrize("link", ["held", "fresh"])
def test_an_interrupted_command_leaves_nothing_behind(
    redis_url: str, sight: str, link: str
) -> None:
    """A signal may come at any point: the next command has its own reply, in the right database.

    While connecting and later, through our connection and through an instrumented client.
    """
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, redis_url, sight, link],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


@pytest.fixture
def _seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrap ``execute_command``, as an instrumentation of redis-py does."""
    plain: Any = redis.Redis.execute_command

    @functools.wraps(plain)
    def wrapped(self: redis.Redis, *args: Any, **options: Any) -> Any:
        return plain(self, *args, **options)

    monkeypatch.setattr(redis.Redis, "execute_command", wrapped)


@pytest.mark.usefixtures("_seen")
def test_an_instrumented_client_does_not_send_twice_either(
    redis_url: str, client: Client, queue: str
) -> None:
    """The default retry of redis-py stays out of it."""
    with proxy_to(redis_url) as proxy:
        publisher = RedisPublisher(redis.Redis.from_url(proxy.url), queue)
        publisher.publish("urn:a", {})
        proxy.cut_before_the_reply_to(b"RPUSH", times=9)
        with pytest.raises(PublishError, match="may be stored") as caught:
            publisher.publish("urn:a", {})
        assert proxy.requests_with(b"RPUSH") == 2
    assert caught.value.may_be_stored
    assert client.llen(queue) == 2
    unconnected = RedisPublisher(redis.Redis(port=free_port()), queue)
    with pytest.raises(PublishError, match="was not stored"):
        unconnected.publish("urn:a", {})


def test_errors_of_redis_py_do_not_leave_the_driver(redis_url: str, queue: str) -> None:
    """They become ours, from the original."""
    command: Command[Any] = Command("NO-SUCH-COMMAND", (queue,), (), lambda reply: reply)
    with pytest.raises(TransportError, match="NO-SUCH-COMMAND") as refused:
        Driver(redis_url).send(command)
    assert isinstance(refused.value.__cause__, redis.ResponseError)
    with pytest.raises(TransportError, match=r"127\.0\.0\.1") as lost:
        Driver(f"redis://user:secret@127.0.0.1:{free_port()}").send(command)
    assert isinstance(lost.value.__cause__, redis.RedisError)
    assert "secret" not in str(lost.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://bob:s3c/ret@127.0.0.1",
        "redis://bob:s3c#ret@127.0.0.1",
        "redis://bob:s3c?ret@127.0.0.1",
        "redis://bob:s3c[ret@127.0.0.1",
    ],
)
def test_a_url_that_cannot_be_read_is_not_quoted(url: str) -> None:
    """Its password would be."""
    with pytest.raises(ConfigurationError) as caught:
        RedisPublisher(url, "orders")
    assert "s3c" not in str(caught.value)


def test_a_client_given_for_the_queue_is_not_shown() -> None:
    """Its representation holds a password on some versions of redis-py."""
    with pytest.raises(ConfigurationError) as caught:
        RedisConsumer("redis://127.0.0.1", redis.Redis(password="s3cret"))  # type: ignore[arg-type]  # noqa: S106
    assert "s3cret" not in str(caught.value)


def test_a_refusal_does_not_repeat_what_was_sent(own_server: Callable[..., str]) -> None:
    """A server without RPUSH quotes the arguments of the unknown command."""
    url = own_server("--rename-command", "RPUSH", "")
    with pytest.raises(PublishError, match="unknown command") as caught:
        RedisPublisher(url, "orders").publish("urn:a", {}, headers={"authorization": "s3cret"})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), "5", 1e12])
def test_a_socket_timeout_that_cannot_work_is_told_at_construction(timeout: Any) -> None:
    """Rather than at the first command, by somebody else's exception."""
    with pytest.raises(ConfigurationError, match="socket_timeout"):
        RedisConsumer(redis.Redis(socket_timeout=timeout), "orders")


def test_a_wrong_password_is_not_echoed(own_server: Callable[..., str]) -> None:
    """Nor does it look like a lost message."""
    url = own_server()
    redis.Redis.from_url(url).config_set("requirepass", "right")
    publisher = RedisPublisher(url.replace("redis://", "redis://:wrong@"), "orders")
    with pytest.raises(PublishError) as caught:
        publisher.publish("urn:a", {})
    assert not caught.value.may_be_stored
    assert "wrong@" not in str(caught.value)
