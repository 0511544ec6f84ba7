"""The client library, the command line and the asyncio client with topics of the state of the world (client.md §21)."""

import asyncio
import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from amps.aio import AsyncClient
from amps.client import (
    EPOCH,
    AckType,
    AlreadyConnectedException,
    Client,
    Command,
    CommandException,
    HAClient,
    MemoryBookmarkStore,
    MemoryPublishStore,
    Message,
    MessageStream,
    SOWRecoveryPointAdapter,
)
from tests.support.server import ServerProcess, StartServer, wait_until
from tests.unit.cli.running import run, server_option

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("amps.config.model_sow") is None,
    reason="this server has no topics of the state of the world",
)

TIMEOUT_S = 20.0
MakeClient = Callable[..., Client]


def topic_xml(directory: Path, name: str, *keys: str) -> str:
    fields = "".join(f"<Key>{key}</Key>" for key in keys)
    file_name = f"<FileName>{directory}/%n.sow</FileName>"
    return f"<Topic><Name>{name}</Name><MessageType>json</MessageType>{fields}{file_name}</Topic>"


@pytest.fixture
def server(start_server: StartServer, tmp_path: Path) -> ServerProcess:
    """The fixture of client.md §21: `orders` keyed `/id`, recorded; and a topic for recovery points."""
    topics = topic_xml(tmp_path, "orders", "/id") + (
        "<Topic><Name>/ADMIN/bookmark_store</Name><MessageType>json</MessageType><Key>/clientName</Key>"
        f"<Key>/subId</Key><FileName>{tmp_path}/points.sow</FileName></Topic>"
    )
    return start_server(log_topics=["orders", "log"], instance_xml=f"<SOW>{topics}</SOW>")


@pytest.fixture
def make_client(server: ServerProcess) -> Iterator[MakeClient]:
    made: list[Client] = []

    def make(name: str = "c", kind: type[Client] = Client, **options: Any) -> Client:
        client = kind(name, f"tcp://127.0.0.1:{server.port()}/amps/json", **options)
        made.append(client)
        return client.open()

    yield make
    for client in made:
        client.close()


def store(client: Client, count: int, topic: str = "orders") -> None:
    """Publish records 1, 2, … and wait until they are processed."""
    for number in range(1, count + 1):
        client.publish(topic, {"id": number, "a": number})
    client.publish_flush()


def take(stream: MessageStream, count: int) -> list[Message]:
    messages: list[Message] = []
    for _ in range(count):
        message = stream.get(TIMEOUT_S)
        assert message is not None, f"only {len(messages)} of {count} messages came"
        messages.append(message)
    return messages


def bodies(client: Client, *arguments: Any, **options: Any) -> list[Any]:
    return sorted((message.json() for message in client.sow(*arguments, **options)), key=lambda body: body["id"])


def test_client_2_a_refused_connect_leaves_queries_usable(make_client: MakeClient) -> None:
    """client.md §21 2"""
    client = make_client()
    store(client, 3)
    with pytest.raises(AlreadyConnectedException):
        client.connect()
    assert client.sow_count("orders") == 3


def test_client_14_a_query_with_statistics_ends_after_them(make_client: MakeClient) -> None:
    """client.md §21 14"""
    client = make_client()
    store(client, 7)
    command = Command("sow", "orders", filter="/a > 2").add_ack_type("stats")
    messages = list(client.execute(command, control=True))
    assert [message.command for message in messages] == ["group_begin", *["sow"] * 5, "group_end", "ack"]
    (ack,) = [message for message in messages if message.command == "ack"]
    assert ack.ack_type == AckType.STATS
    assert (ack.records_returned, ack.matches, ack.topic_matches) == (5, 5, 7)


def test_client_15_records_come_in_batches_and_one_at_a_time(make_client: MakeClient) -> None:
    """client.md §21 15; sow.md §25.45"""
    client = make_client()
    store(client, 25)
    sizes: list[dict[str, Any]] = [{}, {"batch_size": 10}, {"batch_size": 1}]
    for options in sizes:
        messages = list(client.sow("orders", control=True, **options))
        assert [message.command for message in messages] == ["group_begin", *["sow"] * 25, "group_end"]
        assert sorted(message.json()["id"] for message in messages[1:-1]) == list(range(1, 26))
        assert len({message.sow_key for message in messages[1:-1]}) == 25
    with pytest.raises(CommandException):
        client.sow("orders", batch_size=10_001)
    assert client.sow_count("orders") == 25


def test_client_20_records_are_deleted_by_filter_keys_and_data(make_client: MakeClient) -> None:
    """client.md §21 20; sow.md §6"""
    client = make_client()
    store(client, 6)
    keys = {message.json()["id"]: message.sow_key for message in client.sow("orders")}
    assert client.sow_delete("orders", data={"id": 1}).records_deleted == 1
    assert client.sow_delete("orders", data={"id": 99}).records_deleted == 0
    assert client.sow_delete("orders", keys=[str(keys[2]), str(keys[3]), "1"]).records_deleted == 2
    assert client.sow_delete("orders", filter="/a > 5").records_deleted == 1
    assert [body["id"] for body in bodies(client, "orders")] == [4, 5]
    with pytest.raises(ValueError, match="exactly one"):
        client.sow_delete("orders", filter="1=1", data={"id": 4})
    assert client.sow_delete("orders", filter="1=1", stats=False).ack_type == AckType.PROCESSED
    client.flush()
    assert client.sow_count("orders") == 0


def test_client_20_deletes_of_a_publish_store_are_numbered(make_client: MakeClient) -> None:
    """client.md §7: publishes and deletes share the numbers of the publish store"""
    client = make_client(publish_store=MemoryPublishStore())
    store(client, 3)
    assert client.sow_delete("orders", filter="/a = 2").records_deleted == 1
    client.publish_flush(timeout=TIMEOUT_S)
    assert client.unpersisted_count == 0
    assert [body["id"] for body in bodies(client, "orders")] == [1, 3]


def test_client_21_a_flush_makes_publishes_visible_to_queries(make_client: MakeClient) -> None:
    """client.md §21 21"""
    store(make_client("publisher"), 500)
    assert len(bodies(make_client("reader"), "orders")) == 500


def test_client_23_counting_sends_no_record(make_client: MakeClient) -> None:
    """client.md §21 23"""
    client = make_client()
    store(client, 12)
    stray: list[Message] = []
    client.set_last_chance_handler(stray.append)
    before = client.stats.content_in
    assert client.sow_count("orders") == 12
    assert client.sow_count("orders", "/a > 10") == 2
    assert client.stats.content_in == before
    assert stray == []


def test_client_26_a_coroutine_handler_may_query(server: ServerProcess, make_client: MakeClient) -> None:
    """client.md §21 26"""
    store(make_client(), 4)

    async def work() -> int:
        counted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async with AsyncClient("asyncio", f"tcp://127.0.0.1:{server.port()}/amps/json") as client:

            async def handler(message: Message) -> None:
                counted.set_result(await client.sow_count("orders"))

            await client.subscribe("t", handler=handler)
            await client.publish("t", b"{}")
            return await asyncio.wait_for(counted, TIMEOUT_S)

    assert asyncio.run(work()) == 4


def test_client_28_a_full_stream_does_not_hold_up_a_query(make_client: MakeClient) -> None:
    """client.md §21 28"""
    client, publisher = make_client(), make_client("publisher")
    store(publisher, 2)
    with client.subscribe("t", max_depth=10) as stream:
        for number in range(1000):
            publisher.publish("t", {"n": number})
        publisher.flush()
        assert client.sow_count("orders") == 2
        assert [message.json()["n"] for message in take(stream, 1000)] == list(range(1000))


def test_client_29_unread_updates_of_a_record_become_one(make_client: MakeClient) -> None:
    """client.md §21 29"""
    client, publisher = make_client(), make_client("publisher")
    with client.subscribe("orders", conflate=True) as orders, client.subscribe("t", conflate=True) as plain:
        for number in range(100):
            publisher.publish("orders", {"id": 1, "a": number})
            publisher.publish("t", {"n": number})
        publisher.publish_flush()
        client.flush()
        wait_until(lambda: plain.depth == 100, TIMEOUT_S, lambda: f"{plain.depth} messages wait")
        assert orders.depth == 1
        assert take(orders, 1)[0].json() == {"id": 1, "a": 99}
        assert [message.json()["n"] for message in take(plain, 100)] == list(range(100))


def test_client_50_recovery_points_in_a_topic(make_client: MakeClient) -> None:
    """client.md §21 50"""
    publisher, reader = make_client("publisher"), make_client("reader")
    for number in range(1, 5):
        publisher.publish("log", {"n": number})
    publisher.publish_flush()
    points = make_client("points")
    for first, last in ((1, 2), (3, 4)):
        bookmarks = MemoryBookmarkStore(adapter=SOWRecoveryPointAdapter(points, "reader"))
        client = make_client(f"reader-{first}", bookmark_store=bookmarks)
        stream = client.bookmark_subscribe("log", "recent", sub_id="S")
        messages = take(stream, last - first + 1)
        assert [message.json()["n"] for message in messages] == list(range(first, last + 1))
        for message in messages:
            message.discard()
        client.close()
        bookmarks.close()
    (record,) = [message.json() for message in reader.sow("/ADMIN/bookmark_store")]
    assert (record["clientName"], record["subId"]) == ("reader", "S")


def test_client_62_a_query_is_asked_again_after_a_reconnect(make_client: MakeClient, server: ServerProcess) -> None:
    """client.md §21 62: sow_and_subscribe delivers its query again, and then changes"""
    publisher = make_client("publisher", kind=HAClient)
    store(publisher, 2)
    client = make_client("reader", kind=HAClient)
    seen: list[tuple[str, int]] = []
    client.sow_and_subscribe("orders", handler=lambda m: seen.append((m.command, m.json()["id"])))
    wait_until(lambda: len(seen) == 2, TIMEOUT_S, lambda: f"{seen}")
    server.kill_all()
    server.start()
    wait_until(lambda: len(seen) == 4, TIMEOUT_S, lambda: f"{seen}")
    publisher.publish("orders", {"id": 3})
    wait_until(lambda: len(seen) == 5, TIMEOUT_S, lambda: f"{seen}")
    assert sorted(seen[:2]) == sorted(seen[2:4]) == [("sow", 1), ("sow", 2)]
    assert seen[4] == ("publish", 3)


def test_client_67_the_command_line_queries_and_deletes(server: ServerProcess, make_client: MakeClient) -> None:
    """client.md §21 67, §17: order, page, format, select list, keys; deletion by data and by keys"""
    store(make_client(), 5)
    where = (*server_option(server), "-topic", "orders")
    done = run("sow", *where, "-orderby", "/id DESC", "-topn", 2, "-format", "{command}:{sowkey}:{data}")
    lines = [line.split(b":", 2) for line in done.stdout.splitlines()]
    assert [(line[0], json.loads(line[2])["id"]) for line in lines] == [(b"sow", 5), (b"sow", 4)]
    keys = [line[1].decode() for line in lines]
    done = run("sow", *where, "-orderby", "/id", "-topn", 2, "-skipn", 1, "-select", "-/,+/id")
    assert done.stdout.splitlines() == [b'{"id":2}', b'{"id":3}']
    done = run("sow", *where, "-keys", ",".join(keys), "-filter", "/a > 4")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [5]
    assert run("sow_delete", *where, "-keys", keys[0]).stdout == b"total records deleted: 1\n"
    assert run("sow_delete", *where, stdin=b'{"id":1}\n{"id":7}\n').stdout == b"total records deleted: 1\n"
    done = run("publish", *where, "-delta", stdin=b'{"id":2,"b":7}\n')
    assert done.returncode == 0, done.stderr
    assert bodies(make_client("reader"), "orders", "/b = 7") == [{"id": 2, "a": 2, "b": 7}]


@pytest.mark.parametrize("delta", [False, True])
def test_client_a_subscriber_follows_records_until_they_leave(make_client: MakeClient, delta: bool) -> None:
    """client.md §6; sow.md §13, §17: state, changes, out-of-focus messages with reason and key"""
    client, publisher = make_client(), make_client("publisher")
    publisher.publish("orders", {"id": 1, "a": 20, "b": 7})
    publisher.publish_flush()
    call = client.sow_and_delta_subscribe if delta else client.sow_and_subscribe
    with call("orders", "/a > 10", oof=True) as stream:
        (row,) = take(stream, 1)
        assert (row.command, row.json()) == ("sow", {"id": 1, "a": 20, "b": 7})
        publisher.delta_publish("orders", {"id": 1, "a": 21})
        publisher.delta_publish("orders", {"id": 1, "a": 5})
        publisher.publish("orders", {"id": 2, "a": 30})
        assert publisher.sow_delete("orders", filter="/id = 2").records_deleted == 1
        change, left, entered, deleted = take(stream, 4)
    assert (change.command, change.sow_key) == ("publish", row.sow_key)
    assert change.json() == ({"id": 1, "a": 21} if delta else {"id": 1, "a": 21, "b": 7})
    assert (left.command, left.reason, left.sow_key) == ("oof", "match", row.sow_key)
    assert left.json() == {"id": 1, "a": 5, "b": 7}
    assert (entered.command, entered.json()) == ("publish", {"id": 2, "a": 30})
    assert (deleted.command, deleted.reason, deleted.json()) == ("oof", "deleted", {"id": 2, "a": 30})
    assert deleted.sow_key == entered.sow_key != row.sow_key
    assert left.sub_ids == (left.sub_id,)


def test_client_merged_messages_are_replayed(make_client: MakeClient) -> None:
    """sow.md §25.28, with the client library"""
    client = make_client()
    client.publish("orders", {"id": 1, "a": 1})
    client.delta_publish("orders", {"id": 1, "b": 2})
    client.publish_flush()
    with client.bookmark_subscribe("orders", EPOCH) as replay:
        assert [message.json() for message in take(replay, 2)] == [{"id": 1, "a": 1}, {"id": 1, "a": 1, "b": 2}]
