"""Steps for files of the host: compressing and removing old files, such as logs (operations.md §9.3).

They never touch files of the transaction log. A file with the name of a journal, or in a directory of the log with the
instance's name, is left alone and makes the step fail, after the other files are done. Only plain files that no process
has open are touched.

A file is compressed to a new file beside it, which gets its name only when it is complete and durable; then the
original is removed. A crash leaves the original, and perhaps a `.gz.part`, which the next run replaces.
"""

import asyncio
import contextlib
import glob
import os
import re
import stat
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amps.server.services.actions.step import Run, Step, StepFailure

JOURNAL_NAME = re.compile(r"\.journal(\.[A-Za-z0-9]+)*$")
_PIECE_BYTES = 1 << 20
_GZIP_WINDOW = 31
_PART_SUFFIX = ".part"


@dataclass(frozen=True, slots=True)
class _Found:
    path: Path
    modified_s: float
    identity: tuple[int, int]


class _FileStep(Step):
    """Finds files by pattern and age, and processes each, oldest first."""

    async def run(self, options: Mapping[str, Any], run: Run) -> bool:
        await asyncio.to_thread(self._do_all, options)
        return True

    def treat(self, path: Path) -> None:
        """Process one file. Raises OSError; StepFailure to end the step."""
        raise NotImplementedError

    def _do_all(self, options: Mapping[str, Any]) -> None:
        found, forbidden = self._find(options["Pattern"], time.time() - options["Age"])
        found.sort(key=lambda file: (file.modified_s, file.path))
        if options["Keep"] is not None:
            found = found[: max(0, len(found) - options["Keep"])]
        if options["Count"] is not None:
            found = found[: options["Count"]]
        open_files = identities_of_open_files() if found else set()
        problems: list[str] = []
        for file in found:
            if file.identity in open_files:
                continue
            try:
                self.treat(file.path)
            except FileNotFoundError:
                continue  # another process has removed it
            except OSError as error:
                problems.append(f"{file.path}: {error.strerror or error}")
        if forbidden:
            count = len(forbidden) - 1
            others = f", as {'is another one' if count == 1 else f'are {count} others'}" if count else ""
            problems.append(
                f"{forbidden[0]} belongs to a transaction log and is left alone{others}; "
                "use the actions for journals, and another Pattern here"
            )
        if problems:
            raise StepFailure("; ".join(problems[:20]))

    def _find(self, pattern: str, modified_before_s: float) -> tuple[list[_Found], list[Path]]:
        """Plain files that match and are old enough, and files of a transaction log that match, regardless of age."""
        try:
            names = glob.glob(pattern, include_hidden=False)
        except (re.error, ValueError) as error:
            raise StepFailure(f"Pattern {pattern!r} cannot be used: {error}") from None
        found: list[_Found] = []
        forbidden: list[Path] = []
        for name in names:
            path = Path(name)
            try:
                status = path.lstat()
            except (OSError, ValueError):
                continue
            if not stat.S_ISREG(status.st_mode):
                continue
            if self._is_journal(path):
                forbidden.append(path)
            elif status.st_mtime < modified_before_s and not path.name.endswith(_PART_SUFFIX):
                found.append(_Found(path, status.st_mtime, (status.st_dev, status.st_ino)))
        return found, forbidden

    def _is_journal(self, path: Path) -> bool:
        if JOURNAL_NAME.search(path.name):
            return True
        log = self.environment.config.transaction_log
        if log is None or not path.name.startswith(f"{self.environment.config.name}."):
            return False
        directories = [log.journal_directory, getattr(log, "journal_archive_directory", None)]
        parent = path.resolve().parent
        return any(directory is not None and parent == Path(directory).resolve() for directory in directories)


class RemoveFiles(_FileStep):
    """Removes files."""

    module = "amps-action-do-remove-files"

    def treat(self, path: Path) -> None:
        path.unlink()


class CompressFiles(_FileStep):
    """Compresses files with gzip. Files that are compressed already stay as they are."""

    module = "amps-action-do-compress-files"

    def treat(self, path: Path) -> None:
        if path.name.endswith(".gz"):
            return
        compress_file(path, self.environment.stopping)


def compress_file(path: Path, stopping: threading.Event) -> None:
    """Replace a file by `<name>.gz`, with its mode and time. Raises OSError; StepFailure when the instance stops."""
    target = path.with_name(f"{path.name}.gz")
    if target.exists():
        raise FileExistsError(f"there is a {target.name} already")
    part = target.with_name(target.name + _PART_SUFFIX)
    try:
        with path.open("rb") as source, part.open("wb") as output:
            status = os.fstat(source.fileno())
            os.fchmod(output.fileno(), stat.S_IMODE(status.st_mode))
            compressor = zlib.compressobj(wbits=_GZIP_WINDOW)
            while data := source.read(_PIECE_BYTES):
                if stopping.is_set():
                    raise StepFailure(f"the instance stops; {path} is not compressed")
                output.write(compressor.compress(data))
            output.write(compressor.flush())
            output.flush()
            os.fsync(output.fileno())
            if os.fstat(source.fileno()).st_size != status.st_size:
                raise OSError("it was written to meanwhile, and is left alone")
        os.utime(part, ns=(status.st_atime_ns, status.st_mtime_ns))
        part.rename(target)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    _sync_directory(path.parent)
    path.unlink()


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def identities_of_open_files() -> set[tuple[int, int]]:
    """Device and inode of all files that processes have open, as far as this process may read them."""
    found: set[tuple[int, int]] = set()
    for process in _entries("/proc", str.isdecimal):
        for descriptor in _entries(f"/proc/{process}/fd", str.isdecimal):
            with contextlib.suppress(OSError):
                status = os.stat(f"/proc/{process}/fd/{descriptor}")
                if stat.S_ISREG(status.st_mode):
                    found.add((status.st_dev, status.st_ino))
    return found


def _entries(directory: str, wanted: Callable[[str], bool]) -> list[str]:
    try:
        return [name for name in os.listdir(directory) if wanted(name)]
    except OSError:  # the process has ended, or belongs to another user
        return []
