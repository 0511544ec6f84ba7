"""Publish stores of `amps.compat`: their constructors, and what survives the end of a client (client.md §8)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import amps.compat as AMPS
from amps.client import Message as _Message
from tests.unit.client.peer import ScriptedPeer
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
