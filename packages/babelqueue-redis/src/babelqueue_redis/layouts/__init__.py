"""How a queue is stored. A layout says commands; it never sends one.

``legacy`` is the list layout that all BabelQueue SDKs default to.
"""

from __future__ import annotations

from babelqueue_redis.layouts.legacy import LegacyLayout
from babelqueue_redis.layouts.protocol import Layout
from babelqueue_redis.settings import ConsumerOptions, QueueOptions

__all__ = ["Layout", "LegacyLayout", "layout_of"]


def layout_of(options: QueueOptions) -> Layout:
    """Return the layout that ``options`` name."""
    if isinstance(options, ConsumerOptions):
        return LegacyLayout(options.queue, options.lease, options.migration_batch_size)
    return LegacyLayout(options.queue)
