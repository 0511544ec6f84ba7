"""Failures of the asyncio client's surroundings: cancelled tasks, dropped objects, slow peers, other threads.

No failure may lose a message, hang a task, or leave a task behind.
"""

import asyncio
import gc
import json
import os
import socket
import ssl
import struct
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import uvloop

from amps.aio import AsyncClient
from amps.client import (
    AMPSException,
    Command,
    ConnectionRefusedException,
    ConnectionState,
    DisconnectedException,
    Message,
    TimedOutException,
    UsageException,
)
from tests.support.certificates import Authority
from tests.unit.client.aio import bodies, logged_on, run, until
from tests.unit.client.aio_peer import AsyncPeer
from tests.unit.client.peer import WAIT_S, encode


def handler_tasks() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("amps-handler")]


def acks(peer: AsyncPeer) -> list[tuple[str, str | None]]:
    return [(frame["bm"], frame.get("o")) for frame in peer.frames if frame["c"] == "sow_delete"]


async def fill(client: AsyncClient) -> None:
    """Publish until the server, which does not read, has filled the connection."""
    while not client._link.outbox.blocked:
        client.publish_nowait("t", b"x" * 100_000)
        await asyncio.sleep(0)
    with pytest.raises(BufferError):
        client.publish_nowait("t", b"x")


# Streams


@run
async def test_client_31_a_dropped_stream_unsubscribes() -> None:
    """client.md §21, 31: otherwise its buffer would fill, and stop all reading of the client"""
    async with logged_on(max_depth=5) as (client, peer):
        stream = await client.subscribe("t")
        sub_id = stream.sub_id
        for body in bodies(0, 50):
            peer.publish(sub_id or "", body)
        while stream.depth < 5:
            await asyncio.sleep(0.005)
        del stream
        gc.collect()
        assert (await peer.expect("unsubscribe"))["sub_id"] == sub_id
        await client.flush()
        assert client._link.delivery.reading


@run
async def test_a_message_wakes_another_consumer_than_the_one_just_cancelled() -> None:
    """The cancelled task has not run yet when the message arrives."""
    async with logged_on() as (client, _peer):
        stream = await client.subscribe("t")
        first, second = asyncio.create_task(stream.get()), asyncio.create_task(stream.get())
        await asyncio.sleep(0)
        first.cancel()
        stream._queue.put([Message(b'{"c":"p"}one', None, "publish")], overfill=False)
        message = await asyncio.wait_for(second, WAIT_S)
        assert message is not None
        assert message.data == b"one"


@run
async def test_a_request_that_is_never_used_warns() -> None:
    async with logged_on() as (client, peer):
        with pytest.warns(RuntimeWarning, match="nothing was sent"):
            client.subscribe("t")
        await client.flush()
        assert "subscribe" not in [frame["c"] for frame in peer.frames]


# Publishing


@run
async def test_a_cancelled_publish_has_not_published() -> None:
    """A publish that lets the event loop read does so before its message is accepted."""
    async with logged_on() as (client, peer):
        begun = 0

        async def publish() -> None:
            nonlocal begun
            while True:
                begun += 1
                call = client.publish if begun % 2 else client.delta_publish
                await call("t", b"%06d" % begun + b"x" * 1000)

        task = asyncio.create_task(publish())
        await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.flush()
        sent = [int(frame.body[:6]) for frame in peer.frames if "publish" in frame["c"]]
        assert sent == list(range(1, begun))


@pytest.mark.parametrize("call", ["publish", "delta_publish"])
@run
async def test_publishing_lets_other_tasks_run(call: str) -> None:
    """Otherwise a loop of publishes would read no acknowledgement, and send no heartbeat."""
    async with logged_on() as (client, _peer):
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        for _ in range(1000):
            await getattr(client, call)("t", b"x" * 1000)
        assert turns >= 8
        task.cancel()


@pytest.mark.parametrize("call", ["publish", "publish_nowait", "send"])
@run
async def test_another_thread_cannot_publish(call: str) -> None:
    async with logged_on() as (client, peer):
        client.publish_nowait("t", b"before")
        raised: list[BaseException] = []

        def elsewhere() -> None:
            try:
                if call == "publish":
                    client.publish("t", b"x").send(None)
                elif call == "publish_nowait":
                    client.publish_nowait("t", b"x")
                else:
                    client.send(Command("publish", "t", data=b"x"))
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert [type(error) for error in raised] == [UsageException]
        await client.flush()
        assert [frame.body for frame in peer.frames if frame["c"] == "publish"] == [b"before"]


@run
async def test_send_raises_when_the_server_does_not_read() -> None:
    async with logged_on(timeout=0.1) as (client, peer):
        peer.read(False)
        await fill(client)
        before = client.stats.messages_out
        with pytest.raises(BufferError, match="does not read"):
            client.send(Command("publish", "t", data=b"x"))
        assert client.stats.messages_out == before
        peer.read(True)


# Handlers


@pytest.mark.parametrize("concurrency", [1, 2])
@run
async def test_a_cancellation_inside_a_handler_ends_no_subscription(concurrency: int) -> None:
    """A handler may await a task that is cancelled. Its message goes back, and the queue behind it is handled."""
    async with logged_on() as (client, peer):
        errors: list[BaseException] = []
        client.set_exception_listener(errors.append)
        seen: list[bytes] = []

        async def handler(message: Message) -> None:
            seen.append(message.data)
            if message.data == b"0":
                other = asyncio.get_running_loop().create_future()
                other.cancel()
                await other

        sub_id = await client.consume("q", handler, concurrency=concurrency)
        peer.send(
            *[{"c": "p", "t": "t", "sids": sub_id, "bm": f"1|{at}|", "lp": "0"} for at in range(3)], body=b""
        )
        for at, body in enumerate(bodies(0, 3), 3):
            peer.publish(sub_id, body, bm=f"1|{at}|", lp="0")
        await until(lambda: len(acks(peer)) == 6)
        assert ("1|3|", "cancel") in acks(peer)
        assert [ack for ack in acks(peer) if ack[1]] == [("1|3|", "cancel")]
        assert sorted(seen) == [b"", b"", b"", b"0", b"1", b"2"]
        assert [type(error) for error in errors] == [asyncio.CancelledError]


@run
async def test_a_plain_function_that_returns_a_coroutine_has_not_handled_its_message() -> None:
    async with logged_on() as (client, peer):
        errors: list[BaseException] = []
        client.set_exception_listener(errors.append)

        async def handler(message: Message) -> None:
            raise AssertionError("nothing awaits this")

        sub_id = await client.consume("q", lambda message: handler(message))
        peer.publish(sub_id, b"x", bm="1|1|", lp="0")
        await peer.expect("sow_delete")
        assert acks(peer) == [("1|1|", "cancel")]
        assert "returned a coroutine" in str(errors[0])


@pytest.mark.parametrize("end", ["the connection is lost", "the subscription ends", "close is cancelled"])
@run
async def test_close_leaves_no_handler_running(end: str) -> None:
    async with AsyncPeer() as peer:
        client = await AsyncClient("me", peer.uri).open()
        started = asyncio.Event()

        async def handler(message: Message) -> None:
            started.set()
            await asyncio.sleep(1000)

        sub_id = await client.subscribe("t", handler=handler)
        peer.publish(sub_id, b"x")
        await started.wait()
        if end == "the connection is lost":
            peer.kill()
            await until(lambda: not client.connected)
        elif end == "the subscription ends":
            await client.unsubscribe(sub_id)
        if end == "close is cancelled":
            closing = asyncio.create_task(client.close(timeout=None))
            await asyncio.sleep(0.01)
            closing.cancel()
            await asyncio.wait([closing])
        else:
            await client.close(timeout=0.05)
        await until(lambda: not handler_tasks())


@run
async def test_close_does_not_wait_for_a_handler_that_ignores_its_cancellation() -> None:
    async with AsyncPeer() as peer:
        client = await AsyncClient("me", peer.uri).open()
        started, release = asyncio.Event(), asyncio.Event()

        async def handler(message: Message) -> None:
            started.set()
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        sub_id = await client.subscribe("t", handler=handler)
        peer.publish(sub_id, b"x")
        await started.wait()
        await asyncio.wait_for(client.close(timeout=0.05), WAIT_S)
        release.set()
        await until(lambda: not handler_tasks())


# Connections


def test_a_slow_lookup_of_a_name_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the call nor the end of the event loop waits for a lookup, which cannot be cancelled."""
    real, release = socket.getaddrinfo, threading.Event()

    def slow(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        if host == "slow.example" and not options.get("flags"):
            release.wait(WAIT_S)
        return real(host, port, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)

    async def connect() -> None:
        with pytest.raises(TimedOutException):
            await AsyncClient("me", "tcp://slow.example:1/amps/json").connect(timeout=0.1)

    started = time.monotonic()
    asyncio.run(connect())
    assert time.monotonic() - started < WAIT_S / 2
    release.set()


@run
async def test_a_logon_ends_while_its_authenticator_waits() -> None:
    class Waiting:
        async def authenticate(self, username: str, password: str) -> str:
            await asyncio.sleep(1000)
            return ""

        async def retry(self, username: str, password: str) -> str:
            return ""

        def completed(self, username: str, password: str, reason: str) -> None:
            pass

    async with AsyncPeer() as peer:
        client = AsyncClient("me", peer.uri, authenticator=Waiting())  # type: ignore[arg-type]
        with pytest.raises(TimedOutException, match="authenticator"):
            await client.open(timeout=0.1)
        assert not client.connected
        await client.close()


@run
async def test_a_loss_is_reported_although_a_stream_is_full() -> None:
    async with logged_on(max_depth=5) as (client, peer):
        stream = await client.subscribe("t")
        fields = {"c": "p", "t": "t", "sids": stream.sub_id}
        assert peer._writer is not None
        peer._writer.write(b"".join(encode(fields, body) for body in bodies(0, 50)))  # received in one step
        await until(lambda: stream.depth == 5)
        peer.kill()
        while client.connected:  # reading is paused: the loss shows when something is sent
            client.publish_nowait("t", b"x")
            await asyncio.sleep(0.01)
        assert client.state is ConnectionState.DISCONNECTED
        assert [message.data for message in stream.drain()] == bodies(0, 50)
        with pytest.raises(DisconnectedException):
            await anext(stream)


@run
async def test_acknowledgements_are_sent_at_the_end_although_the_server_reads_late() -> None:
    async with AsyncPeer() as peer:
        client = await AsyncClient("me", peer.uri, ack_batch_size=100).open()
        stream = await client.subscribe("q", max_backlog=100)
        peer.publish(stream.sub_id or "", b"x", bm="1|1|", lp="0")
        message = await stream.get(WAIT_S)
        assert message is not None
        peer.read(False)
        await fill(client)
        message.ack()
        closing = asyncio.create_task(client.close(timeout=WAIT_S))
        await asyncio.sleep(0.01)
        peer.read(True)
        await closing
        await until(lambda: acks(peer) == [("1|1|", None)])


@run
async def test_what_was_published_before_a_disconnect_arrives_although_the_server_sends() -> None:
    """A socket that is closed with unread bytes resets its connection, and what it has not sent is lost."""
    received = bytearray()
    ended = asyncio.Event()
    begin = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = int.from_bytes(await reader.readexactly(4), "big")
        logon = json.loads(await reader.readexactly(length))
        writer.write(encode({"c": "ack", "cid": logon["cid"], "a": "processed", "status": "success"}))
        await begin.wait()
        writer.write(encode({"c": "p", "t": "t", "sids": "1"}, b"x") * 500_000)
        try:
            await writer.drain()  # it reads only when the client has read
            while data := await reader.read(65536):
                received.extend(data)
        finally:
            writer.close()
            ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=4096)
    client = AsyncClient("me", f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}/amps/json")
    await client.open()
    await client.publish("t", b"x" * 3_000_000)
    begin.set()
    await client.disconnect(timeout=WAIT_S)
    await asyncio.wait_for(ended.wait(), WAIT_S)
    assert len(received) > 3_000_000
    server.close()
    await client.close()


@run
async def test_calls_are_refused_while_the_client_disconnects() -> None:
    async with AsyncPeer() as peer:
        client = await AsyncClient("me", peer.uri).open()
        peer.read(False)
        await fill(client)
        waiting = asyncio.create_task(client.flush(timeout=None))
        leaving = asyncio.create_task(client.disconnect(timeout=0.2))
        await asyncio.sleep(0.02)
        assert not client.connected
        with pytest.raises(DisconnectedException):
            client.publish_nowait("t", b"lost otherwise")
        with pytest.raises(DisconnectedException):
            await waiting
        with pytest.raises(AMPSException, match="still closing"):
            await client.connect()
        await leaving
        peer.read(True)
        await client.open()
        await client.close()


@pytest.mark.parametrize("scheme", ["tcp", "tcps", "unix"])
@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_everything_arrives_at_a_server_that_reads_late_and_never_closes(
    scheme: str, factory: Any, tmp_path: Path
) -> None:
    """`disconnect` then ends with the bytes, not with its timeout."""
    received = bytearray()
    stay: asyncio.Event

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = int.from_bytes(await reader.readexactly(4), "big")
        logon = json.loads(await reader.readexactly(length))
        writer.write(encode({"c": "ack", "cid": logon["cid"], "a": "processed", "status": "success"}))
        await asyncio.sleep(0.3)
        while data := await reader.read(65536):
            received.extend(data)
        await stay.wait()
        writer.close()

    async def use() -> None:
        nonlocal stay
        stay = asyncio.Event()
        trusting: ssl.SSLContext | None = None
        if scheme == "unix":
            path = str(tmp_path / "socket")
            server = await asyncio.start_unix_server(serve, path, limit=4096)
            uri = f"unix://localhost:0/amps/json?path={path}"
        else:
            context: ssl.SSLContext | None = None
            if scheme == "tcps":
                authority = Authority(tmp_path / "certificates")
                identity = authority.issue("server")
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(identity.certificate, identity.private_key)
                trusting = authority.client_context()
            server = await asyncio.start_server(serve, "localhost", 0, limit=4096, ssl=context)
            uri = f"{scheme}://localhost:{server.sockets[0].getsockname()[1]}/amps/json"
        client = AsyncClient("me", uri, tls=trusting)
        await client.open()
        await client.publish("t", b"x" * 8_000_000)
        started = time.monotonic()
        await client.disconnect(timeout=60)
        assert time.monotonic() - started < 30
        async with asyncio.timeout(WAIT_S):
            while len(received) < 8_000_000:
                await asyncio.sleep(0.01)
        stay.set()
        server.close()
        await client.close()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(use())


LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


def raised_by_open(
    client: AsyncClient, loop_factory: Any, serve: Any, context: ssl.SSLContext | None
) -> BaseException | None:
    """What `open` raises if the server handles its connection so."""

    async def use() -> BaseException | None:
        server = await asyncio.start_server(serve, "localhost", 0, ssl=context)
        client.uri = str(client.uri).replace(":0/", f":{server.sockets[0].getsockname()[1]}/")
        try:
            await client.open()
        except Exception as error:
            return error
        finally:
            server.close()
            await client.close()
        return None

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(use())


@pytest.mark.parametrize("loop_factory", LOOPS)
@pytest.mark.parametrize("reset", [False, True])
def test_a_server_that_answers_nothing_may_expect_tls(loop_factory: Any, reset: bool) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        if reset:  # a close without a linger time resets the connection
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.close()

    error = raised_by_open(AsyncClient("plain", "tcp://localhost:0/amps/json"), loop_factory, serve, None)
    assert isinstance(error, DisconnectedException)
    assert "does its port expect TLS (tcps)?" in str(error)


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_a_server_that_has_answered_does_not_expect_tls(loop_factory: Any) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(encode({"c": "heartbeat"}))
        await writer.drain()
        await reader.read(4)
        writer.close()

    error = raised_by_open(AsyncClient("plain", "tcp://localhost:0/amps/json"), loop_factory, serve, None)
    assert isinstance(error, DisconnectedException)
    assert "TLS" not in str(error)


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_a_server_that_closes_in_the_tls_handshake_may_not_expect_tls(loop_factory: Any) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        writer.close()

    client = AsyncClient("secret", "tcps://localhost:0/amps/json", timeout=20)
    error = raised_by_open(client, loop_factory, serve, None)
    assert isinstance(error, ConnectionRefusedException)
    assert "does it expect TLS here?" in str(error)


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_a_server_that_closes_right_after_the_tls_handshake_may_want_a_certificate(
    loop_factory: Any, tmp_path: Path
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.close()

    authority = Authority(tmp_path / "certificates")
    identity = authority.issue("localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.private_key)
    client = AsyncClient("secret", "tcps://localhost:0/amps/json", tls=authority.client_context())
    error = raised_by_open(client, loop_factory, serve, context)
    assert isinstance(error, DisconnectedException)
    assert "does it want a certificate that it knows?" in str(error)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("end", ["timeout", "cancellation"])
@pytest.mark.parametrize("scheme", ["tcp", "tcps"])
@run
async def test_a_connection_that_is_never_made_leaves_no_socket(scheme: str, end: str) -> None:
    """The peer accepts and says nothing: no answer to the TLS handshake, or to the HTTP preflight."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(65536):
                pass
        except OSError:
            pass
        writer.close()
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    before = descriptors()
    client = AsyncClient("me", f"{scheme}://127.0.0.1:{port}/amps/json?http_preflight=true")
    task = asyncio.create_task(client.connect(timeout=0.1 if end == "timeout" else None))
    if end == "cancellation":
        await asyncio.sleep(0.05)
        task.cancel()
    with pytest.raises((TimedOutException, asyncio.CancelledError)):
        await task
    await asyncio.wait_for(ended.wait(), WAIT_S)
    await until(lambda: descriptors() <= before)
    server.close()
    await client.close()


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_client_runs_on_the_loop_of_the_application(factory: Any) -> None:
    async def use() -> None:
        async with logged_on() as (client, peer):
            stream = await client.subscribe("t")
            for body in bodies(0, 100):
                peer.publish(stream.sub_id or "", body)
            assert [(await anext(stream)).data for _ in range(100)] == bodies(0, 100)
            await client.publish("t", b"x" * 1_000_000)
            assert await client.sow_count("t") == 7

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(use())
