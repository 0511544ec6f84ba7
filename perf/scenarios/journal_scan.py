"""The speed of checking, searching and compressing journals, and of checking compressed journals.

A log is written once, and the server stopped. Two rows have to wait for the device: checking, and plain reading of the
same files. All others find the log in memory and show the cost of the work. Rates of compressed journals refer to their
uncompressed content.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from perf import tables
from perf.measurement import Measurement, PeerResult, Settings
from perf.peers.server import ServerPeer
from perf.scenarios.recovery import CHUNK_BYTES, SmallJournals, fill, forget
from perf.scenarios.servers import ServerScenario

DEFAULT_MESSAGES = 3_000_000
AMPS = [sys.executable, "-P", "-m", "amps.cli.main"]
GREP = [sys.executable, "-P", "-m", "amps.cli.utilities.grep"]
ROWS = {
    "checked_from_device": "`amps journal verify`, nothing in memory, GB/s",
    "read_from_device": "only reading the files, nothing in memory, GB/s",
    "checked_one": "`amps journal verify -jobs 1`, GB/s",
    "checked": "`amps journal verify`, GB/s",
    "searched": "`amps-grep` of a text that no message has, GB/s",
    "compressed": "`amps journal compress`, GB/s",
    "compressed_checked": "`amps journal verify` of compressed journals, GB/s",
    "share": "size of the compressed journals, share of the content",
}


class JournalScan(ServerScenario):
    name = "journal-scan"
    question = "Gigabytes per second of checking, searching and compressing journals"
    peers = (SmallJournals(),)

    def measure_server(self, server: ServerPeer, settings: Settings) -> Measurement:
        assert isinstance(server, SmallJournals)
        messages = settings.messages or DEFAULT_MESSAGES
        began_s = time.perf_counter()
        fill(server, messages)
        cpu = server.cpu()
        server.stop()
        directory = server.directory / "journal"
        journals = sorted(directory.glob("*.journal"))
        size_gb = sum(path.stat().st_size for path in journals) / 1e9

        def rate(work: Callable[[], object]) -> float:
            work_s = time.perf_counter()
            work()
            return round(size_gb / (time.perf_counter() - work_s), 2)

        verify = [*AMPS, "journal", "verify", str(directory)]
        values: dict[str, float] = {"journals": len(journals), "log_gb": round(size_gb, 2)}
        forget(journals)
        values["checked_from_device"] = rate(lambda: run(verify))
        forget(journals)
        values["read_from_device"] = rate(lambda: read(journals))
        values["checked_one"] = rate(lambda: run([*verify, "-jobs", "1"]))
        values["checked"] = rate(lambda: run(verify))
        search = [*GREP, "a text that no message has", *map(str, journals)]
        values["searched"] = rate(lambda: run(search, 1))
        values["compressed"] = rate(lambda: run([*AMPS, "journal", "compress", str(directory), "-age", "0s"]))
        values["compressed_checked"] = rate(lambda: run(verify))
        left = sum(path.stat().st_size for path in directory.glob("*.journal*"))
        values["share"] = round(left / 1e9 / size_gb, 3)
        return Measurement(values, messages, time.perf_counter() - began_s, cpu)

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        result = results[0]
        rows = [[title, f"{result.median(name):.2f}"] for name, title in ROWS.items()]
        details = (
            f"{result.median('log_gb'):.1f} GB in {result.median('journals'):.0f} journals, "
            f"median of {settings.repetitions}"
        )
        return tables.lines(f"**{self.name}** ({details})", ["", "figure"], rows)


def run(command: list[str], expected: int = 0) -> None:
    """Run a command. Raises CalledProcessError if its exit status is not the expected one."""
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, env={**os.environ, "COLUMNS": "80"}, check=False
    )
    if done.returncode != expected:
        raise subprocess.CalledProcessError(done.returncode, command)


def read(paths: Sequence[Path]) -> None:
    """Read whole files."""
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.read(CHUNK_BYTES):
                pass
