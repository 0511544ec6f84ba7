"""Publish stores of `amps.compat`: their constructors, and what survives the end of a client (client.md §8)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import amps.compat as AMPS
from amps.client import Message as _Message
from tests.unit.client.peer import ScriptedPeer, in_background
from tests.unit.client.talk import wait_for
from tests.unit.compat.test_compat_calls import log_on, peer

__all__ = ["peer"]

STORES: list[Callable[[Path], Any]] = [
    lambda path: AMPS.MemoryPublishStore(1),
    lambda path: AMPS.PublishStore(str(path / "p"), 1),
    lambda path: AMPS.HybridPublishStore(str(path / "h"), 2),
]


@pytest.mark.parametrize("make", STORES)
def test_every_publish_store_has_a_resize_handler(
    make: Callable[[Path], Any], tmp_path: Path, peer: ScriptedPeer
) -> None:
    """client.md §8.2: without a handler there is no limit; with one, it decides."""
    store = make(tmp_path)
    assert store.max_bytes is None
    sizes: list[int] = []

    def resize(which: Any, size: int) -> bool:
        assert which is store
        sizes.append(size)
        return True

    store.set_resize_handler(resize)
    limit = store.max_bytes
    client = AMPS.Client("tester")
    client.set_publish_store(store)
    log_on(client, peer)
    store.set_limit(2048)
    numbers = [client.publish("t", "x" * 1500) for _ in range(4)]
    assert numbers == [1, 2, 3, 4]
    assert sizes[:1] == [4096]
    assert limit in (2048, 10_000 * 2048)
    assert client.get_unpersisted_count() == 4
    assert (store.get_lowest_unpersisted(), store.getHighestUnpersisted()) == (1, 4)
    store.discard_up_to(1)
    assert (store.get_lowest_unpersisted(), store.get_last_persisted()) == (2, 1)
    store.set_resize_handler(None)
    assert (store.max_bytes, store.on_full) == (None, "wait")
    store.set_error_on_publish_gap(True)
    assert store.getErrorOnPublishGap() is True
    client.close()
    store.close()


def test_a_store_in_files_continues_with_the_next_client(tmp_path: Path, peer: ScriptedPeer) -> None:
    """client.md §8.1: the next client sends again what was not persisted, and continues numbering."""
    store = AMPS.PublishStore(str(tmp_path / "store"))
    client = AMPS.Client("tester")
    client.set_publish_store(store)
    log_on(client, peer)
    assert [client.publish("t", text) for text in "ab"] == [1, 2]
    client.close()
    store.close()
    again = AMPS.PublishStore(str(tmp_path / "store"))
    client = AMPS.Client("tester")
    client.set_publish_store(again)
    connection = log_on(client, peer, seq=1)
    frame = connection.expect("publish")
    assert (frame["s"], frame.body) == (2, b"b")
    assert client.publish("t", "c") == 3
    client.close()
    again.close()
    other = AMPS.Client("other")
    other.set_publish_store(AMPS.PublishStore(str(tmp_path / "store")))
    with pytest.raises(AMPS.StoreException, match="tester"):
        other.connect(peer.uri)


def test_bookmark_stores_in_files_keep_where_a_subscription_resumes(tmp_path: Path) -> None:
    """client.md §19.12"""
    for kind in (AMPS.MMapBookmarkStore, AMPS.LoggedBookmarkStore, AMPS.RingBookmarkStore):
        path = tmp_path / kind.__name__
        for expected in (None, "7|1|"):
            store = kind(str(path))
            assert store.get_most_recent("s") == expected
            if expected is None:
                arrived = _Message.parsed(b"", {"bookmark": "7|1|"}, 0, sub_id="s")
                number = store.log(arrived)
                assert store.get_oldest_bookmark_seq("s") == number
                store.discard("s", number)
            store.close()
        path.unlink()


def test_a_client_with_stores_in_files(tmp_path: Path) -> None:
    """client.md §9, §19.12"""
    client = AMPS.HAClient.create_file_backed(str(tmp_path / "p"), str(tmp_path / "b"), "me")
    assert isinstance(client.get_publish_store(), AMPS.PublishStore)
    assert isinstance(client.get_bookmark_store(), AMPS.MMapBookmarkStore)
    client.close()


FILES: list[Callable[[Path], Any]] = [
    lambda path: AMPS.PublishStore(path / "p"),
    lambda path: AMPS.HybridPublishStore(path / "h"),
    lambda path: AMPS.MMapBookmarkStore(path / "m"),
    lambda path: AMPS.RingBookmarkStore(path / "r"),
]


@pytest.mark.parametrize("make", FILES)
@pytest.mark.parametrize("connected", [True, False], ids=["connected", "never connected"])
def test_client_3_2_closing_a_client_closes_its_stores(
    make: Callable[[Path], Any], connected: bool, tmp_path: Path, peer: ScriptedPeer
) -> None:
    """client.md §3.2: the next client, here or in another process, can open the files at once."""
    kept = []
    for _ in range(2):
        client = AMPS.Client("me")
        store = make(tmp_path)
        publishes = hasattr(store, "unpersisted_count")
        (client.set_publish_store if publishes else client.set_bookmark_store)(store)
        if connected:
            log_on(client, peer)
        elif publishes:
            store.open("me")
        client.close()
        client.close()
        kept.append((client, store))


def test_client_3_2_a_handler_that_closes_its_client_closes_the_stores(tmp_path: Path, peer: ScriptedPeer) -> None:
    """client.md §3.2: they are closed when the connection has ended, and the receive thread needs them no more."""
    store = AMPS.PublishStore(tmp_path / "p")
    client = AMPS.Client("me")
    client.set_publish_store(store)
    connection = log_on(client, peer)
    open_in_the_handler: list[bool] = []

    def close(message: AMPS.Message) -> None:
        client.close()
        open_in_the_handler.append(store.is_open)

    client.set_last_chance_message_handler(close)
    connection.publish("none")
    wait_for(lambda: open_in_the_handler == [True] and not store.is_open)


def test_stores_in_memory_keep_what_is_not_persisted(peer: ScriptedPeer) -> None:
    """Closing the client is no reason to lose messages that the application can still give to another one."""
    client = AMPS.Client("me")
    client.set_publish_store(AMPS.MemoryPublishStore(1))
    client.set_bookmark_store(AMPS.MemoryBookmarkStore())
    log_on(client, peer)
    client.publish("t", "1")
    client.close()
    assert client.get_unpersisted_count() == 1


@pytest.mark.parametrize("make", STORES)
def test_client_8_2_flush_waits_for_what_was_stored_before(
    make: Callable[[Path], Any], tmp_path: Path, peer: ScriptedPeer
) -> None:
    """client.md §8.2: in milliseconds; messages stored later do not matter."""
    store = make(tmp_path)
    store.flush(1)
    client = AMPS.Client("me")
    client.set_publish_store(store)
    connection = log_on(client, peer)
    client.publish("t", "1")
    client.publish("t", "2")
    with pytest.raises(AMPS.TimedOutException, match="2 messages are not persisted"):
        store.flush(20)
    with in_background(store.flush, 0):
        client.publish("t", "3")
        connection.send({"c": "ack", "a": "persisted", "status": "success", "s": 2})
    assert store.unpersisted_count() == 1
    client.close()


def test_client_8_2_members_that_need_no_effect(tmp_path: Path) -> None:
    """client.md §7, §8.2: programs that call them run."""
    store = AMPS.PublishStore(tmp_path / "p")
    store.truncate_on_close(True)
    hybrid = AMPS.HybridPublishStore(tmp_path / "h", 10)
    assert hybrid.get_low_watermark() == 5
    hybrid.setLowWatermark(3)
    assert (hybrid.low_watermark, hybrid.getLowWatermark()) == (3, 3)
    with pytest.raises(ValueError, match="between 0 and 9"):
        hybrid.set_low_watermark(10)
    files = (AMPS.MMapBookmarkStore(tmp_path / "m"), AMPS.RingBookmarkStore(tmp_path / "r"))
    for made in (AMPS.MemoryBookmarkStore(), *files):
        made.set_server_version("5.3")
        made.set_resize_handler(lambda store, size: True)
        made.close()


class Adapter:
    """A recovery point adapter of the documented form; client.md §7."""

    def __init__(self, *points: tuple[str, str]) -> None:
        self.points = list(points)
        self.updates: list[tuple[str, str]] = []
        self.closed = 0

    def next(self, point: Any) -> bool:
        if not self.points:
            return False
        point.sub_id, point.bookmark = self.points.pop(0)
        return True

    def update(self, point: Any) -> None:
        self.updates.append((point.sub_id, point.bookmark))

    def purge(self, sub_id: str | None = None) -> None:
        pass

    def prune(self) -> None:
        pass

    def close(self) -> None:
        self.closed += 1


def test_client_7_a_bookmark_store_takes_a_documented_adapter_and_a_factory() -> None:
    made: list[Any] = []

    class Point:
        def __init__(self) -> None:
            made.append(self)

    adapter = Adapter(("A", "1|5|"), ("B", "1|7|"))
    store = AMPS.MemoryBookmarkStore(adapter, Point)
    assert (store.get_most_recent("A"), store.get_most_recent("B")) == ("1|5|", "1|7|")
    assert len(made) == 3
    message = _Message.parsed(b"", {"bookmark": "1|8|"}, 0, sub_id="B")
    store.discard("B", store.log(message))
    assert adapter.updates == [("B", "1|8|")]
    client = AMPS.Client("me")
    client.set_bookmark_store(store)
    client.close()
    assert adapter.closed == 1
    assert AMPS.MemoryBookmarkStore(Adapter(("A", "1|5|"))).get_most_recent("A") == "1|5|"
