"""`df.write.format("amps")`: the messages published from the columns, and refusals before any is published."""

import json
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from amps.client import Client
from tests.support.server import ServerProcess, StartServer
from tests.support.spark_source import register
from tests.support.written_rows import check_rows, logged_rows

pytestmark = pytest.mark.timeout(600)  # a session takes long to start

ROWS = 20_000


@pytest.fixture(scope="module")
def shared(start_module_server: StartServer) -> ServerProcess:
    return start_module_server(log_topics=("^L/",))


@pytest.fixture
def session(spark: Any) -> Any:
    register(spark)
    return spark


@pytest.fixture
def topic(unique: str) -> str:
    return f"L/{unique}"


@pytest.fixture
def uri(shared: ServerProcess) -> str:
    return f"tcp://127.0.0.1:{shared.port()}/amps/json"


def save(frame: Any, mode: str = "append", **options: Any) -> None:
    frame.write.format("amps").mode(mode).options(timeout_s=20, **options).save()


def rows_in_partitions(session: Any, partitions: int, rows: int = ROWS) -> Any:
    each = rows // partitions
    return session.range(0, rows, 1, partitions).selectExpr(f"id div {each} as p", f"id % {each} as n")


def test_many_rows_once_and_in_order(session: Any, uri: str, topic: str) -> None:
    save(rows_in_partitions(session, 4), uri=uri, topic=topic)
    logged = check_rows(uri, topic, dict.fromkeys(range(4), ROWS // 4))
    assert len({row.publisher_id for row in logged}) == 4


def test_the_same_run_again_adds_nothing(session: Any, uri: str, topic: str, unique: str) -> None:
    for _ in range(2):
        save(rows_in_partitions(session, 2, 2000), uri=uri, topic=topic, client_name=unique, run_id="monday")
    check_rows(uri, topic, {0: 1000, 1: 1000})


def test_two_runs_are_two(session: Any, uri: str, topic: str) -> None:
    for _ in range(2):
        save(session.range(10), uri=uri, topic=topic)
    assert len(logged_rows(uri, topic)) == 20


def test_run_numbers_need_no_new_publishers(session: Any, uri: str, topic: str, unique: str) -> None:
    """Partitions of different runs share publishers, and the runs are still distinguished."""
    for number, partitions in ((1, 3), (2, 2), (2, 2), (7, 3)):
        frame = session.range(0, 30, 1, partitions).selectExpr(f"{number} as run", "id")
        save(frame, uri=uri, topic=topic, client_name=unique, run_number=number)
    logged = logged_rows(uri, topic)
    assert sorted((row["run"], row["id"]) for row in map(json.loads, (row.data for row in logged))) == [
        (number, n) for number in (1, 2, 7) for n in range(30)
    ]
    assert len({row.publisher_id for row in logged}) == 3


def test_another_batch_under_the_same_run_is_refused(session: Any, uri: str, topic: str, unique: str) -> None:
    run = {"uri": uri, "topic": topic, "client_name": unique, "run_id": "monday"}
    save(session.range(0, 10, 1, 1), **run)
    with pytest.raises(Exception, match="with other rows: row 0 differs from the server's row"):
        save(session.range(10, 30, 1, 1), **run)
    assert len(logged_rows(uri, topic)) == 10


VALUES = """
    select 9223372036854775807L as l, cast(-1 as tinyint) as b, true as t, 1.5D as d, cast(0.25 as float) as f,
        12345678901234567.1200BD as dec, 'é"' as s, X'00FF' as bin, date'2026-01-02' as day,
        array(1, null, 3) as a, named_struct('x', 1, 'y', cast(null as string), 'z', X'01') as st,
        map('k', array(1.10BD), 'l', null) as m, cast(null as string) as nothing
"""


def test_columns_are_converted_as_by_spark(session: Any, uri: str, topic: str) -> None:
    frame = session.sql(VALUES)
    reference = frame.selectExpr("to_json(struct(*)) as j").first()["j"]
    save(frame, uri=uri, topic=topic)
    (row,) = logged_rows(uri, topic)
    assert json.loads(row.data, parse_float=str) == json.loads(reference, parse_float=str)


def test_timestamps_are_in_utc(session: Any, uri: str, topic: str) -> None:
    session.conf.set("spark.sql.session.timeZone", "America/Lima")
    try:
        save(
            session.sql(
                "select timestamp'2026-01-02 03:04:05.678901' as t, timestamp_ntz'2026-01-02 03:04:05' as n"
            ),
            uri=uri,
            topic=topic,
        )
    finally:
        session.conf.unset("spark.sql.session.timeZone")
    (row,) = logged_rows(uri, topic)
    assert json.loads(row.data) == {"t": "2026-01-02T08:04:05.678901Z", "n": "2026-01-02T03:04:05"}


def test_payloads_with_topics_and_header(session: Any, uri: str, topic: str) -> None:
    frame = session.createDataFrame(
        [
            (f"{topic}/a", bytearray(b'{"i":1}'), 60, "abc="),
            (f"{topic}/b", bytearray(b"\x00\xff"), None, None),
        ],
        "topic string, payload binary, expiration int, correlation_id string",
    ).coalesce(1)
    with Client(None, uri) as client, client.subscribe(f"^{topic}/") as stream:
        save(frame, uri=uri)
        first, second = stream.get(10), stream.get(10)
    assert first is not None
    assert second is not None
    assert (first.topic, first.data, first.correlation_id) == (f"{topic}/a", b'{"i":1}', "abc=")
    assert (second.topic, second.data, second.correlation_id) == (f"{topic}/b", b"\x00\xff", None)
    assert [row.data for row in logged_rows(uri, f"^{topic}/")] == [b'{"i":1}', b"\x00\xff"]


@pytest.mark.parametrize(
    ("mode", "changes", "message"),
    [
        ("overwrite", {}, "messages cannot be overwritten"),
        ("append", {"clientname": "x"}, "unknown option 'clientname'"),
        ("append", {"topic": "plain"}, "topic 'plain' cannot be written exactly once"),
        ("append", {"uri": "tcp://127.0.0.1:1/amps/json", "timeout_s": "0.2"}, "no connection to the server"),
        ("append", {"message_type": "fix"}, "option message_type is 'fix', the URI has 'json'"),
    ],
)
def test_refusals_before_a_task_runs(
    session: Any, uri: str, topic: str, mode: str, changes: dict[str, str], message: str
) -> None:
    options = {"uri": uri, "topic": topic, "timeout_s": "20", **changes}
    with pytest.raises(Exception, match=message):
        session.range(10).write.format("amps").mode(mode).options(**options).save()
    assert logged_rows(uri, topic) == []


def test_columns_that_cannot_be_written(session: Any, uri: str, topic: str) -> None:
    with pytest.raises(Exception, match="column 'payload' must be binary or string, not bigint"):
        save(session.range(10).withColumnRenamed("id", "payload"), uri=uri, topic=topic)
    assert logged_rows(uri, topic) == []


def test_a_row_without_payload_fails_the_write(session: Any, uri: str, topic: str) -> None:
    frame = session.sql("select explode(array('a', 'b', null)) as payload").coalesce(1)
    with pytest.raises(Exception, match="row 2 of the partition has no payload"):
        save(frame, uri=uri, topic=topic)
