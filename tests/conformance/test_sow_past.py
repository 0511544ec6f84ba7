"""Queries of former states: sow.md §9, D23, and behaviours of its §25, as far as topics without `History` have them."""

import datetime
import json
import time

import pytest

from tests.support.managed import ask
from tests.support.peers import Peers
from tests.support.server import StartServer, wait_until
from tests.support.sow import bodies, failure, options, publish, rows, topic_xml


def now() -> str:
    """A moment between what is published before and after."""
    time.sleep(0.005)
    moment = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    time.sleep(0.005)
    return moment


@pytest.mark.xfail(strict=False, reason="under load, the state as of a moment was empty; the cause is not known yet")
def test_sow_60_the_state_as_of_a_moment(start_server: StartServer, peers: Peers) -> None:
    """sow.md §25, 60, with the log in place of `History`: changed and deleted records as they were."""
    server = start_server(**options(topic_xml("orders", "/id"), logged=["orders"]))
    client = peers.logged_on(server)
    before = now()
    publish(client, "orders", {"id": 1, "a": 1}, {"id": 2, "a": 1})
    moment = now()
    publish(client, "orders", {"id": 1, "a": 2}, {"id": 3, "a": 1})
    client.send({"c": "sow_delete", "t": "orders", "f": "/id = 2", "cid": "d", "a": "stats"})
    client.wait_for_ack("stats", "d")
    later = now()
    publish(client, "orders", {"id": 2, "a": 7})
    first = [{"id": 1, "a": 1}, {"id": 2, "a": 1}]
    second = [{"id": 1, "a": 2}, {"id": 3, "a": 1}]
    present = [{"id": 1, "a": 2}, {"id": 2, "a": 7}, {"id": 3, "a": 1}]
    for _ in range(2):
        assert bodies(client, "orders", bm=before) == []
        assert bodies(client, "orders", bm=moment, orderby="/id") == first
        assert sorted(map(str, bodies(client, "orders", bm=moment, f="/a = 1"))) == sorted(map(str, first))
        assert bodies(client, "orders", bm=later, orderby="/id") == second
        assert bodies(client, "orders", bm="0") == []
        assert bodies(client, "orders", bm="0|1|", orderby="/id") == present
        assert bodies(client, "orders", bm=now(), orderby="/id") == present
        server.restart()
        client = peers.logged_on(server)


def test_sow_d23_the_state_with_a_message(start_server: StartServer, peers: Peers) -> None:
    """sow.md D23: a bookmark stands for the state with that message; an unknown one fails."""
    server = start_server(**options(topic_xml("orders", "/id"), logged=["orders"]))
    client = peers.logged_on(server)
    client.send({"c": "subscribe", "t": "orders", "sub_id": "s", "cid": "1", "o": "bookmark", "a": "processed"})
    client.wait_for_ack("processed", "1")
    bookmarks = []
    for number in range(3):
        client.publish("orders", b'{"id":1,"n":%d}' % number)
        bookmarks.append(str(client.receive()["bm"]))
    client.send({"c": "unsubscribe", "sub_id": "s", "cid": "2"})
    for number, bookmark in enumerate(bookmarks):
        assert bodies(client, "orders", bm=bookmark) == [{"id": 1, "n": number}]
    assert failure(client, c="sow", t="orders", bm="17|1|") == "invalid bookmark"
    assert failure(client, c="sow", t="orders", bm="yesterday") == "invalid bookmark"
    assert failure(client, c="sow", t="orders", bm=",".join(bookmarks[:2])) == "invalid bookmark"


def test_sow_61_a_topic_without_a_past_ignores_the_bookmark(start_server: StartServer, peers: Peers) -> None:
    """sow.md §25, 61: a topic that neither has `History` nor is recorded."""
    server = start_server(
        **options(topic_xml("orders", "/id"), topic_xml("other", "/id"), logged=["other"])
    )
    client = peers.logged_on(server)
    moment = now()
    publish(client, "orders", {"id": 1})
    publish(client, "other", {"id": 1})
    assert bodies(client, "orders", bm=moment) == [{"id": 1}]
    assert bodies(client, "orders", bm="0") == [{"id": 1}]
    assert [row.topic for row in rows(client, "^o", bm=moment)] == ["orders"]


@pytest.mark.parametrize("changes", [3000])
def test_sow_a_record_that_changed_often(start_server: StartServer, peers: Peers, changes: int) -> None:
    """sow.md §9: its former state is found over more links than one step follows."""
    server = start_server(**options(topic_xml("orders", "/id"), logged=["orders"]))
    client = peers.logged_on(server)
    publish(client, "orders", {"id": 1, "n": -1})
    moment = now()
    for number in range(changes):
        client.send({"c": "p", "t": "orders"}, b'{"id":1,"n":%d}' % number)
    client.send({"c": "flush", "cid": "f", "a": "completed"})
    client.wait_for_ack("completed", "f")
    assert [json.loads(row.body)["n"] for row in rows(client, "orders", bm=moment)] == [-1]


def test_sow_a_moment_before_the_log_is_refused(start_server: StartServer, peers: Peers) -> None:
    """sow.md §9: what the removed journals held is not known any more; the present and the rest of the log are."""
    server = start_server(
        **options(topic_xml("orders", "/id"), logged=["orders"], module="tests.support.managed")
    )
    client = peers.logged_on(server)
    moment = now()
    publish(client, "orders", {"id": -1})
    body = b'{"id":%d,"p":"' + b"x" * 50_000 + b'"}'
    for number in range(500):
        client.send({"c": "p", "t": "orders"}, body % (number % 50))
    client.send({"c": "flush", "cid": "f", "a": "persisted"})
    client.wait_for_ack("persisted", "f")
    full = now()
    publish(client, "orders", {"id": -2})
    assert bodies(client, "orders", bm=moment) == []

    def removed() -> bool:
        _, outcome, content = ask(server.directory, 1, "remove", {"age_s": 0.0})
        assert outcome == "ok", content
        return all("0000000000" not in path.name for path in server.journals())

    wait_until(removed, 30, server.excerpt)
    for _ in range(2):
        assert failure(client, c="sow", t="orders", bm=moment) == "invalid bookmark"
        assert len(rows(client, "orders", bm=full)) == 51
        assert len(rows(client, "orders", bm=now())) == len(rows(client, "orders")) == 52
        server.restart()
        client = peers.logged_on(server)
