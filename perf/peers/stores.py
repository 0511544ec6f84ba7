"""The publish stores of the client library, and a server that reads what they send and acknowledges it.

A peer is a store in one configuration. Each repetition has a process of its own and an empty directory. The server is
another process, which takes as little time as possible: it looks for the last number in what it has read.
"""

import contextlib
import multiprocessing
import re
import resource
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from amps.client import Client, FilePublishStore, HybridPublishStore, MemoryPublishStore, PublishStore
from amps.client.protocol.command import PublishTemplate
from amps.version import VERSION
from perf.measurement import CpuTime, Measurement
from perf.peers.base import Peer

BODY = b"x" * 100
ACK_INTERVAL_S = 0.02
KEPT_MESSAGES = 10_000
"""How many messages the store keeps while it is measured alone."""
SYNCED_SHARE = 100
"""A store that waits for the disk gets one message where others get this many."""
FIRST_SHARE = 20
"""One message in so many is a warm-up."""

_LAST_NUMBER = re.compile(rb'"s":(\d+)}')

STORES: dict[str, tuple[str, Callable[[Path], PublishStore | None]]] = {
    "amps": ("file, synced every 10 ms (default)", FilePublishStore),
    "amps-never": ("file, never synced", lambda path: FilePublishStore(path, sync="never")),
    "amps-always": ("file, each publish synced", lambda path: FilePublishStore(path, sync="always")),
    "amps-hybrid": ("hybrid, nothing in files", HybridPublishStore),
    "amps-hybrid-files": (
        "hybrid, nearly all goes through files",
        lambda path: HybridPublishStore(path, memory_messages=100),
    ),
    "amps-memory": ("memory", lambda path: MemoryPublishStore()),
    "amps-none": ("no store", lambda path: None),
}


class StorePeer(Peer):
    """A publish store."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.title = STORES[name][0]

    def version(self) -> str:
        return f"amps {VERSION}"

    def messages(self, count: int) -> int:
        """How many messages of a run of `count` it gets."""
        return max(1, count // SYNCED_SHARE) if self.name == "amps-always" else count


def measure_store(name: str, count: int, base: Path) -> Measurement:
    """Measure a store alone, then publishing with it; in microseconds of this process and messages per second."""
    make = STORES[name][1]
    values: dict[str, float] = {}
    started, before = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory(prefix="amps-perf-store-", dir=base) as directory:
        alone = make(Path(directory) / "alone")
        if alone is not None:
            values |= measure_appending(alone, count)
        store = make(Path(directory) / "client")
        values |= measure_publishing(store, count)
    processor_s = time.process_time() - before
    return Measurement(values, count, time.perf_counter() - started, CpuTime({name: round(processor_s, 3)}))


def measure_appending(store: PublishStore, count: int) -> dict[str, float]:
    """Number and keep messages as a client does, and discard them as acknowledgements do."""
    store.open("perf")
    start = PublishTemplate("publish", "orders").sequenced
    for _ in range(count // FIRST_SHARE):
        number = store.append(start, BODY)
        store.sync(number)
        store.discard_up_to(number)
    used, clock = _used_s(), time.perf_counter()
    longest_s, last = 0.0, clock
    for at in range(count):
        store.sync(store.append(start, BODY))
        if not at % 1000:
            store.discard_up_to(store.highest_unpersisted() - KEPT_MESSAGES)
            now = time.perf_counter()
            longest_s, last = max(longest_s, now - last), now
    elapsed_s, used_s = time.perf_counter() - clock, _used_s() - used
    store.close()
    return {
        "appends_per_s": round(count / elapsed_s),
        "append_us": round(used_s / count * 1e6, 3),
        "longest_1000_ms": round(longest_s * 1e3, 1),
    }


def measure_publishing(store: PublishStore | None, count: int) -> dict[str, float]:
    """Publish with `Client.publish`."""
    with acknowledging_server() as port:
        client = Client("perf", f"tcp://127.0.0.1:{port}/amps/json", publish_store=store).open()
        for _ in range(count // FIRST_SHARE):
            client.publish("orders", BODY)
        used, clock = _used_s(), time.perf_counter()
        for _ in range(count):
            client.publish("orders", BODY)
        elapsed_s, used_s = time.perf_counter() - clock, _used_s() - used
        client.publish_flush()
        client.close()
        if store is not None:
            store.close()
    return {"publishes_per_s": round(count / elapsed_s), "publish_us": round(used_s / count * 1e6, 3)}


def _used_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@contextlib.contextmanager
def acknowledging_server() -> Any:
    """Start the server for one client; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        context = multiprocessing.get_context("fork")
        process = context.Process(target=_serve, args=(listener,), daemon=True)
        process.start()
        try:
            yield listener.getsockname()[1]
        finally:
            process.join(10)
            process.kill()


def _serve(listener: socket.socket) -> None:
    connection = listener.accept()[0]
    connection.recv(65536)
    connection.sendall(_frame(b'{"c":"ack","cid":"1","a":"processed","status":"success","s":0}'))
    acknowledged_at = 0.0
    tail = b""
    while data := connection.recv(2**20):
        tail = (tail + data)[-1000:]
        if b'"c":"flush"' in tail:
            command_id = tail.split(b'"cid":"')[-1].split(b'"')[0]
            ack = b'{"c":"ack","a":"completed","status":"success","cid":"%b"}' % command_id
            connection.sendall(_frame(ack))
            acknowledged_at = 0.0
        now = time.monotonic()
        if now - acknowledged_at >= ACK_INTERVAL_S and (numbers := _LAST_NUMBER.findall(tail)):
            acknowledged_at = now
            connection.sendall(
                _frame(b'{"c":"ack","a":"persisted","status":"success","s":%b}' % numbers[-1])
            )


def _frame(header: bytes) -> bytes:
    return len(header).to_bytes(4, "big") + header
