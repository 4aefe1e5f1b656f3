"""An HTTP service that places orders. It has no tracing code."""

import os

import redis.asyncio
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from babelqueue_redis import AsyncRedisPublisher

app = FastAPI()
client = redis.asyncio.Redis.from_url(os.environ["BABELQUEUE_REDIS_URL"])
publisher = AsyncRedisPublisher(client, os.environ.get("QUEUE", "orders"))


class Order(BaseModel):
    """What a customer sends."""

    order_id: int
    total: float


@app.post("/orders", status_code=202)
async def place(order: Order) -> dict[str, str]:
    """Take an order; a worker handles it later."""
    message_id = await publisher.publish("urn:shop:order:placed", order.model_dump())
    return {"message_id": message_id}


if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")), log_level="warning")
