"""Streams from a live server, without Spark: the contents of micro-batches, and their repetition after a death."""

import contextlib
import itertools
import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from amps.client import Client
from amps.client.servers.rivals import FIRST_WAIT_S, Rivals
from amps.spark.streaming_connection import LogReader
from amps.spark.streaming_errors import StreamReadError
from amps.spark.streaming_options import ServerOptions, stream_options
from amps.spark.streaming_ranges import LogRange
from tests.support.managed import ask
from tests.support.micro_batches import COLUMNS, Query, numbered, payloads, publish
from tests.support.server import ServerProcess, StartServer, loaded_module_xml, module_xml, wait_until

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def shared(start_module_server: StartServer) -> ServerProcess:
    return start_module_server(log_topics=("^L/",))


def uri_of(server: ServerProcess) -> str:
    return f"tcp://127.0.0.1:{server.port()}/amps/json"


@pytest.fixture
def uri(shared: ServerProcess) -> str:
    return uri_of(shared)


@pytest.fixture
def topic(unique: str) -> str:
    return f"L/{unique}"


def flat(batches: list[list[bytes]]) -> list[bytes]:
    return [body for batch in batches for body in batch]


def test_columns(uri: str, topic: str, unique: str) -> None:
    """client.md: the columns that the protocol delivers; the others are null."""
    before = datetime.now(UTC)
    publish(uri, topic, [b'{"a":{"b":7},"c":"x"}', b'{"c":null}', b"nothing"], unique)
    schema = "a struct<b: int>, c string"
    with Query((*COLUMNS, "data"), uri=uri, topic=topic, schema=schema) as query:
        tasks = query.batch()
    assert tasks is not None
    (rows,) = tasks
    assert [row["payload"] for row in rows] == [b'{"a":{"b":7},"c":"x"}', b'{"c":null}', b"nothing"]
    assert [row["data"] for row in rows] == [
        {"a": {"b": 7}, "c": "x"},
        {"a": None, "c": None},
        {"a": None, "c": None},
    ]
    assert [row["sequence"] for row in rows] == [1, 2, 3]
    assert [row["bookmark"].split("|")[1:] for row in rows] == [["1", ""], ["2", ""], ["3", ""]]
    for row in rows:
        assert (row["topic"], row["message_type"], row["kind"]) == (topic, "json", "publish")
        assert (row["position"], row["publisher"], row["expiration"]) == (None, None, None)
        assert before.timestamp() - 1 < row["timestamp"].timestamp() < time.time() + 1
    assert list(rows[0]) == [*COLUMNS, "data"]


def test_chosen_columns(uri: str, topic: str) -> None:
    publish(uri, topic, numbered(0, 2))
    with Query(("payload", "kind"), uri=uri, topic=topic) as query:
        assert query.batch() == [[{"payload": body, "kind": "publish"} for body in numbered(0, 2)]]


def test_later_messages_are_in_later_batches(uri: str, topic: str) -> None:
    bodies = numbered(0, 30)
    publish(uri, topic, bodies[:10], topic)
    with Query(uri=uri, topic=topic) as query:
        assert query.all() == [bodies[:10]]
        publish(uri, topic, bodies[10:20], topic)
        assert query.all() == [bodies[10:20]]
        query.restart()
        publish(uri, topic, bodies[20:], topic)
        assert query.all() == [bodies[20:]]


def test_limits_and_parts(uri: str, topic: str) -> None:
    """Each micro-batch has as many messages as allowed, and its tasks have about equal numbers."""
    bodies = numbered(0, 25)
    publish(uri, topic, bodies)
    with Query(uri=uri, topic=topic, max_messages_per_batch=10, partitions=3) as query:
        sizes, found = [], []
        while (tasks := query.batch()) is not None:
            sizes.append([len(task) for task in tasks])
            found += payloads(tasks)
    assert sizes == [[3, 3, 4], [3, 3, 4], [1, 2, 2]]
    assert found == bodies


def test_parts_without_a_limit(uri: str, topic: str) -> None:
    bodies = numbered(0, 3000)
    publish(uri, topic, bodies)
    with Query(uri=uri, topic=topic, partitions=4) as query:
        tasks = query.batch()
        assert tasks is not None
        assert [len(task) for task in tasks] == [750] * 4
        assert payloads(tasks) == bodies


def test_the_same_batch_has_the_same_rows(uri: str, topic: str) -> None:
    """Whatever was published since, and with other options: the offset defines all of it."""
    bodies = numbered(0, 100)
    publish(uri, topic, bodies[:50], topic)
    with Query(uri=uri, topic=topic, max_messages_per_batch=20, partitions=2) as query:
        first = [query.batch() for _ in range(3)]
        publish(uri, topic, bodies[50:], topic)
        query.restart(max_messages_per_batch=7, partitions=5)
        assert [query.tasks(number) for number in range(3)] == first
        assert [query.tasks(number) for number in (2, 0, 1)] == [first[2], first[0], first[1]]
        assert flat(query.all()) == bodies[50:]


def test_offsets_are_bookmarks(uri: str, topic: str) -> None:
    publish(uri, topic, numbered(0, 4))
    with Query(uri=uri, topic=topic, partitions=2, max_messages_per_batch=4) as query:
        tasks = query.batch()
        assert tasks is not None
        marks = [row["bookmark"] for task in tasks for row in task]
        assert json.loads(query.offsets[0])["bookmark"] == "0"
        end = json.loads(query.offsets[1])
        assert (end["bookmark"], end["ranges"]) == (
            marks[3],
            [f"[{marks[0]}:{marks[1]}]", f"({marks[1]}:{marks[3]}]"],
        )


@pytest.mark.parametrize("restarted", [False, True])
def test_now_is_when_the_query_began(uri: str, topic: str, restarted: bool) -> None:
    publish(uri, topic, numbered(0, 5), topic)
    with Query(uri=uri, topic=topic, start="now") as query:
        query.begin()
        publish(uri, topic, numbered(5, 9), topic)
        if restarted:
            query.restart()
        assert query.all() == [numbered(5, 9)]


def test_from_a_bookmark(uri: str, topic: str) -> None:
    publish(uri, topic, numbered(0, 6))
    with Query(uri=uri, topic=topic) as query:
        tasks = query.batch()
    assert tasks is not None
    with Query(uri=uri, topic=topic, start=tasks[0][3]["bookmark"]) as query:
        assert query.all() == [numbered(4, 6)]


def test_from_a_bookmark_that_is_not_there(uri: str, topic: str) -> None:
    with Query(uri=uri, topic=topic, start="12345|1|") as query, pytest.raises(StreamReadError) as caught:
        query.plan()
    assert "does not have the range (12345|1|:0|1|] in its log (any more)" in str(caught.value)


def test_from_a_time(uri: str, topic: str) -> None:
    """transaction_log.md §5.2: messages later than it."""
    publish(uri, topic, numbered(0, 3), topic)
    with Query(uri=uri, topic=topic) as query:
        tasks = query.batch()
    assert tasks is not None
    time.sleep(0.01)
    publish(uri, topic, numbered(3, 6), topic)
    at = tasks[0][2]["timestamp"].strftime("%Y%m%dT%H%M%S.%fZ")
    with Query(uri=uri, topic=topic, start=at) as query:
        assert query.all() == [numbered(3, 6)]
    late = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    with Query(uri=uri, topic=topic, start=late) as query:
        assert query.all() == []
        publish(uri, topic, numbered(6, 7), topic)
        assert query.all() == [numbered(6, 7)]


def test_a_filter_is_the_servers(uri: str, topic: str) -> None:
    publish(uri, topic, numbered(0, 100))
    options = {"filter": "/n % 10 = 3", "max_messages_per_batch": 4, "partitions": 2}
    with Query(uri=uri, topic=topic, **options) as query:
        assert query.all() == [
            [b'{"n":%d}' % n for n in (3, 13, 23, 33)],
            [b'{"n":%d}' % n for n in (43, 53, 63, 73)],
            [b'{"n":%d}' % n for n in (83, 93)],
        ]


def test_an_expression_takes_several_topics(uri: str, topic: str) -> None:
    for part in ("a", "b", "a"):
        publish(uri, f"{topic}/{part}", [part.encode()], f"{topic}-{part}-{time.monotonic_ns()}")
    with Query(uri=uri, topic=f"^{topic}/") as query:
        assert query.all() == [[b"a", b"b", b"a"]]


def test_other_topics_make_no_micro_batch(uri: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Now and then an empty micro-batch moves the query on, so that its bookmark does not grow old."""
    with Query(uri=uri, topic=topic, start="now") as query:
        assert query.plan() is False
        publish(uri, f"{topic}/other", numbered(0, 5), topic)
        assert query.plan() is False
        monkeypatch.setattr("amps.spark.streaming_reader.IDLE_ADVANCE_S", 0.0)
        assert query.batch() == []
        begin, end = (json.loads(text)["bookmark"] for text in query.offsets)
        assert begin != end
        assert query.plan() is False
        publish(uri, topic, numbered(0, 2), f"{topic}2")
        assert query.all() == [numbered(0, 2)]


def test_a_query_that_ends_with_the_present_messages(uri: str, topic: str) -> None:
    """Trigger.AvailableNow."""
    bodies = numbered(0, 30)
    publish(uri, topic, bodies[:20], topic)
    with Query(uri=uri, topic=topic, max_messages_per_batch=8) as query:
        query.reader.prepareForTriggerAvailableNow()
        first = query.batch()
        publish(uri, topic, bodies[20:], topic)
        assert payloads(first or []) + flat(query.all()) == bodies[:20]
        query.restart().reader.prepareForTriggerAvailableNow()
        assert flat(query.all()) == bodies[20:]
        query.restart().reader.prepareForTriggerAvailableNow()
        assert flat(query.all()) == []


def test_an_empty_log(start_server: StartServer) -> None:
    server = start_server(log_topics=("^L/",))
    with Query(uri=uri_of(server), topic="L/t", start="now") as query:
        assert query.plan() is False
        query.reader.prepareForTriggerAvailableNow()
        assert query.plan() is False
        query.restart()
        publish(uri_of(server), "L/t", numbered(0, 3))
        assert query.all() == [numbered(0, 3)]


def test_without_admission_control(uri: str, topic: str) -> None:
    """PySpark 4.0: the source is not called with the beginning of a micro-batch."""
    publish(uri, topic, numbered(0, 10), topic)
    with Query(uri=uri, topic=topic, max_messages_per_batch=4) as query:
        reader = query.reader
        offsets = [reader.initialOffset(), *(reader.latestOffset() for _ in range(4))]
        assert offsets[3] == offsets[4]
        batches = []
        for start, end in itertools.pairwise(offsets[:4]):
            batches.append(payloads([query._run(part) for part in reader.partitions(start, end)]))
        assert [len(batch) for batch in batches] == [4, 4, 2]
        query.restart()
        publish(uri, topic, numbered(10, 20), topic)
        # Restarted behind a complete micro-batch, the source does not receive the place.
        end = json.loads(json.dumps(query.reader.latestOffset()))
        parts = query.reader.partitions(offsets[3], end)
        assert payloads([query._run(part) for part in parts]) == numbered(10, 20)
        query.reader.commit(end)
        assert query.reader.latestOffset() == end


def test_without_a_limit_the_engine_gets_all(uri: str, topic: str) -> None:
    """Trigger.Once: a source must ignore its limit then."""
    publish(uri, topic, numbered(0, 10))
    with Query(uri=uri, topic=topic, max_messages_per_batch=4) as query:
        query.begin()
        pytest.importorskip("pyspark.sql.streaming.datasource", reason="this PySpark has no limits")
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        end = query.reader.latestOffset(json.loads(query.offsets[0]), ReadAllAvailable())
        query.offsets.append(json.dumps(end))
        assert payloads(query.tasks()) == numbered(0, 10)


def failure(query: Query) -> str:
    with query, pytest.raises(StreamReadError) as caught:
        query.batch()
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_topic_that_the_server_takes_for_no_expression(uri: str) -> None:
    """Options are checked before; a refusal by the server nevertheless ends the read."""
    options = stream_options({"uri": uri, "topic": "t", "timeout_s": "2"})
    assert isinstance(options, ServerOptions)
    log = LogReader(replace(options, topic="["), "reader")
    for read in (log.now, lambda: next(log.read(LogRange("0", "0|1|")))):
        with pytest.raises(StreamReadError, match=r"refuses to read topic '\[': bad regex topic$"):
            read()
    log.close()


def test_a_topic_that_must_not_be_read(start_server: StartServer) -> None:
    server = start_server(
        log_topics=("^L/",),
        modules_xml=loaded_module_xml("simple", "libamps_simple_access_entitlement.so"),
        entitlement_xml=module_xml("Entitlement", "simple", DeniedTopics="^L/secret"),
    )
    told = failure(Query(uri=uri_of(server), topic="L/secret", timeout_s=2))
    assert told.endswith("refuses to read topic 'L/secret': not entitled")


def test_mistakes_are_reported_in_a_sentence(uri: str, topic: str) -> None:
    told = failure(Query(uri=uri.replace("/json", "/nvfix"), topic=topic, timeout_s=2))
    assert "invalid message type: 'nvfix'" in told
    assert "cannot be read as a stream: no transaction log" in failure(Query(uri=uri, topic="unrecorded"))
    told = failure(Query(uri=uri, topic=topic, filter="/a ="))
    assert "refuses to read topic" in told
    assert "bad filter" in told
    closed = Query(uri="tcp://me:secret@127.0.0.1:1/amps/json", topic=topic, timeout_s=0.3)
    told = failure(closed)
    assert "tcp://me@127.0.0.1:1/amps/json: no connection to the server for 0.3 s" in told
    assert "secret" not in told


def test_a_checkpoint_of_something_else(uri: str, topic: str) -> None:
    with Query(uri=uri, topic=topic) as query:
        query.offsets.append(json.dumps({"bookmark": "1|2|", "position": 77}))
        with pytest.raises(StreamReadError, match="no stream from a server has written"):
            query.plan()


MANAGED = {"module": "tests.support.managed", "log_topics": ("^L/",)}
LARGE = 100_000


def remove_full_journals(server: ServerProcess, wanted: int) -> None:
    def removed() -> bool:
        _, outcome, numbers = ask(server.directory, 1, "remove", {"age_s": 0})
        assert outcome == "ok", numbers
        return len(server.journals()) <= left

    left = len(server.journals()) - wanted
    wait_until(removed, 20, lambda: f"there still are {server.journals()}")


def test_removed_journals_are_an_error(start_server: StartServer) -> None:
    """transaction_log.md §22, 57: a missing range is never silently left out; not even one from the epoch on."""
    server = start_server(**MANAGED)
    uri = uri_of(server)
    publish(uri, "L/t", numbered(0, 250, LARGE))
    with Query(uri=uri, topic="L/t", max_messages_per_batch=60) as query:
        sizes = [len(payloads(query.batch() or [])) for _ in range(4)]
        assert sizes == [60, 60, 60, 60]
        remove_full_journals(server, 2)
        with pytest.raises(StreamReadError, match=r"does not have the range .* in its log"):
            query.tasks(0)
        with Query(uri=uri, topic="L/t") as other:
            rest = flat(other.all())
        assert 0 < len(rest) < 60
        assert rest == numbered(250 - len(rest), 250, LARGE)
        # Behind the query's current place all journals are there.
        assert flat(query.all()) == numbered(240, 250, LARGE)


def test_a_query_whose_place_was_removed(start_server: StartServer) -> None:
    server = start_server(**MANAGED)
    uri = uri_of(server)
    publish(uri, "L/t", numbered(0, 250, LARGE))
    with Query(uri=uri, topic="L/t", max_messages_per_batch=10) as query:
        query.batch()
        remove_full_journals(server, 2)
        query.restart()
        with pytest.raises(StreamReadError, match="Nothing is skipped silently"):
            query.plan()


@pytest.mark.parametrize("die", [ServerProcess.kill_all, ServerProcess.kill_core])
def test_a_server_killed_in_the_middle_of_a_range(start_server: StartServer, die: Any) -> None:
    server = start_server(log_topics=("^L/",))
    bodies = numbered(0, 20_000, 500)
    publish(uri_of(server), "L/t", bodies)
    with Query(uri=uri_of(server), topic="L/t") as query:
        assert query.plan()
        end = json.loads(query.offsets[1])["ranges"][0]
    options = stream_options({"uri": uri_of(server), "topic": "L/t", "timeout_s": "20"})
    assert isinstance(options, ServerOptions)
    log = LogReader(options, "reader")
    found: list[bytes] = []
    deaths = 0
    for messages in log.read(LogRange.parse(end)):
        found += [message.data for message in messages]
        if len(found) > 5_000 * (deaths + 1) and deaths < 2:
            deaths += 1
            wait_until(lambda: len(server.pids("amps: core")) == 1, 20, "no core")
            die(server)
            if server.process is None:
                server.start()
    log.close()
    assert deaths == 2
    assert found == bodies


def test_a_server_that_is_away_while_a_batch_is_planned(start_server: StartServer) -> None:
    server = start_server(log_topics=("^L/",))
    publish(uri_of(server), "L/t", numbered(0, 5), "one")
    with Query(uri=uri_of(server), topic="L/t") as query:
        assert query.all() == [numbered(0, 5)]
        server.kill_all()
        with ThreadPoolExecutor(1) as pool:
            planned = pool.submit(query.plan)
            time.sleep(0.5)  # connections are refused meanwhile
            server.start()
            assert planned.result(30) is False
        publish(uri_of(server), "L/t", numbered(5, 8), "two")
        assert query.all() == [numbered(5, 8)]


@contextlib.contextmanager
def stopped_transports(server: ServerProcess) -> Iterator[None]:
    pids = server.transport_pids()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_a_connection_without_answers(start_server: StartServer) -> None:
    """As with a half-open connection: no data comes, and no error."""
    server = start_server(log_topics=("^L/",))
    publish(uri_of(server), "L/t", numbered(0, 5))
    with Query(uri=uri_of(server), topic="L/t", timeout_s=1) as query:
        assert query.all() == [numbered(0, 5)]
        told = pytest.raises(
            StreamReadError, match=r"no progress for 1 s|no connection to the server for 1 s"
        )
        with stopped_transports(server), told:
            query.plan()
        assert query.plan() is False


def test_another_client_of_its_name_is_not_ended_at_once(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader whose name was taken waits before it takes it back (servers/rivals.py), and misses nothing."""
    server = start_server(log_topics=("^L/",))
    bodies = numbered(0, 100)
    publish(uri_of(server), "L/t", bodies)
    with Query(uri=uri_of(server), topic="L/t") as query:
        assert query.plan()
        end = json.loads(query.offsets[1])["ranges"][0]
    options = stream_options({"uri": uri_of(server), "topic": "L/t", "timeout_s": "20"})
    assert isinstance(options, ServerOptions)
    waits: list[float] = []
    monkeypatch.setattr(Rivals, "wait_s", noted(waits, Rivals.wait_s))
    log = LogReader(options, "one-name")
    log.now()
    with Client("one-name", uri_of(server)):
        pass
    found = [message.data for messages in log.read(LogRange.parse(end)) for message in messages]
    log.close()
    assert found == bodies
    assert any(FIRST_WAIT_S / 2 <= wait_s <= FIRST_WAIT_S for wait_s in waits)


def noted(waits: list[float], wait_s: Any) -> Any:
    """A wrapper of the method that records its results."""

    def noting(rivals: Rivals, error: Any) -> Any:
        waits.append(wait_s(rivals, error))
        return waits[-1]

    return noting
