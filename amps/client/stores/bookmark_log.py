"""The file of a bookmark store: a log of records that is replaced by a shorter one from time to time.

- The file begins with 8 bytes, `AMPSBMK1`. A record is: kind (1 byte: `b`, `d` or `p`), length of its payload (u32),
  CRC (u32), payload; little-endian. The CRC is zlib's CRC-32 over kind, length and payload. It is not CRC32C, which
  the standard library of Python does not have.
- Each beginning of the file, cut anywhere, is a state that the store had. So a torn record at the end is dropped. A
  damaged record that intact ones follow raises StoreCorruptException.
- After a failed write nothing is appended any more: the whole state replaces the file when there is room. So a record
  is never lost between two that are kept.
- A new file is complete and synced before it takes the name of the old one.
- The file `<path>.lock` is locked while a store is open; it stays afterwards.

What may not live here: what records mean.
"""

import contextlib
import fcntl
import logging
import os
import struct
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from amps.client.errors import StoreCorruptException, StoreException

SyncMode = Literal["always", "interval", "never"]
"""When a file reaches the device: before each call returns; by a thread, each interval; when the system decides."""

_logger = logging.getLogger(__name__)

_MAGIC = b"AMPSBMK1"
_HEAD = struct.Struct("<cI")
_CRC = struct.Struct("<I")
_FIXED_BYTES = _HEAD.size + _CRC.size
_KINDS = b"bdp"
_BUFFER_BYTES = 64 * 1024
_MIN_RECORDS = 8192
"""A file with fewer records is not replaced by itself: that would save little."""


def record(kind: bytes, payload: bytes) -> bytes:
    """Return the bytes of a record."""
    head = _HEAD.pack(kind, len(payload))
    return head + _CRC.pack(zlib.crc32(payload, zlib.crc32(head))) + payload


class RecordLog:
    """The open file. Needs its caller's lock, which is passed for the thread that syncs.

    - state: returns the records of the whole state. It is called when the file is replaced.
    - live: returns about how many records `state` has.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        lock: threading.Lock,
        *,
        state: Callable[[], Iterable[bytes]],
        live: Callable[[], int],
        sync: SyncMode = "interval",
        sync_interval: float = 0.01,
        prune_ratio: float = 0.5,
    ) -> None:
        if sync not in ("always", "interval", "never"):
            raise ValueError(f"sync must be 'always', 'interval' or 'never': {sync!r}")
        if sync_interval <= 0:
            raise ValueError(f"sync_interval must be positive: {sync_interval}")
        if not 0 < prune_ratio <= 1:
            raise ValueError(f"prune_ratio must be above 0 and at most 1: {prune_ratio}")
        self.path = os.path.realpath(os.fspath(path))
        self._lock = lock
        self._state = state
        self._live = live
        self._sync = sync
        self._interval_s = sync_interval
        self._ratio = prune_ratio
        self._buffer: list[bytes] = []
        self._buffered = 0
        self._records = 0
        self._check_at = _MIN_RECORDS
        self._error: Exception | None = None
        self._retry_at_s = 0.0
        self._fd = -1
        self._unsynced = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock_fd = _locked(self.path)
        _open_logs.add(self)

    def load(self, apply: Callable[[bytes, bytes], None]) -> None:
        """Call `apply` with kind and payload of each record, in order; then the file is open for appending.

        Raises StoreCorruptException if the file, or a record, is damaged.
        """
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._new_path)
            try:
                fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            except FileNotFoundError:
                self._replace()
                return
            self._fd = fd
            self._read(apply)
        except OSError as error:
            self._shut()
            raise StoreException(f"cannot open the bookmark store {self.path}: {error}") from error
        except BaseException:
            self._shut()
            raise

    def _read(self, apply: Callable[[bytes, bytes], None]) -> None:
        with open(self._fd, "rb", closefd=False) as file:
            data = file.read()
        if not data.startswith(_MAGIC):
            raise StoreCorruptException(f"{self.path} is not the file of a bookmark store")
        at = len(_MAGIC)
        for kind, payload, end in _records(data, at):
            try:
                apply(kind, payload)
            except ValueError as error:
                raise StoreCorruptException(f"{self.path} is damaged at byte {at}: {error}") from error
            at = end
            self._records += 1
        if at < len(data):
            if _has_record_after(data, at + 1):
                raise StoreCorruptException(f"{self.path} is damaged at byte {at}")
            os.ftruncate(self._fd, at)
            _logger.info("dropped %d bytes of an incomplete record at the end of %s", len(data) - at, self.path)

    @property
    def _new_path(self) -> str:
        return f"{self.path}.new"

    @property
    def failed(self) -> bool:
        """Whether the file lacks records that were taken."""
        return self._error is not None

    def add(self, record: bytes) -> None:
        """Take a record; it is written with the next `write`, or with many. Raises nothing."""
        if self._error is not None:
            return
        self._buffer.append(record)
        self._buffered += len(record)
        if self._buffered >= _BUFFER_BYTES:
            with contextlib.suppress(StoreException):  # the next `write` tells the application
                self.write(durable=False)

    def write(self, *, durable: bool = True) -> None:
        """Write the records taken. StoreException if that fails; then the whole state is written by a later call."""
        if self._fd < 0 and self._error is None:
            raise StoreException(f"the bookmark store {self.path} is closed")
        if self._error is not None:
            self._try_again()
            return
        try:
            data = b"".join(self._buffer)
            self._records += len(self._buffer)
            self._buffer.clear()
            self._buffered = 0
            _write_all(self._fd, data)
            if self._sync == "always" and durable:
                os.fdatasync(self._fd)
        except OSError as error:
            self._failed(error)
            raise StoreException(f"cannot write the bookmark store {self.path}: {error}") from error
        if self._sync == "interval":
            self._sync_later()
        if self._records >= self._check_at:
            self._prune_if_worthwhile()

    def _failed(self, error: Exception) -> None:
        _logger.warning("cannot write the bookmark store %s; trying again: %s", self.path, error)
        self._error = error
        self._retry_at_s = 0.0
        self._buffer.clear()
        self._buffered = 0

    def _try_again(self) -> None:
        # Repeated attempts take at most a tenth of the time.
        began_s = time.monotonic()
        if began_s < self._retry_at_s or isinstance(self._error, StoreException):
            raise StoreException(f"cannot write the bookmark store {self.path}: {self._error}") from self._error
        try:
            self.replace()
        except StoreException:
            now_s = time.monotonic()
            self._retry_at_s = now_s + 9 * (now_s - began_s)
            raise

    def _prune_if_worthwhile(self) -> None:
        live = self._live()
        if self._records - live > self._ratio * self._records:
            with contextlib.suppress(StoreException):  # the file remains as it is
                self.replace()
        grown = self._records + self._records // 8
        self._check_at = max(_MIN_RECORDS, grown, int(live / max(1 - self._ratio, 0.01)))

    def replace(self) -> None:
        """Write the whole state to a new file, which takes the place of the old one. StoreException if that fails."""
        if isinstance(self._error, StoreException):
            raise StoreException(str(self._error))
        if self._lock_fd < 0:
            raise StoreException(f"the bookmark store {self.path} is closed")
        try:
            self._replace()
        except OSError as error:
            raise StoreException(f"cannot write the bookmark store {self.path}: {error}") from error

    def _replace(self) -> None:
        fd = os.open(self._new_path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            written = self._write_state(fd)
            if self._sync != "never":
                os.fsync(fd)
            os.rename(self._new_path, self.path)
        except BaseException:
            os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(self._new_path)
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._records = fd, written
        self._check_at = _MIN_RECORDS
        self._buffer.clear()
        self._buffered = 0
        if self._error is not None:
            self._error = None
            _logger.info("the bookmark store %s is complete again", self.path)
        if self._sync != "never":
            _sync_directory(os.path.dirname(self.path))

    def _write_state(self, fd: int) -> int:
        chunk, size, count = [_MAGIC], 0, 0
        for item in self._state():
            chunk.append(item)
            size += len(item)
            count += 1
            if size >= _BUFFER_BYTES:
                _write_all(fd, b"".join(chunk))
                chunk, size = [], 0
        _write_all(fd, b"".join(chunk))
        return count

    def _sync_later(self) -> None:
        if not self._unsynced.is_set():
            self._unsynced.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="amps-bookmark-sync", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            self._unsynced.wait()
            if self._closing.wait(self._interval_s):
                return
            self._unsynced.clear()
            with self._lock:
                if self._fd < 0:
                    return
                fd = os.dup(self._fd)
            try:
                os.fdatasync(fd)
            except OSError as error:
                with self._lock:
                    if self._error is None:
                        self._failed(error)
            finally:
                os.close(fd)

    def close(self) -> None:
        """Write and sync what is left, and unlock. StoreException if that fails; the file is closed then, too."""
        if self._lock_fd < 0:
            return
        try:
            if self._error is not None:
                self.replace()
            else:
                self.write(durable=False)
                if self._sync != "never":
                    os.fsync(self._fd)
        except OSError as error:
            raise StoreException(f"cannot sync the bookmark store {self.path}: {error}") from error
        finally:
            self._shut()

    def _shut(self) -> None:
        self._closing.set()
        self._unsynced.set()
        for fd in (self._fd, self._lock_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock_fd = -1
        if self._error is None:
            self._error = StoreException("it is closed")

    def disown(self) -> None:
        """Make the file unusable in a forked child, whose parent continues to use it."""
        if self._lock_fd >= 0:
            self._error = StoreException("it was opened before a fork: open it in the child process")
            self._buffer.clear()
            self._shut()


def _locked(path: str) -> int:
    try:
        fd = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise StoreException(f"cannot open the bookmark store {path}: {error}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise StoreException(
            f"the bookmark store {path} is open already, here or in another process: close it first"
        ) from error
    return fd


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _record_at(data: bytes, at: int) -> tuple[bytes, bytes, int] | None:
    """Return kind, payload and end of the intact record at a place; None if there is none."""
    start = at + _FIXED_BYTES
    if start > len(data) or data[at] not in _KINDS:
        return None
    kind, length = _HEAD.unpack_from(data, at)
    (crc,) = _CRC.unpack_from(data, at + _HEAD.size)
    end = start + length
    if end > len(data):
        return None
    payload = data[start:end]
    if zlib.crc32(payload, zlib.crc32(data[at : at + _HEAD.size])) != crc:
        return None
    return kind, payload, end


def _records(data: bytes, at: int) -> Iterator[tuple[bytes, bytes, int]]:
    while (found := _record_at(data, at)) is not None:
        yield found
        at = found[2]


def _has_record_after(data: bytes, at: int) -> bool:
    return any(_record_at(data, place) is not None for place in range(at, len(data) - _FIXED_BYTES + 1))


_open_logs: "weakref.WeakSet[RecordLog]" = weakref.WeakSet()


def _disown_all() -> None:
    for log in list(_open_logs):
        log.disown()
    _open_logs.clear()


os.register_at_fork(after_in_child=_disown_all)
