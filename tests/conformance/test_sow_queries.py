"""Queries of SOW topics over sockets: sow.md §§8, 10, 11, D6, D8, D22, D35, and behaviours of its §25."""

import json
import re
import time
from typing import Any

import pytest

from tests.support.peer import Message, RawClient, Value
from tests.support.peers import Peers
from tests.support.queues import counts, queue_xml, records_of
from tests.support.server import ServerProcess, StartServer
from tests.support.sow import bodies, failure, kinds, options, publish, rows, topic_xml

ORDERS = topic_xml("orders", "/id")
LOGGED = [pytest.param([], id="in the value file"), pytest.param(["orders"], id="in the journal")]


@pytest.fixture(params=LOGGED)
def server(start_server: StartServer, request: pytest.FixtureRequest) -> ServerProcess:
    return start_server(**options(ORDERS, logged=request.param))


@pytest.fixture
def client(server: ServerProcess, peers: Peers) -> RawClient:
    return peers.logged_on(server)


def test_sow_1_a_publish_replaces_the_record(client: RawClient) -> None:
    """sow.md §25, 1."""
    publish(client, "orders", {"id": 1, "a": 1, "b": 2}, {"id": 1, "a": 5})
    assert bodies(client, "orders") == [{"id": 1, "a": 5}]


def test_sow_2_an_empty_topic_has_an_empty_group(client: RawClient) -> None:
    """sow.md §25, 2: with the query id, else the command id."""
    client.send({"c": "sow", "t": "orders", "cid": "7", "query_id": "q"})
    client.send({"c": "sow", "t": "orders", "cid": "8"})
    came = client.receive_many(4)
    assert [(m["c"], m["query_id"]) for m in came] == [
        ("group_begin", "q"),
        ("group_end", "q"),
        ("group_begin", "8"),
        ("group_end", "8"),
    ]


def test_sow_3_a_topic_without_state_fails(client: RawClient) -> None:
    """sow.md §25, 3; D6."""
    assert failure(client, c="sow", t="nope") == "invalid topic"


def test_sow_4_a_query_and_subscription_of_a_topic_without_state(client: RawClient) -> None:
    """sow.md §25, 4."""
    client.send({"c": "sow_and_subscribe", "t": "nope", "cid": "1", "sub_id": "s"})
    assert kinds(client.receive_many(2)) == ["group_begin", "group_end"]
    client.publish("nope", b"later")
    assert client.receive().body == b"later"


def test_sow_5_the_topic_is_part_of_the_key(start_server: StartServer, peers: Peers) -> None:
    """sow.md §25, 5."""
    server = start_server(
        **options(
            topic_xml("one", "/id"),
            topic_xml("two", "/id"),
            topic_xml("three", "/id", KeyDomain="d"),
            topic_xml("four", "/id", KeyDomain="d"),
        )
    )
    client = peers.logged_on(server)
    keys = []
    for topic in ("one", "two", "three", "four"):
        publish(client, topic, {"id": 1})
        (row,) = rows(client, topic)
        keys.append(row.header["k"])
    assert keys[2] == keys[3]
    assert len(set(keys)) == 3


def test_sow_6_keys_are_the_same_after_a_restart(server: ServerProcess, peers: Peers) -> None:
    """sow.md §25, 6."""
    client = peers.logged_on(server)
    publish(client, "orders", {"id": 1}, {"id": 2})
    before = {row.body: row.header["k"] for row in rows(client, "orders")}
    key = str(before[b'{"id":1}'])
    assert re.fullmatch("[0-9]+", key)
    assert [row.body for row in rows(client, "orders", sow_keys=f"{key},1, x,99999999999999999999")] == [b'{"id":1}']
    server.restart()
    client = peers.logged_on(server)
    assert {row.body: row.header["k"] for row in rows(client, "orders")} == before


def test_sow_7_composite_keys(start_server: StartServer, peers: Peers) -> None:
    """sow.md §25, 7."""
    client = peers.logged_on(start_server(**options(topic_xml("orders", "/a", "/b"))))
    publish(client, "orders", {"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": 1, "b": 2, "c": 3})
    assert sorted(map(str, bodies(client, "orders"))) == sorted(
        map(str, [{"a": 2, "b": 1}, {"a": 1, "b": 2, "c": 3}])
    )


def test_sow_8_keys_of_publishers(start_server: StartServer, peers: Peers) -> None:
    """sow.md §25, 8: the key comes back as it was given, and selects the record."""
    client = peers.logged_on(start_server(**options(topic_xml("orders"))))
    publish(client, "orders", {"id": 1}, {"id": 2}, k="abc")
    publish(client, "orders", {"id": 3}, k="x+/=")
    (found,) = rows(client, "orders", sow_keys="abc,no")
    assert (found.header["k"], found.body) == ("abc", b'{"id":2}')
    (found,) = rows(client, "orders", f="SOW_KEY() = 'x+/='")
    assert (found.header["k"], found.body) == ("x+/=", b'{"id":3}')
    refused = client.request({"c": "p", "t": "orders", "a": "processed"}, b'{"id":4}')
    assert refused.failed
    assert len(rows(client, "orders")) == 2


def test_sow_32_keys_can_be_left_out(client: RawClient) -> None:
    """sow.md §25, 32, for rows; correlation ids stay."""
    publish(client, "orders", {"id": 1}, x="c")
    (row,) = rows(client, "orders", o="no_sowkey")
    assert row.header == {"x": "c", "l": 8}
    (row,) = rows(client, "orders")
    assert list(row.header) == ["k", "x", "l"]


def test_sow_rows_carry_their_times(client: RawClient) -> None:
    """sow.md §1, §8: the option `timestamp`; each row has its own time, the frame that of its first row."""
    publish(client, "orders", {"id": 1}, {"id": 2})
    client.send({"c": "sow", "t": "orders", "cid": "1", "bs": 10, "o": "timestamp"})
    came = client.receive_many(3)
    times = re.findall(rb'"ts":"(\d{8}T\d{6}\.\d{6}Z)"', came[1].body)
    assert len(times) == 2
    assert str(came[1]["ts"]).encode() == times[0]
    assert abs(time.time() - time.mktime(time.strptime(times[0][:15].decode(), "%Y%m%dT%H%M%S")) + time.timezone) < 600


def test_sow_40_orders(client: RawClient) -> None:
    """sow.md §25, 40; D8."""
    values: list[dict[str, Any]] = [
        {"id": 1, "p": 1, "v": "10"},
        {"id": 2, "p": 3, "v": "9"},
        {"id": 3, "p": 1, "v": "10"},
        {"id": 4},
    ]
    publish(client, "orders", *values)

    def ids(orderby: str, **fields: Value) -> list[int]:
        return [body["id"] for body in bodies(client, "orders", orderby=orderby, **fields)]

    assert ids("/p DESC, /id") == [2, 1, 3, 4]
    assert ids("/v, /id") == [4, 2, 1, 3]
    assert ids("/v TEXT, /id DESC") == [4, 3, 1, 2]
    assert ids("/v DESC, /id", o="top_n=1") == [1]
    assert ids("/id DESC", f="/p = 1") == [3, 1]
    assert failure(client, c="sow", t="orders", orderby="/id UP") == "invalid orderby"


def test_sow_41_pages(client: RawClient) -> None:
    """sow.md §25, 41; D7, D8: without an order, pages go by keys."""
    publish(client, "orders", *({"id": number} for number in (3, 5, 1, 2, 4)))
    assert bodies(client, "orders", orderby="/id", o="top_n=2,skip_n=2") == [{"id": 3}, {"id": 4}]
    assert failure(client, c="sow", t="orders", o="skip_n=1") == "invalid options"
    client.send({"c": "sow", "t": "orders", "cid": "n", "a": "stats", "o": "top_n=0"})
    assert kinds(client.receive_many(2)) == ["group_begin", "group_end"]
    assert counts(client, "n", "records_returned") == (5, 5, 0)
    client.send({"c": "sow", "t": "orders", "cid": "m", "a": "stats", "top_n": 3, "bs": 2})
    assert len(records_of(client)) == 3
    assert counts(client, "m", "records_returned") == (5, 5, 3)
    by_key = sorted(rows(client, "orders"), key=lambda row: int(str(row.header["k"])))
    pages = [row for skip in (0, 2, 4) for row in rows(client, "orders", o=f"top_n=2,skip_n={skip}")]
    assert pages == by_key


def test_sow_45_batches(client: RawClient) -> None:
    """sow.md §25, 45; D35: the header counts the rows and the frames."""
    publish(client, "orders", *({"id": number} for number in range(25)))

    def batches(**fields: Value) -> list[tuple[Value, Value]]:
        client.send({"c": "sow", "t": "orders", "cid": "b", **fields})
        assert client.receive()["c"] == "group_begin"
        found = []
        while (message := client.receive())["c"] == "sow":
            found.append((message["bs"], message["gseq"]))
        return found

    assert batches(bs=10) == [(10, 1), (10, 2), (5, 3)]
    assert batches() == [(1, number + 1) for number in range(25)]
    assert batches(bs=10000) == [(25, 1)]
    assert failure(client, c="sow", t="orders", bs=10001) == "invalid options"


def test_sow_66_topics_in_the_order_of_the_configuration(start_server: StartServer, peers: Peers) -> None:
    """sow.md §25, 66; D6: one group. A queue that matches comes last."""
    server = start_server(
        instance_xml="<SOW>"
        + topic_xml("Topic_B", "/id")
        + topic_xml("Topic_A", "/id")
        + queue_xml("Topic_Q", "T")
        + "</SOW>",
        log_topics=["T", "Topic_A"],
    )
    client = peers.logged_on(server)
    for topic in ("Topic_A", "Topic_B", "T"):
        publish(client, topic, {"id": 1, "t": topic}, {"id": 2, "t": topic})
    deadline = time.monotonic() + 20
    while len(found := rows(client, "^Topic_.*")) < 6 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [row.topic for row in found] == ["Topic_B"] * 2 + ["Topic_A"] * 2 + ["Topic_Q"] * 2
    fields: dict[str, Value] = {"bs": 10, "a": "stats", "orderby": "/id DESC", "f": "/id > 0"}
    client.send({"c": "sow", "t": "^Topic_.*", "cid": "s", **fields})
    assert [json.loads(row.body)["id"] for row in records_of(client)] == [2, 2, 2, 1, 1, 1]
    assert counts(client, "s", "records_returned") == (6, 6, 6)
    assert bodies(client, "^Topic_(A|B)", f="TOPIC_NAME() = 'Topic_A'", orderby="/id") == [
        {"id": 1, "t": "Topic_A"},
        {"id": 2, "t": "Topic_A"},
    ]


def test_sow_d22_the_order_of_answers(client: RawClient) -> None:
    """sow.md §8, D22."""
    publish(client, "orders", {"id": 1}, {"id": 2})
    fields: dict[str, Value] = {"a": "received,processed,completed,stats", "query_id": "q", "f": "/id = 2"}
    client.send({"c": "sow", "t": "orders", "cid": "1", **fields})
    came = client.receive_many(7)
    assert kinds(came) == ["received", "processed", "group_begin", "sow", "group_end", "completed", "stats"]
    assert {message["query_id"] for message in came} == {"q"}
    assert [came[6][name] for name in ("topic_matches", "matches", "records_returned")] == [2, 1, 1]
    assert failure(client, c="sow", t="orders", f="/id = (") == "bad filter"


def test_sow_facts_of_records_in_filters(client: RawClient) -> None:
    """expressions.md §10.9: LAST_UPDATED, SOW_KEY, BOOKMARK, TOPIC_NAME."""
    publish(client, "orders", {"id": 1}, {"id": 2})
    (row,) = rows(client, "orders", f="/id = 2")
    assert [found.body for found in rows(client, "orders", f=f"SOW_KEY() = '{row.header['k']}'")] == [row.body]
    assert len(rows(client, "orders", f="LAST_UPDATED() > UNIX_TIMESTAMP() - 600 AND BOOKMARK() IS NULL")) == 2
    assert rows(client, "orders", f="LAST_UPDATED() < UNIX_TIMESTAMP() - 600") == []


def test_sow_a_query_can_be_given_up(client: RawClient) -> None:
    """sow.md §1.1: `unsubscribe` with a query id; the group ends, and nothing of it follows."""
    body = b'{"id":%d,"p":"' + b"x" * 20_000 + b'"}'
    for number in range(500):
        client.send({"c": "p", "t": "orders"}, body % number)
    client.send({"c": "flush", "cid": "f", "a": "completed"})
    client.wait_for_ack("completed", "f")
    client.send({"c": "sow", "t": "orders", "cid": "1", "query_id": "q", "a": "completed"})
    client.send({"c": "unsubscribe", "query_id": "q", "cid": "2", "a": "processed"})
    assert client.receive()["c"] == "group_begin"
    came = 0
    while (message := client.receive())["c"] == "sow":
        came += 1
    assert message["c"] == "group_end"
    assert came < 500
    assert client.receive().is_ack("processed", "2")
    client.expect_silence()


def test_sow_results_come_before_all_that_follows(client: RawClient, peers: Peers, server: ServerProcess) -> None:
    """sow.md §8: messages and answers that come up while a result is sent follow it."""
    body = b'{"id":%d,"p":"' + b"x" * 20_000 + b'"}'
    for number in range(500):
        client.send({"c": "p", "t": "orders"}, body % number)
    client.send({"c": "flush", "cid": "f", "a": "completed"})
    client.wait_for_ack("completed", "f")
    client.send({"c": "subscribe", "t": "orders", "cid": "s", "a": "processed"})
    client.wait_for_ack("processed", "s")
    client.send({"c": "sow", "t": "orders", "cid": "1", "query_id": "q", "bs": 10})
    client.send({"c": "sow", "t": "orders", "cid": "2", "query_id": "q2", "f": "/id = 3"})
    client.send({"c": "p", "t": "orders", "cid": "3", "a": "processed"}, b'{"id":3,"new":true}')
    other = peers.logged_on(server)
    publish(other, "orders", {"id": 1000})
    came: list[Message] = []
    while not any(m.body == b'{"id":1000}' for m in came) or not any(m.is_ack("processed", "3") for m in came):
        came.append(client.receive())
    begins = [index for index, message in enumerate(came) if message["c"] in ("group_begin", "group_end")]
    assert [came[index]["query_id"] for index in begins] == ["q", "q", "q2", "q2"]
    assert begins[0] == 0
    assert {message["c"] for message in came[1 : begins[1]]} == {"sow"}
    assert sum(int(str(message["bs"])) for message in came[1 : begins[1]]) == 500


@pytest.mark.parametrize("logged", [[], ["bucket"]], ids=["in the value file", "in the journal"])
def test_sow_59_many_topics_in_one(start_server: StartServer, peers: Peers, logged: list[str]) -> None:
    """sow.md §25, 59; §7: queries and deletions of logical topics, as far as conflated topics are not concerned."""
    server = start_server(
        **options(
            topic_xml("/orders/x", "/id", FileName="./sow/x.sow"),
            topic_xml("bucket", "/id", Pattern="^/orders/"),
            logged=logged,
        )
    )
    client = peers.logged_on(server)
    for topic in ("/orders/a", "/orders/b", "/orders/x"):
        publish(client, topic, {"id": 1, "t": topic}, {"id": 2, "t": topic})
    for _ in range(2):
        found = rows(client, "^/orders/", bs=10)
        assert {row.topic for row in found} == {"/orders/a", "/orders/b", "/orders/x"}
        assert all(json.loads(row.body)["t"] == row.topic for row in found)
        assert len({row.header["k"] for row in found}) == len(found) == 6
        assert [row.topic for row in rows(client, "/orders/a")] == ["/orders/a"] * 2
        assert {row.topic for row in rows(client, "^/orders/[ax]", f="TOPIC_NAME() = '/orders/a'")} == {"/orders/a"}
        assert [row.topic for row in rows(client, "^/orders/", orderby="/t DESC", o="top_n=3")] == (
            ["/orders/x"] * 2 + ["/orders/b"]
        )
        assert rows(client, "/orders/new") == []
        server.restart()
        client = peers.logged_on(server)
    key = next(str(row.header["k"]) for row in found if row.body == b'{"id":1,"t":"/orders/b"}')
    subscriber = peers.logged_on(server)
    subscriber.send({"c": "sow_and_subscribe", "t": "^/orders/", "cid": "1", "sub_id": "s", "o": "oof", "bs": 10})
    assert len(records_of(subscriber)) == 6
    client.send({"c": "sow_delete", "t": "^/orders/", "sow_keys": key, "cid": "d", "a": "stats"})
    assert counts(client, "d")[2] == 1
    left = subscriber.receive()
    assert (left["c"], left["t"], left["k"]) == ("oof", "/orders/b", key)
    client.send({"c": "sow_delete", "t": "/orders/a", "cid": "e", "a": "stats"}, b'{"id":1}')
    assert counts(client, "e")[2] == 1
    assert (left := subscriber.receive())["t"] == "/orders/a"
    client.send({"c": "sow_delete", "t": "^/orders/", "f": "/id = 1", "cid": "f", "a": "stats"})
    assert counts(client, "f") == (4, 1, 1)
    assert subscriber.receive()["t"] == "/orders/x"
    assert {row.body for row in rows(client, "^/orders/")} == {
        b'{"id":2,"t":"/orders/a"}', b'{"id":2,"t":"/orders/b"}', b'{"id":2,"t":"/orders/x"}'
    }  # fmt: skip


def test_sow_64_an_index_changes_no_answer(start_server: StartServer, peers: Peers) -> None:
    """sow.md §25, 64; D21."""
    index = "<Key>/c</Key>"
    server = start_server(**options(topic_xml("plain", "/id"), topic_xml("indexed", "/id", HashIndex=index)))
    client = peers.logged_on(server)
    values: list[dict[str, Any]] = [{"c": "x"}, {"c": "10"}, {"c": 10}, {"c": 10.0}, {}, {"c": "y", "p": 9}]
    for topic in ("plain", "indexed"):
        publish(client, topic, *({"id": number, **value} for number, value in enumerate(values)))
    for text in ("/c = 'x'", "/c IN ('x','y')", "/c IN ('x','y') AND /p > 5", "/c LIKE 'x'", "/c = 10", "/c = '10'"):
        found = [sorted(body["id"] for body in bodies(client, topic, f=text)) for topic in ("plain", "indexed")]
        assert found[0] == found[1] != []
