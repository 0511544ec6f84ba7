"""A client in a forked child: unusable there, and without effect on the parent (client.md §19.3)."""

import os
import select
import signal
import threading
import warnings
from collections.abc import Callable
from contextlib import closing
from multiprocessing import get_context
from typing import Any

import pytest

from amps.client import EPOCH, Client, Command, MemoryPublishStore, MessageStream
from tests.unit.client.peer import WAIT_S, ScriptedPeer
from tests.unit.client.talk import LoggedOn, log_on, stream_of, subscribe, synchronise, wait_for

CALLS: dict[str, Callable[[Client], object]] = {
    "ack": lambda client: client.ack("q", "1|1|"),
    "bookmark_subscribe": lambda client: client.bookmark_subscribe("t", EPOCH),
    "connect": lambda client: client.connect(),
    "consume": lambda client: client.consume("q", print),
    "delta_publish": lambda client: client.delta_publish("t", b"x"),
    "delta_subscribe": lambda client: client.delta_subscribe("t"),
    "discard": lambda client: client.discard("S", 1),
    "disconnect": lambda client: client.disconnect(),
    "execute": lambda client: client.execute(Command("flush")),
    "execute_async": lambda client: client.execute_async(Command("flush")),
    "execute_async_no_resubscribe": lambda client: client.execute_async_no_resubscribe(Command("flush")),
    "flush": lambda client: client.flush(),
    "flush_acks": lambda client: client.flush_acks(),
    "get_most_recent": lambda client: client.get_most_recent("S"),
    "logon": lambda client: client.logon(),
    "open": lambda client: client.open(),
    "pause": lambda client: client.pause("S"),
    "publish": lambda client: client.publish("t", b"x"),
    "publish_flush": lambda client: client.publish_flush(),
    "publish_persisted": lambda client: client.publish_persisted("t", b"x"),
    "resume": lambda client: client.resume("S"),
    "send": lambda client: client.send(Command("publish", "t")),
    "set_global_handler": lambda client: client.set_global_handler("ack", print),
    "set_heartbeat": lambda client: client.set_heartbeat(1.0),
    "sow": lambda client: client.sow("t"),
    "sow_and_delta_subscribe": lambda client: client.sow_and_delta_subscribe("t"),
    "sow_and_subscribe": lambda client: client.sow_and_subscribe("t"),
    "sow_count": lambda client: client.sow_count("t"),
    "sow_delete": lambda client: client.sow_delete("t", filter="1=1"),
    "subscribe": lambda client: client.subscribe("t"),
    "unsubscribe": lambda client: client.unsubscribe(),
}
SENDS_NOTHING = {
    "add_connection_state_listener", "clear_connection_state_listeners", "close", "remove_connection_state_listener",
    "set_disconnect_handler", "set_duplicate_handler", "set_exception_listener", "set_failed_write_handler",
    "set_last_chance_handler", "set_receive_started_callback", "set_transport_filter", "transaction",
}  # fmt: skip


def fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # forking with threads is the purpose of these tests
        return os.fork()


def in_child(call: Callable[[], object]) -> str:
    """The outcome of a call in a forked child: the name of the exception, or `returned`."""
    reader, writer = os.pipe()
    child = fork()
    if child == 0:
        try:
            call()
            said = "returned"
        except BaseException as error:
            said = type(error).__name__
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    try:
        if not select.select([reader], [], [], WAIT_S)[0]:
            os.kill(child, signal.SIGKILL)
            return "never ended"
        return os.read(reader, 1000).decode()
    finally:
        os.close(reader)
        os.waitpid(child, 0)


def test_every_call_is_tried() -> None:
    public = {name for name in dir(Client) if not name.startswith("_") and callable(getattr(Client, name))}
    assert public - SENDS_NOTHING == set(CALLS)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("stored", [False, True], ids=["plain", "with a store"])
def test_client_19_3_calls_in_a_forked_child_are_refused(
    logged_on: LoggedOn, name: str, stored: bool
) -> None:
    """client.md §19.3: the client cannot be used in a forked child."""
    client, connection = logged_on(publish_store=MemoryPublishStore() if stored else None)
    assert in_child(lambda: CALLS[name](client)) == "UsageException"
    synchronise(client, connection)


def test_a_lock_held_while_forking_blocks_no_call_in_the_child(logged_on: LoggedOn) -> None:
    client, connection = logged_on(publish_store=MemoryPublishStore())
    runtime = client._runtime
    with runtime.wire.lock:
        assert in_child(lambda: client.publish("t", b"x")) == "UsageException"
        assert in_child(client.close) == "returned"
    synchronise(client, connection)


def test_the_child_may_close_and_drop_what_it_inherited(logged_on: LoggedOn) -> None:
    """This happens when a child ends by sys.exit inside a `with` block."""
    client, connection = logged_on()
    stream = stream_of(client, connection)
    assert in_child(stream.close) == "returned"
    assert in_child(client.close) == "returned"
    assert in_child(client.__exit__) == "returned"
    synchronise(client, connection)
    connection.publish(stream.sub_id or "", b"here")
    message = stream.get(WAIT_S)
    assert message is not None
    assert message.data == b"here"


@pytest.mark.parametrize("read", [next, MessageStream.get, MessageStream.to_list])
def test_streams_in_the_child_do_not_wait_for_messages(logged_on: LoggedOn, read: Any) -> None:
    client, connection = logged_on()
    stream = stream_of(client, connection)
    connection.publish(stream.sub_id or "", b"buffered")
    wait_for(lambda: stream.depth == 1)
    assert in_child(lambda: read(stream)) == "UsageException"
    assert stream.depth == 1


def fork_in_a_handler() -> None:
    """The child returns into the receive thread with the parent's socket, and must not use it."""
    with closing(ScriptedPeer()) as peer, closing(Client("forking", peer.uri)) as client:
        connection = log_on(client, peer)
        called = threading.Event()
        got: list[bytes] = []

        def handler(message: Any) -> None:
            got.append(message.data)
            if message.data == b"fork":
                child = fork()
                if child == 0:
                    signal.alarm(int(2 * WAIT_S))  # the parent kills the child before the alarm
                    return
                children.append(child)
            called.set()

        children: list[int] = []
        sub_id = subscribe(client, connection, handler)
        connection.publish(sub_id, b"fork")
        assert called.wait(WAIT_S)
        synchronise(client, connection)
        connection.publish(sub_id, b"more")
        wait_for(lambda: got == [b"fork", b"more"])
        os.kill(children[0], signal.SIGKILL)
        os.waitpid(children[0], 0)


def test_a_handler_may_fork() -> None:
    """The test runs in a process of its own.

    A forked child of the handler's thread drops objects local to the main thread. Connections that libraries keep
    there, such as PySpark's to its JVM, are then shut down for both processes.
    """
    process = get_context("spawn").Process(target=fork_in_a_handler)
    process.start()
    process.join(4 * WAIT_S)
    try:
        assert process.exitcode == 0
    finally:
        process.kill()


def test_a_new_client_in_the_child_works(logged_on: LoggedOn) -> None:
    client, connection = logged_on()
    assert in_child(lambda: Client("child", client.uri, timeout=0.1).connect()) == "returned"
    synchronise(client, connection)
