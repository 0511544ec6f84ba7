"""Servers with message queues, and the clients' operations on them (the fixture of queues.md §24)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from tests.support.peer import Message, RawClient, Value
from tests.support.peers import Peers
from tests.support.server import ServerProcess

QUIET_S = 0.2
"""The time without a message that counts as quiet, after the server has processed all commands."""
LOG_TOPICS = ("^T", "^Q")


def queue_xml(name: str, underlying: str | None = None, *, kind: str = "Queue", **elements: str | int) -> str:
    """One queue; `MaxPerSubscriptionBacklog` is 10 unless another value is given (None omits it)."""
    given: dict[str, Any] = {
        "Name": name,
        "MessageType": "json",
        "UnderlyingTopic": underlying,
        "MaxPerSubscriptionBacklog": 10,
        **elements,
    }
    inner = "".join(f"<{tag}>{escape(str(text))}</{tag}>" for tag, text in given.items() if text is not None)
    return f"<{kind}>{inner}</{kind}>"


def options(*queues: str, **more: Any) -> dict[str, Any]:
    """The options of a server with these queues."""
    instance_xml = f"<SOW>{''.join(queues)}</SOW>"
    return {"log_topics": LOG_TOPICS, "instance_xml": instance_xml, **more}


def bodies(*numbers: int) -> list[bytes]:
    """m1, m2, …"""
    return [b'{"id":%d}' % number for number in numbers]


class Queueing:
    """A server with queues: its publisher and its consumers."""

    def __init__(self, server: ServerProcess, peers: Peers) -> None:
        self.server = server
        self.peers = peers
        self.publisher = peers.logged_on(server)

    def publish(self, *numbers: int, topic: str = "T", **fields: Value) -> None:
        """Publish messages; they are durable then."""
        self.publish_bodies(bodies(*numbers), topic=topic, **fields)

    def publish_bodies(self, published: Sequence[bytes], topic: str = "T", **fields: Value) -> None:
        for body in published:
            self.publisher.publish(topic, body, **fields)
        self.publisher.flush("persisted")

    def client(self, transport: str | None = None) -> RawClient:
        """A new client."""
        return self.peers.logged_on(self.server, transport)

    def consumer(self, backlog: int = 10, queue: str = "Q", sub_id: str = "s") -> RawClient:
        """A new client that has subscribed to a queue: sub(n) of the fixture."""
        client = self.client()
        client.subscribe(queue, sub_id, o=f"max_backlog={backlog}")
        return client

    def waiting(self, queue: str = "Q", count: int = 0) -> list[bytes]:
        """The messages that a new consumer receives, which must be `count` and no more. They return to the queue."""
        client = self.consumer(queue=queue)
        found = [message.body for message in client.receive_published(count)]
        quiet(client)
        # Later messages must not go to it; the server notices the end of a connection only later.
        client.unsubscribe("s")
        client.close()
        return found


def quiet(client: RawClient) -> None:
    """Check that no further message comes: not for the commands so far, and not by a timer of the server."""
    client.expect_silence()
    client.expect_nothing_for(QUIET_S)


def acknowledge(
    client: RawClient, *messages: Message | str, queue: str | None = None, **fields: Value
) -> Message:
    """Acknowledge messages that were received, or bookmarks; the `processed` ack is returned."""
    names = [message if isinstance(message, str) else str(message["bm"]) for message in messages]
    topic = queue
    if topic is None:
        topic = next((str(message["t"]) for message in messages if isinstance(message, Message)), "Q")
    return client.request({"c": "sow_delete", "t": topic, "bm": ",".join(names), **fields})


def transaction_body(*publishes: tuple[dict[str, Value], bytes]) -> bytes:
    """The body of the command: publishes, each a header and a body."""
    parts = []
    for header, body in publishes:
        frame = json.dumps(header, separators=(",", ":")).encode() + body
        parts.append(len(frame).to_bytes(4, "big") + frame)
    return b"".join(parts)


def result(body: bytes, topic: str = "TR", **fields: Value) -> tuple[dict[str, Value], bytes]:
    return {"c": "p", "t": topic, **fields}, body


def send(
    client: RawClient, messages: list[Message] | str, sequence: int, body: bytes, **fields: Value
) -> str:
    """Send a transaction; its command id is returned."""
    bookmarks = messages if isinstance(messages, str) else ",".join(str(one["bm"]) for one in messages)
    command_id = client.new_id()
    header: dict[str, Value] = {
        "c": "transaction",
        "cid": command_id,
        "t": "Q",
        "bm": bookmarks,
        "s": sequence,
        "a": "persisted",
        **fields,
    }
    client.send(header, body)
    return command_id


def transact(
    client: RawClient, messages: list[Message] | str, sequence: int, body: bytes, **fields: Value
) -> Message:
    """Send a transaction and wait for its `persisted` acknowledgement."""
    return client.wait_for_ack("persisted", send(client, messages, sequence, body, **fields))


def counts(client: RawClient, cid: str, last: str = "records_deleted") -> tuple[Value, Value, Value]:
    """topic_matches, matches and the last count of the `stats` ack of a command."""
    stats = client.wait_for_ack("stats", cid)
    return stats["topic_matches"], stats["matches"], stats[last]


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a query's result: a message with a header of its own."""

    topic: str
    header: dict[str, Value]
    body: bytes

    @property
    def key(self) -> int:
        """Its transaction id."""
        return int(str(self.header["k"]))


def records_of(client: RawClient) -> list[Record]:
    """Receive the next group and return its records."""
    records = []
    assert client.receive()["c"] == "group_begin"
    while (message := client.receive())["c"] == "sow":
        data = message.body
        for _ in range(int(str(message["bs"]))):
            header, end = json.JSONDecoder().raw_decode(data.decode())
            records.append(Record(str(message["t"]), header, data[end : end + header["l"]]))
            data = data[end + header["l"] :]
        assert data == b""
    assert message["c"] == "group_end"
    return records


def query(client: RawClient, **fields: Value) -> tuple[list[bytes], tuple[Value, Value, Value]]:
    """The result of a query of Q, in log order, and its counts: topic_matches, matches, records_returned."""
    cid = client.new_id()
    client.send({"c": "sow", "t": "Q", "cid": cid, "a": "stats", **fields})
    records = records_of(client)
    keys = [record.key for record in records]
    assert keys == sorted(set(keys))
    return [record.body for record in records], counts(client, cid, "records_returned")
