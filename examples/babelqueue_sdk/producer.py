"""Publishes two orders with the PyPI package ``babelqueue``."""

import os

from babelqueue import BabelQueue

app = BabelQueue(os.environ["BABELQUEUE_REDIS_URL"], queue=os.environ.get("QUEUE", "orders"))
app.publish("urn:shop:order:placed", {"order_id": 1042, "total": 99.90})
app.publish("urn:shop:order:placed", {"order_id": 1043, "total": -1})
