"""How a queue is stored. A layout says commands; it never sends one.

``legacy`` is the list layout that all BabelQueue SDKs default to, ``zset`` the one of Laravel.
"""

from __future__ import annotations

from babelqueue_redis.layouts.legacy import LegacyLayout
from babelqueue_redis.layouts.protocol import Layout
from babelqueue_redis.layouts.zset import ZsetLayout
from babelqueue_redis.settings import ConsumerOptions, QueueOptions

__all__ = ["Layout", "LegacyLayout", "ZsetLayout", "layout_of"]


def layout_of(options: QueueOptions) -> Layout:
    """Return the layout that ``options`` name."""
    lease, batch, alone = None, -1, None
    if isinstance(options, ConsumerOptions):
        lease, batch, alone = options.lease, options.migration_batch_size, options.alone
    if options.layout == "zset":
        return ZsetLayout(options.queue, options.key_prefix, lease, batch, alone=alone)
    return LegacyLayout(options.queue, lease, batch, alone=alone)
