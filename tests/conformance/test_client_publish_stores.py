"""The file publish store with a server: publishers are killed, and the log holds each message once (client.md §8)."""

import itertools
import os
import signal
from pathlib import Path

from amps.client import EPOCH, Client, FilePublishStore
from tests.support.server import StartServer
from tests.unit.client.stores.killing import Publisher


def test_client_54_the_log_holds_each_message_of_killed_publishers_once(
    start_server: StartServer, tmp_path: Path
) -> None:
    """client.md §21 54: each message that `publish` accepted is in the log once, in order."""
    server = start_server(log_topics=[".*"])
    uri = f"tcp://127.0.0.1:{server.port()}/amps/json"
    path = tmp_path / "store"
    accepted: list[tuple[int, int, int]] = []
    for turn, count in enumerate((1, 3, 400, 20, 1500, 90)):
        publisher = Publisher(uri, "me", path, turn)
        try:
            if turn % 2:
                publisher.read(count)
            else:  # the server does not answer at the end: there are messages without an acknowledgement
                publisher.read((count + 1) // 2)
                os.kill(server.core_pid(), signal.SIGSTOP)
                publisher.read(count)
        finally:
            accepted += [(turn, at, sequence) for at, sequence in publisher.kill()]
            os.kill(server.core_pid(), signal.SIGCONT)
    numbers = [sequence for _, _, sequence in accepted]
    assert all(low < high for low, high in itertools.pairwise(numbers))
    store = FilePublishStore(path)
    with Client("me", uri, publish_store=store) as client:
        last = client.publish("t", b'{"r":-1,"i":0}')
        client.publish_flush(timeout=30)
        assert client.unpersisted_count == 0
        logged = [
            (message.json()["r"], message.json()["i"])
            for message in client.bookmark_subscribe("t", EPOCH, top_n=last)
        ]
    store.close()
    assert len(logged) == last
    assert len(set(logged)) == last
    for turn, at, sequence in accepted:
        assert logged[sequence - 1] == (turn, at)
