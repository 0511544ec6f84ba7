"""Where records are written: standard output, files, compressed files, the system's log.

A target gets whole lines and decides by level and id whether it wants them. A target that cannot be
written never stops the others or the log process: it drops its lines, says so once, tries again, and says how
many are missing when it works again. A file that somebody removed or renamed is made again.

File names are masks: `%n` is the rotation counter, five digits from 00000, the rest is strftime. Without a
rotation threshold a file is appended to, over restarts too; when all shall begin their next file it is opened anew, so
that programs such as logrotate may rename it before. With one, a record that would carry the file
beyond it opens the next file; if that has the same name, or exists, it begins anew.
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
_GZIP_WINDOW = 31  # zlib's way to say: a gzip member
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
    """Whether a target wants a record. Excluded ids win over included ones, and those over levels."""
    if any(re.fullmatch(pattern, record_id) for pattern in config.exclude_ids):
        return False
    if LEVELS[level_number] in config.levels:
        return True
    return any(re.fullmatch(pattern, record_id) for pattern in config.include_ids)


class Sink(Protocol):
    """What is behind a target."""

    def write(self, level_number: int, line: str) -> None:
        """Takes one record; may keep it until `flush`."""

    def flush(self) -> bool:
        """Writes what was kept. True: there was something, and it is written."""

    def begin_next(self) -> None:
        """Begins the next file, if this is a file that rotates; another file is opened anew, by its name."""

    def close(self) -> None:
        """Writes everything and lets go."""


class Target:
    """One configured target: selection before a sink, and patience with a sink that fails."""

    def __init__(
        self, config: LogTargetConfig, sink: Sink, name: str, report: Callable[[str, str, int], None]
    ) -> None:
        """`report(name, reason, lost)`: it cannot be written; without a reason: it can again, `lost` are missing."""
        self.name = name
        self._config = config
        self._sink = sink
        self._report = report
        self._failing = False
        self._kept_count = 0
        self._lost_count = 0
        self._selection: dict[tuple[int, str], bool] = {}

    def wants(self, level_number: int, record_id: str) -> bool:
        """Whether the record belongs here; remembered per id."""
        key = (level_number, record_id)
        wanted = self._selection.get(key)
        if wanted is None:
            wanted = self._selection[key] = selects(self._config, level_number, record_id)
        return wanted

    def write(self, level_number: int, line: str) -> None:
        """Hands a record to the sink."""
        self._kept_count += 1
        try:
            self._sink.write(level_number, line)
        except OSError as error:
            self._failed(error)

    def flush(self) -> None:
        """Lets the sink write what it kept."""
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
        """Begins the next file of a target that rotates, opens that of another one anew."""
        try:
            self._sink.begin_next()
        except OSError as error:
            self._failed(error)

    def close(self) -> None:
        """The last flush."""
        try:
            self._sink.close()
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        """What was kept is lost. Said once, until it works again."""
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
        """It is one stream for ever."""

    def close(self) -> None:
        self.flush()


class SyslogSink:
    """The system's log. Its connection is global to the process, so each target takes it anew."""

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
        """Nothing is kept."""
        return False

    def begin_next(self) -> None:
        """It is one stream for ever."""

    def close(self) -> None:
        if SyslogSink._current is self:
            syslog.closelog()
            SyslogSink._current = None


class FileSink:
    """A file, plain or compressed, that may rotate.

    `counters[index]` is the rotation counter; it lives outside, so that a restarted log process goes on
    with it instead of overwriting the files of its predecessor.
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
        """Opens the file of this moment, in a directory that is made when missing."""
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
        """Closes the file and begins the next one."""
        self._end_file()
        self._counters[self._index] += 1
        self.open(truncate=True)

    def begin_next(self) -> None:
        if self._threshold_bytes is not None:
            self.rotate()
        elif self._descriptor >= 0:
            # Who renamed the file may do what he likes with it from now on.
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
            self._abandon_file()  # half a compressed block would spoil what follows; opening again repairs it
            raise
        return True

    def _was_removed(self) -> bool:
        """Whether somebody removed or renamed the file, alone or with its directory: then it is made again."""
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
    except PermissionError:  # writing is all that was granted
        return True


def expand_mask(mask: str, extension: str, counter: int) -> str:
    """The file name of this moment; the extension is added when the mask lacks it."""
    if not mask.endswith(extension):
        mask += extension
    mask = re.sub(r"%[%n]", lambda token: f"{counter:05d}" if token[0] == "%n" else token[0], mask)
    return time.strftime(mask)


def write_all(descriptor: int, data: bytes) -> None:
    """Writes everything; waits on a descriptor that somebody else made non-blocking."""
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
    """Makes a compressed log that was cut short appendable; returns its uncompressed size.

    A member without its end would make everything appended after it unreadable. What can still be read of
    it is written again, as whole members.
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
    """What keeps log files from being written, in words; directories are made on the way."""
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
