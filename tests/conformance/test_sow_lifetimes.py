"""What SOW topics keep, and how long: files, restarts, lifetimes (sow.md §§2, 4, 5; behaviours of its §25)."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.peer import RawClient, Value
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer, wait_until
from tests.support.sow import bodies, options, publish, topic_xml

LOGGED = [pytest.param([], id="in the value file"), pytest.param(["orders"], id="in the journal")]


def ids(client: RawClient, topic: str = "orders") -> set[Any]:
    return {message["id"] for message in bodies(client, topic)}


def restarted(server: ServerProcess, peers: Peers, **changes: Any) -> RawClient:
    server.restart(**changes)
    return peers.logged_on(server)


def test_sow_9_the_file_is_named_by_topic_and_type(start_server: StartServer) -> None:
    """sow.md §25, 9."""
    server = start_server(**options(topic_xml("desk", "/id", FileName="./sow/%n.sow")))
    assert (server.directory / "sow/desk.json.sow").is_file()
    refused = ServerProcess(
        server.directory / "other",
        instance_xml="<SOW><Topic><Name>desk</Name><MessageType>json</MessageType><Key>/id</Key></Topic></SOW>",
    )
    assert "FileName" in refused.start_refused()


@pytest.mark.parametrize("logged", LOGGED)
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_sow_10_persistent_records_survive(
    start_server: StartServer, peers: Peers, logged: list[str], killed: bool
) -> None:
    """sow.md §25, 10: also the death of all processes."""
    server = start_server(**options(topic_xml("orders", "/id"), logged=logged))
    client = peers.logged_on(server)
    publish(client, "orders", *({"id": number, "pad": "x" * number} for number in range(300)))
    publish(client, "orders", {"id": 7, "again": True})
    client.flush()
    before = sorted(map(str, bodies(client, "orders")))
    if killed:
        server.kill_all()
        server.start()
        client = peers.logged_on(server)
    else:
        client = restarted(server, peers)
    assert sorted(map(str, bodies(client, "orders"))) == before


@pytest.mark.parametrize(
    ("logged", "elements", "kept"),
    [([], {}, False), (["orders"], {}, True), (["orders"], {"RecoveryPoint": "now"}, False)],
)
def test_sow_10_transient_records(
    start_server: StartServer, peers: Peers, logged: list[str], elements: dict[str, str], kept: bool
) -> None:
    """sow.md §25, 10: they are made again from the log, from the RecoveryPoint on."""
    server = start_server(
        **options(topic_xml("orders", "/id", Durability="transient", **elements), logged=logged)
    )
    client = peers.logged_on(server)
    publish(client, "orders", {"id": 1}, {"id": 2})
    client.flush()
    assert ids(client) == {1, 2}
    client = restarted(server, peers)
    assert ids(client) == ({1, 2} if kept else set())
    publish(client, "orders", {"id": 3})
    assert ids(client) == ({1, 2, 3} if kept else {3})


def test_sow_11_a_lost_file_is_made_again_from_the_log(start_server: StartServer, peers: Peers) -> None:
    """sow.md §25, 11: a deleted record stays deleted."""
    server = start_server(**options(topic_xml("orders", "/id"), logged=["orders"]))
    client = peers.logged_on(server)
    publish(client, "orders", {"id": 1, "a": 1}, {"id": 2}, {"id": 3})
    client.send({"c": "sow_delete", "t": "orders", "cid": "d", "a": "stats"}, b'{"id":2}')
    assert client.wait_for_ack("stats", "d")["records_deleted"] == 1
    client.send({"c": "delta_publish", "t": "orders"}, b'{"id":1,"b":2}')
    client.flush()
    server.stop()
    (path,) = (server.directory / "sow").glob("orders*.sow")
    path.unlink()
    server.start()
    client = peers.logged_on(server)
    assert sorted(map(str, bodies(client, "orders"))) == sorted(map(str, [{"id": 1, "a": 1, "b": 2}, {"id": 3}]))


@pytest.mark.parametrize("logged", LOGGED)
def test_sow_12_a_record_expires(start_server: StartServer, peers: Peers, logged: list[str]) -> None:
    """sow.md §25, 12 and 13: the topic's lifetime, that of a message, and no lifetime."""
    server = start_server(**options(topic_xml("orders", "/id", Expiration="1s"), logged=logged))
    client = peers.logged_on(server)
    publish(client, "orders", {"id": 1})
    publish(client, "orders", {"id": 2}, e=0)
    publish(client, "orders", {"id": 3}, e=1000)
    assert ids(client) == {1, 2, 3}
    wait_until(lambda: ids(client) == {2, 3}, 10, lambda: str(ids(client)))


def test_sow_13_every_publish_restarts_the_lifetime(start_server: StartServer, peers: Peers) -> None:
    """sow.md §25, 13: delta publishes too."""
    server = start_server(**options(topic_xml("orders", "/id", Expiration="2s")))
    client = peers.logged_on(server)
    for number in range(6):
        client.send({"c": "delta_publish", "t": "orders"}, b'{"id":1,"n":%d}' % number)
        client.flush()
        assert ids(client) == {1}
        time.sleep(0.6)
    wait_until(lambda: ids(client) == set(), 10, lambda: str(ids(client)))


@pytest.mark.parametrize(
    ("expiration", "fields", "stays"),
    [(None, {"e": 1}, True), ("enabled", {"e": 1}, False), ("enabled", {}, True)],
)
def test_sow_14_what_the_configuration_says(
    start_server: StartServer, peers: Peers, expiration: str | None, fields: dict[str, Value], stays: bool
) -> None:
    """sow.md §25, 14."""
    elements = {} if expiration is None else {"Expiration": expiration}
    server = start_server(**options(topic_xml("orders", "/id", **elements)))
    client = peers.logged_on(server)
    publish(client, "orders", {"id": 1}, **fields)
    publish(client, "orders", {"id": 2})
    if stays:
        time.sleep(1.5)
        assert ids(client) == {1, 2}
    else:
        wait_until(lambda: ids(client) == {2}, 10, lambda: str(ids(client)))


@pytest.mark.parametrize("logged", LOGGED)
def test_sow_15_records_that_fell_due_while_the_server_was_down(
    start_server: StartServer, peers: Peers, logged: list[str]
) -> None:
    """sow.md §25, 15: also a lifetime that was not in force when the record came."""
    server = start_server(**options(topic_xml("orders", "/id", Expiration="1s"), logged=logged))
    client = peers.logged_on(server)
    publish(client, "orders", {"id": 1})
    client.flush()
    server.stop()
    time.sleep(1.5)
    server.start()
    assert ids(peers.logged_on(server)) == set()


def test_sow_15_a_stored_lifetime_takes_effect_when_it_is_enabled(start_server: StartServer, peers: Peers) -> None:
    """sow.md §25, 15."""
    server = start_server(**options(topic_xml("orders", "/id"), logged=["orders"]))
    client = peers.logged_on(server)
    publish(client, "orders", {"id": 1}, e=1)
    publish(client, "orders", {"id": 2})
    time.sleep(1.2)
    assert ids(client) == {1, 2}
    more = options(topic_xml("orders", "/id", Expiration="enabled"), logged=["orders"])
    assert ids(restarted(server, peers, instance_xml=more["instance_xml"])) == {2}


def test_sow_47_fields_that_the_server_computes(start_server: StartServer, peers: Peers) -> None:
    """sow.md §25, 47: a key from Preprocessing, a default from Enrichment."""
    field = "COALESCE(/x OF CURRENT, /x OF PREVIOUS, 'd') AS /x"
    server = start_server(
        **options(
            topic_xml(
                "orders",
                "/k",
                Preprocessing="<Field>CONCAT(/a,'-',/b) AS /k</Field>",
                Enrichment=f"<Field>{field}</Field>",
            ),
            logged=["orders"],
        )
    )
    client = peers.logged_on(server)
    publish(client, "orders", {"a": "p", "b": "q"})
    assert bodies(client, "orders") == [{"a": "p", "b": "q", "k": "p-q", "x": "d"}]
    publish(client, "orders", {"a": "p", "b": "q", "x": 5}, {"a": "p", "b": "q", "n": 1})
    assert bodies(client, "orders") == [{"a": "p", "b": "q", "n": 1, "k": "p-q", "x": 5}]


def test_sow_48_hints(start_server: StartServer, peers: Peers) -> None:
    """sow.md §25, 48."""
    status = "IF(/s IN ('a','e'), /s, NULL) AS /s"
    plain = [status, "/p * 2 AS /q", "/q + 1 AS /r"]
    hints = [f"{status} HINT OPTIONAL", "/p * 2 AS /q HINT SET_CURRENT", "/q + 1 AS /r"]
    topics = [
        topic_xml(name, "/id", Enrichment="".join(f"<Field>{field}</Field>" for field in fields))
        for name, fields in (("kept", plain), ("hints", hints))
    ]
    client = peers.logged_on(start_server(**options(*topics)))
    for topic in ("kept", "hints"):
        publish(client, topic, {"id": 1, "s": "z", "p": 3})
    assert bodies(client, "kept") == [{"id": 1, "s": None, "p": 3, "q": 6, "r": None}]
    assert bodies(client, "hints") == [{"id": 1, "p": 3, "q": 6, "r": 7}]


@pytest.mark.parametrize(
    "logged", [pytest.param([], id="in the value file"), pytest.param(["bucket"], id="in the journal")]
)
def test_sow_59_many_topics_in_one(start_server: StartServer, peers: Peers, logged: list[str]) -> None:
    """sow.md §25, 59, but for conflated topics."""
    topics = [topic_xml("/orders/x", "/id", FileName="./x.sow"), topic_xml("bucket", "/id", Pattern="^/orders/")]
    server = start_server(**options(*topics, logged=logged))
    client = peers.logged_on(server)
    for topic, value in (("/orders/a", 1), ("/orders/b", 2), ("/orders/x", 3)):
        publish(client, topic, {"id": 1, "v": value})
    client.flush()

    def check() -> None:
        assert bodies(client, "/orders/a") == [{"id": 1, "v": 1}]
        assert bodies(client, "/orders/x") == [{"id": 1, "v": 3}]
        assert sorted(row["v"] for row in bodies(client, "^/orders/")) == [1, 2, 3]
        assert bodies(client, "/orders/nothing") == []

    check()
    client = restarted(server, peers)
    check()
    publish(client, "/orders/b", {"id": 2, "v": 4})
    assert sorted(row["v"] for row in bodies(client, "/orders/b")) == [2, 4]


CHAINS = """<KeyGenerator><Module>chains</Module><Options><Key>/doc</Key><Key>/parent</Key><Key>/other</Key>
<FileName>./chains</FileName></Options></KeyGenerator>"""


@pytest.mark.parametrize("logged", LOGGED)
def test_sow_67_chains(start_server: StartServer, peers: Peers, logged: list[str]) -> None:
    """sow.md §25, 67; the chains stay known over a restart."""
    names = "<Name>orders</Name><MessageType>json</MessageType><FileName>./sow/%n.sow</FileName>"
    topic = f"<Topic>{names}{CHAINS}</Topic>"
    modules = (
        "<Module><Name>chains</Name><Library>libamps_id_chaining_key_generator.so</Library></Module>"
    )
    server = start_server(**options(topic, logged=logged, modules_xml=modules))
    client = peers.logged_on(server)
    for body in (
        b'{"doc":1,"s":"new"}',
        b'{"doc":2,"parent":1,"o":"x"}',
        b'{"doc":3,"parent":2,"o":"y"}',
        b'{"doc":4,"parent":1,"s":"wait"}',
    ):
        client.send({"c": "delta_publish", "t": "orders"}, body)
    client.flush()
    assert bodies(client, "orders") == [{"doc": 4, "s": "wait", "parent": 1, "o": "y"}]
    client = restarted(server, peers)
    publish(client, "orders", {"doc": 9})
    assert len(bodies(client, "orders")) == 2
    client.subscribe("orders")
    client.publish("orders", b'{"doc":10,"parent":1,"other":9}', s=1, a="persisted")
    ack = client.wait_for_ack("persisted")
    assert (ack.failed, ack.reason) == (True, "two chains")
    client.expect_silence()
    assert len(bodies(client, "orders")) == 2


def test_sow_d25_a_message_larger_than_a_slab(start_server: StartServer, peers: Peers) -> None:
    """sow.md D25: refused, at once or after the merge; the old record stays."""
    server = start_server(**options(topic_xml("orders", "/id", SlabSize="4KB"), logged=["orders"]))
    client = peers.logged_on(server)
    publish(client, "orders", {"id": 1, "a": "x" * 2000})
    client.publish("orders", b'{"id":1,"a":"%b"}' % (b"x" * 4096), s=1, a="persisted")
    assert client.wait_for_ack("persisted").reason == "message too large"
    client.send(
        {"c": "delta_publish", "t": "orders", "s": 2, "a": "persisted"}, b'{"id":1,"b":"%b"}' % (b"y" * 2100)
    )
    assert client.wait_for_ack("persisted").reason == "message too large"
    assert bodies(client, "orders") == [{"id": 1, "a": "x" * 2000}]


def test_the_value_file_is_held_by_one_server(start_server: StartServer, tmp_path: Path) -> None:
    path = tmp_path / "shared.sow"
    topic = topic_xml("orders", "/id", FileName=str(path))
    start_server(**options(topic))
    other = ServerProcess(tmp_path / "other", **options(topic))
    assert "another process uses" in other.start_refused()


def test_an_unusable_value_file_is_set_aside(start_server: StartServer, peers: Peers) -> None:
    server = start_server(**options(topic_xml("orders", "/id"), logged=["orders"]))
    client = peers.logged_on(server)
    publish(client, "orders", {"id": 1})
    client.flush()
    server.stop()
    (path,) = (server.directory / "sow").glob("orders*.sow")
    path.write_bytes(b"something else" * 1000)
    server.start()
    assert ids(peers.logged_on(server)) == {1}
    (aside,) = path.parent.glob("*.unusable-*")
    assert aside.read_bytes().startswith(b"something else")
    assert server.log.find("32-0002", path.name)
