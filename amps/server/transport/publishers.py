"""The facts about publishers that filters can use: name, address and version (expressions.md §10.10).

A message carries a hash of its publisher's name, and may be delivered by another worker than the one that its publisher
is connected to. So each worker writes the clients that have logged on to a file of its own in the runtime directory,
before a client can publish. The other workers read the new part of the files when a filter needs it. Replays do not
use these facts.

A file is a list of msgpack objects, of which the newest of a client is valid. When most of a file is outdated, it is
rewritten under the same name.
"""

import contextlib
import io
import os
from pathlib import Path

import msgpack

from amps.server.runtime import Runtime

OUTDATED_BYTES_MIN = 64 << 10
KNOWN_MAX = 100_000
"""How many clients are kept in memory, outdated ones included, before the files are read again from the beginning."""

Facts = dict[str, str]


class Publishers:
    """The facts that one worker writes about its clients, and the facts it knows of all clients."""

    def __init__(self, runtime: Runtime, index: int) -> None:
        self._paths = [runtime.publishers_path(number) for number in range(runtime.workers)]
        self._path = runtime.publishers_path(index)
        self._file: io.BufferedWriter | None = None
        self._own: dict[int, bytes] = {}  # by connection slot: the entry in the file
        self._live_bytes = 0
        self._written_bytes = 0
        self._readers = [_Reader(path) for path in self._paths]
        self._known: dict[int, Facts] = {}

    def tell(self, slot: int, name_hash: int, facts: Facts) -> None:
        """Write the facts about a client that has logged on. Raises OSError: filters then see NULL in their place."""
        self.forget(slot)
        data: bytes = msgpack.packb((name_hash, facts), unicode_errors="surrogatepass")
        self._own[slot] = data
        self._live_bytes += len(data)
        if self._file is None or self._written_bytes > OUTDATED_BYTES_MIN + 4 * self._live_bytes:
            self._write_anew()
        else:
            self._file.write(data)
            self._file.flush()
            self._written_bytes += len(data)

    def forget(self, slot: int) -> None:
        """Drop the entry of a connection that has ended. Its facts stay readable for messages under way."""
        self._live_bytes -= len(self._own.pop(slot, b""))

    def _write_anew(self) -> None:
        fresh = self._path.with_name(self._path.name + ".new")
        with contextlib.closing(fresh.open("wb")) as file:
            file.write(b"".join(self._own.values()))
        fresh.replace(self._path)
        if self._file is not None:
            self._file.close()
        self._file = self._path.open("ab")
        self._written_bytes = self._live_bytes

    def find(self, name_hash: int) -> Facts | None:
        """The facts about the client whose name has that hash; None if there are none."""
        if len(self._known) > KNOWN_MAX:
            self._known.clear()
            self._readers = [_Reader(path) for path in self._paths]
        for reader in self._readers:
            for found, facts in reader.read():
                self._known[found] = facts
        return self._known.get(name_hash)


class _Reader:
    """Reads the part of a worker's file that was not read yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: io.FileIO | None = None
        self._inode = 0
        self._read_bytes = 0
        self._unpacker = msgpack.Unpacker()

    def read(self) -> list[tuple[int, Facts]]:
        try:
            state = os.stat(self._path)
        except FileNotFoundError:
            return []
        if state.st_ino != self._inode or self._file is None:
            if self._file is not None:
                self._file.close()
            self._file = io.FileIO(self._path)
            self._inode = os.fstat(self._file.fileno()).st_ino
            self._read_bytes = 0
            self._unpacker = msgpack.Unpacker(unicode_errors="surrogatepass")
        elif state.st_size == self._read_bytes:
            return []
        data = self._file.read()
        self._read_bytes += len(data)
        self._unpacker.feed(data)
        return [(name_hash, facts) for name_hash, facts in self._unpacker]
