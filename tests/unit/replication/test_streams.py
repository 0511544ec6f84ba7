"""The connections of links: bytes go where the reader wants them, what is held is limited, and ends are noticed."""

import asyncio
import socket
from collections.abc import Callable, Coroutine

import pytest
import uvloop

from amps.server.replication.streams import EARLY_BYTES, Stream

PIECE = 1 << 16
MANY_BYTES = 8 << 20
"""More than the buffers of a connection hold."""


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


async def read(stream: Stream, most: int) -> bytes:
    room = bytearray(most)
    return bytes(room[: await stream.read_into(memoryview(room), False)])


async def received(stream: Stream, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = await read(stream, PIECE)
        assert 0 < len(piece) <= PIECE
        data += piece
    return data


def test_what_is_sent_before_the_end_is_read_before_the_end() -> None:
    async def work(stream: Stream, other: socket.socket) -> None:
        other.sendall(b"abc")
        other.close()
        await asyncio.sleep(0.05)
        assert await read(stream, 2) == b"ab"
        assert await read(stream, 2) == b"c"
        assert await read(stream, 2) == b""

    with_pair(work)


def test_a_reader_may_wait_until_its_memory_is_full() -> None:
    async def work(stream: Stream, other: socket.socket) -> None:
        other.sendall(b"ab")
        await asyncio.sleep(0.01)
        assert await read(stream, 1) == b"a"
        room = bytearray(5)
        reading = asyncio.create_task(stream.read_into(memoryview(room), True))
        for part in (b"c", b"de"):
            before = stream.bytes_received
            other.sendall(part)
            await asyncio.sleep(0.01)
            assert not reading.done()
            assert stream.bytes_received == before + len(part)
        other.sendall(b"fghi")
        assert await reading == 5
        assert room == b"bcdef"
        assert await read(stream, 9) == b"ghi"
        reading = asyncio.create_task(stream.read_into(memoryview(room), True))
        other.sendall(b"jk")
        await asyncio.sleep(0.01)
        other.close()
        assert await reading == 0, "a part is as good as nothing"

    with_pair(work)


def test_a_reader_that_waits_notices_data_and_the_end() -> None:
    async def work(stream: Stream, other: socket.socket) -> None:
        reading = asyncio.create_task(read(stream, 10))
        await asyncio.sleep(0)
        other.sendall(b"x")
        assert await reading == b"x"
        reading = asyncio.create_task(read(stream, 10))
        await asyncio.sleep(0)
        other.close()
        assert await reading == b""

    with_pair(work)


def test_the_other_side_waits_while_nobody_reads_and_nothing_is_lost() -> None:
    async def work(stream: Stream, other: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        total = MANY_BYTES
        sent = bytes(range(256)) * (total // 256)
        sending = asyncio.create_task(loop.sock_sendall(other, sent))
        done, _ = await asyncio.wait([sending], timeout=0.3)
        assert not done, "the other side must wait"
        assert len(stream._held) <= EARLY_BYTES
        assert await received(stream, total) == sent
        await sending

    with_pair(work)


def test_what_comes_after_a_reader_has_given_up_is_kept() -> None:
    async def work(stream: Stream, other: socket.socket) -> None:
        reading = asyncio.create_task(read(stream, 10))
        await asyncio.sleep(0.01)
        reading.cancel()
        await asyncio.wait([reading])
        other.sendall(b"abc")
        await asyncio.sleep(0.05)
        assert await received(stream, 3) == b"abc"

    with_pair(work)


def test_a_writer_waits_until_the_other_side_takes_what_is_written() -> None:
    async def work(stream: Stream, other: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        stream.writelines([bytes(MANY_BYTES // 2), memoryview(bytes(MANY_BYTES // 2))])
        draining = asyncio.create_task(stream.drain())
        done, _ = await asyncio.wait([draining], timeout=0.1)
        assert not done
        got = 0
        while got < MANY_BYTES:
            got += len(await loop.sock_recv(other, 1 << 20))
        await draining

    with_pair(work)


def test_a_lost_connection_ends_a_writer_that_waits() -> None:
    async def work(stream: Stream, other: socket.socket) -> None:
        stream.writelines([bytes(MANY_BYTES // 2), memoryview(bytes(MANY_BYTES // 2))])
        draining = asyncio.create_task(stream.drain())
        await asyncio.sleep(0)
        other.close()
        with pytest.raises(ConnectionError):
            await draining
        with pytest.raises(ConnectionError):
            await stream.drain()

    with_pair(work)


def test_writing_to_a_closed_connection_is_an_ordinary_loss() -> None:
    """uvloop raises a RuntimeError there, which would look like a defect in the log of the server."""

    async def work(stream: Stream, theirs: socket.socket) -> None:
        stream.close()
        with pytest.raises(ConnectionResetError):
            stream.writelines([b"late"])

    with_pair(work)


def test_a_lost_connection_ends_a_reader_that_waits() -> None:
    async def work(stream: Stream, other: socket.socket) -> None:
        reading = asyncio.create_task(read(stream, 1))
        await asyncio.sleep(0)
        stream.connection_lost(ConnectionResetError("gone"))
        with pytest.raises(ConnectionResetError, match="gone"):
            await reading

    with_pair(work)
