"""Handles them with the same package; one of them fails, which its dispatch swallows."""

import os
from typing import Any

from babelqueue import BabelQueue

app = BabelQueue(
    os.environ["BABELQUEUE_REDIS_URL"],
    queue=os.environ.get("QUEUE", "orders"),
    max_attempts=1,
    dead_letter=True,
)


def placed(data: dict[str, Any], meta: dict[str, Any]) -> None:
    """Check an order."""
    if data["total"] < 0:
        message = f"the total of message {meta['id']} is negative"
        raise ValueError(message)
    print(f"order {data['order_id']} is placed", flush=True)


app.register("urn:shop:order:placed", placed)
app.run(max_messages=2, timeout=10)
