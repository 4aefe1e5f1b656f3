"""What every test may ask for: a Redis, a queue of its own, spans."""

from __future__ import annotations

import re
import signal
import uuid
from collections.abc import Callable, Iterator

import hypothesis
import pytest
import redis
from opentelemetry.sdk.trace import TracerProvider

from babelqueue_redis import RedisConsumer, RedisJobStore, RedisPublisher
from kit.redis_server import NoRedisError, any_binary, private_server
from tests.interop.laravel.peers import laravel_version
from tests.support.batches import PREFETCH
from tests.support.instrumented import instrumented
from tests.support.marks import BOTH
from tests.support.server import Client, redis_is_required, shared_url
from tests.support.shells import Shell
from tests.support.spans import Spans
from tests.support.store import Store

hypothesis.settings.register_profile(
    "here", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("here")

OWNED = re.compile(
    r"(queues:)?bq-test-[0-9a-f]{32}(\.dlq)?"
    r"(:processing(:deadlines)?|:recoveries|:delayed|:reserved|:notify)?"
)
"""The keys that a queue may leave behind."""


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark of :mod:`tests.support.marks`; let children be interrupted.

    A shell's background job ignores SIGINT, and so would all that it starts.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "both(name): asks with both values of a fixture")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Ask marked tests twice, those that take the fixture and do not name its values themselves."""
    named = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    chosen = {name for names in named for name in ((names,) if isinstance(names, str) else names)}
    for mark in metafunc.definition.iter_markers("both"):
        (name,) = mark.args
        if name in metafunc.fixturenames and name not in chosen:
            metafunc.parametrize(name, BOTH[name])


JOB_KEYS = re.compile(
    r"bq-test-[0-9a-f]{32}:"
    r"(job:.*|due|claimed|idempotency:.*|kinds|finished:(done|dead|canceled))",
    re.DOTALL,
)
"""The keys that a job store may leave behind."""


@pytest.fixture(scope="session")
def redis_url() -> str:
    """The URL of a Redis that may be shared; nothing may be flushed there."""
    try:
        return shared_url()
    except NoRedisError as error:
        if redis_is_required():
            raise
        pytest.skip(str(error))


@pytest.fixture
def client(redis_url: str) -> Iterator[Client]:
    """A client with redis-py's own defaults."""
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def queue(client: Client) -> Iterator[str]:
    """A queue name of the test's own; afterwards no key may be left that no layout owns."""
    name = f"bq-test-{uuid.uuid4().hex}"
    yield name
    left = set(client.scan_iter(match=f"*{name}*", count=10_000))
    if left:
        client.delete(*left)
    leaked = {key for key in left if not OWNED.fullmatch(key.decode())}
    assert not leaked, f"keys that the layout does not own: {leaked}"


@pytest.fixture
def prefix(client: Client) -> Iterator[str]:
    """A key prefix for jobs of the test's own; no key may be left that the store does not own."""
    made = f"bq-test-{uuid.uuid4().hex}:"
    yield made
    left = set(client.scan_iter(match=f"{made}*", count=10_000))
    if left:
        client.delete(*left)
    leaked = {key for key in left if not JOB_KEYS.fullmatch(key.decode(errors="replace"))}
    assert not leaked, f"keys that the store does not own: {leaked}"


@pytest.fixture
def layout() -> str:
    """The layout of the test's queue; ``both_layouts`` asks the other one, too."""
    return "legacy"


@pytest.fixture
def store(client: Client, queue: str, layout: str) -> Store:
    """What the test's queue holds."""
    return Store(client, queue, layout)


@pytest.fixture
def kind() -> str:
    """The kind of shell; ``both_shells`` asks ``aio``, too."""
    return "sync"


@pytest.fixture
def shell(kind: str) -> Iterator[Shell]:
    """Makes publishers, consumers and drivers of the kind."""
    made = Shell(kind)
    yield made
    made.end()


@pytest.fixture
def publisher(shell: Shell, redis_url: str, queue: str, layout: str) -> RedisPublisher:
    """A publisher for the test's queue."""
    made: RedisPublisher = shell.make("publisher", redis_url, queue, layout=layout)
    return made


@pytest.fixture
def consumer_of(
    shell: Shell, redis_url: str, queue: str, layout: str
) -> Callable[..., RedisConsumer]:
    """Make a consumer of the test's queue."""

    def make(handlers: object = None, **options: object) -> RedisConsumer:
        options = {"layout": layout, "prefetch": PREFETCH, **options}
        made: RedisConsumer = shell.make("consumer", redis_url, queue, handlers, **options)
        return made

    return make


@pytest.fixture
def jobs(shell: Shell, redis_url: str, prefix: str) -> RedisJobStore:
    """A job store of the test's own."""
    made: RedisJobStore = shell.make("job_store", redis_url, key_prefix=prefix)
    return made


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """Spans of a global provider that samples all, with the instrumentation on."""
    with instrumented(monkeypatch, TracerProvider()) as collected:
        yield collected


@pytest.fixture
def private_client(own_server: Callable[..., str]) -> Iterator[Client]:
    """A client of a Redis that nobody else uses: statistics may be reset, users made."""
    with redis.Redis.from_url(own_server()) as client:
        yield client


@pytest.fixture
def own_server() -> Iterator[Callable[..., str]]:
    """Start a private Redis, with options, and return its URL."""
    binary = any_binary()
    if binary is None:
        if redis_is_required():
            pytest.fail("no Redis binary to start a private server with")
        pytest.skip("no Redis binary to start a private server with")
    servers = []

    def start(*options: str) -> str:
        server = private_server(binary, *options)
        servers.append(server)
        return server.__enter__()

    yield start
    for server in servers:
        server.__exit__(None, None, None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which Laravel the tests spoke to."""
    passed = [report.nodeid for report in terminalreporter.getreports("passed")]
    real, stand_in = (
        sum(f"[{peer}-" in each for each in passed) for peer in ("laravel", "stand-in")
    )
    if stand_in:
        who = laravel_version() or "which is not here"
        terminalreporter.write_line(
            f"Laravel: {real} tests passed with the real one ({who}), {stand_in} with the stand-in"
        )
