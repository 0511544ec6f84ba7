"""Numbers of publishes after a logon to an instance that has more than its sync peers (25.36 of replication.md)."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from amps.aio import AsyncClient
from amps.client import (
    Client,
    DefaultServerChooser,
    FilePublishStore,
    HAClient,
    HybridPublishStore,
    MemoryPublishStore,
    PublishStoreGapException,
    StoreException,
)
from amps.client.protocol.command import PublishTemplate
from amps.client.protocol.engine_types import Close, TicketFailed
from amps.client.protocol.store_interfaces import PublishStore
from tests.unit.client.aio import run
from tests.unit.client.aio_peer import AsyncPeer
from tests.unit.client.ha import MakeHA, connected, welcome
from tests.unit.client.harness import Harness
from tests.unit.client.peer import ScriptedPeer
from tests.unit.client.talk import log_on, subscribe, wait_for
from tests.unit.client.test_engine_transactions import Transacting

TEMPLATE = PublishTemplate("publish", "t")
PUBLISHER = 1234567890123456789

MakeStore = Callable[..., PublishStore]


def bookmark(sequence: int) -> str:
    return f"{PUBLISHER}|{sequence}|"


@pytest.fixture(params=["memory", "file", "hybrid"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """Make a store of each kind; those in files are the same store when they are made again."""

    def make(**options: Any) -> PublishStore:
        store: PublishStore
        if request.param == "memory":
            store = MemoryPublishStore(**options)
        elif request.param == "file":
            store = FilePublishStore(tmp_path / "store", **options)
        else:
            store = HybridPublishStore(tmp_path / "store", **options)
        store.open("me")
        request.addfinalizer(store.close)
        return store

    return make


def harness_with(store: PublishStore) -> Harness:
    return Harness(publish_store=store)


def publish(harness: Harness, count: int = 1) -> list[int]:
    return [harness.engine.publish_body(TEMPLATE, b"%d" % number) for number in range(count)]


def lose(harness: Harness) -> None:
    harness.sent()
    harness.engine.connection_lost(harness.now, None)
    harness.engine.events()


def numbers_sent(harness: Harness) -> list[Any]:
    return [frame["s"] for frame in harness.sent() if frame["c"] == "publish"]


@pytest.mark.parametrize(
    ("seq", "logged", "first"), [(0, 0, 1), (50, 50, 51), (50, 60, 61), (60, 50, 61), (0, 10**15, 10**15 + 1)]
)
def test_an_empty_store_begins_after_the_higher_number(
    make_store: MakeStore, seq: int, logged: int, first: int
) -> None:
    """replication.md, decision 25.36"""
    harness = harness_with(make_store()).ready(seq=seq, bm=bookmark(logged))
    assert publish(harness, 2) == [first, first + 1]
    assert numbers_sent(harness) == [first, first + 1]
    lose(harness)
    harness.logon(seq=first, bm=bookmark(first + 1))
    assert numbers_sent(harness) == [first + 1]


@pytest.mark.parametrize(
    "text", [None, "", "0|", "x|60|", "1|sixty|", "1|-60|", f"1|{2**63}|", "0", "20260101T000000Z"]
)
def test_a_bookmark_without_a_number_changes_nothing(text: str | None) -> None:
    """Only `seq` counts then. A publisher is named by a number, but its text does not matter here."""
    fields = {} if text is None else {"bm": text}
    harness = harness_with(MemoryPublishStore()).ready(seq=41, **fields)
    assert publish(harness) == [61 if text == "x|60|" else 42]


def test_messages_that_are_logged_but_not_persisted_stay_in_the_store(make_store: MakeStore) -> None:
    """25.36 of replication.md: a failover may lose them, so they are sent again, and their numbers are theirs."""
    store = make_store()
    harness = harness_with(store).ready()
    publish(harness, 5)
    lose(harness)
    harness.logon(seq=2, bm=bookmark(5))
    assert numbers_sent(harness) == [3, 4, 5]
    assert (store.last_persisted(), store.lowest_unpersisted(), store.unpersisted_count()) == (2, 3, 3)
    assert publish(harness) == [6]


def test_replication_19_another_instance_that_lacks_the_newest_gets_them(make_store: MakeStore) -> None:
    """replication.md §26 19: the store's numbers are above those of the second server."""
    harness = harness_with(make_store()).ready()
    publish(harness, 5)
    lose(harness)
    harness.logon(seq=3, bm=bookmark(3))
    assert numbers_sent(harness) == [4, 5]
    assert publish(harness) == [6]


def test_a_store_that_holds_lower_numbers_than_the_server_persisted_is_emptied(make_store: MakeStore) -> None:
    store = make_store()
    harness = harness_with(store).ready()
    publish(harness, 3)
    lose(harness)
    harness.logon(seq=8, bm=bookmark(12))
    assert store.unpersisted_count() == 0
    assert numbers_sent(harness) == []
    assert publish(harness) == [13]


def test_a_store_that_lost_its_newest_messages_waits_until_the_rest_is_persisted(
    make_store: MakeStore,
) -> None:
    """New messages would get numbers that the server has logged, and would be dropped as duplicates."""
    store = make_store()
    harness = harness_with(store).ready()
    publish(harness, 3)
    lose(harness)
    harness.logon(seq=1, bm=bookmark(7))
    error = harness.events(TicketFailed, Close)[0].error
    assert isinstance(error, StoreException)
    assert "logged messages up to 7 of this client, but the publish store ends at 3" in str(error)
    assert not harness.engine.logged_on
    assert store.lowest_unpersisted() == 2
    lose(harness)
    harness.logon(seq=3, bm=bookmark(7))
    assert harness.engine.logged_on
    assert publish(harness) == [8]


def test_a_server_that_forgot_what_others_have_is_no_gap(make_store: MakeStore) -> None:
    """After its restart an instance knows what it has logged, but not yet what its destinations have."""
    store = make_store(error_on_publish_gap=True)
    harness = harness_with(store).ready(seq=10, bm=bookmark(10))
    publish(harness, 2)
    lose(harness)
    harness.logon(seq=4, bm=bookmark(12))
    assert harness.engine.logged_on
    assert numbers_sent(harness) == [11, 12]
    lose(harness)
    harness.logon(seq=4, bm=bookmark(9))
    assert isinstance(harness.events(TicketFailed, Close)[0].error, PublishStoreGapException)


def test_a_store_in_files_remembers_where_its_numbers_began(tmp_path: Path) -> None:
    """The application ends before its first publish, and logs on to an instance that lacks the newest messages."""
    for seq, logged in ((50, 60), (50, 50)):
        store = FilePublishStore(tmp_path / "store")
        harness = harness_with(store)
        store.open("me")
        harness.ready(seq=seq, bm=bookmark(logged))
        store.close()
    store = FilePublishStore(tmp_path / "store")
    store.open("me")
    harness = harness_with(store).ready(seq=50, bm=bookmark(50))
    assert publish(harness) == [61]
    store.close()


def test_transactions_are_numbered_after_the_higher_number() -> None:
    """queue_guarantees.md §4, replication.md, decision 25.36"""
    harness = Transacting()
    harness.logon(5, bm=bookmark(9))
    harness.sent()
    harness.transact()
    assert harness.sequences() == [10]


def test_the_blocking_client_numbers_after_the_bookmark(peer: ScriptedPeer) -> None:
    """replication.md, decision 25.36"""
    client = Client("me", peer.uri, publish_store=MemoryPublishStore())
    with closing(client):
        connection = log_on(client, peer, 5, bm=bookmark(9))
        assert client.publish("t", b"") == 10
        assert connection.expect("publish")["s"] == 10


@run
async def test_the_asyncio_client_numbers_after_the_bookmark() -> None:
    """replication.md, decision 25.36"""
    async with AsyncPeer() as peer:
        peer.logon_seq, peer.logon_bookmark = 5, bookmark(9)
        async with AsyncClient("me", peer.uri, publish_store=MemoryPublishStore()) as client:
            assert await client.publish("t", b"") == 10


def test_replication_19_a_highly_available_client_moves_between_two_servers(
    make_ha: MakeHA, peer: ScriptedPeer
) -> None:
    """replication.md §26 19 and 20: each server gets what it lacks, in order, and the store drains."""
    store = MemoryPublishStore()
    with closing(ScriptedPeer()) as other:
        client = make_ha(publish_store=store)
        first = connected(client, peer)
        assert [client.publish("t", b"%d" % number) for number in range(4)] == [1, 2, 3, 4]
        assert [first.expect("publish")["s"] for _ in range(4)] == [1, 2, 3, 4]
        client.server_chooser = DefaultServerChooser(other.uri)
        first.close()
        second = welcome(other, 1, bm=bookmark(2))
        assert [second.expect("publish")["s"] for _ in range(3)] == [2, 3, 4]
        wait_for(lambda: not client.reconnecting)
        assert client.publish("t", b"") == 5
        assert second.expect("publish")["s"] == 5
        second.send({"c": "ack", "a": "persisted", "status": "success", "s": 5})
        wait_for(lambda: store.unpersisted_count() == 0)


def test_a_highly_available_client_resumes_where_the_second_server_lacks_its_bookmarks(
    make_ha: MakeHA, peer: ScriptedPeer
) -> None:
    """replication.md §19: the subscription is entered again with its bookmarks and with `bookmark_not_found`."""
    with closing(ScriptedPeer()) as other:
        client: HAClient = make_ha()
        first = connected(client, peer)
        got: list[bytes] = []
        sub_id = subscribe(
            client,
            first,
            lambda m: (got.append(m.data), m.discard()),
            bookmark="0",
            bookmark_not_found="epoch",
        )
        first.publish(sub_id, b"a", bm="7|1|")
        wait_for(lambda: len(got) == 1)
        client.server_chooser = DefaultServerChooser(other.uri)
        first.close()
        second = welcome(other)
        again = second.expect("subscribe")
        assert again["bm"].startswith("7|1|")
        assert "bookmark_not_found=epoch" in again["o"]
        second.ack(again)
        second.publish(sub_id, b"a", bm="7|1|")
        second.publish(sub_id, b"b", bm="7|2|")
        wait_for(lambda: len(got) == 2)
        assert got == [b"a", b"b"]
