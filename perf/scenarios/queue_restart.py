"""Seconds until a server with a deep queue is ready.

The queue is filled once per run. Then the server is started again and again: after an orderly stop, after it was
killed, and without the copy of its queues (`queue.cache`), so that it rebuilds them from the whole log. The depth that
it reports must be the number of published messages.
"""

import re
import time
from collections.abc import Sequence

from perf import tables
from perf.load import PAYLOAD_BYTES
from perf.measurement import Measurement, PeerResult, Settings
from perf.peers.amps_queue import AmpsQueue
from perf.peers.server import ServerPeer
from perf.pump import PeerError
from perf.scenarios.recovery import fill, kill, start
from perf.scenarios.servers import ServerScenario

DEFAULT_MESSAGES = 10_000_000
DEPTH = re.compile(r"queues: ([\d,]+) messages in queues")
STARTS = {
    "stopped": "after an orderly stop",
    "killed": "after SIGKILL",
    "without_cache": "without `queue.cache`, from the whole log",
}


class QueueRestart(ServerScenario):
    name = "queue-restart"
    question = "Seconds until a server with a deep queue is ready"
    peers = (AmpsQueue(),)

    def measure_server(self, server: ServerPeer, settings: Settings) -> Measurement:
        assert isinstance(server, AmpsQueue)
        messages = settings.messages or DEFAULT_MESSAGES
        began_s = time.perf_counter()
        fill(server, messages)
        server.settle()
        cpu = server.cpu()
        values = measure_starts(server, messages)
        return Measurement(values, messages, time.perf_counter() - began_s, cpu)

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        result = results[0]
        rows = start_rows(result)
        details = (
            f"{result.runs[0].messages:,} messages of {PAYLOAD_BYTES} bytes, median of {settings.repetitions}"
        )
        return tables.lines(f"**{self.name}** ({details})", ["", "figure"], rows)


def measure_starts(server: AmpsQueue, messages: int) -> dict[str, float]:
    """Seconds of each of STARTS, for a running server with `messages` messages in its queues."""
    values: dict[str, float] = {}
    server.stop()
    for label in STARTS:
        if label == "without_cache":
            (server.directory / "journal" / "bench.queue.cache").unlink()
        values[f"{label}_start_s"] = round(start(server), 3)
        check_depth(server, messages)
        if label == "stopped":
            kill(server)
        else:
            server.stop()
    return values


def start_rows(result: PeerResult) -> list[list[str]]:
    """The rows of a table about these starts."""
    return [
        [f"ready {title}, s", f"{result.median(f'{label}_start_s'):.2f}"] for label, title in STARTS.items()
    ]


def check_depth(server: AmpsQueue, messages: int) -> None:
    """Raises PeerError if the server that has just started does not report `messages` messages in its queues."""
    found = DEPTH.search((server.directory / "output.txt").read_text(errors="replace"))
    if found is None or int(found[1].replace(",", "")) != messages:
        raise PeerError(f"{messages:,} messages were in the queues, and after a start: {found and found[1]}")
