"""The connections of links: pieces are passed on as they came, what is held is limited, and ends are noticed."""

import asyncio
import socket
from collections.abc import Callable, Coroutine

import pytest
import uvloop

from amps.server.replication.frames import JOINED_BYTES, PING, Parser, encode
from amps.server.replication.streams import BUFFER_BYTES, Stream

PIECE = 1 << 16


def with_pair(work: Callable[[Stream, socket.socket], Coroutine[None, None, None]]) -> None:
    """Run `work` with a stream and the socket at its other end, on the loop of the process and on asyncio's own."""

    async def run() -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            theirs.setblocking(False)
            _, stream = await asyncio.get_running_loop().create_connection(Stream, sock=ours)
            async with asyncio.timeout(20):
                await work(stream, theirs)
            stream.transport.abort()
            await asyncio.sleep(0)

    for factory in (uvloop.new_event_loop, asyncio.new_event_loop):
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(run())


async def received(stream: Stream, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = await stream.read(PIECE)
        assert 0 < len(piece) <= PIECE
        data += piece
    return data


def test_what_is_sent_before_the_end_is_read_before_the_end() -> None:
    async def work(stream: Stream, other: socket.socket) -> None:
        other.sendall(b"abc")
        other.close()
        await asyncio.sleep(0.05)
        assert await stream.read(2) == b"ab"
        assert await stream.read(2) == b"c"
        assert await stream.read(2) == b""

    with_pair(work)


def test_a_reader_that_waits_notices_data_and_the_end() -> None:
    async def work(stream: Stream, other: socket.socket) -> None:
        reading = asyncio.create_task(stream.read(10))
        await asyncio.sleep(0)
        other.sendall(b"x")
        assert await reading == b"x"
        reading = asyncio.create_task(stream.read(10))
        await asyncio.sleep(0)
        other.close()
        assert await reading == b""

    with_pair(work)


def test_reading_pauses_while_much_is_held_and_goes_on_without_a_loss() -> None:
    async def work(stream: Stream, other: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        total = 8 * BUFFER_BYTES
        sent = bytes(range(256)) * (total // 256)
        sending = asyncio.create_task(loop.sock_sendall(other, sent))
        done, _ = await asyncio.wait([sending], timeout=0.3)
        assert not done, "the other side must wait"
        assert not stream.transport.is_reading()
        assert await received(stream, total) == sent
        await sending
        assert stream.transport.is_reading()

    with_pair(work)


def test_a_writer_waits_until_the_other_side_takes_what_is_written() -> None:
    async def work(stream: Stream, other: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        stream.write(bytes(8 * BUFFER_BYTES))
        draining = asyncio.create_task(stream.drain())
        done, _ = await asyncio.wait([draining], timeout=0.1)
        assert not done
        got = 0
        while got < 8 * BUFFER_BYTES:
            got += len(await loop.sock_recv(other, 1 << 20))
        await draining

    with_pair(work)


def test_a_lost_connection_ends_a_writer_that_waits() -> None:
    async def work(stream: Stream, other: socket.socket) -> None:
        stream.write(bytes(8 * BUFFER_BYTES))
        draining = asyncio.create_task(stream.drain())
        await asyncio.sleep(0)
        other.close()
        with pytest.raises(ConnectionError):
            await draining
        with pytest.raises(ConnectionError):
            await stream.drain()

    with_pair(work)


def test_a_lost_connection_ends_a_reader_that_waits() -> None:
    async def work(stream: Stream, other: socket.socket) -> None:
        reading = asyncio.create_task(stream.read(1))
        await asyncio.sleep(0)
        stream.connection_lost(ConnectionResetError("gone"))
        with pytest.raises(ConnectionResetError, match="gone"):
            await reading

    with_pair(work)


def test_many_small_pieces_take_little_memory() -> None:
    """A stranger may send a frame byte by byte; each piece must not cost an object."""
    parser = Parser()
    frame = encode(PING, bytes(20_000))
    for at in range(len(frame) - 1):
        parser.feed(frame[at : at + 1])
    assert len(parser._pieces) <= len(frame) // JOINED_BYTES + 1
    parser.feed(frame[-1:])
    found = parser.next()
    assert found is not None
    assert found.payload == bytes(20_000)
