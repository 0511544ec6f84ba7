"""Scenarios that put load on a server: each repetition starts a fresh one in an empty directory.

Dirty pages of one run are written out before the next begins, so that no peer pays for another's unsynced data.
"""

import os
import shutil
import tempfile
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from perf import tables
from perf.load import PAYLOAD_BYTES
from perf.measurement import Measurement, PeerResult, Settings
from perf.peers.server import ServerPeer
from perf.scenarios.base import Scenario

S = TypeVar("S", bound=ServerPeer)


@contextmanager
def fresh_server(peer: S, base: Path) -> Iterator[S]:
    """The peer, running in an empty directory below `base`, which is removed in the end."""
    directory = Path(tempfile.mkdtemp(prefix=f"amps-perf-{peer.name}-", dir=base))
    try:
        with peer.running(directory) as server:
            yield server
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.sync()


class ServerScenario(Scenario[ServerPeer]):
    """One question to servers."""

    def measure(self, peer: ServerPeer, settings: Settings, base: Path) -> Measurement:
        with fresh_server(peer, base) as server:
            return self.measure_server(server, settings)

    @abstractmethod
    def measure_server(self, server: ServerPeer, settings: Settings) -> Measurement:
        """One run against a started server."""


def rate_table(title: str, details: Sequence[str], results: Sequence[PeerResult]) -> list[str]:
    """Messages per second, for scenarios that move as many as they can."""
    most = max(run.messages for result in results for run in result.runs)
    details = [f"{PAYLOAD_BYTES}-byte payloads, {most:,} messages", *details]
    return tables.lines(
        f"**{title}** ({', '.join(details)})",
        ["peer", "messages/s", "ratio", "server CPU µs/message", "slowest … fastest run"],
        [
            [
                result.peer.title,
                f"{result.median('messages_per_s'):,.0f}",
                tables.ratio(results, result, "messages_per_s", True),
                f"{result.cpu_per_message_us:.2f}",
                tables.extremes(result, "messages_per_s"),
            ]
            for result in results
        ],
    )
