"""SOW topics for servers under test."""

import json
from collections.abc import Iterator
from xml.sax.saxutils import escape

import pytest

from tests.support.peer import Message, RawClient
from tests.support.queues import queue_xml
from tests.support.server import ServerProcess, Transport


def sow_topic_xml(name: str, *keys: str, message_type: str = "json", extra_xml: str = "") -> str:
    """One `SOW/Topic` in memory; without keys, publishers provide them."""
    fields = "".join(f"<Key>{escape(key)}</Key>" for key in keys)
    return (
        f"<Topic><Name>{escape(name)}</Name><MessageType>{message_type}</MessageType>{fields}"
        f"<Durability>transient</Durability>{extra_xml}</Topic>"
    )


def sow_xml(*topics: str) -> str:
    """The block `SOW`."""
    return f"<SOW>{''.join(topics)}</SOW>"


FOCUS_TOPICS = sow_xml(
    *(
        sow_topic_xml(f"{place}{name}", *keys, extra_xml=extra)
        for place in ("", "L/")
        for name, keys, extra in (
            ("orders", ("/id",), ""),
            ("others", ("/id",), ""),
            ("given", (), ""),
            ("short", ("/id",), "<Expiration>1s</Expiration>"),
        )
    ),
    sow_topic_xml("fixes", "/37", message_type="fix"),
    sow_topic_xml("bytes", message_type="binary"),
    sow_topic_xml("bucket", "/id", extra_xml="<Expiration>1s</Expiration><Pattern>^/logical/</Pattern>"),
    sow_topic_xml("worked", "/id"),
    queue_xml("jobs", "worked"),
)
"""Each json topic twice: not recorded, and recorded by the transaction log (`L/`)."""


def focus_server(directories: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with FOCUS_TOPICS, for a fixture of a module."""
    server = ServerProcess(
        directories.mktemp("sow"),
        transports=[Transport(name=kind, message_type=kind) for kind in ("json", "fix", "binary")],
        log_topics=("^L/", "^worked$", "^jobs$"),
        instance_xml=FOCUS_TOPICS,
    )
    try:
        server.start()
        yield server
        server.stop()
    finally:
        server.close()


class Record:
    """A record of a topic, which one test uses."""

    def __init__(self, publisher: RawClient, topic: str, key: str) -> None:
        self.publisher = publisher
        self.topic = topic
        self.key = key

    def publish(self, command: str = "p", **fields: object) -> dict[str, object]:
        """Publish a state, or a part of it; returns it as a subscriber sees it."""
        body = {"id": self.key, **fields}
        self.publisher.send({"c": command, "t": self.topic}, json.dumps(body).encode())
        self.publisher.flush()
        return body

    def change(self, **fields: object) -> dict[str, object]:
        return self.publish("delta_publish", **fields)


def seen(message: Message) -> tuple[str, object]:
    """What a message is, and its JSON body."""
    return message.command, json.loads(message.body)
