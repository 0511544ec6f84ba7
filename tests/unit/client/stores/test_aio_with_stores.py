"""The asyncio client with the publish stores in files."""

import asyncio
import threading
from pathlib import Path
from typing import Literal

import pytest

from amps.aio import AsyncClient
from amps.client import FilePublishStore
from tests.unit.client.aio_peer import AsyncPeer


@pytest.mark.parametrize("sync", ["always", "interval", "never"])
def test_the_loop_does_not_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: Literal["always", "interval", "never"]
) -> None:
    """client.md §19.7: with sync="always" a worker thread waits; otherwise there is no change of threads."""
    store = FilePublishStore(tmp_path / "s", segment_bytes=2**16, sync=sync)
    threads: set[bool] = set()
    waits = store.sync

    def noted(sequence: int) -> None:
        threads.add(threading.current_thread() is threading.main_thread())
        waits(sequence)

    monkeypatch.setattr(store, "sync", noted)

    async def publish() -> None:
        async with AsyncPeer() as peer, AsyncClient("me", peer.uri, publish_store=store) as client:
            assert [await client.publish("t", b"%d" % n) for n in range(1, 51)] == list(range(1, 51))
            await client.publish_flush()
            assert client.unpersisted_count == 0

    asyncio.run(publish())
    store.close()
    assert threads == ({False} if sync == "always" else set())


def test_client_54_a_stable_name_is_required(tmp_path: Path) -> None:
    """client.md §21 54, §19.3"""
    with pytest.raises(ValueError, match="same client name in each run"):
        AsyncClient(None, "tcp://127.0.0.1:1/amps/json", publish_store=FilePublishStore(tmp_path / "s"))
