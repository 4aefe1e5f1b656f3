"""``python -m babelqueue_redis`` is the command ``bq-redis``."""

from babelqueue_redis.cli import main

main()
