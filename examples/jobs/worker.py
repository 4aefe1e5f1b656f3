"""Works them off, two at a time."""

from tasks import registry, store

from babelqueue_redis import JobWorker

JobWorker(store, registry, concurrency=2, poll_interval=0.05, retry_backoff=0.1).run()
