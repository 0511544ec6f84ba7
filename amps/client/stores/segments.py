"""Numbered frames in a directory: the files of the file and hybrid publish stores (client.md §19.7).

- `lock`: locked with flock while a process uses the directory.
- `state`: the format, the client's name and the run of the machine (boot id), as JSON; replaced by rename.
- `numbers`: the last discarded number, the last one that an fsync has covered and the last one kept, as u64 in the
  machine's byte order; memory-mapped, each written by one store instruction.
- `<first number, 20 digits>.seg`: records `u32 length, u32 CRC, u64 number, frame`, little-endian. The CRC is
  `zlib.crc32(frame, number % 2**32)`. A segment is allocated in full and memory-mapped; zeros follow its last record.

Invariants:
- A record is in the page cache when `append` returns: it survives the death of the process at any instant, without a
  system call for each message. Its header is written last, so that a torn record is recognised.
- Numbers in a segment are consecutive. Only a rise of the floor makes a gap between segments; it discards all before.
- A process can tear only the record after the last one in `numbers`, so a bad record before it is damage. A crash of
  the machine can lose everything that no fsync has covered: then numbers end before the first bad record.
- A `SegmentWriter` adds the records and has the numbers. `Outbox.publish` calls it without a lock, so a record may be
  added between any two lines here. It is sealed before its segment is left, or the file of that name is made anew.
- An exception that a signal handler raises, such as KeyboardInterrupt, leaves a record wholly added or not at all, and
  the log usable: a segment that is not attached, or sealed, is left with the next record.
- The blocks of a segment are allocated before it is mapped: a full disk is an exception, never a SIGBUS.
- The newest segment is kept even if all of it is discarded: numbers continue though `numbers` is lost.
"""

import contextlib
import fcntl
import json
import mmap
import os
import re
import struct
from array import array
from pathlib import Path
from zlib import crc32

from amps.client.errors import StoreCorruptException, StoreException
from amps.client.protocol.traffic import SegmentWriter

FORMAT = 1
RECORD = struct.Struct("<IIQ")
RECORD_BYTES = RECORD.size
_PERSISTED, _DURABLE, _LAST = range(3)  # words of `numbers`
_WORDS_BYTES = 3 * 8
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SEGMENT_NAME = re.compile(r"(\d{20})\.seg\Z")


class Segment:
    """One file of records."""

    __slots__ = ("base", "end", "first", "offsets", "path")

    def __init__(self, path: Path, first: int, base: int) -> None:
        self.path = path
        self.first = first
        self.base = base
        """The sum of the bytes of all segments before this one."""
        self.offsets = array("I")
        """Where each record starts."""
        self.end = 0
        """Where the last record ends."""

    @property
    def following(self) -> int:
        """The number after the last one."""
        return self.first + len(self.offsets)

    def drop_from(self, number: int) -> None:
        """Drop the records from this number on: an interrupted append wrote one that was never kept."""
        at = number - self.first
        if at < len(self.offsets):
            self.end = self.offsets[at]
            del self.offsets[at:]


class SegmentLog:
    """Frames by consecutive numbers, in a directory. Not thread-safe, apart from `synced`."""

    def __init__(self, path: Path, segment_bytes: int) -> None:
        self.path = path
        self.segment_bytes = segment_bytes
        self.writer = SegmentWriter()
        self._segments: list[Segment] = []
        self._map: mmap.mmap | None = None  # of the newest segment, if it has room; the writer writes to it
        self._reading: tuple[Segment, mmap.mmap] | None = None
        self._unsynced: set[Path] = set()
        self._lock_fd = -1
        self._numbers: memoryview[int] | None = None

    # Numbers

    @property
    def is_open(self) -> bool:
        """Whether this process uses the directory."""
        return self._lock_fd >= 0

    @property
    def next_number(self) -> int:
        """The number of the next frame."""
        return self.writer.next_number

    @property
    def persisted(self) -> int:
        """The highest number that is discarded."""
        return self.writer.persisted

    @property
    def lowest(self) -> int:
        """The lowest number kept; 0 = none."""
        return self.persisted + 1 if self.count else 0

    @property
    def count(self) -> int:
        """The number of frames kept."""
        return self.next_number - 1 - self.persisted

    @property
    def kept_bytes(self) -> int:
        """The bytes of all records that are not discarded."""
        return self.writer.kept_bytes

    def _position(self, number: int, total: int) -> int:
        """The bytes of all records before this number. `total`: those of all; read before, as more may come."""
        for segment in reversed(self._segments):
            if segment.first <= number:
                at = number - segment.first
                return segment.base + segment.offsets[at] if at < len(segment.offsets) else total
        return total

    # Opening and closing

    def open(self, client_name: str) -> None:
        """Lock the directory, create it if it is missing, and recover what it holds.

        Raises StoreException if another process uses it, it belongs to another name, or it cannot be used;
        StoreCorruptException if a file is damaged.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._acquire()
            try:
                boot = _boot_id()
                crashed = self._owned_by(client_name) != boot
                self._recover(crashed)
                if crashed:
                    state = {"format": FORMAT, "client": client_name, "boot": boot}
                    self._replace(self.path / "state", json.dumps(state).encode() + b"\n")
            except BaseException:
                self.close()
                raise
        except OSError as error:
            raise StoreException(f"the publish store {self.path} cannot be opened: {error}") from error

    def _acquire(self) -> None:
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, 0)
            os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        except BlockingIOError:
            holder = os.pread(fd, 20, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            here = holder == str(os.getpid())
            raise StoreException(
                f"the publish store {self.path} is in use by "
                + ("another store object of this process: call its close()," if here else f"process {holder}: close it")
                + " first, or give this client another directory"
            ) from None
        except OSError:
            os.close(fd)
            raise
        self._lock_fd = fd

    def _owned_by(self, client_name: str) -> str | None:
        """Check that the directory belongs to this client, or to none; return the run of the machine that used it."""
        state = self.path / "state"
        try:
            text = state.read_bytes()
        except FileNotFoundError:
            if any(_SEGMENT_NAME.match(name) for name in os.listdir(self.path)):
                raise StoreCorruptException(
                    f"{state} is missing, but there are segments; restore it, or remove the directory and lose the"
                    " messages in it"
                ) from None
            return None
        try:
            fields = json.loads(text)
            written, owner, boot = fields["format"], fields["client"], fields["boot"]
        except (ValueError, KeyError, TypeError):
            raise StoreCorruptException(
                f"{state} is damaged; restore it: the client's name is in it"
            ) from None
        if written != FORMAT:
            raise StoreException(f"{state} has format {written!r}; this version reads format {FORMAT} only")
        if owner != client_name:
            raise StoreException(
                f"the publish store {self.path} belongs to client {owner!r}; give client {client_name!r} another"
                f" directory, or name the client {owner!r}"
            )
        return str(boot)

    def _replace(self, path: Path, data: bytes) -> None:
        new = path.with_name(path.name + ".new")
        with open(new, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
        _sync(self.path)

    def _recover(self, crashed: bool) -> None:
        """Read all files. `crashed`: the machine may have crashed since they were written."""
        fd = os.open(self.path / "numbers", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            os.posix_fallocate(fd, 0, _WORDS_BYTES)
            self._numbers = memoryview(mmap.mmap(fd, _WORDS_BYTES)).cast("Q")
        finally:
            os.close(fd)
        persisted, durable, kept = self._numbers
        certain = durable if crashed else kept  # no record up to this number can be missing
        paths = sorted(self.path / name for name in os.listdir(self.path) if _SEGMENT_NAME.match(name))
        for path in paths:
            segment = Segment(path, int(path.name[:20]), 0)
            last = self._segments[-1] if self._segments else None
            if last is not None:
                last.drop_from(segment.first)
            following = max(last.following if last is not None else 1, persisted + 1)
            if following < segment.first:
                if crashed and last is None:
                    persisted = self._numbers[_PERSISTED] = (
                        segment.first - 1
                    )  # only what is discarded is ever deleted
                elif crashed and following > durable:
                    break
                else:
                    raise _missing(following, path)
            if last is not None:
                segment.base = last.base + last.end
            _read(segment)
            self._segments.append(segment)
        newest = self._segments[-1] if self._segments else None
        next_number = max(newest.following if newest is not None else 1, persisted + 1)
        if next_number <= certain:
            where = f"{newest.path}, byte {newest.end}" if newest is not None else "no segment"
            raise StoreCorruptException(
                f"the publish store {self.path} is damaged: messages {next_number} to {certain} are missing"
                f" ({where}). {_ADVICE}"
            )
        for path in paths[len(self._segments) :]:
            os.unlink(path)  # behind the end that a crash of the machine has left
        total = newest.base + newest.end if newest is not None else 0
        self.writer.open(self._numbers, next_number, persisted, total, self._position(persisted + 1, total))
        self._remove_discarded()
        if newest is not None and newest.following == next_number:
            self._continue(newest)

    def _continue(self, segment: Segment) -> None:
        """Append to a segment that exists, if the disk has room for its blocks."""
        fd = os.open(segment.path, os.O_RDWR)
        try:
            size = max(os.fstat(fd).st_size, self.segment_bytes)
            os.ftruncate(fd, segment.end)  # no record behind the end may become valid again
            os.posix_fallocate(fd, 0, size)
            data = mmap.mmap(fd, size)
        except OSError:
            return  # the next message goes to a new segment
        finally:
            os.close(fd)
        self._attach(segment, data)

    def abandon(self) -> None:
        """Forget the directory in a forked child, which has copies of the descriptors and maps of its parent."""
        self._unsynced.clear()
        self.close()

    def close(self) -> None:
        """Release the directory; what it holds stays there."""
        self._seal()
        if self._reading is not None:
            self._reading[1].close()
            self._reading = None
        self.writer.close()
        if self._numbers is not None:
            self._numbers.release()
            self._numbers = None
        self._segments = []
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    # Writing

    def make_room(self, frame_bytes: int) -> None:
        """Begin a segment if the newest has no room for a frame. Raises StoreException if the disk is full."""
        if not self.writer.has_room(frame_bytes):
            self._begin_segment(RECORD_BYTES + frame_bytes)

    def _attach(self, segment: Segment, data: mmap.mmap) -> None:
        self._unsynced.add(segment.path)
        self._map = data
        self.writer.begin(data, segment.offsets, segment.end)

    def _seal(self) -> None:
        """Leave the newest segment."""
        self.writer.seal()
        data = self._map
        if data is not None:
            self._segments[-1].end = self.writer.end
            self.writer.detach()
            self._map = None
            data.close()

    def _begin_segment(self, least_bytes: int) -> None:
        if not self.is_open:
            raise StoreException(
                f"the publish store {self.path} is not open; give it to a client, or call open(name)"
            )
        size = max(self.segment_bytes, least_bytes)
        if size >= 2**32:
            raise StoreException(f"a message of {least_bytes} bytes is too large for the publish store")
        self.writer.seal()
        number = self.next_number
        last = self._segments[-1] if self._segments else None
        path = self.path / f"{number:020}.seg"
        if last is not None and last.path == path:
            self._seal()  # the same file, without a record: nothing may write to its old map
        try:
            if last is not None and last.following != number:
                _sync(self.path / "numbers")  # it explains the gap, also after a crash of the machine
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
            try:
                os.posix_fallocate(fd, 0, size)
                data = mmap.mmap(fd, size)
            except OSError:
                os.unlink(path)
                raise
            finally:
                os.close(fd)
        except OSError as error:
            if last is not None and last.following == number:
                self.writer.resume()  # a shorter message may have room
            raise StoreException(
                f"the publish store {self.path} cannot allocate {size} bytes: {error}; it keeps its {self.count}"
                " messages, and takes new ones when there is room"
            ) from error
        self._seal()
        if last is not None and last.path == path:
            self._segments.pop()
        segment = Segment(path, number, self.writer.total)
        self._segments.append(segment)
        self._unsynced.add(self.path)
        self._attach(segment, data)
        self._remove_discarded()

    def discard_up_to(self, number: int) -> None:
        """Discard all frames up to a number. After one above all known ones, numbering continues above it."""
        if number > self.persisted:
            self.writer.discard(number, self._position(number + 1, self.writer.total))
            self._remove_discarded()

    def _remove_discarded(self) -> None:
        while len(self._segments) > 1 and self._segments[0].following - 1 <= self.persisted:
            segment = self._segments.pop(0)
            if self._reading is not None and self._reading[0] is segment:
                self._reading[1].close()
                self._reading = None
            with contextlib.suppress(OSError):  # the next opening tries again
                os.unlink(segment.path)

    # Reading

    def frame(self, number: int) -> bytes | None:
        """Return the frame with this number; None if it is not kept. Raises StoreException if it cannot be read."""
        if not self.persisted < number < self.next_number:
            return None
        segment = next(segment for segment in reversed(self._segments) if segment.first <= number)
        start = segment.offsets[number - segment.first] + RECORD_BYTES
        data = self._map if segment is self._segments[-1] and self._map is not None else self._mapped(segment)
        length, crc, _ = RECORD.unpack_from(data, start - RECORD_BYTES)
        frame = data[start : start + length]
        if crc32(frame, number & 0xFFFFFFFF) != crc:
            raise StoreCorruptException(f"{segment.path} is damaged at {start - RECORD_BYTES}. {_ADVICE}")
        return frame

    def _mapped(self, segment: Segment) -> mmap.mmap:
        if self._reading is None or self._reading[0] is not segment:
            if self._reading is not None:
                self._reading[1].close()
                self._reading = None
            try:
                with open(segment.path, "rb") as file:
                    self._reading = segment, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except OSError as error:
                raise StoreException(f"{segment.path} cannot be read: {error}") from error
        return self._reading[1]

    # Durability

    def note_durable(self, number: int) -> None:
        """Note that an fsync has covered everything up to this number."""
        if self._numbers is not None:
            self._numbers[_DURABLE] = number

    def take_unsynced(self) -> set[Path]:
        """Return the files for `synced`; what is appended later needs another call."""
        taken = self._unsynced
        self._unsynced = {self._segments[-1].path} if self._map is not None else set()
        return taken

    def synced(self, paths: set[Path]) -> None:
        """Make the records in these files survive a crash of the machine. Waits for the disk; thread-safe."""
        try:
            for path in paths:
                try:
                    _sync(path)
                except FileNotFoundError:
                    continue  # all of it was discarded meanwhile
        except OSError as error:
            raise StoreException(
                f"the publish store {self.path} could not be written to the disk: {error}"
            ) from error


_ADVICE = "Restore the directory from a copy, or remove it and lose the messages in it"


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        if _SEGMENT_NAME.match(path.name):
            os.fdatasync(fd)
        else:
            os.fsync(fd)
    finally:
        os.close(fd)


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"


def _missing(first: int, path: Path) -> StoreCorruptException:
    last = int(path.name[:20]) - 1
    return StoreCorruptException(
        f"the publish store {path.parent} is damaged: messages {first} to {last}, before {path.name}, are missing."
        f" {_ADVICE}"
    )


def _read(segment: Segment) -> None:
    """Find the records of a segment, up to the first bad one."""
    data = segment.path.read_bytes()
    view = memoryview(data)
    at, size, number = 0, len(data), segment.first
    while at + RECORD_BYTES <= size:
        length, crc, found = RECORD.unpack_from(view, at)
        end = at + RECORD_BYTES + length
        if found != number or end > size or crc32(view[at + RECORD_BYTES : end], number & 0xFFFFFFFF) != crc:
            break
        segment.offsets.append(at)
        at = end
        number += 1
    segment.end = at
