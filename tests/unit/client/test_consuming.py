"""`consume` of the blocking client, against a scripted peer; that of the asyncio client is in `test_aio_streams`."""

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from amps.client import Client, Message
from tests.unit.client.peer import WAIT_S, Connection, Outcome, ScriptedPeer, in_background
from tests.unit.client.talk import LoggedOn, log_on, synchronise, wait_for

Handle = Callable[[Message], object]


def consume(client: Client, connection: Connection, handler: Handle, **options: Any) -> str:
    with in_background(client.consume, "q", handler, **options) as call:
        connection.ack(connection.expect("subscribe"))
    return str(call.result())


def deliver(connection: Connection, sub_id: str, *numbers: int) -> None:
    for number in numbers:
        connection.publish(sub_id, b"%d" % number, topic="q", bm=f"1|{number}|", lp="0")


def acks(connection: Connection, count: int) -> dict[str, str | None]:
    frames = [connection.expect("sow_delete") for _ in range(count)]
    return {frame["bm"]: frame.get("o") for frame in frames}


def workers(name: str = "tester") -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == f"amps-work:{name}"]


@pytest.fixture(autouse=True)
def no_leaked_workers() -> Iterator[None]:
    yield
    wait_for(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("amps-work:")])


class Gate:
    """A handler whose calls wait until they are let go."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.opened = threading.Event()

    def __call__(self, message: Message) -> None:
        self.begun.append(message.data)
        assert self.opened.wait(WAIT_S)
        if message.data == b"1":
            raise ValueError("not this one")


@pytest.mark.parametrize("concurrency", [1, 3])
def test_client_19_6_consume_acknowledges_what_the_handler_has_handled(
    logged_on: LoggedOn, concurrency: int
) -> None:
    """client.md §19.6: up to `concurrency` handlers at once; what a handler refuses goes back to the queue"""
    client, connection = logged_on()
    gate = Gate()
    with in_background(client.consume, "q", gate, "/a > 1", max_backlog=5, concurrency=concurrency) as call:
        subscribed = connection.expect("subscribe")
        connection.ack(subscribed)
    assert (subscribed["o"], subscribed["f"], subscribed["t"]) == ("max_backlog=5", "/a > 1", "q")
    deliver(connection, call.result(), 0, 1, 2)
    wait_for(lambda: len(gate.begun) == concurrency)
    assert len(workers()) == (0 if concurrency == 1 else 3)
    connection.expect_nothing(0.05)
    assert len(gate.begun) == concurrency
    gate.opened.set()
    assert acks(connection, 3) == {"1|0|": None, "1|1|": "cancel", "1|2|": None}
    assert client.stats.handler_errors == 1


def test_consume_without_arguments_has_a_backlog_of_ten_and_acknowledges_only_for_itself(
    logged_on: LoggedOn,
) -> None:
    client, connection = logged_on()
    with in_background(client.consume, "q", lambda message: None) as call:
        frame = connection.expect("subscribe")
        connection.ack(frame)
    assert frame["o"] == "max_backlog=10"
    deliver(connection, call.result(), 1)
    assert acks(connection, 1) == {"1|1|": None}
    with in_background(client.subscribe, "q", handler=lambda message: None) as other:
        connection.ack(connection.expect("subscribe"))
    deliver(connection, other.result(), 2)
    connection.expect_nothing(0.05)


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"max_backlog": -1}, {"concurrency": 1.5}])
def test_wrong_arguments_send_nothing(logged_on: LoggedOn, wrong: dict[str, Any]) -> None:
    client, connection = logged_on()
    with pytest.raises((ValueError, TypeError)):
        client.consume("q", print, **wrong)
    with pytest.raises(TypeError, match="handler"):
        client.consume("q", None)  # type: ignore[arg-type]
    connection.expect_nothing(0.05)


def test_a_handler_may_wait_for_the_server_while_others_run(logged_on: LoggedOn) -> None:
    client, connection = logged_on()
    sub_id = consume(client, connection, lambda message: client.flush(), concurrency=2)
    deliver(connection, sub_id, 1, 2)
    frames = [connection.expect("flush") for _ in range(2)]
    for frame in frames:
        connection.ack(frame, "completed")
    assert acks(connection, 2) == {"1|1|": None, "1|2|": None}


def test_close_lets_running_handlers_finish_and_begins_no_more(logged_on: LoggedOn) -> None:
    client, connection = logged_on()
    gate = Gate()
    sub_id = consume(client, connection, gate, concurrency=2)
    deliver(connection, sub_id, 2, 3, 4)
    wait_for(lambda: len(gate.begun) == 2)
    synchronise(client, connection)
    closing = Outcome(client.close, (), {})
    connection.expect_nothing(0.05)
    gate.opened.set()
    closing.result()
    assert acks(connection, 2) == {"1|2|": None, "1|3|": None}
    assert len(gate.begun) == 2
    connection.expect_close()


def test_close_waits_no_longer_than_its_timeout(logged_on: LoggedOn, caplog: pytest.LogCaptureFixture) -> None:
    client, connection = logged_on()
    gate = Gate()
    sub_id = consume(client, connection, gate, concurrency=2)
    deliver(connection, sub_id, 2)
    wait_for(lambda: bool(gate.begun))
    client.close(timeout=0.05)
    connection.expect_close()
    assert "1 handlers go on" in caplog.text
    gate.opened.set()


def test_a_handler_may_close_its_client(logged_on: LoggedOn) -> None:
    client, connection = logged_on()
    closed = threading.Event()

    def handler(message: Message) -> None:
        client.close()
        closed.set()

    sub_id = consume(client, connection, handler, concurrency=2)
    deliver(connection, sub_id, 1)
    assert closed.wait(WAIT_S)
    connection.expect_close()


def test_a_handler_that_exits_ends_no_thread(logged_on: LoggedOn) -> None:
    client, connection = logged_on()
    client.set_exception_listener(lambda error: None)

    def handler(message: Message) -> None:
        if message.data != b"9":
            raise SystemExit

    sub_id = consume(client, connection, handler, concurrency=2)
    deliver(connection, sub_id, 1, 2, 3, 9)
    assert acks(connection, 4) == {"1|1|": "cancel", "1|2|": "cancel", "1|3|": "cancel", "1|9|": None}


def test_the_end_of_the_subscription_ends_the_threads(logged_on: LoggedOn) -> None:
    client, connection = logged_on()
    sub_id = consume(client, connection, lambda message: None, concurrency=2)
    deliver(connection, sub_id, 1)
    acks(connection, 1)
    assert len(workers()) == 2
    with in_background(client.unsubscribe, sub_id):
        connection.ack(connection.expect("unsubscribe"))
    wait_for(lambda: not workers())


def test_a_full_queue_stops_reading_until_handlers_end(logged_on: LoggedOn) -> None:
    """client.md §19.4: as for a stream"""
    client, connection = logged_on(max_depth=4)
    opened, depths = threading.Event(), []

    def handler(message: Message) -> None:
        assert opened.wait(WAIT_S)
        depths.append(waiting())

    sub_id = consume(client, connection, handler, concurrency=2)
    route = client._engine.route_of(sub_id)
    assert route is not None

    def waiting() -> int:
        return len(route.sink.queue._messages)

    def send() -> None:
        for number in range(100):
            body = b"x" * 60_000  # received singly
            connection.publish(sub_id, body, topic="q", bm=f"1|{number}|", lp="0")

    with in_background(send):
        wait_for(lambda: waiting() >= 3)
        time.sleep(0.05)  # for a client that would go on reading
        opened.set()
        assert len(acks(connection, 100)) == 100
    assert max(depths) <= 6


def test_a_call_that_waits_reads_on_behind_a_full_queue(logged_on: LoggedOn) -> None:
    """client.md §19.4: the answer may be behind the messages that do not fit"""
    client, connection = logged_on(max_depth=4)
    gate = Gate()
    sub_id = consume(client, connection, gate, concurrency=2)
    for number in range(2, 40):
        deliver(connection, sub_id, number)
    wait_for(lambda: len(gate.begun) == 2)
    synchronise(client, connection)
    gate.opened.set()
    assert len(acks(connection, 38)) == 38


def test_a_replaced_consumption_has_the_new_handler(logged_on: LoggedOn) -> None:
    client, connection = logged_on()
    got: list[tuple[str, bytes]] = []
    for name in ("old", "new"):
        replace = "replace" if name == "new" else ""
        consume(
            client, connection, lambda message, name=name: got.append((name, message.data)),  # type: ignore[misc]
            sub_id="s", options=replace, concurrency=2,
        )  # fmt: skip
        deliver(connection, "s", 1)
        acks(connection, 1)
    assert got == [("old", b"1"), ("new", b"1")]
    assert len(workers()) == 2


def test_threads_that_wait_keep_no_dropped_client(peer: ScriptedPeer) -> None:
    client: Client | None = Client("dropped", peer.uri)
    assert client is not None
    connection = log_on(client, peer)
    sub_id = consume(client, connection, lambda message: None, concurrency=2)
    deliver(connection, sub_id, 1)
    acks(connection, 1)
    assert len(workers("dropped")) == 2
    dropped = weakref.ref(client)
    with pytest.warns(ResourceWarning, match="never closed"):  # noqa: PT031
        del client
        wait_for(lambda: gc.collect() >= 0 and dropped() is None)  # a thread may just be at work
    connection.expect_close()
