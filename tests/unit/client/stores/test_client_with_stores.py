"""Clients with the publish stores, against a scripted peer."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from amps.client import (
    Client,
    FilePublishStore,
    HybridPublishStore,
    PublishStoreGapException,
    StoreException,
    StoreFullException,
    TimedOutException,
)
from tests.unit.client.peer import Outcome, ScriptedPeer, in_background
from tests.unit.client.stores.killing import Publisher
from tests.unit.client.talk import LoggedOn, log_on, wait_for

KINDS: dict[str, Any] = {
    "file": lambda path, **options: FilePublishStore(path, segment_bytes=2**16, **options),
    "always": lambda path, **options: FilePublishStore(path, segment_bytes=2**16, sync="always", **options),
    "hybrid": lambda path, **options: HybridPublishStore(
        path, memory_messages=20, segment_bytes=2**16, **options
    ),
}
kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
def test_client_13_numbers_follow_the_logon_ack(tmp_path: Path, logged_on: LoggedOn, kind: str) -> None:
    """client.md §21 13"""
    store = KINDS[kind](tmp_path / "s")
    client, connection = logged_on(seq=41, publish_store=store)
    assert [client.publish("t", b"x") for _ in range(3)] == [42, 43, 44]
    for number in (42, 43, 44):
        frame = connection.expect("publish")
        assert (frame["s"], frame["a"], frame.body) == (number, "persisted", b"x")
    store.close()


@kinds
def test_client_53_unacknowledged_publishes_are_sent_again(
    tmp_path: Path, peer: ScriptedPeer, logged_on: LoggedOn, kind: str
) -> None:
    """client.md §21 53"""
    store = KINDS[kind](tmp_path / "s")
    client, connection = logged_on(publish_store=store)
    for n in range(1, 101):
        client.publish("t", b"%d" % n)
    for _ in range(100):
        connection.expect("publish")
    connection.send({"c": "ack", "a": "persisted", "status": "success", "s": 60})
    wait_for(lambda: client.unpersisted_count == 40)
    connection.close()
    wait_for(lambda: not client.connected)
    connection = log_on(client, peer, 70)
    frames = [connection.expect("publish") for _ in range(30)]
    assert [(frame["s"], frame.body) for frame in frames] == [(n, b"%d" % n) for n in range(71, 101)]
    assert client.publish("t", b"101") == 101
    assert connection.expect("publish")["s"] == 101
    store.close()


@pytest.mark.parametrize("acked", [0, 60])
def test_client_54_the_next_process_sends_what_a_killed_publisher_left(
    tmp_path: Path, peer: ScriptedPeer, acked: int
) -> None:
    """client.md §21 54"""
    publisher = Publisher(peer.uri, "me", tmp_path / "s", 1)
    try:
        connection = peer.accept()
        connection.logon()
        publisher.read(100)
    finally:
        told = publisher.kill()
    assert [sequence for _, sequence in told] == list(range(1, len(told) + 1))
    store = FilePublishStore(tmp_path / "s")
    client = Client("me", peer.uri, publish_store=store)
    try:
        assert client.unpersisted_count >= len(told)
        left = range(acked + 1, client.unpersisted_count + 1)
        connection = log_on(client, peer, acked)
        for n in left:
            frame = connection.expect("publish")
            assert (frame["s"], frame.body) == (n, b'{"r":1,"i":%d}' % (n - 1))
        assert client.publish("t", b"next") == left[-1] + 1
        assert connection.expect("publish")["s"] == left[-1] + 1
    finally:
        client.close()
        store.close()


@kinds
def test_client_54_a_stable_name_is_required(tmp_path: Path, kind: str) -> None:
    """client.md §21 54, §19.3"""
    store = KINDS[kind](tmp_path / "s")
    with pytest.raises(ValueError, match="same client name in each run"):
        Client(None, "tcp://127.0.0.1:1/amps/json", publish_store=store)
    Client("me", publish_store=store).close()
    with pytest.raises(StoreException, match="belongs to client 'me'"):
        Client("you", publish_store=store)
    store.close()


@kinds
def test_client_55_publish_flush_waits_for_the_acks(tmp_path: Path, logged_on: LoggedOn, kind: str) -> None:
    """client.md §21 55"""
    store = KINDS[kind](tmp_path / "s")
    client, connection = logged_on(publish_store=store)
    for _ in range(30):
        client.publish("t", b"x")
    with pytest.raises(TimedOutException):
        client.publish_flush(timeout=0.05)
    with in_background(client.publish_flush):
        connection.send({"c": "ack", "a": "persisted", "status": "success", "s": 30})
    assert client.unpersisted_count == 0
    store.close()


@kinds
@pytest.mark.parametrize("strict", [False, True])
def test_client_56_a_server_that_lags_behind(
    tmp_path: Path, peer: ScriptedPeer, make_client: Any, kind: str, strict: bool
) -> None:
    """client.md §21 56, the part of a single client; the last persisted number survives a restart."""
    store = KINDS[kind](tmp_path / "s")
    client = make_client("me", publish_store=store)
    connection = log_on(client, peer)
    client.publish("t", b"x")
    connection.send({"c": "ack", "a": "persisted", "status": "success", "s": 1})
    wait_for(lambda: client.unpersisted_count == 0)
    client.close()
    store.close()
    store = KINDS[kind](tmp_path / "s", error_on_publish_gap=strict)
    client = make_client("me", publish_store=store)
    opening = Outcome(client.open, (), {})
    connection = peer.accept()
    connection.logon(0)
    if strict:
        with pytest.raises(PublishStoreGapException, match="lags behind"):
            opening.result()
    else:
        opening.result()
        assert client.publish("t", b"y") == 2
    store.close()


@kinds
def test_client_57_a_full_store_waits_or_raises(
    tmp_path: Path, peer: ScriptedPeer, make_client: Any, kind: str
) -> None:
    """client.md §21 57"""
    store = KINDS[kind](tmp_path / "s", max_bytes=1)
    client = make_client("me", publish_store=store)
    connection = log_on(client, peer)
    assert client.publish("t", b"1") == 1
    with pytest.raises(TimedOutException, match="no room"):
        client.publish("t", b"2", timeout=0.05)
    with in_background(client.publish, "t", b"2") as publishing:
        connection.send({"c": "ack", "a": "persisted", "status": "success", "s": 1})
    assert publishing.result() == 2
    store.on_full = "raise"
    with pytest.raises(StoreFullException):
        client.publish("t", b"3")
    connection.send({"c": "ack", "a": "persisted", "status": "success", "s": 2})
    wait_for(lambda: client.unpersisted_count == 0)
    assert client.publish("t", b"3") == 3
    store.close()


@kinds
def test_client_34_threads_keep_the_order(tmp_path: Path, logged_on: LoggedOn, kind: str) -> None:
    """client.md §21 34"""
    store = KINDS[kind](tmp_path / "s")
    client, connection = logged_on(publish_store=store)
    count = 50 if kind == "always" else 1000

    def publish(thread: int) -> None:
        for n in range(count):
            client.publish("t", b"%d %d" % (thread, n))

    threads = [threading.Thread(target=publish, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    at = [0] * 8
    for number in range(1, 8 * count + 1):
        frame = connection.expect("publish")
        assert frame["s"] == number
        sender, n = map(int, frame.body.split())
        assert n == at[sender]
        at[sender] += 1
    for thread in threads:
        thread.join()
    store.close()


def test_a_full_disk_loses_nothing_and_publishing_goes_on(tmp_path: Path, peer: ScriptedPeer) -> None:
    """A real file system of 1 MiB, mounted in a namespace of its own; skipped where that is not allowed."""
    mounted = ["unshare", "-Urm", "sh", "-c", 'mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@"', str(tmp_path)]
    try:
        subprocess.run([*mounted, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting needs user namespaces")
    process = subprocess.Popen(
        [*mounted, sys.executable, str(Path(__file__).with_name("full_disk.py")), peer.uri, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        connection = peer.accept()
        connection.logon()
        accepted, text = process.stdout.readline().split(maxsplit=1)
        assert "No space left" in text
        assert "takes new ones when there is room" in text
        assert process.stdout.readline() == "refused again\n"
        for number in range(1, int(accepted) + 1):
            assert connection.expect("publish")["s"] == number
        connection.expect_nothing()
        process.stdin.write("\n")
        process.stdin.flush()
        connection.expect("flush")
        connection.send({"c": "ack", "a": "persisted", "status": "success", "s": int(accepted)})
        assert process.stdout.readline() == f"{int(accepted) + 1} 1\n"
        assert connection.expect("publish")["s"] == int(accepted) + 1
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()
