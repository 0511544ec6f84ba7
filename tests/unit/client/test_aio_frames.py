"""The blocking and the asyncio client send the same bytes: client.md §21, 35."""

import asyncio
import inspect
from collections.abc import Generator
from typing import Any

import pytest

from amps.aio import AsyncClient, AsyncHAClient
from amps.client import AckType, Client, Command, HAClient, MemoryPublishStore, Message
from tests.unit.client.aio import run
from tests.unit.client.aio_peer import AsyncPeer

Step = Generator[Any, Any, None]


def ignore(message: Message) -> None:
    pass


def script(client: Any) -> Step:
    """Calls of either client. Each yields its result, and gets that of the awaitable if it is one."""
    yield client.publish("t", b"bytes")
    yield client.publish("t", {"an": "object"}, expiration=5, correlation_id="abc=")
    yield client.delta_publish("t", "text", sow_key="k1")
    sub_id = yield client.subscribe("t", "/a > 1", handler=ignore, max_backlog=5, options="x=1")
    yield client.subscribe("t", "/a > 2", handler=ignore, sub_id=sub_id, replace=True)
    paused = yield client.bookmark_subscribe("t", "0", handler=ignore, pause=True, rate="10")
    yield client.resume(paused)
    yield client.pause(paused)
    yield client.delta_subscribe("t", handler=ignore, sub_id="S")
    yield client.sow_and_subscribe("t", handler=ignore, order_by="/a", batch_size=7, oof=True)
    yield client.sow_and_delta_subscribe("t", handler=ignore, top_n=3)
    yield client.sow("t", handler=ignore, sow_keys=["1", "2"], query_id="Q")
    stream = yield client.execute(Command("sow", "t").add_ack_type("stats"))
    yield stream.to_list()
    live = yield client.subscribe("t", conflate=True)
    yield live.close()
    yield client.execute_async(Command("subscribe", "e"), ignore)
    yield client.execute_async_no_resubscribe(Command("publish", "t", data=b"by command"))
    yield client.send(Command("publish", "t", data=b"sent"))
    yield client.sow_count("t", "/a = 1")
    yield client.sow_delete("t", filter="1=1")
    yield client.sow_delete("t", keys=["1", "2"], stats=False)
    yield client.sow_delete("t", data={"id": 1})
    yield client.ack("q", ["1|1|", "1|2|"])
    yield client.ack("q", "1|3|", "cancel")
    yield client.flush_acks()
    yield client.flush()
    yield client.flush(AckType.PROCESSED)
    yield client.set_heartbeat(1000)
    yield client.set_heartbeat(None)
    yield client.publish_flush()
    yield client.unsubscribe(sub_id, paused)
    yield client.unsubscribe()


async def play(peer: AsyncPeer, client: Any) -> None:
    steps = script(client)
    result: Any = None
    while True:
        try:
            step = steps.send(result)
        except StopIteration:
            return
        result = await step if inspect.isawaitable(step) else step


def play_blocking(client: Any) -> None:
    steps = script(client)
    result: Any = None
    with client:
        while True:
            try:
                result = steps.send(result)
            except StopIteration:
                return


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize(("blocking", "asynchronous"), [(Client, AsyncClient), (HAClient, AsyncHAClient)])
@run
async def test_client_35_both_front_ends_send_the_same_bytes(
    blocking: Any, asynchronous: Any, store: bool
) -> None:
    """client.md §21, 35"""
    sent: list[list[bytes]] = []
    for kind in (blocking, asynchronous):
        async with AsyncPeer() as peer:
            options = {"publish_store": MemoryPublishStore() if store else None, "ack_batch_size": 10}
            client = kind("me", peer.uri.replace("://", "://user:secret@"), **options)
            if kind is blocking:
                await asyncio.to_thread(play_blocking, client)
            else:
                async with client:
                    await play(peer, client)
            sent.append(peer.payloads)
    assert len(sent[0]) > 25
    assert sent[0] == sent[1]
