"""SOW topics in the configuration of a server under test, and what clients ask of them."""

import json
from collections.abc import Iterable
from typing import Any

from tests.support.peer import Message, RawClient, Value
from tests.support.queues import Record, records_of


def topic_xml(name: str, *keys: str, message_type: str = "json", **elements: str) -> str:
    """One `SOW/Topic`, with a file below the working directory unless it is transient."""
    parts = [f"<Name>{name}</Name><MessageType>{message_type}</MessageType>"]
    parts += [f"<Key>{key}</Key>" for key in keys]
    if elements.get("Durability") != "transient":
        elements = {"FileName": f"./sow/{name.strip('/')}.sow", **elements}
    parts += [f"<{element}>{value}</{element}>" for element, value in elements.items()]
    return f"<Topic>{''.join(parts)}</Topic>"


def options(*topics: str, logged: Iterable[str] = (), **more: Any) -> dict[str, Any]:
    """Options of a server with these SOW topics. `logged`: names of recorded topics."""
    logged = list(logged)
    return {"instance_xml": f"<SOW>{''.join(topics)}</SOW>", "log_topics": logged or None, **more}


def publish(client: RawClient, topic: str, *messages: dict[str, Any], **fields: Value) -> None:
    """Publish messages, and wait until they are processed."""
    for message in messages:
        cid = client.new_id()
        header: dict[str, Value] = {"c": "p", "t": topic, "cid": cid, "a": "processed", **fields}
        client.send(header, json.dumps(message, separators=(",", ":")).encode())
        assert client.wait_for_ack("processed", cid).succeeded


def rows(client: RawClient, topic: str, **fields: Value) -> list[Record]:
    """The records of a query."""
    client.send({"c": "sow", "t": topic, "cid": client.new_id(), "bs": 10, **fields})
    return records_of(client)


def bodies(client: RawClient, topic: str, **fields: Value) -> list[Any]:
    """The messages of a query, as parsed JSON."""
    return [json.loads(row.body) for row in rows(client, topic, **fields)]


def failure(client: RawClient, **fields: Value) -> str:
    """The reason why a command fails; nothing else is sent for it."""
    ack = client.request({"bs": 10, "a": "processed", **fields})
    assert ack.failed, ack
    client.expect_silence()
    return ack.reason


def kinds(messages: Iterable[Message]) -> list[Value]:
    """Of each message its command, of acknowledgements their type."""
    return [message.get("a") or message["c"] for message in messages]
