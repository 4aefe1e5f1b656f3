from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from babelqueue_redis import (
    ConfigurationError,
    ConnectionLostError,
    Outcome,
    PublishError,
    RedisConsumer,
    RedisPublisher,
    SettlementError,
    TransportError,
    entropy,
    lua,
)
from babelqueue_redis.core.command import Command
from babelqueue_redis.core.settlement import ACK, GIVE_BACK, Settlement
from babelqueue_redis.layouts import LegacyLayout
from babelqueue_redis.sync.driver import Driver
from kit.redis_server import free_port
from tests.support.proxy import proxy_to
from tests.support.server import Client

Make = Callable[..., RedisConsumer]


def test_a_publish_whose_reply_is_lost_is_one_clear_error_and_one_message(
    redis_url: str, client: Client, queue: str
) -> None:
    """It carries the id, says that the message may be stored, and sends nothing again."""
    with proxy_to(redis_url) as proxy:
        publisher = RedisPublisher(redis.Redis.from_url(proxy.url), queue)
        proxy.cut_before_the_reply_to(b"RPUSH", times=9)
        with pytest.raises(PublishError, match="may be stored") as caught:
            publisher.publish("urn:a", {})
        assert proxy.requests_with(b"RPUSH") == 1
    (stored,) = client.lrange(queue, 0, -1)
    assert json.loads(stored)["meta"]["id"] == caught.value.message_id
    assert caught.value.may_be_stored
    assert isinstance(caught.value.__cause__, ConnectionLostError)


def test_a_batch_whose_reply_is_lost_carries_all_ids(
    redis_url: str, client: Client, queue: str
) -> None:
    """In order."""
    with proxy_to(redis_url) as proxy:
        publisher = RedisPublisher(proxy.url, queue)
        proxy.cut_before_the_reply_to(b"RPUSH")
        with pytest.raises(PublishError, match="batch of 2") as caught:
            publisher.publish_many([("urn:a", {}), ("urn:b", {})])
    stored = [json.loads(element)["meta"]["id"] for element in client.lrange(queue, 0, -1)]
    assert list(caught.value.message_ids) == stored


def test_a_publish_without_a_connection_was_not_stored() -> None:
    """There is no doubt about it."""
    publisher = RedisPublisher(redis.Redis(port=free_port()), "orders")
    with pytest.raises(PublishError, match="was not stored") as caught:
        publisher.publish("urn:a", {})
    assert not caught.value.may_be_stored


def test_the_next_publish_after_a_lost_link_works(
    redis_url: str, client: Client, queue: str
) -> None:
    """A broken connection is not used again, and no stale reply is read."""
    with proxy_to(redis_url) as proxy:
        publisher = RedisPublisher(proxy.url, queue)
        proxy.cut_before_the_reply_to(b"RPUSH")
        with pytest.raises(PublishError):
            publisher.publish("urn:a", {})
        publisher.publish("urn:b", {})
    assert client.llen(queue) == 2


def test_a_reserve_whose_reply_is_lost_comes_back_after_one_lease_once(
    redis_url: str, client: Client, queue: str
) -> None:
    """The message is reserved, not lost."""
    handled: list[Any] = []
    RedisPublisher(client, queue).publish("urn:a", {})
    with proxy_to(redis_url) as proxy:
        consumer = RedisConsumer(proxy.url, queue, {"urn:a": handled.append}, retry_after=1)
        assert consumer.poll(0.01) is not None  # the scripts are known to the server now
        RedisPublisher(client, queue).publish("urn:a", {})
        proxy.cut_before_the_reply_to(b"EVALSHA")
        with pytest.raises(ConnectionLostError):
            consumer.poll(0)
        assert client.llen(f"{queue}:processing") == 1
        assert consumer.poll(60) is Outcome.ACKED
        assert consumer.poll(0) is None
    assert len(handled) == 2


def test_an_ack_whose_reply_is_lost_is_an_error_and_the_message_is_gone(
    redis_url: str, client: Client, queue: str
) -> None:
    """It ran once, and is not sent again."""
    with proxy_to(redis_url) as proxy:
        consumer = RedisConsumer(proxy.url, queue, {"urn:a": lambda envelope: None})
        RedisPublisher(client, queue).publish("urn:a", {})
        consumer.poll(0)
        RedisPublisher(client, queue).publish("urn:a", {})
        reservation = consumer.reserve(0)
        assert reservation is not None
        proxy.cut_before_the_reply_to(reservation.token.encode())
        with pytest.raises(SettlementError, match="not confirmed to be acked"):
            consumer.handle(reservation)
    assert client.llen(f"{queue}:processing") == 0


@pytest.mark.parametrize("forgotten", ["legacy_sweep", "legacy_reserve"])
def test_a_script_may_be_unknown_within_a_trip(private_client: Client, forgotten: str) -> None:
    """The others of the trip have run; the unknown one runs then."""
    driver, layout = Driver(private_client), LegacyLayout("orders", 90)
    known = {"legacy_sweep": lua.LEGACY_RESERVE, "legacy_reserve": lua.LEGACY_SWEEP}[forgotten]
    private_client.script_load(known.source)
    driver.send(layout.publish([(b"a", {})]))
    taken = driver.run(layout.reserve(entropy.new_token()))
    assert taken is not None
    assert taken.body == b"a"


@pytest.mark.parametrize("outcome", [Outcome.RETRIED, Outcome.DEAD_LETTERED, Outcome.RELEASED])
def test_a_settlement_whose_reply_is_lost_has_happened_once(
    redis_url: str, client: Client, queue: str, outcome: Outcome
) -> None:
    """The message is in one place."""
    with proxy_to(redis_url) as proxy:
        driver, layout = Driver(proxy.url), LegacyLayout(queue, 90)
        client.rpush(queue, b"a")
        taken = driver.run(layout.reserve(entropy.new_token()))
        assert taken is not None
        command = layout.settle(taken, Settlement(outcome, b"b", f"{queue}.dlq"))
        assert command is not None
        client.script_load(lua.LEGACY_SETTLE.source)
        proxy.cut_before_the_reply_to(taken.token.encode(), times=9)
        with pytest.raises(ConnectionLostError):
            driver.send(command)
        assert proxy.requests_with(b"EVALSHA") >= 1
    assert client.llen(queue) + client.llen(f"{queue}.dlq") == 1
    assert client.llen(f"{queue}:processing") == 0


def test_scripts_may_be_flushed_between_any_two_calls(client: Client, queue: str) -> None:
    """A server that forgot a script is given its source."""
    driver, layout = Driver(client), LegacyLayout(queue, 90)
    ends = [ACK, GIVE_BACK, Settlement(Outcome.RETRIED, b"again")]
    driver.send(layout.publish([(b"a", {}), (b"b", {}), (b"c", {})]))
    for end in ends:
        client.script_flush()
        taken = driver.run(layout.reserve(entropy.new_token()))
        assert taken is not None
        client.script_flush()
        command = layout.settle(taken, end)
        assert command is not None
        assert driver.send(command)
        client.script_flush()
        driver.run(layout.sweep())
    assert client.lrange(queue, 0, -1) == [b"b", b"again"]


@pytest.mark.parametrize(
    "options",
    [
        {"decode_responses": True},
        {"decode_responses": True, "encoding": "latin-1"},
        {"protocol": 3},
        {"protocol": 3, "decode_responses": True},
        {"socket_timeout": 1},
        {"health_check_interval": 1},
        {"retry_on_timeout": True},
        {"client_name": "worker", "db": 3},
    ],
    ids=str,
)
def test_clients_of_every_kind_serve(redis_url: str, queue: str, options: dict[str, Any]) -> None:
    """The driver makes connections of its own; what the client decodes does not matter."""
    client = redis.Redis.from_url(redis_url, **options)
    seen: list[bytes] = []
    consumer = RedisConsumer(
        client, queue, {"urn:a": lambda _, raw: seen.append(raw)}, on_error=print
    )
    publisher = RedisPublisher(client, queue)
    publisher.publish("urn:a", {"text": "é"}, headers={"k": "ü"})
    client.rpush(queue, b"\xff")
    assert consumer.poll(0) is Outcome.ACKED
    assert consumer.poll(0) is Outcome.DEAD_LETTERED
    assert consumer.poll(0.01) is None
    assert type(seen[0]) is bytes
    assert "é".encode() in seen[0]
    client.delete(f"{queue}.dlq")


def test_a_wait_longer_than_the_socket_timeout_is_sliced(redis_url: str, queue: str) -> None:
    """``poll`` returns ``None`` when its own time is up, without an exception."""
    client = redis.Redis.from_url(redis_url, socket_timeout=0.2)
    consumer = RedisConsumer(client, queue)
    start = time.monotonic()
    assert consumer.poll(1) is None
    assert time.monotonic() - start >= 1


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
    except (Alarm, TransportError):  # redis-py 5.2 makes an error of its own of some
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


def test_a_demoted_master_is_left(own_server: Callable[..., str]) -> None:
    """The next command connects anew, and asks the name again."""
    url = own_server()
    publisher = RedisPublisher(url, "orders")
    publisher.publish("urn:a", {})
    admin = redis.Redis.from_url(url)
    admin.replicaof("127.0.0.1", free_port())
    with pytest.raises(PublishError, match="read only"):
        publisher.publish("urn:a", {})
    assert publisher._driver._own.connection is None
    admin.replicaof("NO", "ONE")
    publisher.publish("urn:a", {})


def test_a_wrong_password_is_not_echoed(own_server: Callable[..., str]) -> None:
    """Nor does it look like a lost message."""
    url = own_server()
    redis.Redis.from_url(url).config_set("requirepass", "right")
    publisher = RedisPublisher(url.replace("redis://", "redis://:wrong@"), "orders")
    with pytest.raises(PublishError) as caught:
        publisher.publish("urn:a", {})
    assert not caught.value.may_be_stored
    assert "wrong@" not in str(caught.value)


def test_at_maxmemory_the_queue_drains_and_publish_raises(own_server: Callable[..., str]) -> None:
    """Reserves, acks, retries and dead letters go on."""
    url = own_server("--maxmemory-policy", "noeviction")
    client = redis.Redis.from_url(url)
    publisher = RedisPublisher(url, "orders")
    for urn in ("urn:good", "urn:bad", "urn:unknown"):
        publisher.publish(urn, {"filler": "x" * 1000})
    client.rpush("orders", b"poison")
    client.config_set("maxmemory", 1)
    with pytest.raises(PublishError, match="maxmemory") as caught:
        publisher.publish("urn:good", {})
    assert not caught.value.may_be_stored

    def fail(_: object) -> None:
        raise ValueError

    handlers = {"urn:good": lambda envelope: None, "urn:bad": fail}
    consumer = RedisConsumer(url, "orders", handlers, max_tries=2, on_error=print)
    outcomes = []
    while outcome := consumer.poll(0.01):
        outcomes.append(outcome)
    assert outcomes == [
        Outcome.ACKED,
        Outcome.RETRIED,
        Outcome.RETRIED,
        Outcome.DEAD_LETTERED,
        Outcome.DEAD_LETTERED,
        Outcome.DEAD_LETTERED,
    ]
    assert client.llen("orders") == client.llen("orders:processing") == 0
    assert client.llen("orders.dlq") == 3


def test_at_maxmemory_a_sweep_goes_on(own_server: Callable[..., str]) -> None:
    """A crash is recovered from at the worst moment, too."""
    url = own_server("--maxmemory-policy", "noeviction")
    client = redis.Redis.from_url(url)
    RedisPublisher(url, "orders").publish("urn:a", {})
    assert RedisConsumer(url, "orders", retry_after=0).reserve(0)
    client.config_set("maxmemory", 1)
    seen: list[object] = []
    assert RedisConsumer(url, "orders", {"urn:a": seen.append}).poll(5) is Outcome.ACKED
