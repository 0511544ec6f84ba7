"""Paginated subscriptions: sow.md §§1.2, 11, 13, D8, D19, and behaviours of its §25.

Each behaviour is tested on a topic in the journal, and on one in the value file.
"""

import json
from typing import Any

import pytest

from tests.support.peer import Message, RawClient
from tests.support.peers import Peers
from tests.support.queues import records_of
from tests.support.server import ServerProcess, StartServer
from tests.support.sow import failure, kinds, options, topic_xml

LOGGED = [pytest.param([], id="in the value file"), pytest.param(["orders"], id="in the journal")]


@pytest.fixture(params=LOGGED)
def server(start_server: StartServer, request: pytest.FixtureRequest) -> ServerProcess:
    return start_server(**options(topic_xml("orders", "/id"), topic_xml("others", "/id"), logged=request.param))


@pytest.fixture
def client(server: ServerProcess, peers: Peers) -> RawClient:
    return peers.logged_on(server)


@pytest.fixture
def publisher(server: ServerProcess, peers: Peers) -> RawClient:
    return peers.logged_on(server)


def publish(publisher: RawClient, topic: str, *messages: dict[str, Any]) -> None:
    """Publish messages, and wait until every worker can see them."""
    publisher.publish_all(topic, [json.dumps(message).encode() for message in messages])
    publisher.flush()


def page(client: RawClient, said: str, sub_id: str = "s", **fields: Any) -> list[Any]:
    """Subscribe to a page of `orders`; returns the bodies of its records."""
    client.send(
        {"c": "sow_and_subscribe", "t": "orders", "cid": "1", "sub_id": sub_id, "o": said, "orderby": "/id", **fields}
    )
    return [json.loads(row.body) for row in records_of(client)]


def ids(rows: list[Any]) -> list[Any]:
    return [row["id"] for row in rows]


def shown(message: Message) -> tuple[Any, ...]:
    """`p` or the reason of an out-of-focus message, and the body."""
    return message.get("reason") or message.command, json.loads(message.body)


def delete(publisher: RawClient, text: str) -> None:
    publisher.send({"c": "sow_delete", "t": "orders", "cid": "d", "f": text, "a": "completed"})
    publisher.wait_for_ack("completed", "d")


def test_sow_42_a_page(client: RawClient, publisher: RawClient) -> None:
    """sow.md §25, 42; §11, D19: a record that comes is published, one that is pushed out goes out of focus first."""
    publish(publisher, "orders", *({"id": number} for number in (10, 20, 50, 70)))
    assert page(client, "top_n=2,skip_n=1,oof") == [{"id": 20}, {"id": 50}]
    publish(publisher, "orders", {"id": 40})
    assert [shown(message) for message in client.receive_many(2)] == [("match", {"id": 50}), ("p", {"id": 40})]
    publish(publisher, "orders", {"id": 70, "a": 1})
    client.expect_silence()
    publish(publisher, "orders", {"id": 20, "a": 1})
    assert shown(client.receive()) == ("p", {"id": 20, "a": 1})
    client.expect_silence()


def test_sow_42_removals_and_moves(client: RawClient, publisher: RawClient) -> None:
    """sow.md §11, §13, D19: deletes on, before and behind a page; a record that moves within it is only published."""
    publish(publisher, "orders", *({"id": number, "p": number} for number in range(1, 7)))
    assert ids(page(client, "top_n=3,skip_n=1,oof", orderby="/p")) == [2, 3, 4]
    delete(publisher, "/id = 6")
    client.expect_silence()
    delete(publisher, "/id = 3")
    assert [shown(message) for message in client.receive_many(2)] == [
        ("deleted", {"id": 3, "p": 3}),
        ("p", {"id": 5, "p": 5}),
    ]
    publish(publisher, "orders", {"id": 2, "p": 4.5})
    assert shown(client.receive()) == ("p", {"id": 2, "p": 4.5})
    delete(publisher, "/id = 1")
    assert [shown(message) for message in client.receive_many(1)] == [("match", {"id": 4, "p": 4})]
    publish(publisher, "orders", {"id": 5, "p": 0})
    assert [shown(message) for message in client.receive_many(2)] == [
        ("match", {"id": 5, "p": 0}),
        ("p", {"id": 4, "p": 4}),
    ]
    client.expect_silence()


def test_sow_42_a_delete_of_many(client: RawClient, publisher: RawClient) -> None:
    """sow.md D19: one delete is one step; records that come and go within it are not mentioned."""
    publish(publisher, "orders", *({"id": number, "b": number % 2} for number in range(12)))
    assert ids(page(client, "top_n=2,skip_n=2,oof")) == [2, 3]
    delete(publisher, "/b = 1")
    came = [shown(message) for message in client.receive_many(4)]
    assert sorted(came[:2], key=str) == [("deleted", {"id": 3, "b": 1}), ("match", {"id": 2, "b": 0})]
    assert came[2:] == [("p", {"id": 4, "b": 0}), ("p", {"id": 6, "b": 0})]
    delete(publisher, "1 = 1")
    assert sorted(shown(message)[0] for message in client.receive_many(2)) == ["deleted", "deleted"]
    client.expect_silence()


def test_sow_13_without_oof(client: RawClient, publisher: RawClient) -> None:
    """sow.md §11: a record that leaves a page causes an `oof` only if the client asked for it."""
    publish(publisher, "orders", {"id": 1}, {"id": 3})
    assert ids(page(client, "top_n=1,skip_n=0")) == [1]
    publish(publisher, "orders", {"id": 0})
    assert shown(client.receive()) == ("p", {"id": 0})
    delete(publisher, "/id = 0")
    assert shown(client.receive()) == ("p", {"id": 1})
    client.expect_silence()


def test_sow_42_a_filter(client: RawClient, publisher: RawClient) -> None:
    """sow.md §11: the page is one of the matching records."""
    publish(publisher, "orders", *({"id": number, "a": number} for number in range(1, 6)))
    assert ids(page(client, "top_n=2,skip_n=1,oof", f="/a > 1")) == [3, 4]
    publish(publisher, "orders", {"id": 2, "a": 0})
    assert [shown(message) for message in client.receive_many(2)] == [
        ("match", {"id": 3, "a": 3}),
        ("p", {"id": 5, "a": 5}),
    ]
    publish(publisher, "orders", {"id": 1, "a": 9})
    assert [shown(message) for message in client.receive_many(2)] == [
        ("match", {"id": 5, "a": 5}),
        ("p", {"id": 3, "a": 3}),
    ]


def test_sow_30_a_page_of_deltas(client: RawClient, publisher: RawClient) -> None:
    """sow.md D19, §17: what changes on the page is a delta, what comes is whole."""
    publish(publisher, "orders", *({"id": number, "a": 1, "b": 2} for number in (1, 2, 3)))
    assert ids(page(client, "top_n=2,skip_n=0,oof,no_empties", c="sow_and_delta_subscribe")) == [1, 2]
    publish(publisher, "orders", {"id": 2, "a": 1, "b": 3}, {"id": 2, "a": 1, "b": 3})
    assert shown(client.receive()) == ("p", {"id": 2, "b": 3})
    client.expect_silence()
    delete(publisher, "/id = 1")
    assert [shown(message) for message in client.receive_many(2)] == [
        ("deleted", {"id": 1, "a": 1, "b": 2}),
        ("p", {"id": 3, "a": 1, "b": 2}),
    ]


def test_sow_39_a_page_of_selected_fields(client: RawClient, publisher: RawClient) -> None:
    """sow.md §18: on rows, on what changes, comes and goes. The keys are in the headers."""
    publish(publisher, "orders", {"id": 1, "a": 1}, {"id": 2, "a": 2})
    assert page(client, "top_n=1,skip_n=0,oof,select=[-/a]") == [{"id": 1}]
    publish(publisher, "orders", {"id": 1, "a": 3})
    assert shown(client.receive()) == ("p", {"id": 1})
    delete(publisher, "/id = 1")
    left, came = client.receive_many(2)
    assert [shown(left), shown(came)] == [("deleted", {"id": 1}), ("p", {"id": 2})]
    assert left["k"] != came["k"]
    assert left.subscriptions == came.subscriptions == {"s"}


def test_sow_41_the_result(client: RawClient, publisher: RawClient) -> None:
    """sow.md §§8, 11: order of the page, batches, counts; without an order it is that of the keys."""
    publish(publisher, "orders", *({"id": number} for number in range(20)))
    client.send(
        {"c": "sow_and_subscribe", "t": "orders", "cid": "1", "sub_id": "s", "o": "top_n=10,skip_n=5", "f": "/id > 2",
         "orderby": "/id DESC", "bs": 4, "a": "processed,completed,stats"}
    )  # fmt: skip
    came = client.receive_many(8)
    assert kinds(came) == ["processed", "group_begin", "sow", "sow", "sow", "group_end", "completed", "stats"]
    assert [came[7][name] for name in ("topic_matches", "matches", "records_returned")] == [20, 17, 10]
    client.send({"c": "sow_and_subscribe", "t": "orders", "cid": "2", "sub_id": "u", "o": "top_n=100,skip_n=0"})
    keys = [int(row.header["k"]) for row in records_of(client)]
    assert (len(keys), keys) == (20, sorted(keys))
    assert page(client, "top_n=0,skip_n=0", "none") == []
    assert page(client, "top_n=5,skip_n=100", "behind") == []
    assert ids(page(client, "skip_n=18", "header", top_n=5)) == [18, 19]


def test_sow_40_orders_of_a_page(client: RawClient, publisher: RawClient) -> None:
    """sow.md D8: a page has the order of a query."""
    values = [None, True, 2, 10, "b", "a", [3, 1], {"x": 1}, 1.5, -7]
    publish(publisher, "orders", *({"id": number, "v": value} for number, value in enumerate(values)))
    for number, order in enumerate(("/v", "/v DESC", "/v TEXT,/id DESC", "/v DESC TEXT")):
        client.send({"c": "sow", "t": "orders", "cid": "q", "orderby": order, "bs": 10})
        expected = [json.loads(row.body) for row in records_of(client)]
        assert page(client, "top_n=5,skip_n=3", f"s{number}", orderby=order) == expected[3:8]


def test_sow_1_2_a_replaced_page(client: RawClient, publisher: RawClient) -> None:
    """sow.md §1.2: records that were not on the old page, and `oof` for those that are not on the new one."""
    publish(publisher, "orders", *({"id": number, "a": number % 3} for number in range(10)))
    assert ids(page(client, "top_n=4,skip_n=0,oof")) == [0, 1, 2, 3]
    assert ids(page(client, "replace,top_n=4,skip_n=2,oof", a="completed")) == [4, 5]
    left = client.receive_many(2)
    assert sorted(map(shown, left), key=str) == [("match", {"id": 0, "a": 0}), ("match", {"id": 1, "a": 1})]
    assert left[0].subscriptions == {"s"}
    assert client.receive().is_ack("completed")
    publish(publisher, "orders", {"id": 0, "a": 9}, {"id": 2, "a": 9})
    assert shown(client.receive()) == ("p", {"id": 2, "a": 9})
    # Another filter, and no oof any more.
    assert ids(page(client, "replace,top_n=2,skip_n=0", f="/a = 1", a="completed")) == [1]
    assert client.receive().is_ack("completed")
    publish(publisher, "orders", {"id": 2, "a": 1})
    assert shown(client.receive()) == ("p", {"id": 2, "a": 1})
    client.expect_silence()


def test_sow_1_2_what_a_replacement_must_have(client: RawClient, publisher: RawClient) -> None:
    """sow.md §1.2: `top_n`, `skip_n` and `orderby` again; the same topic. The subscription goes on after a failure."""
    publish(publisher, "orders", {"id": 1})
    assert ids(page(client, "top_n=1,skip_n=0")) == [1]
    query: dict[str, Any] = {"c": "sow_and_subscribe", "sub_id": "s", "t": "orders"}
    assert failure(client, **query, o="replace,top_n=1,skip_n=0") == "invalid options"
    assert failure(client, **query, o="replace,top_n=1", orderby="/id") == "invalid options"
    assert failure(client, **query, o="replace", orderby="/id") == "invalid options"
    other = {**query, "t": "others"}
    assert failure(client, **other, o="replace,top_n=1,skip_n=0", orderby="/id") == "invalid topic"
    assert failure(client, c="subscribe", sub_id="s", t="orders", o="replace") == "invalid options"
    client.subscribe("others", "plain")
    assert failure(client, **{**query, "sub_id": "plain"}, o="replace,top_n=1,skip_n=0") == "invalid options"
    publish(publisher, "orders", {"id": 0})
    assert shown(client.receive()) == ("p", {"id": 0})
    client.send({**query, "cid": "n", "sub_id": "n", "o": "top_n=1", "orderby": "/id"})
    assert len(records_of(client)) == 1
    assert failure(client, **{**query, "sub_id": "n"}, o="replace", orderby="/id") == "invalid options"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"o": "skip_n=1"}, "invalid options"),
        ({"t": "^ord", "o": "top_n=1,skip_n=0"}, "invalid topic"),
        ({"t": "plain", "o": "top_n=1,skip_n=0"}, "invalid topic"),
        ({"o": "top_n=1,skip_n=0", "sow_keys": "1"}, "invalid options"),
        ({"o": "top_n=1,skip_n=x"}, "invalid options"),
        ({"o": "top_n=1,skip_n=0", "orderby": "id"}, "invalid orderby"),
        ({"o": "top_n=1,skip_n=0", "f": "/a > UNIX_TIMESTAMP()"}, "bad filter"),
    ],
)
def test_sow_41_69_refused_pages(client: RawClient, fields: dict[str, Any], reason: str) -> None:
    """sow.md §25, 41 and 69; §11: of one SOW topic, with a filter that depends on the message alone."""
    assert failure(client, **{"c": "sow_and_subscribe", "t": "orders", "sub_id": "s", **fields}) == reason


def test_sow_11_many_pages_of_one_list(client: RawClient, publisher: RawClient) -> None:
    """sow.md §11: pages side by side; each change concerns those that show it. The list ends with the last page."""
    publish(publisher, "orders", *({"id": number} for number in range(0, 40, 2)))
    for number in range(5):
        assert len(page(client, f"top_n=4,skip_n={4 * number},oof", f"p{number}")) == 4
    publish(publisher, "orders", {"id": 17})
    came = client.receive_many(5)
    assert [(shown(message), message.subscriptions) for message in came] == [
        (("match", {"id": 22}), {"p2"}),
        (("p", {"id": 17}), {"p2"}),
        (("match", {"id": 30}), {"p3"}),
        (("p", {"id": 22}), {"p3"}),
        (("match", {"id": 38}), {"p4"}),
    ]
    assert shown(client.receive()) == ("p", {"id": 30})
    client.unsubscribe("p3")
    delete(publisher, "/id = 17")
    assert [message.subscriptions for message in client.receive_many(4)] == [{"p2"}, {"p2"}, {"p4"}, {"p4"}]
    client.unsubscribe("all")
    publish(publisher, "orders", {"id": 0})
    assert ids(page(client, "top_n=1,skip_n=0", "again")) == [0]
    publish(publisher, "orders", {"id": -1})
    assert shown(client.receive()) == ("p", {"id": -1})


def test_sow_35_conflated_pages(client: RawClient, publisher: RawClient) -> None:
    """sow.md §16, D13: the end state of each record; an `oof` has what the client had before."""
    publish(publisher, "orders", *({"id": number, "p": number} for number in (1, 2, 3)))
    assert ids(page(client, "top_n=2,skip_n=0,oof,conflation=300ms", orderby="/p")) == [1, 2]
    publish(publisher, "orders", {"id": 1, "p": 1.2}, {"id": 1, "p": 1.5}, {"id": 3, "p": 0}, {"id": 3, "p": 5})
    publish(publisher, "orders", {"id": 2, "p": 9})
    came = [shown(message) for message in client.receive_many(3)]
    assert sorted(came, key=str) == [
        ("match", {"id": 2, "p": 2}),
        ("p", {"id": 1, "p": 1.5}),
        ("p", {"id": 3, "p": 5}),
    ]
    client.expect_silence()


def test_sow_46_publishing_while_a_page_begins(client: RawClient, publisher: RawClient) -> None:
    """sow.md §25, 46: the result and the changes after it give the newest page."""
    bodies = [json.dumps({"id": number, "n": 0}).encode() for number in range(3000)]
    publisher.publish_all("orders", bodies)
    publisher.flush()
    changes = [json.dumps({"id": number, "n": n}).encode() for n in (1, 2) for number in range(3000)]
    publisher.publish_all("orders", changes[:3000])
    state = {row["id"]: row for row in page(client, "top_n=100,skip_n=1000,oof", bs=100)}
    assert sorted(state) == list(range(1000, 1100))
    publisher.publish_all("orders", changes[3000:])
    publisher.flush()
    while sum(row["n"] for row in state.values()) < 200:
        message = client.receive()
        assert message.command == "p"
        row = json.loads(message.body)
        assert row["n"] >= state[row["id"]]["n"]
        state[row["id"]] = row
    client.expect_silence()


def test_sow_11_a_list_that_is_too_large(start_server: StartServer, peers: Peers) -> None:
    """sow.md §11: a list beyond MessageMemoryLimit is refused; one that grows beyond it ends with its clients."""
    limit = "<MessageMemoryLimit>1MB</MessageMemoryLimit>"
    said = options(topic_xml("orders", "/id"))
    server = start_server(**{**said, "instance_xml": said["instance_xml"] + limit})
    client, publisher = peers.logged_on(server), peers.logged_on(server)
    assert page(client, "top_n=1,skip_n=5") == []
    publisher.publish_all("orders", [json.dumps({"id": number}).encode() for number in range(20_000)])
    publisher.flush()
    client.wait_for_close()
    other = peers.logged_on(server)
    query: dict[str, Any] = {"c": "sow_and_subscribe", "sub_id": "s", "t": "orders", "o": "top_n=1,skip_n=5"}
    assert failure(other, **query, orderby="/id") == "result too large"
    other.send({**query, "cid": "1", "f": "/id < 100", "orderby": "/id"})
    assert len(records_of(other)) == 1


def test_sow_11_a_client_that_leaves_while_its_list_is_filled(
    server: ServerProcess, peers: Peers, publisher: RawClient
) -> None:
    """sow.md §11: others who wait for the same list get it."""
    publisher.publish_all("orders", [json.dumps({"id": number}).encode() for number in range(20_000)])
    publisher.flush()
    for _ in range(3):
        first, second = peers.logged_on(server), peers.logged_on(server)
        query: dict[str, Any] = {"c": "sow_and_subscribe", "sub_id": "s", "t": "orders", "o": "top_n=1,skip_n=5"}
        for one in (first, second):
            one.send({**query, "cid": "1", "f": "/id != 7", "orderby": "/id"})
        first.close()
        assert ids([json.loads(row.body) for row in records_of(second)]) == [5]
        publish(publisher, "orders", {"id": 5, "n": 1})
        assert shown(second.receive())[1] == {"id": 5, "n": 1}
        second.close()
