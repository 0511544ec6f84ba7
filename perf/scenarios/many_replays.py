"""The cost to publishers of thousands of replays at different places of a log.

The log is filled and dropped from the page cache, as far as the kernel does that. Then subscriptions begin all over
it. A publisher is measured before and meanwhile: throughput until acknowledged, and the latency of single messages. The
readers of the replays are another process, which only empties its sockets and counts bytes.

There are two kinds of replay: at a slow rate each, like dashboards that follow an old day; and without a limit.
"""

import multiprocessing
import os
import random
import selectors
import socket
import statistics
import time
from collections.abc import Sequence
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

from amps._core.values.value import publisher_id
from perf import tables
from perf.load import FIRST_NUMBER, PAYLOAD_BYTES, payload
from perf.measurement import Measurement, PeerResult, Settings
from perf.peers.amps import AmpsPeer, frame, receive_ack
from perf.peers.server import ServerPeer
from perf.pump import RECEIVE_BYTES, PeerError, pump
from perf.scenarios.servers import ServerScenario

DEFAULT_MESSAGES = 3_000_000
REPLAYS = 10_000
CONNECTIONS = 100
SLOW_RATE = 2
LOADING_LIMIT_S = 180.0
MEASURED_S = 4.0
SETTLE_S = 8.0
PUBLISHED = 200_000


class ManyReplays(ServerScenario):
    name = "many-replays"
    question = "The cost to publishers of 10,000 replays all over the log"
    peers = (AmpsPeer(),)

    def measure_server(self, server: ServerPeer, settings: Settings) -> Measurement:
        assert isinstance(server, AmpsPeer)
        messages = settings.messages or DEFAULT_MESSAGES
        lanes = server.publish_lanes(1, messages)
        if pump(lanes, LOADING_LIMIT_S).acknowledged != messages:
            raise PeerError(f"{messages} messages could not be stored in {LOADING_LIMIT_S:g} s")
        stored_by = publisher_id(server.last_client_name)
        lanes[0].sock.close()
        del lanes
        forget(server.directory / "journal")
        values: dict[str, float] = {}
        cpu_before, load_before = server.cpu(), time.process_time()
        began_s = time.perf_counter()
        values |= publisher_figures(server, "alone")
        for label, options in (("slow", f"rate={SLOW_RATE}"), ("fast", "none")):
            with Readers(server, stored_by, messages, options) as readers:
                values |= publisher_figures(server, label)
                values[f"{label}_replayed_per_s"] = round(readers.messages_per_s())
        return Measurement(
            values,
            messages,
            time.perf_counter() - began_s,
            server.cpu().since(cpu_before),
            time.process_time() - load_before,
        )

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        messages = results[0].runs[0].messages
        result = results[0]
        rows = []
        for label, title in (
            ("alone", "no replays"),
            ("slow", f"each {SLOW_RATE} messages/s"),
            ("fast", "each as fast as it goes"),
        ):
            replayed = f"{label}_replayed_per_s"
            rows.append(
                [
                    title,
                    f"{result.median(replayed):,.0f}" if replayed in result.runs[0].values else "",
                    f"{result.median(f'{label}_published_per_s'):,.0f}",
                    f"{result.median(f'{label}_persisted_p50_us'):,.0f}",
                    f"{result.median(f'{label}_persisted_p99_us'):,.0f}",
                ]
            )
        return tables.lines(
            f"**{self.name}** ({REPLAYS:,} replays on {CONNECTIONS} connections over {messages:,} messages of "
            f"{PAYLOAD_BYTES} bytes, median of {settings.repetitions})",
            [
                "replays",
                "replayed messages/s",
                "published messages/s",
                "publish to persisted, p50 µs",
                "p99 µs",
            ],
            rows,
        )


def forget(directory: Path) -> None:
    """Ask the kernel to drop the pages of the journals. Pages that a process has mapped and touched stay."""
    for path in directory.glob("*.journal"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def publisher_figures(server: AmpsPeer, label: str) -> dict[str, float]:
    """Throughput of one publisher, and the latency of single messages, one after the other."""
    lanes = server.publish_lanes(1, PUBLISHED)
    pumped = pump(lanes, LOADING_LIMIT_S)
    lanes[0].sock.close()
    sock = server.open()
    body = payload()
    latencies_us = []
    until_s = time.perf_counter() + MEASURED_S
    sequence = FIRST_NUMBER
    while (sent_s := time.perf_counter()) < until_s:
        sock.sendall(
            frame({"c": "p", "t": "bench", "s": sequence}, body)
            + frame({"c": "flush", "cid": "f", "a": "persisted"})
        )
        receive_ack(sock, "persisted")
        latencies_us.append((time.perf_counter() - sent_s) * 1e6)
        sequence += 1
    sock.close()
    return {
        f"{label}_published_per_s": round(pumped.acknowledged / pumped.elapsed_s),
        f"{label}_persisted_p50_us": round(statistics.median(latencies_us)),
        f"{label}_persisted_p99_us": round(statistics.quantiles(latencies_us, n=100)[98]),
    }


class Readers:
    """Subscriptions all over the log, and a process that reads their messages."""

    def __init__(self, server: AmpsPeer, stored_by: int, messages: int, options: str) -> None:
        chance = random.Random(1)
        self._sockets = [server.open() for _ in range(CONNECTIONS)]
        for sock in self._sockets:
            commands = bytearray()
            for number in range(REPLAYS // CONNECTIONS):
                bookmark = f"{stored_by}|{FIRST_NUMBER + chance.randrange(messages)}|"
                commands += frame(
                    {"c": "subscribe", "t": "bench", "sub_id": f"r{number}", "bm": bookmark, "o": options}
                )
            sock.sendall(commands)
        self._received: Any = multiprocessing.get_context("fork").Value("Q", 0)
        self._process = multiprocessing.get_context("fork").Process(
            target=empty, args=(self._sockets, self._received), daemon=True
        )

    def __enter__(self) -> "Readers":
        self._process.start()
        time.sleep(SETTLE_S)  # all replays have found their places and begun
        self._began = time.perf_counter(), self._received.value
        return self

    def messages_per_s(self) -> float:
        """Messages per second since the beginning, from the bytes received."""
        began_s, before = self._began
        return float((self._received.value - before) / FRAME_BYTES / (time.perf_counter() - began_s))

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()
        for sock in self._sockets:
            sock.close()
        time.sleep(1)


FRAME_BYTES = PAYLOAD_BYTES + 80
"""Approximate bytes of a message on the wire, to compute the number of messages."""


def empty(sockets: Sequence[socket.socket], received: "Synchronized[int]") -> None:
    """Read from all sockets until the process is killed."""
    selector = selectors.EpollSelector()
    for sock in sockets:
        sock.setblocking(False)
        selector.register(sock, selectors.EVENT_READ)
    buffer = bytearray(RECEIVE_BYTES)
    while True:
        for key, _ in selector.select():
            assert isinstance(key.fileobj, socket.socket)
            received.value += key.fileobj.recv_into(buffer)
