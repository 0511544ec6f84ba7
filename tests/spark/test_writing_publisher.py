"""Publishing a partition, attempt by attempt, to a real server; without Java."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from amps.client import AMPSException, Client, MemoryPublishStore
from amps.client.servers.rivals import FIRST_WAIT_S, Rivals
from amps.spark.writing_errors import WriteError
from amps.spark.writing_numbers import Numbering
from amps.spark.writing_options import WriteOptions, parse_options
from amps.spark.writing_publisher import PartitionPublisher, Written
from amps.spark.writing_rows import MessageRow
from amps.spark.writing_tasks import WrittenPartition, check_partitions, check_server
from tests.support.server import ServerProcess, StartServer, loaded_module_xml, module_xml, wait_until
from tests.support.written_rows import LoggedRow, logged_rows

DENY = {
    "modules_xml": loaded_module_xml("simple", "libamps_simple_access_entitlement.so"),
    "entitlement_xml": module_xml("Entitlement", "simple", DeniedTopics="^L/denied"),
}


@pytest.fixture(scope="module")
def shared(start_module_server: StartServer) -> ServerProcess:
    return start_module_server(log_topics=("^L/",), **DENY)


@pytest.fixture
def topic(unique: str) -> str:
    return f"L/{unique}"


def uri_of(server: ServerProcess) -> str:
    return f"tcp://127.0.0.1:{server.port()}/amps/json"


def options_for(server: ServerProcess, topic: str | None, **changes: str) -> WriteOptions:
    given = {"uri": uri_of(server), "timeout_s": "20", **changes}
    return parse_options(given if topic is None else {**given, "topic": topic}, streaming=False)


def rows_for(topic: str, count: int, first: int = 0, **header: Any) -> Iterator[MessageRow]:
    fields = {"expiration": None, "correlation_id": None, "sow_key": None, **header}
    return (MessageRow(topic, b'{"n":%d}' % n, **fields) for n in range(first, first + count))


def write(options: WriteOptions, numbering: Numbering, rows: Iterator[MessageRow]) -> Written:
    with PartitionPublisher(options, numbering) as publisher:
        return publisher.publish_all(rows)


def breaking_off(rows: Iterator[MessageRow], after: int) -> Iterator[MessageRow]:
    """The rows of an attempt that fails."""
    for _ in range(after):
        yield next(rows)
    raise ZeroDivisionError


def bodies(logged: list[LoggedRow]) -> list[bytes]:
    return [row.data for row in logged]


def expected(count: int, first: int = 0) -> list[bytes]:
    return [row.body for row in rows_for("t", count, first)]


def numbered(unique: str, run: int = 0) -> Numbering:
    return Numbering(f"{unique}/p", run)


# Numbers and runs


def test_rows_have_their_numbers(shared: ServerProcess, topic: str, unique: str) -> None:
    """transaction_log.md §4.2."""
    numbering = numbered(unique, 3)
    assert write(options_for(shared, topic), numbering, rows_for(topic, 5)) == Written(5, 0)
    logged = logged_rows(uri_of(shared), topic)
    assert bodies(logged) == expected(5)
    assert [row.sequence for row in logged] == [numbering.number(row) for row in range(5)]
    assert len({row.publisher_id for row in logged}) == 1


def test_no_rows(shared: ServerProcess, topic: str, unique: str) -> None:
    assert write(options_for(shared, topic), numbered(unique), rows_for(topic, 0)) == Written(0, 0)
    assert logged_rows(uri_of(shared), topic) == []


def test_a_later_run_adds_its_rows(shared: ServerProcess, topic: str, unique: str) -> None:
    options = options_for(shared, topic)
    for run in (0, 1, 7):
        assert write(options, numbered(unique, run), rows_for(topic, 10, run)) == Written(10, 0)
    assert bodies(logged_rows(uri_of(shared), topic)) == expected(10) + expected(10, 1) + expected(10, 7)


def test_an_earlier_run_is_refused(shared: ServerProcess, topic: str, unique: str) -> None:
    options = options_for(shared, topic)
    write(options, numbered(unique, 2), rows_for(topic, 3))
    with pytest.raises(WriteError, match="has run 2 of it already"):
        write(options, numbered(unique, 1), rows_for(topic, 3))
    assert bodies(logged_rows(uri_of(shared), topic)) == expected(3)


def test_header_fields(shared: ServerProcess, topic: str, unique: str) -> None:
    with Client(None, uri_of(shared)) as client, client.subscribe(topic) as stream:
        header = {"expiration": 50, "correlation_id": "abc="}
        write(options_for(shared, topic), numbered(unique), rows_for(topic, 1, **header))
        message = stream.get(10)
    assert message is not None
    assert message.correlation_id == "abc="


@pytest.mark.parametrize(
    "header", [{"expiration": -1}, {"correlation_id": "no base64!"}, {"sow_key": "no base64!"}]
)
def test_header_fields_that_cannot_be_sent(
    shared: ServerProcess, topic: str, unique: str, header: dict[str, Any]
) -> None:
    with pytest.raises(WriteError, match="row 0 of the partition cannot be published"):
        write(options_for(shared, topic), numbered(unique), rows_for(topic, 1, **header))


# Attempts


@pytest.mark.parametrize("verify", ["all", "last", "none"])
@pytest.mark.parametrize("run", [0, 4])
def test_a_repeated_task_adds_what_is_missing(
    shared: ServerProcess, topic: str, unique: str, verify: str, run: int
) -> None:
    """client.md §8.1: numbering starts with the logon's answer; transaction_log.md §4.2."""
    options = options_for(shared, topic, verify=verify)
    with pytest.raises(ZeroDivisionError):
        write(options, numbered(unique, run), breaking_off(rows_for(topic, 5000), 3000))
    found = len(logged_rows(uri_of(shared), topic))
    assert 0 < found <= 3000
    again = write(options, numbered(unique, run), rows_for(topic, 5000))
    # The server may still have read messages of the closed connection after they were counted.
    assert again.rows == 5000
    assert found <= again.found <= 3000
    assert bodies(logged_rows(uri_of(shared), topic)) == expected(5000)


@pytest.mark.parametrize("verify", ["all", "last", "none"])
def test_a_task_repeated_when_all_is_there_adds_nothing(
    shared: ServerProcess, topic: str, unique: str, verify: str
) -> None:
    options = options_for(shared, topic, verify=verify)
    write(options, numbered(unique), rows_for(topic, 300))
    assert write(options, numbered(unique), rows_for(topic, 300)) == Written(300, 300)
    assert bodies(logged_rows(uri_of(shared), topic)) == expected(300)


@pytest.mark.parametrize("verify", ["all", "last", "none"])
def test_fewer_rows_than_are_there(shared: ServerProcess, topic: str, unique: str, verify: str) -> None:
    options = options_for(shared, topic, verify=verify)
    write(options, numbered(unique), rows_for(topic, 30))
    with pytest.raises(WriteError, match="this attempt has 29 rows, the server has 30"):
        write(options, numbered(unique), rows_for(topic, 29))
    assert bodies(logged_rows(uri_of(shared), topic)) == expected(30)


def changed(rows: Iterator[MessageRow], at: int, **changes: Any) -> Iterator[MessageRow]:
    for place, row in enumerate(rows):
        yield row._replace(**changes) if place == at else row


@pytest.mark.parametrize(
    ("verify", "at", "seen"),
    [("all", 0, True), ("all", 15, True), ("all", 29, True), ("last", 29, True), ("last", 15, False),
     ("none", 29, False)],
)  # fmt: skip
def test_other_rows_than_are_there(
    shared: ServerProcess, topic: str, unique: str, verify: str, at: int, seen: bool
) -> None:
    options = options_for(shared, topic, verify=verify)
    write(options, numbered(unique), rows_for(topic, 30))
    others = changed(rows_for(topic, 40), at, body=b'{"n":"other"}')
    if seen:
        with pytest.raises(WriteError, match=f"with other rows: row {at} differs from the server's row"):
            write(options, numbered(unique), others)
        assert bodies(logged_rows(uri_of(shared), topic)) == expected(30)
    else:
        assert write(options, numbered(unique), others) == Written(40, 30)


def test_a_run_written_to_another_topic(shared: ServerProcess, topic: str, unique: str) -> None:
    """A run name must not be used twice: without the comparison the second write would be lost."""
    write(options_for(shared, topic), numbered(unique), rows_for(topic, 30))
    other = f"{topic}/other"
    with pytest.raises(WriteError, match=r"could not be read again|published it to another topic"):
        write(options_for(shared, other), numbered(unique), rows_for(other, 30))
    assert logged_rows(uri_of(shared), other) == []


def test_rows_of_other_publishers_are_not_compared(shared: ServerProcess, topic: str, unique: str) -> None:
    options = options_for(shared, topic)
    store = MemoryPublishStore()
    with Client(f"{unique}-other", uri_of(shared), publish_store=store) as other:

        def among_others() -> Iterator[MessageRow]:
            for row in rows_for(topic, 20):
                other.publish(topic, b'{"other":1}')
                other.publish_flush()
                yield row

        write(options, numbered(unique), among_others())
    assert write(options, numbered(unique), rows_for(topic, 25)) == Written(25, 20)


def test_a_gap_in_the_logged_rows(shared: ServerProcess, topic: str, unique: str) -> None:
    """The state after a refusal: the last number alone does not show the gap."""
    numbering = numbered(unique)
    store = MemoryPublishStore()
    with Client(numbering.publisher, uri_of(shared), publish_store=store) as client:
        for place, row in enumerate(rows_for(topic, 10)):
            if place == 5:
                client.publish_flush()
                store.discard_up_to(numbering.number(5))
            else:
                client.publish(row.topic, row.body)
        client.publish_flush()
    with pytest.raises(WriteError, match="row 5 is not in the log where it should be"):
        write(options_for(shared, topic), numbering, rows_for(topic, 12))
    assert len(logged_rows(uri_of(shared), topic)) == 9


@pytest.mark.parametrize(
    ("before", "now", "seen"), [(3, 2, True), (3, 3, False), (2, 3, False), (0, 2, False)]
)
def test_a_run_repeated_with_fewer_partitions(
    shared: ServerProcess, topic: str, unique: str, before: int, now: int, seen: bool
) -> None:
    options = options_for(shared, topic, client_name=unique, run_number="4")

    def write_all(partitions: int) -> list[WrittenPartition]:
        done = []
        for partition in range(partitions):
            numbering = options.batch_numbering(partition)
            written = write(options, numbering, rows_for(topic, 5))
            done.append(WrittenPartition(numbering, written.rows, written.found))
        return done

    check_partitions(options, write_all(before))
    done = write_all(now)
    if seen:
        with pytest.raises(WriteError, match="run 4 was written before with more than 2 partitions"):
            check_partitions(options, done)
    else:
        check_partitions(options, done)


def test_many_topics(shared: ServerProcess, topic: str, unique: str) -> None:
    """Rows of a topic column, repeated; the topics appear in the order of the rows."""
    options = options_for(shared, None)

    def rows(count: int) -> Iterator[MessageRow]:
        for place, row in enumerate(rows_for(topic, count)):
            yield row._replace(topic=f"{topic}/{place % 3}")

    write(options, numbered(unique), rows(20))
    assert write(options, numbered(unique), rows(30)) == Written(30, 20)
    logged = logged_rows(uri_of(shared), f"^{topic}/")
    assert bodies(logged) == expected(30)
    assert [row.topic for row in logged] == [row.topic for row in rows(30)]


def test_a_full_store_waits_for_acknowledgements(shared: ServerProcess, topic: str, unique: str) -> None:
    options = options_for(shared, topic, max_unacknowledged="64KB")
    assert write(options, numbered(unique), rows_for(topic, 10_000)) == Written(10_000, 0)
    assert bodies(logged_rows(uri_of(shared), topic)) == expected(10_000)


# Refusals


def test_a_topic_that_is_not_recorded(shared: ServerProcess, unique: str) -> None:
    """transaction_log.md §7.3: a bookmark subscription to it is an error."""
    with pytest.raises(WriteError, match=f"topic 'plain/{unique}' cannot be written exactly once"):
        check_server(options_for(shared, f"plain/{unique}"))
    with pytest.raises(WriteError, match=f"topic 'plain/{unique}' cannot be written exactly once"):
        write(options_for(shared, None), numbered(unique), rows_for(f"plain/{unique}", 1))


def test_a_topic_that_is_not_recorded_if_that_is_wanted(shared: ServerProcess, unique: str) -> None:
    topic = f"plain/{unique}"
    options = options_for(shared, topic, unrecorded="allow")
    with Client(None, uri_of(shared)) as client, client.subscribe(topic) as stream:
        check_server(options)
        assert write(options, numbered(unique), rows_for(topic, 10)) == Written(10, 0)
        received = [stream.get(10) for _ in range(10)]
    assert [message.data for message in received if message is not None] == expected(10)


def test_a_recorded_topic_passes_the_drivers_check(shared: ServerProcess, topic: str) -> None:
    check_server(options_for(shared, topic))
    assert logged_rows(uri_of(shared), topic) == []


def test_a_server_that_is_not_there(unused_port: int) -> None:
    options = parse_options(
        {"uri": f"tcp://127.0.0.1:{unused_port}/amps/json", "topic": "t", "timeout_s": "0.3"}, streaming=False
    )
    with pytest.raises(WriteError, match=r"no connection to the server for 0\.3 s"):
        check_server(options)


@pytest.fixture
def unused_port() -> Iterator[int]:
    from tests.support.ports import release_port, reserve_port

    port = reserve_port()
    yield port
    release_port(port)


def test_a_wrong_message_type(shared: ServerProcess, topic: str) -> None:
    """protocol.md §6."""
    options = parse_options(
        {"uri": f"tcp://127.0.0.1:{shared.port()}/amps/nvfix", "topic": topic, "timeout_s": "20"},
        streaming=False,
    )
    with pytest.raises(WriteError, match=r"cannot log on to the server: .*message type"):
        check_server(options)


def test_nothing_follows_a_topic_that_is_refused(shared: ServerProcess, topic: str, unique: str) -> None:
    """A repeated task must not treat refused rows as written: protocol.md §7.1, not entitled."""
    options = options_for(shared, None, unrecorded="allow")

    def rows() -> Iterator[MessageRow]:
        for place, row in enumerate(rows_for(topic, 20)):
            yield row._replace(topic="L/denied") if place == 10 else row

    for _ in range(2):
        with pytest.raises(
            WriteError, match=r"refused a message to topic 'L/denied': not entitled|row 10 is not in the log"
        ):
            write(options, numbered(unique), rows())
        assert bodies(logged_rows(uri_of(shared), topic)) == expected(10)


# Two attempts at a time, and a server that stops


def test_the_second_attempt_ends_the_first(shared: ServerProcess, topic: str, unique: str) -> None:
    """transaction_log.md §6: one connection per name; each row is there once, whichever attempt wrote it."""
    options = options_for(shared, topic)
    numbering = numbered(unique)
    outcomes: list[object] = []
    going = threading.Event()

    def attempt() -> None:
        def slowly() -> Iterator[MessageRow]:
            for place, row in enumerate(rows_for(topic, 6000)):
                if place % 500 == 0:
                    going.set()
                    time.sleep(0.02)
                yield row

        try:
            outcomes.append(write(options, numbering, slowly()))
        except WriteError as error:
            outcomes.append(error)

    first = threading.Thread(target=attempt)
    first.start()
    going.wait(10)
    second = threading.Thread(target=attempt)
    second.start()
    first.join(60)
    second.join(60)
    assert not first.is_alive()
    assert not second.is_alive()
    written = [outcome for outcome in outcomes if isinstance(outcome, Written)]
    assert written, outcomes
    assert all("another attempt" in str(outcome) for outcome in outcomes if not isinstance(outcome, Written))
    assert bodies(logged_rows(uri_of(shared), topic)) == expected(6000)


@pytest.mark.parametrize("die", [ServerProcess.kill_all, ServerProcess.kill_core])
def test_a_server_killed_in_the_middle(
    start_server: StartServer, unique: str, die: Callable[[ServerProcess], None]
) -> None:
    """transaction_log.md §4.4, client.md §9.1 step 7: unacknowledged rows are sent again, in order."""
    server = start_server(log_topics=("^L/",))
    topic, count = "L/t", 30_000
    uri = uri_of(server)

    def rows() -> Iterator[MessageRow]:
        for place, row in enumerate(rows_for(topic, count)):
            if place in (7_000, 19_000):
                wait_until(lambda: len(server.pids("amps: core")) == 1, 20, "no core")
                die(server)
                if server.process is None:
                    server.start()
            yield row

    options = options_for(server, topic)
    assert write(options, numbered(unique), rows()) == Written(count, 0)
    assert bodies(logged_rows(uri, topic)) == expected(count)


def test_a_server_killed_at_the_end(start_server: StartServer, unique: str) -> None:
    """The writer learns that the last rows are persisted although no acknowledgement ever came for them."""
    server = start_server(log_topics=("^L/",))
    topic, count = "L/t", 2_000

    def rows() -> Iterator[MessageRow]:
        yield from rows_for(topic, count)
        server.kill_all()
        server.start()

    assert write(options_for(server, topic), numbered(unique), rows()) == Written(count, 0)
    assert bodies(logged_rows(uri_of(server), topic)) == expected(count)


def test_a_task_ends_only_with_the_last_acknowledgement(start_server: StartServer, unique: str) -> None:
    """transaction_log.md §4.4: a row that was sent is not persisted yet. The core is stopped when the
    last row comes.
    """
    server = start_server(log_topics=("^L/",))
    core = server.core_pid()

    def rows() -> Iterator[MessageRow]:
        yield from rows_for("L/t", 1)
        os.kill(core, signal.SIGSTOP)
        yield from rows_for("L/t", 1, 1)

    try:
        with pytest.raises(WriteError, match=r"no acknowledgement for 1 s .* while 1 rows wait for one"):
            write(options_for(server, "L/t", timeout_s="1"), numbered(unique), rows())
    finally:
        os.kill(core, signal.SIGCONT)


def test_a_server_that_has_lost_acknowledged_rows(
    start_server: StartServer, make_server: StartServer, unique: str
) -> None:
    """client.md §8.2, gap: another server in the place of the first."""
    server = start_server(log_topics=("^L/",))
    topic = "L/t"
    port = server.port()

    def rows() -> Iterator[MessageRow]:
        yield from rows_for(topic, 10)
        wait_until(lambda: len(logged_rows(uri_of(server), topic)) == 10, 10, "not there")
        time.sleep(0.3)
        server.kill_all()
        for file in (server.directory / "journal").glob("*"):
            file.unlink()
        server.start()
        yield from rows_for(topic, 10, 10)

    assert port == server.port()
    with pytest.raises(WriteError, match="it has lost some"):
        write(options_for(server, topic), numbered(unique), rows())


def test_a_name_that_another_client_takes_is_taken_back_later(
    shared: ServerProcess, topic: str, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """amps/client/servers/rivals.py: it waits first, and writes each row once."""
    waits: list[float] = []
    wait_s = Rivals.wait_s

    def noting(rivals: Rivals, error: AMPSException | None) -> float:
        waits.append(wait_s(rivals, error))
        return waits[-1]

    monkeypatch.setattr(Rivals, "wait_s", noting)
    numbering = numbered(unique)

    def rows() -> Iterator[MessageRow]:
        for number, row in enumerate(rows_for(topic, 2000)):
            if number == 1000:
                with Client(numbering.publisher, uri_of(shared)):
                    pass
            yield row

    assert write(options_for(shared, topic), numbering, rows()) == Written(2000, 0)
    assert bodies(logged_rows(uri_of(shared), topic)) == expected(2000)
    assert any(FIRST_WAIT_S / 2 <= waited <= FIRST_WAIT_S for waited in waits)
