"""How many messages of a queue are where."""

from __future__ import annotations

from babelqueue_redis.core.command import Command, Op
from babelqueue_redis.settings import ConsumerOptions


def counting(options: ConsumerOptions) -> Op[dict[str, int]]:
    """Count what is ``ready``, ``delayed``, ``reserved`` and ``dead``, in one trip.

    What a layout, or the options, have no place for is left out.
    """
    zset = options.layout == "zset"
    prefix = options.key_prefix if zset else ""
    ready = prefix + options.queue
    asked = {"ready": ("LLEN", ready)}
    if zset:
        asked |= {
            "delayed": ("ZCARD", f"{ready}:delayed"),
            "reserved": ("ZCARD", f"{ready}:reserved"),
        }
    else:
        asked["reserved"] = ("LLEN", f"{ready}:processing")
    if options.dead_letter_queue:
        asked["dead"] = ("LLEN", prefix + options.dead_letter_queue)
    counts = yield tuple(Command(verb, (key,), (), int) for verb, key in asked.values())
    return dict(zip(asked, counts, strict=True))
