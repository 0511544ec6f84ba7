"""The asyncio client; see `amps.client` for the names that both clients use.

    from amps.aio import AsyncClient

    async with AsyncClient("orders-feed", "tcp://localhost:9007/amps/json") as client:
        await client.publish("orders", {"id": 1})
        async for message in client.subscribe("orders"):
            print(message.json())
"""

from amps.client.aio import AsyncClient, AsyncHAClient, AsyncMessageStream, StreamRequest

__all__ = ["AsyncClient", "AsyncHAClient", "AsyncMessageStream", "StreamRequest"]
