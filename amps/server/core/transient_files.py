"""The transient log's files: messages of topics that are not recorded, in memory as long as transports may read them.

The storage for the sequencer's second log writer. Segments are in the runtime directory, in the journal's format, so
that the same cursors read them. A segment is removed when every living transport has read past it; a transport
that still sends a message out of it keeps its mapping, and with it the memory.
"""

import mmap
import os
from pathlib import Path

from amps._core.journal.reader import build_file_header
from amps._core.journal.writer import IndexBuilder
from amps._core.values.value import publisher_id
from amps.server.core.journal_files import StorageFailure
from amps.server.runtime import Runtime

SEGMENT_BYTES = 8 << 20
# Number of bytes that transports may leave unread before the core stops reading messages.
TRANSIENT_BYTES_MAX = 512 << 20
# Number of bytes that are kept for the services process, if it watches messages. The core does not wait for it.
WATCHED_BYTES_MAX = 64 << 20


class TransientFiles:
    """Storage for the sequencer's transient log; see amps/_core/journal/append.pxi for the interface."""

    def __init__(self, runtime: Runtime, instance_name: str) -> None:
        self._runtime = runtime
        self._instance_name = instance_name
        self._prefix = f"{runtime.transient_prefix}"
        self._memory: mmap.mmap | None = None
        self._segments: list[tuple[int, int, int]] = []  # number, start position, size

    def prepare_file(self, number: int, minimum_bytes: int) -> None:
        """Do nothing: next_file allocates the memory, or the core ends; its messages are not recorded anyway."""

    def next_file(
        self, number: int, start_position: int, minimum_bytes: int, first_txid: int
    ) -> tuple[int, None]:
        """Make segment `number`. Raises StorageFailure."""
        size = max(SEGMENT_BYTES, (minimum_bytes + 4095) // 4096 * 4096)
        path = self._path(number)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
            self._memory = mmap.mmap(descriptor, size)
        except OSError as error:
            raise StorageFailure(
                f"no memory for messages that are not recorded, at {path}: {error}"
            ) from error
        finally:
            os.close(descriptor)
        name = self._instance_name
        header = build_file_header(
            number, size, start_position, first_txid, self._runtime.clock.time_ns(), publisher_id(name), name, True
        )
        self._memory[: len(header)] = header
        self._segments.append((number, start_position, size))
        return size, None

    def write(self, offset: int, data: memoryview) -> None:
        """Append to the segment in use."""
        assert self._memory is not None
        self._memory[offset : offset + len(data)] = data

    def finish_file(self, number: int, index: IndexBuilder | None) -> None:
        """Do nothing: the mapping is freed with its last user."""

    def trim(self) -> bool:
        """Remove segments that all readers have read. False: transports left too much, so the core must wait for them.

        The services process is a reader while it watches messages, but only as long as that costs little memory.
        """
        if len(self._segments) < 2:
            return True
        control = self._runtime.control
        watching = self._runtime.services_index
        readers = [
            control.transient_read(index)
            for index in range(self._runtime.transports)
            if control.transport_alive(index)
            and (index != watching or sum(size for _, _, size in self._segments) <= WATCHED_BYTES_MAX)
        ]
        while len(self._segments) > 1:
            number, start, size = self._segments[0]
            if any(position < start + size for position in readers):
                break
            del self._segments[0]
            control.transient_first_number = number + 1
            os.unlink(self._path(number))
        return sum(size for _, _, size in self._segments) <= TRANSIENT_BYTES_MAX

    def _path(self, number: int) -> Path:
        return Path(f"{self._prefix}{number:010d}.log")
