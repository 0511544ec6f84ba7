"""Seconds until a server is ready on a large log, and the speed of checking a log.

A log of many journals is written once per run. Then the server is started on it again and again: after an orderly stop,
after it was killed, without `clients.ack`, and without the index of one journal, which it makes again by reading
that journal. `amps journal verify` checks every record. The log is dropped from memory before it, and before the plain
reading that it is compared with.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from perf import tables
from perf.measurement import Measurement, PeerResult, Settings
from perf.peers.amps import READY_MARK, AmpsPeer
from perf.peers.server import ServerPeer
from perf.pump import PeerError, pump
from perf.scenarios.servers import ServerScenario

DEFAULT_MESSAGES = 57_000_000
MESSAGES_PER_LOAD = 1_000_000
LOADING_LIMIT_S = 120.0
START_LIMIT_S = 600.0
CHUNK_BYTES = 1 << 20
STARTS = {
    "stopped": "after an orderly stop",
    "killed": "after SIGKILL",
    "without_clients_ack": "without `clients.ack`",
    "without_one_index": "without the index of one journal",
}


class SmallJournals(AmpsPeer):
    """This server with small journals: 200 instead of 20."""

    journal_size = "100MB"


class Recovery(ServerScenario):
    name = "recovery"
    question = "Seconds until a server is ready on a large log, and gigabytes per second of checking it"
    peers = (SmallJournals(),)

    def measure_server(self, server: ServerPeer, settings: Settings) -> Measurement:
        assert isinstance(server, SmallJournals)
        messages = settings.messages or DEFAULT_MESSAGES
        began_s = time.perf_counter()
        fill(server, messages)
        cpu = server.cpu()
        directory = server.directory / "journal"
        values: dict[str, float] = {}
        server.stop()
        for label in STARTS:
            if label == "without_clients_ack":
                (directory / "bench.clients.ack").unlink()
            elif label == "without_one_index":
                (directory / "bench.0000000001.index").unlink()
            values[f"{label}_start_s"] = round(start(server), 3)
            if label == "stopped":
                kill(server)
            else:
                server.stop()
        journals = sorted(directory.glob("*.journal"))
        size_gb = sum(path.stat().st_size for path in journals) / 1e9
        values["journals"] = len(journals)
        values["log_gb"] = round(size_gb, 2)
        forget(journals)
        check_s = time.perf_counter()
        subprocess.run(
            [sys.executable, "-P", "-m", "amps.cli.main", "journal", "verify", str(directory)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        values["checked_gb_per_s"] = round(size_gb / (time.perf_counter() - check_s), 2)
        forget(journals)
        read_s = time.perf_counter()
        for path in journals:
            with path.open("rb", buffering=0) as file:
                while file.read(CHUNK_BYTES):
                    pass
        values["read_gb_per_s"] = round(size_gb / (time.perf_counter() - read_s), 2)
        return Measurement(values, messages, time.perf_counter() - began_s, cpu)

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        result = results[0]
        rows = [
            [f"ready {title}, s", f"{result.median(f'{label}_start_s'):.2f}"]
            for label, title in STARTS.items()
        ]
        rows += [
            ["`amps journal verify`, GB/s", f"{result.median('checked_gb_per_s'):.2f}"],
            ["only reading the files, GB/s", f"{result.median('read_gb_per_s'):.2f}"],
        ]
        details = (
            f"{result.median('log_gb'):.1f} GB in {result.median('journals'):.0f} journals, "
            f"median of {settings.repetitions}"
        )
        return tables.lines(f"**{self.name}** ({details})", ["", "figure"], rows)


def fill(server: AmpsPeer, messages: int) -> None:
    """Publish `messages` messages. Raises PeerError."""
    for first in range(0, messages, MESSAGES_PER_LOAD):
        count = min(MESSAGES_PER_LOAD, messages - first)
        lanes = server.publish_lanes(1, count)
        if pump(lanes, LOADING_LIMIT_S).acknowledged != count:
            raise PeerError(f"{count} messages could not be stored in {LOADING_LIMIT_S:g} s")
        lanes[0].sock.close()


def forget(paths: Sequence[Path]) -> None:
    """Ask the kernel to drop files from the page cache, so that readers wait for the device."""
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def start(server: AmpsPeer) -> float:
    """Start a server on its log again; return the seconds until it logs that it is ready."""
    arguments = server.command()
    output_path = server.directory / "output.txt"
    with output_path.open("wb") as output:
        began_s = time.perf_counter()
        server.process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    while READY_MARK not in output_path.read_text(errors="replace"):
        if server.process.poll() is not None or time.perf_counter() - began_s > START_LIMIT_S:
            raise PeerError(f"the server did not become ready:\n{server.output()}")
        time.sleep(0.005)
    return time.perf_counter() - began_s


def kill(server: AmpsPeer) -> None:
    """Kill all processes of the server at once."""
    assert server.process is not None
    os.killpg(server.process.pid, signal.SIGKILL)
    server.process.wait()
    server.process = None
