"""Messages and streams as tables of pandas and pyarrow."""

import asyncio
import json
import subprocess
import sys
from typing import Any

import pyarrow
import pytest

from amps.client import DisconnectedException, Message, MessageStream, TableError, to_arrow, to_pandas
from amps.client.payloads.codecs import Codec, codec_for
from amps.client.payloads.tables import read
from tests.unit.client.aio import logged_on as logged_on_async
from tests.unit.client.aio import run
from tests.unit.client.peer import Connection
from tests.unit.client.talk import LoggedOn, stream_of


class Owner:
    """The part of a client that messages use."""

    def __init__(self, message_type: str) -> None:
        self.codec: Codec = codec_for(message_type)


class Route:
    """The part of a subscription that messages use."""

    sub_id: str | None = None
    max_backlog: int | None = None

    def __init__(self, message_type: str) -> None:
        self.owner = Owner(message_type)


def messages(*bodies: Any, message_type: str = "json", header: str = '"c":"p","t":"x","bm":"1|2|"') -> list[Message]:
    """Messages with bodies; other values than bytes are encoded."""
    route = Route(message_type)
    return [
        Message(
            b"{%b}%b"
            % (header.encode(), body if isinstance(body, bytes) else route.owner.codec.encode(body)),
            route,
        )
        for body in bodies
    ]


BODIES = (
    {"id": 1, "leg": {"price": 1.5, "tags": ["a", "b"], "deep": {"x": True}}},
    b"",
    {"id": 2**53 + 1, "leg": {}, "name": "n"},
)


def test_bodies_are_flattened_to_columns_of_pandas() -> None:
    table = to_pandas(messages(*BODIES), headers=["topic", "bookmark"])
    assert list(table.columns) == ["topic", "bookmark", "id", "leg.price", "leg.tags", "leg.deep.x", "name"]
    assert len(table) == 3
    assert str(table["id"].dtype) == "Int64"
    assert table["id"][2] == 2**53 + 1  # a float would not hold it
    assert table["id"].isna().tolist() == [False, True, False]
    assert str(table["leg.deep.x"].dtype) == "boolean"
    assert table["leg.tags"][0] == ["a", "b"]
    assert table["topic"].tolist() == ["x"] * 3


def test_bodies_are_flattened_to_columns_of_arrow() -> None:
    table = to_arrow(messages(*BODIES), headers={"bookmark": "at"})
    assert table.to_pydict() == {
        "at": ["1|2|"] * 3,
        "id": [1, None, 2**53 + 1],
        "leg.price": [1.5, None, None],
        "leg.tags": [["a", "b"], None, None],
        "leg.deep.x": [True, None, None],
        "name": [None, None, "n"],
    }
    nested = to_arrow(messages({"a": {"b": 1}}), separator=None)
    assert nested.to_pylist() == [{"a": {"b": 1}}]
    assert to_arrow(messages({"a": {"b": 1}}), separator="/").column_names == ["a/b"]


def test_a_schema_chooses_columns_and_types() -> None:
    schema = pyarrow.schema([("id", pyarrow.int32()), ("other", pyarrow.string())])
    table = to_arrow(messages({"id": 1, "x": 1}, {"id": 2}), schema=schema)
    assert table.schema == schema
    assert table.to_pydict() == {"id": [1, 2], "other": [None, None]}
    assert to_arrow([], schema=schema).num_rows == 0
    with pytest.raises(TableError, match="column 'id'"):
        to_arrow(messages({"id": 2**40}), schema=schema)


def test_only_messages_with_content_are_rows() -> None:
    markers = messages(b"", b"", header='"c":"group_begin"')
    assert to_pandas([*markers, *messages({"a": 1}), *markers])["a"].tolist() == [1]
    assert to_pandas([]).shape == (0, 0)
    assert to_arrow([], headers=["topic"]).shape == (0, 1)


def test_bodies_without_fields_are_one_column() -> None:
    assert to_arrow(messages(b"[1,2]", b"3")[:1]).to_pydict() == {"data": [[1, 2]]}
    assert to_pandas(messages(b"\x00", message_type="binary"))["data"].tolist() == [b"\x00"]
    assert to_pandas(messages({"a": "1"}, message_type="nvfix")).to_dict("list") == {"a": ["1"]}


def test_a_table_that_cannot_be_made_gives_the_messages_back() -> None:
    mixed = messages({"a": 1}, {"a": "x"})
    with pytest.raises(TableError, match=r"column 'a': .*pass schema=") as caught:
        to_arrow(mixed)
    assert caught.value.messages == mixed
    assert to_pandas(mixed)["a"].tolist() == [1, "x"]
    with pytest.raises(TableError, match="the body of message 1, counted from 0") as caught:
        to_pandas(messages({"a": 1}, b"{"))
    assert len(caught.value.messages) == 2
    for bodies in ([{"topic": 1}], [{"a": 1}, {"topic": 1}]):
        with pytest.raises(TableError, match="have a field 'topic'"):
            to_pandas(messages(*bodies), headers=["topic"])


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="no header 'nonsense'"):
        to_pandas([], headers=["nonsense"])
    with pytest.raises(ValueError, match="no header 'ack'"):
        to_arrow([], headers=["ack"])
    with pytest.raises(TypeError, match="list of attributes"):
        to_pandas([], headers="topic")


@pytest.mark.parametrize("name", ["pandas", "pyarrow"])
def test_a_missing_package_is_named_before_a_message_is_read(
    name: str, monkeypatch: pytest.MonkeyPatch, logged_on: LoggedOn
) -> None:
    client, connection = logged_on()
    stream = stream_of(client, connection)
    send(connection, stream, 1)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match=f"needs the package {name}: pip install {name}"):
        stream.to_pandas() if name == "pandas" else stream.to_arrow()
    message = stream.get(20)
    assert message is not None
    assert message.json() == {"n": 1}


def test_the_client_imports_neither_package() -> None:
    code = "import sys, amps.client; print([m for m in ('pandas', 'pyarrow', 'asyncio') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


# Streams


def send(connection: Connection, stream: MessageStream, *numbers: int) -> None:
    """Send messages of the stream's subscription."""
    for number in numbers:
        connection.publish(str(stream.sub_id), json.dumps({"n": number}).encode())


def test_a_live_stream_is_read_in_batches(logged_on: LoggedOn) -> None:
    client, connection = logged_on()
    stream = stream_of(client, connection)
    send(connection, stream, 1, 2, 3)
    assert stream.to_arrow(max_messages=2).to_pydict() == {"n": [1, 2]}
    assert stream.to_pandas(max_messages=1)["n"].tolist() == [3]
    assert stream.to_pandas(timeout=0.05).shape == (0, 0)
    send(connection, stream, 4)
    assert stream.to_arrow(max_messages=1, timeout=20).to_pydict() == {"n": [4]}
    for wrong in (0, True, "1"):
        with pytest.raises((ValueError, TypeError), match="max_messages"):
            stream.to_arrow(max_messages=wrong)  # type: ignore[arg-type]


def test_a_lost_connection_ends_a_batch_and_then_raises(logged_on: LoggedOn) -> None:
    """The messages before the loss are not lost with it."""
    client, connection = logged_on()
    stream = stream_of(client, connection)
    send(connection, stream, 1, 2)
    connection.close()
    assert stream.to_arrow(timeout=20).to_pydict() == {"n": [1, 2]}
    with pytest.raises(DisconnectedException):
        stream.to_arrow(timeout=20)


def test_without_a_limit_a_part_of_the_stream_is_not_returned(logged_on: LoggedOn) -> None:
    client, connection = logged_on()
    stream = stream_of(client, connection)
    send(connection, stream, 1)
    connection.close()
    with pytest.raises(DisconnectedException):
        stream.to_pandas()


def test_reading_ends_with_the_stream() -> None:
    class Ending:
        left = messages({"n": 1}, {"n": 2})

        def get(self, timeout: float | None = None) -> Message | None:
            if not self.left:
                raise EOFError
            return self.left.pop(0)

    assert len(read(Ending())) == 2
    assert read(Ending(), 5, 1) == []


# The asyncio client


@run
async def test_asyncio_streams_are_read_in_batches() -> None:
    async with logged_on_async() as (client, peer):
        stream = await client.subscribe("t", sub_id="S")
        for number in (1, 2, 3):
            peer.publish("S", json.dumps({"n": number}).encode())
        assert (await stream.to_arrow(max_messages=2)).to_pydict() == {"n": [1, 2]}
        assert (await stream.to_pandas(max_messages=1))["n"].tolist() == [3]
        assert (await stream.to_pandas(timeout=0.05)).shape == (0, 0)
        peer.publish("S", b'{"n":4}')
        while not stream.depth:
            await asyncio.sleep(0)
        peer.kill()
        assert (await stream.to_arrow(timeout=20)).to_pydict() == {"n": [4]}
        with pytest.raises(DisconnectedException):
            await stream.to_arrow(timeout=20)


@pytest.mark.parametrize("conflate", [False, True])
@run
async def test_a_batch_that_is_cancelled_loses_no_message(conflate: bool) -> None:
    """client.md §19.6: the messages that the call has taken are the first that the next one returns."""
    async with logged_on_async() as (client, peer):
        stream = await client.subscribe("t", sub_id="S")
        if conflate:
            stream.conflate()
        for number in (1, 2):
            peer.publish("S", json.dumps({"n": number}).encode(), k=str(number))
        reading = asyncio.create_task(stream.to_arrow(max_messages=3))
        while not stream.depth:
            await asyncio.sleep(0)
        while stream.depth:
            await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert stream.depth == 2
        peer.publish("S", b'{"n":3}', k="3")
        assert (await stream.to_arrow(max_messages=3)).to_pydict() == {"n": [1, 2, 3]}
