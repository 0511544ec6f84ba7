"""Ten million short records: how fast they are stored, what memory and disk each takes, and how long a start takes.

Memory is that of the server's processes with all records, less their memory before (`perf.memory`). A library maps its
file or keeps a bounded cache, so it has no such figure. Disk is what the files take, after an orderly stop.

A start ends when the record that was stored last can be read: for servers from the start of the process, for libraries
from opening the database in a fresh process. The files are in the page cache.
"""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from perf import tables
from perf.measurement import Measurement, PeerResult, Settings
from perf.peers.process import in_own_process
from perf.peers.state import State, StatePeer
from perf.peers.state_amps import AmpsState
from perf.peers.state_embedded import Lmdb
from perf.peers.state_nats import NatsKeyValue
from perf.peers.state_redis import RedisState
from perf.peers.state_server import StateServer
from perf.peers.state_sql import DuckDb, Sqlite
from perf.pump import PeerError
from perf.scenarios.sow import SowScenario, check_count, check_values, empty_directory
from perf.state_load import FIRST_VERSION, KEY, SHORT_RECORDS, VERSION, key_numbers

DEFAULT_KEYS = 10_000_000
KEYS_TOGETHER = 1_000_000
DEFAULT_LIMIT_S = 180.0


class SowDepth(SowScenario):
    name = "sow-depth"
    question = "Memory and disk of ten million short records, and the seconds that a start with them takes"
    peers = (AmpsState(), RedisState(), NatsKeyValue(), Sqlite(), DuckDb(), Lmdb())

    def measure(self, peer: StatePeer, settings: Settings, base: Path) -> Measurement:
        with empty_directory(peer, base) as directory:
            if not peer.is_embedded:
                return self.measure_in(peer, settings, directory)
            filled: Measurement = in_own_process(self.measure_in, peer, settings, directory)
            filled.values["start_s"] = in_own_process(seconds_to_open, peer, directory, int(filled.values["keys"]))
            filled.values["disk_bytes_per_key"] = round(disk_bytes(directory) / filled.values["keys"], 1)
            return filled

    def measure_state(self, state: State, settings: Settings) -> Measurement:
        limit_s = settings.seconds or DEFAULT_LIMIT_S
        numbers = key_numbers(settings.messages or DEFAULT_KEYS)
        memory_before = state.memory_bytes()
        cpu_before, load_before = state.cpu(), time.process_time()
        stored, elapsed_s = 0, 0.0
        for first in range(0, len(numbers), KEYS_TOGETHER):
            part = numbers[first : first + KEYS_TOGETHER]
            work = state.writes(SHORT_RECORDS, part, 1)
            began_s = time.perf_counter()
            done = work(limit_s - elapsed_s)
            elapsed_s += time.perf_counter() - began_s
            stored += done
            if done < len(part):
                break
        check_count(state, stored)
        check_values(state, numbers[: stored // KEYS_TOGETHER * KEYS_TOGETHER or stored], "v", 1)
        cpu, load_cpu_s = state.cpu().since(cpu_before), time.process_time() - load_before
        values = {"keys": stored, "stored_per_s": round(stored / elapsed_s)}
        if isinstance(state, StateServer):
            state.settle()
            values["memory_bytes_per_key"] = round((state.memory_bytes() - memory_before) / stored, 1)
            state.condense()
            state.stop()
            values["disk_bytes_per_key"] = round(disk_bytes(state.directory) / stored, 1)
            values["start_s"] = seconds_to_start(state, int(numbers[0]))
            check_count(state, stored)
        return Measurement(values, stored, elapsed_s, cpu, load_cpu_s)

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        columns = {
            "keys": "records",
            "stored_per_s": "stored/s",
            "memory_bytes_per_key": "bytes of memory/record",
            "disk_bytes_per_key": "bytes of disk/record",
            "start_s": "start, s",
        }
        size = len(SHORT_RECORDS[0])
        return tables.lines(
            f"**{self.name}** ({size}-byte records, at most {settings.seconds or DEFAULT_LIMIT_S:g} s, "
            f"median of {settings.repetitions})",
            ["peer", *columns.values(), "start: ratio"],
            [
                [
                    result.peer.title,
                    *(tables.figure(result, value, 2 if value == "start_s" else 0) for value in columns),
                    tables.ratio(results, result, "start_s", False),
                ]
                for result in results
            ],
        )


def disk_bytes(directory: Path) -> int:
    """What the files below a directory take, without what is only reserved and was never written."""
    text = subprocess.run(["du", "-s", "-B1", str(directory)], capture_output=True, text=True, check=True).stdout
    return int(text.split()[0])


def seconds_to_start(server: StateServer, number: int) -> float:
    """Start a stopped server on its data, until a record can be read."""
    began_s = time.perf_counter()
    server.launch()
    server.wait_for_port()
    server.prepare()
    check_record(server, number)
    return round(time.perf_counter() - began_s, 3)


def seconds_to_open(peer: StatePeer, directory: Path, keys: int) -> float:
    """Open a library's database, until a record can be read. Called in a process of its own."""
    began_s = time.perf_counter()
    with peer.opened(directory) as state:
        check_record(state, int(key_numbers(keys)[-1]))
        return round(time.perf_counter() - began_s, 3)


def check_record(state: State, number: int) -> None:
    """Raises PeerError if the record is not there."""
    text = state.value(number)
    expected = SHORT_RECORDS[0].replace(KEY, b"%d" % number).replace(VERSION, b"%d" % (FIRST_VERSION + 1))
    if text != expected:
        raise PeerError(f"after a start, record {number} is {text!r}")
