"""One changed byte anywhere in the journals: refused at the start, found by the replay, or without effect.

A replay must never deliver a wrong body, leave a message out, or go on behind the damage.
"""

import random
from pathlib import Path

import pytest

from tests.support.peer import ConnectionClosed, Message, bodies_of
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer, numbered_bodies

TOTAL = 1500
BODIES = numbered_bodies(TOTAL, padding_bytes=10_000)
"""15 MB: one full journal and half of another."""


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> ServerProcess:
    """A stopped server whose journals hold BODIES, all acknowledged."""
    server = start_module_server(log_topics=("t1",))
    with Peers("writer") as peers:
        peers.logged_on(server).publish_persisted("t1", BODIES, 1)
    server.kill_all()
    return server


def replay(peers: Peers, server: ServerProcess) -> tuple[list[bytes], bool]:
    """Replay the topic. Return the bodies, and whether the replay reached the end of the log."""
    client = peers.logged_on(server)
    client.send({"c": "subscribe", "t": "t1", "bm": "0", "sub_id": "r", "a": "completed"})
    received: list[Message] = []
    try:
        while not (received and received[-1].is_ack("completed")):
            received.append(client.receive(timeout_s=60))
    except ConnectionClosed:
        told = received.pop()
        assert (told["status"], told.reason) == ("failure", "journal damaged")
        return bodies_of(received), False
    return bodies_of(received[:-1]), True


@pytest.mark.parametrize("seed", range(16))
def test_fault_a_changed_byte_is_never_skipped(server: ServerProcess, peers: Peers, seed: int) -> None:
    rng = random.Random(seed)
    files = {path: path.read_bytes() for path in server.journal_directory.iterdir() if path.is_file()}
    journals = server.journals()
    path = journals[seed % 2]  # the full journal and the one in use
    size = len(files[path]) if seed % 2 == 0 else files[path].rfind(b"xxxx") + 100
    offset = rng.randrange(size) if seed % 4 < 2 else rng.randrange(5000)
    image = bytearray(files[path])
    image[offset] ^= 1 << rng.randrange(8)
    path.write_bytes(image)
    try:
        refusal = server.try_start()
        if refusal is not None:
            assert path.name in refusal, f"offset {offset}"
            return
        bodies, complete = replay(peers, server)
        assert bodies == BODIES[: len(bodies)], f"offset {offset}"
        if not complete:
            server.log.wait_for("1D-0010", path.name)
        else:
            assert len(bodies) == TOTAL, f"offset {offset}"
    finally:
        server.kill_all()
        _restore(server, files)


def _restore(server: ServerProcess, files: dict[Path, bytes]) -> None:
    for path in server.journal_directory.iterdir():
        if path.is_file() and path not in files:
            path.unlink()
    for path, content in files.items():
        path.write_bytes(content)
