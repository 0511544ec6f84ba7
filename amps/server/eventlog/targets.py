"""Where records are written: standard output, files, compressed files, the system's log.

A target gets whole lines, and selects records by level and id. A target that cannot be written never stops the
others or the log process: it drops its lines, reports that once, tries again, and reports how many are missing
when it works again. A file that was removed or renamed is made again.

File names are masks: `%n` is the rotation counter, five digits from 00000, the rest is strftime. Without a
rotation threshold, records are appended to a file, over restarts too. When all targets shall begin their next
file, it is opened again, so that programs such as logrotate may rename it before. With a threshold, a record that
would exceed it opens the next file; if that has the same name, or exists, it is truncated.
"""

import contextlib
import errno
import os
import re
import stat
import syslog
import time
import zlib
from collections.abc import Callable, MutableSequence
from pathlib import Path
from typing import Protocol

from amps.config import LogTargetConfig
from amps.server.eventlog.catalogue import LEVELS

_EXTENSIONS = {"file": ".log", "gzip": ".gz"}
_GZIP_WINDOW = 31  # zlib's value for a gzip member
_SYSLOG_PRIORITIES = (
    syslog.LOG_DEBUG,
    syslog.LOG_DEBUG,
    syslog.LOG_INFO,
    syslog.LOG_INFO,
    syslog.LOG_WARNING,
    syslog.LOG_ERR,
    syslog.LOG_CRIT,
    syslog.LOG_EMERG,
)


def selects(config: LogTargetConfig, level_number: int, record_id: str) -> bool:
    """Whether a target selects a record. Excluded ids override included ones, and these override levels."""
    if any(re.fullmatch(pattern, record_id) for pattern in config.exclude_ids):
        return False
    if LEVELS[level_number] in config.levels:
        return True
    return any(re.fullmatch(pattern, record_id) for pattern in config.include_ids)


class Sink(Protocol):
    """The destination of a target."""

    def write(self, level_number: int, line: str) -> None:
        """Take one record; it may be kept until `flush`."""

    def flush(self) -> bool:
        """Write the kept records. True: there were some, and they are written."""

    def begin_next(self) -> None:
        """Begin the next file, if this is a file that rotates; another file is opened again, by its name."""

    def close(self) -> None:
        """Write all records and close the destination."""


class Target:
    """One configured target: it selects records for its sink, and tolerates failures of the sink."""

    def __init__(
        self, config: LogTargetConfig, sink: Sink, name: str, report: Callable[[str, str, int], None]
    ) -> None:
        """`report(name, reason, lost)`: the sink has failed; without a reason: it works again, `lost` are missing."""
        self.name = name
        self._config = config
        self._sink = sink
        self._report = report
        self._failing = False
        self._kept_count = 0
        self._lost_count = 0
        self._selection: dict[tuple[int, str], bool] = {}

    def wants(self, level_number: int, record_id: str) -> bool:
        """Whether the target selects the record; cached per id."""
        key = (level_number, record_id)
        wanted = self._selection.get(key)
        if wanted is None:
            wanted = self._selection[key] = selects(self._config, level_number, record_id)
        return wanted

    def write(self, level_number: int, line: str) -> None:
        """Pass a record to the sink."""
        self._kept_count += 1
        try:
            self._sink.write(level_number, line)
        except OSError as error:
            self._failed(error)

    def flush(self) -> None:
        """Make the sink write its kept records."""
        try:
            written = self._sink.flush()
        except OSError as error:
            self._failed(error)
            return
        if written:
            self._kept_count = 0
            if self._failing:
                self._failing = False
                self._report(self.name, "", self._lost_count)
                self._lost_count = 0

    def rotate(self) -> None:
        """Begin the next file of a target that rotates, or open the file of another one again."""
        try:
            self._sink.begin_next()
        except OSError as error:
            self._failed(error)

    def close(self) -> None:
        """Flush and close the sink."""
        try:
            self._sink.close()
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        """Count the kept records as lost. Report the failure once, until the sink works again."""
        self._lost_count += self._kept_count
        self._kept_count = 0
        if not self._failing:
            self._failing = True
            self._report(self.name, error.strerror or str(error), 0)


class ConsoleSink:
    """Standard output or standard error."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._kept: list[str] = []

    def write(self, level_number: int, line: str) -> None:
        self._kept.append(line)

    def flush(self) -> bool:
        if not self._kept:
            return False
        data = ("\n".join(self._kept) + "\n").encode("utf-8", "backslashreplace")
        self._kept.clear()
        write_all(self._descriptor, data)
        return True

    def begin_next(self) -> None:
        """Do nothing: it is a single stream."""

    def close(self) -> None:
        self.flush()


class SyslogSink:
    """The system's log. Its connection is global to the process, so each target opens it again."""

    _current: "SyslogSink | None" = None

    def __init__(self, config: LogTargetConfig, instance_name: str) -> None:
        self._ident = config.ident or instance_name
        self._facility = getattr(syslog, config.facility)
        self._options = 0
        for name in config.syslog_options:
            self._options |= getattr(syslog, name, 0)

    def write(self, level_number: int, line: str) -> None:
        if SyslogSink._current is not self:
            syslog.openlog(self._ident, self._options, self._facility)
            SyslogSink._current = self
        syslog.syslog(_SYSLOG_PRIORITIES[level_number], line.replace("\0", "\\x00"))

    def flush(self) -> bool:
        """Do nothing: no record is kept."""
        return False

    def begin_next(self) -> None:
        """Do nothing: it is a single stream."""

    def close(self) -> None:
        if SyslogSink._current is self:
            syslog.closelog()
            SyslogSink._current = None


class FileSink:
    """A file, plain or compressed, that may rotate.

    `counters[index]` is the rotation counter. It is stored outside, so that a restarted log process continues
    it instead of overwriting the files of its predecessor.
    """

    def __init__(self, config: LogTargetConfig, counters: MutableSequence[int], index: int) -> None:
        assert config.file_name is not None
        self._mask = config.file_name
        self._extension = _EXTENSIONS[config.protocol]
        self._threshold_bytes = config.rotation_threshold_bytes
        self._counters = counters
        self._index = index
        self._descriptor = -1
        self._path = Path()
        self._size_bytes = 0
        self._kept: list[bytes] = []
        self._compressor: zlib._Compress | None = None
        self._compress = config.protocol == "gzip"

    def open(self, truncate: bool = False) -> None:
        """Open the file for the current time, in a directory that is made if it is missing."""
        self._path = path = Path(expand_mask(self._mask, self._extension, self._counters[self._index]))
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (os.O_TRUNC if truncate else 0)
        if self._compress and not truncate:
            self._size_bytes = repair_gzip(path)
        self._descriptor = os.open(path, flags, 0o644)
        if truncate or not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            self._size_bytes = 0
        elif not self._compress:
            self._size_bytes = os.fstat(self._descriptor).st_size
            if self._size_bytes and not _ends_with_line(path):
                write_all(self._descriptor, b"\n")  # cut short by a full disk or a crash

    def write(self, level_number: int, line: str) -> None:
        data = line.encode("utf-8", "backslashreplace") + b"\n"
        if self._descriptor < 0:
            self.open()
        threshold = self._threshold_bytes
        if threshold is not None and self._size_bytes and self._size_bytes + len(data) > threshold:
            self.rotate()
        self._size_bytes += len(data)
        self._kept.append(data)

    def rotate(self) -> None:
        """Close the file and begin the next one."""
        self._end_file()
        self._counters[self._index] += 1
        self.open(truncate=True)

    def begin_next(self) -> None:
        if self._threshold_bytes is not None:
            self.rotate()
        elif self._descriptor >= 0:
            # The program that renamed the file may use it freely from now on.
            self._end_file()
            self.open()

    def flush(self) -> bool:
        if not self._kept:
            return False
        if self._descriptor >= 0 and self._was_removed():
            self._abandon_file()
        data = b"".join(self._kept)
        self._kept.clear()
        if self._compress:
            if self._compressor is None:
                self._compressor = zlib.compressobj(wbits=_GZIP_WINDOW)
            data = self._compressor.compress(data) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
        try:
            if self._descriptor < 0:
                self.open()
            write_all(self._descriptor, data)
        except OSError:
            self._abandon_file()  # data behind half a compressed block is unreadable; opening repairs it
            raise
        return True

    def _was_removed(self) -> bool:
        """Whether the file was removed or renamed, alone or with its directory: then it is made again."""
        ours = os.fstat(self._descriptor)
        try:
            there = self._path.stat()
        except OSError:
            return True
        return (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino)

    def _abandon_file(self) -> None:
        self._compressor = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def close(self) -> None:
        self._end_file()

    def _end_file(self) -> None:
        if self._descriptor < 0:
            return
        try:
            self.flush()
            if self._compressor is not None:
                write_all(self._descriptor, self._compressor.flush(zlib.Z_FINISH))
        finally:
            self._abandon_file()


def _ends_with_line(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read() == b"\n"
    except PermissionError:  # only writing is permitted
        return True


def expand_mask(mask: str, extension: str, counter: int) -> str:
    """The file name for the current time; the extension is added if the mask lacks it."""
    if not mask.endswith(extension):
        mask += extension
    mask = re.sub(r"%[%n]", lambda token: f"{counter:05d}" if token[0] == "%n" else token[0], mask)
    return time.strftime(mask)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all data; wait if the descriptor was made non-blocking elsewhere."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            time.sleep(0.01)
        except OSError as error:
            if error.errno != errno.EINTR:
                raise


def repair_gzip(path: Path) -> int:
    """Make a compressed log that was cut short appendable, and return its uncompressed size.

    A member without its end would make all data appended after it unreadable. Its readable part is written again,
    as whole members.
    """
    size_bytes = 0
    repaired = path.with_name(path.name + ".repair")
    try:
        with path.open("rb") as source, repaired.open("wb") as target:
            compressor = zlib.compressobj(wbits=_GZIP_WINDOW)
            decompressor = zlib.decompressobj(wbits=_GZIP_WINDOW)
            whole, pending = True, b""
            while data := pending or source.read(2**16):
                try:
                    plain = decompressor.decompress(data)
                except zlib.error:
                    whole = False
                    break
                size_bytes += len(plain)
                target.write(compressor.compress(plain))
                pending = decompressor.unused_data
                if decompressor.eof:
                    decompressor = zlib.decompressobj(wbits=_GZIP_WINDOW)
                    whole = True
                else:
                    whole = False
            target.write(compressor.flush())
    except FileNotFoundError:
        return 0
    if size_bytes and not whole:
        os.replace(repaired, path)
    else:
        if not whole:
            path.unlink()
        with contextlib.suppress(OSError):
            repaired.unlink()
    return size_bytes


def open_targets(
    configs: tuple[LogTargetConfig, ...],
    instance_name: str,
    counters: MutableSequence[int],
    report: Callable[[str, str, int], None],
) -> list[Target]:
    """The targets of a configuration, in its order."""
    targets = []
    for index, config in enumerate(configs):
        sink: Sink
        if config.protocol in ("stdout", "stderr"):
            sink, name = ConsoleSink(1 if config.protocol == "stdout" else 2), config.protocol
        elif config.protocol == "syslog":
            sink, name = SyslogSink(config, instance_name), "syslog"
        else:
            sink, name = FileSink(config, counters, index), str(config.file_name)
        targets.append(Target(config, sink, name, report))
    return targets


def unwritable_targets(configs: tuple[LogTargetConfig, ...]) -> list[str]:
    """The reasons why log files cannot be written, as texts. Missing directories are made."""
    problems = []
    for config in configs:
        if config.file_name is None:
            continue
        path = Path(expand_mask(config.file_name, _EXTENSIONS[config.protocol], 0))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                kind = path.stat().st_mode
                if not stat.S_ISREG(kind) and not stat.S_ISCHR(kind):
                    raise OSError(errno.EEXIST, "something that is no file has that name")
                if not os.access(path, os.W_OK):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            if not os.access(path.parent, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            problems.append(
                f"the log file {path} cannot be written: {error.strerror}; check FileName and its directory"
            )
    return problems
