"""Servers with message queues, and what a client does with them (the fixture of queues.md §24)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from tests.support.peer import Message, RawClient, Value
from tests.support.peers import Peers
from tests.support.server import ServerProcess

QUIET_S = 0.5
"""Nothing more within that time is quiet."""
LOG_TOPICS = ("^T", "^Q")


def queue_xml(name: str, underlying: str | None = None, *, kind: str = "Queue", **elements: str | int) -> str:
    """One queue; `MaxPerSubscriptionBacklog` is 10 unless it is said to be something else (None: nothing is)."""
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
    """For a server with these queues."""
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
        """Somebody new."""
        return self.peers.logged_on(self.server, transport)

    def consumer(self, backlog: int = 10, queue: str = "Q", sub_id: str = "s") -> RawClient:
        """Somebody new who has subscribed to a queue: sub(n) of the fixture."""
        client = self.client()
        client.subscribe(queue, sub_id, o=f"max_backlog={backlog}")
        return client

    def waiting(self, queue: str = "Q", count: int = 0) -> list[bytes]:
        """What a consumer that comes now is given: so many messages, and no more. They go back to the queue."""
        client = self.consumer(queue=queue)
        found = [message.body for message in client.receive_published(count)]
        quiet(client)
        # What comes next must not be given to it any more; the end of a connection is noticed later.
        client.unsubscribe("s")
        client.close()
        return found


def quiet(client: RawClient) -> None:
    """Nothing more comes."""
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


def counts(client: RawClient, cid: str, last: str = "records_deleted") -> tuple[Value, Value, Value]:
    """topic_matches, matches and the last count of the `stats` ack of a command."""
    stats = client.wait_for_ack("stats", cid)
    return stats["topic_matches"], stats["matches"], stats[last]


@dataclass(frozen=True, slots=True)
class Record:
    """What a query shows: a message with the header of its own."""

    topic: str
    header: dict[str, Value]
    body: bytes

    @property
    def key(self) -> int:
        """Its transaction id."""
        return int(str(self.header["k"]))


def records_of(client: RawClient) -> list[Record]:
    """The records of the group that comes next."""
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
    """What a query of Q shows, in the order of the log, and its counts: topic_matches, matches, records_returned."""
    cid = client.new_id()
    client.send({"c": "sow", "t": "Q", "cid": cid, "a": "stats", **fields})
    records = records_of(client)
    keys = [record.key for record in records]
    assert keys == sorted(set(keys))
    return [record.body for record in records], counts(client, cid, "records_returned")
