"""Bookmark stores in files against a server: subscribers that die by SIGKILL (client.md §21 45)."""

import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from amps.client import MOST_RECENT, Client, FileBookmarkStore, RingBookmarkStore
from tests.support.server import ServerProcess, package_path

PATIENCE_S = 20.0

SUBSCRIBER = """
import sys
from amps.client import MOST_RECENT, Client, FileBookmarkStore, RingBookmarkStore
name, uri, topic, path, kind, seed = sys.argv[1:]
store = {"file": FileBookmarkStore, "ring": RingBookmarkStore}[kind](path)
held = []
with Client(name, uri, bookmark_store=store) as client:
    for message in client.bookmark_subscribe(topic, MOST_RECENT, sub_id="S"):
        held.append(message)
        if len(held) > 3:  # processed in another order than received
            done = held.pop(message.json()["n"] * int(seed) % 3)
            print("handled", done.json()["n"], flush=True)
            done.discard()
            print("discarded", done.json()["n"], flush=True)
"""


@pytest.mark.parametrize("kind", ["file", "ring"])
def test_client_45_a_killed_subscriber_continues(
    logged_server: ServerProcess, recorded_topic: str, unique: str, tmp_path: Path, kind: str
) -> None:
    """client.md §21 45: every message is handled; after a discard that returned, only the ring store repeats it"""
    total = 30_000
    uri = f"tcp://127.0.0.1:{logged_server.port()}/amps/json"
    with Client(f"{unique}-publisher", uri) as publisher:
        for n in range(total):
            publisher.publish(recorded_topic, {"n": n})
        publisher.flush(timeout=PATIENCE_S)
    chosen = random.Random(4)
    handled: set[int] = set()
    discarded: set[int] = set()
    path = tmp_path / "bookmarks"
    for turn in range(6):
        child = subprocess.Popen(
            [sys.executable, "-P", "-c", SUBSCRIBER, unique, uri, recorded_topic, str(path), kind, str(turn + 1)],
            env={**os.environ, "PYTHONPATH": package_path()},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        assert select.select([child.stdout], [], [], PATIENCE_S)[0], "the subscriber handles nothing"
        time.sleep(chosen.uniform(0, 0.05))
        child.send_signal(signal.SIGKILL)
        lines = [line.split() for line in child.stdout.read().splitlines()]
        child.stdout.close()
        child.wait(PATIENCE_S)
        now_handled = {int(line[1]) for line in lines if len(line) == 2 and line[0] == "handled"}
        if kind == "file":
            assert not now_handled & discarded
        handled |= now_handled
        discarded |= {int(line[1]) for line in lines if len(line) == 2 and line[0] == "discarded"}
    store: Any = FileBookmarkStore(path) if kind == "file" else RingBookmarkStore(path)
    rest = []
    with Client(unique, uri, bookmark_store=store) as client:
        stream = client.bookmark_subscribe(recorded_topic, MOST_RECENT, sub_id="S")
        while (message := stream.get(PATIENCE_S)) is not None:
            rest.append(message.json()["n"])
            message.discard()
            if rest[-1] == total - 1:
                break
    store.close()
    assert len(rest) == len(set(rest))
    assert handled | set(rest) == set(range(total))
    if kind == "file":
        assert not discarded & set(rest)
