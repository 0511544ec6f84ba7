"""Answers that must wait for `fdatasync`, and answers that need not: transaction_log.md §2, §20 36.

The server's syncs are held up, so that messages are written but not durable. Answers and deliveries that promise
durability must then wait; all others must go on. To see that one waits, a test watches for a moment: on a slow
machine these tests can miss an error, but never fail wrongly.
"""

import pytest

from tests.support.held_syncs import HeldSyncs
from tests.support.peer import RawClient, bodies_of
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer

WATCHED_S = 0.3


@pytest.fixture(scope="module")
def syncs(tmp_path_factory: pytest.TempPathFactory) -> HeldSyncs:
    return HeldSyncs(tmp_path_factory.mktemp("held-syncs"))


@pytest.fixture(scope="module")
def slow_disk(start_module_server: StartServer, syncs: HeldSyncs) -> ServerProcess:
    return start_module_server(log_topics=("^t",), environment=syncs.environment)


@pytest.fixture
def watcher(peers: Peers, slow_disk: ServerProcess, unique: str) -> RawClient:
    """An ordinary subscriber: a message that it receives is written."""
    watcher = peers.logged_on(slow_disk)
    watcher.subscribe(f"t/{unique}", "w")
    return watcher


def publisher_of(peers: Peers, server: ServerProcess) -> RawClient:
    return peers.logged_on(server, o="ack_conflation=1ms")


def test_transaction_log_36_persisted_waits_for_the_sync(
    peers: Peers, slow_disk: ServerProcess, syncs: HeldSyncs, watcher: RawClient, unique: str
) -> None:
    """transaction_log.md §20 36, protocol.md §5.3: the conflated ack of numbered publishes."""
    publisher = publisher_of(peers, slow_disk)
    with syncs.held():
        publisher.publish(f"t/{unique}", b"x", s=1, a="persisted")
        assert watcher.receive().body == b"x"
        publisher.expect_nothing_for(WATCHED_S)
    assert publisher.wait_for_persisted(1)[-1]["s"] == 1


def test_transaction_log_36_an_ack_of_its_own_waits_for_the_sync(
    peers: Peers, slow_disk: ServerProcess, syncs: HeldSyncs, watcher: RawClient, unique: str
) -> None:
    """protocol.md §5.3 D9: publishes without a number. A topic that is not recorded does not wait."""
    publisher = publisher_of(peers, slow_disk)
    with syncs.held():
        publisher.publish(f"t/{unique}", b"x", cid="recorded", a="persisted")
        publisher.publish(f"plain/{unique}", b"x", cid="plain", a="persisted")
        assert watcher.receive().body == b"x"
        assert publisher.receive().is_ack("persisted", "plain")
        publisher.expect_nothing_for(WATCHED_S)
    assert publisher.receive().is_ack("persisted", "recorded")


def test_transaction_log_36_a_persisted_flush_waits_for_the_sync(
    peers: Peers, slow_disk: ServerProcess, syncs: HeldSyncs, watcher: RawClient, unique: str
) -> None:
    """protocol.md §14: `completed` does not wait."""
    publisher = publisher_of(peers, slow_disk)
    with syncs.held():
        publisher.publish(f"t/{unique}", b"x", s=1)
        publisher.send({"c": "flush", "cid": "f", "a": "completed,persisted"})
        assert publisher.receive().is_ack("completed", "f")
        assert watcher.receive().body == b"x"
        publisher.expect_nothing_for(WATCHED_S)
    assert publisher.receive().is_ack("persisted", "f")


def test_transaction_log_13_the_logon_ack_promises_only_durable_messages(
    peers: Peers, slow_disk: ServerProcess, syncs: HeldSyncs, watcher: RawClient, unique: str
) -> None:
    """protocol.md §6: a publisher may forget messages up to its sequence, as after a persisted ack."""
    publisher = peers.logged_on(slow_disk, name=unique)
    successor = peers.open(slow_disk)
    with syncs.held():
        publisher.publish(f"t/{unique}", b"x", s=7)
        assert watcher.receive().body == b"x"
        successor.send({"c": "logon", "client_name": unique, "cid": "l", "a": "processed"})
        successor.expect_nothing_for(WATCHED_S)
    assert successor.receive()["s"] == 7


@pytest.mark.parametrize("caught_up", [True, False])
def test_transaction_log_8_3_a_bookmark_subscription_gets_durable_messages_only(
    peers: Peers, slow_disk: ServerProcess, syncs: HeldSyncs, watcher: RawClient, unique: str, caught_up: bool
) -> None:
    """transaction_log.md §8: a message delivered with a bookmark must be there after a crash; `live` waives that."""
    publisher = publisher_of(peers, slow_disk)
    durable, live = peers.logged_on(slow_disk), peers.logged_on(slow_disk)
    publisher.publish_persisted(f"t/{unique}", [b"old"], 1)
    assert watcher.receive().body == b"old"

    def enter() -> None:
        durable.subscribe(f"t/{unique}", "d", bm="0")
        live.subscribe(f"t/{unique}", "l", bm="0", o="live")
        assert durable.receive().body == live.receive().body == b"old"

    if caught_up:
        enter()
    with syncs.held():
        publisher.publish(f"t/{unique}", b"new", s=2)
        assert watcher.receive().body == b"new"
        if not caught_up:
            enter()
        assert live.receive().body == b"new"
        durable.expect_nothing_for(WATCHED_S)
    assert bodies_of([durable.receive()]) == [b"new"]


def test_transaction_log_4_a_subscription_joins_others_that_are_behind(
    peers: Peers, start_server: StartServer, syncs: HeldSyncs
) -> None:
    """transaction_log.md §8: entered behind many messages that become durable at once, it receives none of them.

    Another subscription has caught up before; the two are served together from then on.
    """
    server = start_server(
        log_topics=("^t",),
        journal_size="100MB",
        journal_xml="<PreallocatedJournalFiles>1</PreallocatedJournalFiles>",
        transport_workers=1,
        environment=syncs.environment,
    )
    other = peers.logged_on(server)
    other.subscribe("t/other", "o", bm="0|1|")
    client = peers.logged_on(server)
    with syncs.held():
        client.publish_all("t/many", [b"x" * 500_000] * 80)
        client.subscribe("t/many", "s", bm="0|1|")
        client.flush("completed")
    client.publish("t/many", b"later")
    client.publish("t/other", b"other")
    assert client.receive().body == b"later"
    client.flush("persisted")
    client.expect_silence()
    assert other.receive().body == b"other"


def test_protocol_29_a_replacement_takes_effect_after_earlier_publishes(
    peers: Peers, slow_disk: ServerProcess, syncs: HeldSyncs, watcher: RawClient, unique: str
) -> None:
    """protocol.md §8.2, §21 29: also when earlier messages are not durable yet, and so not delivered by bookmark."""
    publisher, subscriber = publisher_of(peers, slow_disk), peers.logged_on(slow_disk)
    old, new = f"t/{unique}", f"t/{unique}/new"
    publisher.publish(old, b"1")
    subscriber.subscribe(old, "s", bm="0")
    assert subscriber.receive().body == b"1"
    publisher.publish(old, b"2")
    assert subscriber.receive().body == b"2"
    assert bodies_of(watcher.receive_many(2)) == [b"1", b"2"]
    with syncs.held():
        publisher.publish(old, b"3")
        publisher.publish(new, b"unseen")
        assert watcher.receive().body == b"3"
        subscriber.send(
            {
                "c": "subscribe",
                "cid": "r",
                "t": new,
                "sub_id": "s",
                "bm": "0",
                "o": "replace",
                "a": "processed",
            }
        )
        subscriber.expect_nothing_for(WATCHED_S)
    assert subscriber.receive().body == b"3"
    assert subscriber.receive().is_ack("processed", "r")
    publisher.publish(old, b"unseen")
    publisher.publish(new, b"4")
    assert subscriber.receive().body == b"4"
