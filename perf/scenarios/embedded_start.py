"""Seconds from the call of `amps.Server` until the server is up.

Each repetition is a program of its own that has imported nothing of the project before. The first server also pays
for an interpreter and for importing the server; the second one is forked from a process that has. The processor time
is that of all processes, until they have ended.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from amps.version import VERSION
from perf import tables
from perf.measurement import CpuTime, Measurement, PeerResult, Settings
from perf.peers.base import Peer
from perf.scenarios.base import Scenario

_PROGRAM = """
import json, resource, sys, tempfile, time
tempfile.tempdir = sys.argv[1]
sys.path.insert(0, sys.argv[2])
times = [time.perf_counter()]
import amps
with amps.Server(queues=["work"]):
    times.append(time.perf_counter())
    time.sleep(1)  # the process that forks servers imports the rest
    times.append(time.perf_counter())
    with amps.Server(queues=["work"]):
        times.append(time.perf_counter())
from amps.embedded import launching
launching._close()
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([times[1] - times[0], times[3] - times[2], used.ru_utime + used.ru_stime]))
"""
_PACKAGE_PARENT = Path(__file__).resolve().parents[2]


class EmbeddedServer(Peer):
    """`amps.Server`."""

    name = "amps"
    title = "`amps.Server`"

    def version(self) -> str:
        return f"amps {VERSION}"


class EmbeddedStart(Scenario[EmbeddedServer]):
    name = "embedded-start"
    question = "Seconds until a server inside a program is up"
    peers = (EmbeddedServer(),)

    def measure(self, peer: EmbeddedServer, settings: Settings, base: Path) -> Measurement:
        began_s = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-P", "-c", _PROGRAM, str(base), str(_PACKAGE_PARENT)],
            check=True,
            stdout=subprocess.PIPE,
        )
        first_s, second_s, cpu_s = json.loads(done.stdout)
        values = {"first_s": round(first_s, 3), "second_s": round(second_s, 3)}
        return Measurement(values, 2, time.perf_counter() - began_s, CpuTime({"all": round(cpu_s, 3)}))

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        rows = [
            [
                result.peer.title,
                f"{result.median('first_s'):.2f}",
                f"{result.extremes('first_s')[0]:.2f}",
                f"{result.median('second_s'):.2f}",
            ]
            for result in results
        ]
        return tables.lines(
            f"**{self.name}** (median of {settings.repetitions})",
            ["", "first in a program, s", "fastest, s", "second, s"],
            rows,
        )
