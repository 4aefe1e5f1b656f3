"""The kinds of jobs that both programs know, and where they are kept."""

import os

import msgspec
import redis

from babelqueue_redis import JobRegistry, RedisJobStore


class Photo(msgspec.Struct):
    """A photo to make a thumbnail of."""

    name: str


class Mail(msgspec.Struct):
    """A mail to send."""

    to: str


registry = JobRegistry()
store = RedisJobStore(
    redis.Redis.from_url(os.environ["BABELQUEUE_REDIS_URL"]),
    key_prefix=os.environ.get("PREFIX", "jobs-example:"),
    registry=registry,
)
attempts: dict[str, int] = {}


@registry.job("thumbnail.make", payload=Photo)
def make(photo: Photo) -> None:
    """Make a thumbnail, and have somebody told, once."""
    store.enqueue("mail.send", Mail(f"owner-of-{photo.name}"), idempotency_key=photo.name)


@registry.job("mail.send", payload=Mail)
def send(mail: Mail) -> None:
    """Send a mail; the first try fails, and nobody has an empty address."""
    attempts[mail.to] = attempts.get(mail.to, 0) + 1
    if not mail.to or attempts[mail.to] == 1:
        message = "the mail server said no"
        raise ConnectionError(message)
