"""The manifest of an archive, and the commit of a journal, which is safe against a crash at any moment.

    _amps/archive.json                      the instance of the archive
    _amps/journals/0000000004.json          an archived journal: `ArchivedJournal`. These files are the manifest
    _amps/moving/0000000004.json            a journal during its commit: its entry, and the places of its files
    _amps/staging/…                         files of a run that are not committed yet
    _amps/lock                              locked (flock) by the active run

A run writes the files of a journal into `staging` and compares them with the journal. Then it *commits*:

1. All files are synced to the device, and the file in `moving` is written. From here on the commit will be completed.
2. The files are moved to their places, one by one; files that they replace are removed.
3. The file in `journals` is written. From here on the journal is archived.
4. The file in `moving` is removed.

Each JSON file is complete at its place or does not exist (`amps.journal.disk.whole_file`). The next run repeats steps 2
to 4 for each entry in `moving`; each step may be done twice. It removes everything in `staging`. After a crash between
steps 1 and 3, readers may see some files of a journal while others are not at their places yet. A crash has no other
visible effect.

An entry that cannot be read is an error, unless its journal is archived again: then all files with its name are
replaced.
"""

import contextlib
import errno
import fcntl
import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from amps.journal.disk import Disk, whole_file
from amps.journal.names import UNFINISHED_SUFFIX
from amps.spark.pipelines.archive_layout import is_of_journal, is_visible, manifest_path
from amps.spark.pipelines.job import PipelineError

FORMAT_VERSION = 2
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A Parquet file: rows of one part of a journal, with one topic and of one day, in the order of the log."""

    path: str
    """Path below the archive's directory."""
    topic: str | None
    """The topic; bytes that are not UTF-8 are surrogates."""
    date: str
    """The day of the rows' times, UTC, as YYYY-MM-DD."""
    rows: int
    size_bytes: int
    sha256: str
    """Checksum of the file's content."""
    first_position: int
    last_position: int
    first_time_us: int
    last_time_us: int


@dataclass(frozen=True, slots=True)
class ArchivedPart:
    """A range of a journal that one task has archived, and the files of its rows."""

    number: int
    """Number of the part, counted from 0 in each journal."""
    first_offset: int
    """File offset in the journal at which reading begins; a record begins there."""
    end_offset: int
    """File offset before which the last record of the range begins."""
    last_topic_offset: int
    """File offset of a topic record of the journal, as in `planning.Split`."""
    last_name_offset: int
    """File offset of a name record of the journal, in the same way."""
    first_position: int
    """Log position of the first row that may belong to this part; the range may contain earlier ones."""
    rows: int
    kinds: Mapping[str, int]
    """The number of rows of each kind."""
    message_types: tuple[str, ...]
    first_bookmark: str | None
    last_bookmark: str | None
    files: tuple[ArchivedFile, ...]


@dataclass(frozen=True, slots=True)
class ArchivedJournal:
    """A journal that is archived up to `next_position`."""

    instance: str
    number: int
    start_position: int
    size_bytes: int
    """Uncompressed size of the journal."""
    first_txid: int
    """Its first transaction id. With position and size it distinguishes journals of the same name and number."""
    full: bool
    """Whether the whole journal is archived; no rows will be added to it."""
    next_position: int
    """Log position after the last archived row; the end of the journal if it is full."""
    parts: tuple[ArchivedPart, ...]

    @property
    def rows(self) -> int:
        """The number of archived rows."""
        return sum(part.rows for part in self.parts)

    @property
    def files(self) -> tuple[ArchivedFile, ...]:
        """All files of the journal."""
        return tuple(file for part in self.parts for file in part.files)

    @property
    def stored_bytes(self) -> int:
        """Total size of its files."""
        return sum(file.size_bytes for file in self.files)


class Archive:
    """The directory of an archive. Its paths are those of the driver; tasks see the same file system."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self._own = manifest_path(self.directory)
        self._disk = Disk()

    @property
    def staging(self) -> Path:
        """The directory of files that are not committed yet."""
        return self._own / "staging"

    def instance(self) -> str | None:
        """The instance of the archived journals; None if there is no archive yet. Raises PipelineError, OSError."""
        try:
            said = json.loads((self._own / "archive.json").read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:
            raise PipelineError(f"{self._own / 'archive.json'} cannot be read: {error}") from None
        instance = said.get("instance") if isinstance(said, dict) and "format" in said else None
        if not isinstance(instance, str):
            raise PipelineError(f"{self._own / 'archive.json'} cannot be read: it has no format and instance")
        if said["format"] != FORMAT_VERSION:
            raise PipelineError(
                f"{self.directory} is an archive of format {said['format']!r}, and this program knows "
                f"{FORMAT_VERSION} only: use the program that has written it"
            )
        return instance

    def journals(self, again: Collection[int] = ()) -> dict[int, ArchivedJournal]:
        """Return the archived journals by number, in ascending order. Raises PipelineError, OSError.

        Journals whose commit has begun are included: the next run completes it. `again`: numbers of journals that are
        archived again; their entries need not be readable.
        """
        entries = {}
        for path in [*self._files("journals"), *self._files("moving")]:
            try:
                entry = _read_entry(path)
            except PipelineError:
                if _number_of(path) not in again:
                    raise
            else:
                entries[entry.number] = entry
        return dict(sorted(entries.items()))

    def files_of(self, instance: str, number: int) -> tuple[str, ...]:
        """Return the visible files of a journal, found by their names: paths below the directory. Raises OSError."""
        return tuple(sorted(path for path in self._visible() if is_of_journal(path, instance, number)))

    def strays(self, entries: Iterable[ArchivedJournal]) -> tuple[Path, ...]:
        """Return the files that readers see and that belong to none of these journals. Raises OSError."""
        known = {file.path for entry in entries for file in entry.files}
        return tuple(sorted(self.directory / path for path in self._visible() if path not in known))

    def _visible(self) -> Iterator[str]:
        """Yield the paths, below the directory, of all files that readers read."""
        if not self.directory.exists():
            return
        for place, directories, names in os.walk(self.directory, onerror=_raise, followlinks=True):
            directories[:] = filter(is_visible, directories)
            for name in filter(is_visible, names):
                yield str((Path(place) / name).relative_to(self.directory))

    @contextlib.contextmanager
    def working(self, instance: str, again: Collection[int] = ()) -> Iterator[None]:
        """Create the archive if there is none, lock out other runs, and finish the commits of an earlier run.

        `again`: numbers of journals that are archived again; their earlier commits need not be completed. Raises
        PipelineError, OSError.
        """
        for directory in (self._own / "journals", self._own / "moving"):
            self._make_directory(directory)
        with (self._own / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PipelineError(
                    f"another run is at work on {self.directory}: wait until it is done"
                ) from None
            known = self.instance()
            if known is None:
                self._write(self._own / "archive.json", {"format": FORMAT_VERSION, "instance": instance})
            elif known != instance:
                raise PipelineError(
                    f"{self.directory} holds journals of instance {known!r}, not of {instance!r}: "
                    "give each instance a directory of its own"
                )
            for directory in (self._own, self._own / "journals", self._own / "moving"):
                for unfinished in directory.glob(f"*{UNFINISHED_SUFFIX}"):
                    unfinished.unlink()
            for path in self._files("moving"):
                try:
                    self._finish(path)
                except PipelineError:
                    if _number_of(path) not in again:
                        raise
                    path.unlink()
            shutil.rmtree(self.staging, ignore_errors=True)
            try:
                yield
            finally:
                shutil.rmtree(self.staging, ignore_errors=True)

    def commit(self, entry: ArchivedJournal, staged: Mapping[str, Path], replaced: tuple[str, ...]) -> None:
        """Commit a journal. `staged`: the staged places of its new files, by their paths in the archive; the files are
        synced to the device.

        `replaced`: files that are removed from the archive. Raises PipelineError, OSError.
        """
        moving = self._own / "moving" / f"{entry.number:010d}.json"
        moves = {path: str(file.relative_to(self.directory)) for path, file in staged.items()}
        for directory in {file.parent for file in staged.values()}:
            self._disk.sync_directory(directory)
        self._write(moving, {"entry": asdict(entry), "moves": moves, "removes": list(replaced)})
        self._finish(moving)

    def _finish(self, moving: Path) -> None:
        """Do steps 2 to 4 of a commit. Raises PipelineError, OSError."""
        said = _read(moving)
        try:
            entry_of(said["entry"])
            moves, removes = dict(said["moves"]), set(said["removes"])
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(moving, error) from None
        changed: set[Path] = set()
        for path, staged in moves.items():
            target = self.directory / path
            self._make_directory(target.parent)
            changed.add(target.parent)
            try:
                os.replace(self.directory / staged, target)
            except FileNotFoundError:
                if not target.exists():
                    raise PipelineError(
                        f"{target} is missing, and so is {self.directory / staged}, from where it was to be moved: "
                        f"it was removed; archive the journal again (-again {_number_of(moving)})"
                    ) from None
        for path in removes - moves.keys():
            (self.directory / path).unlink(missing_ok=True)
        for directory in changed:
            self._disk.sync_directory(directory)
        self._write(self._own / "journals" / moving.name, said["entry"])
        moving.unlink()
        self._disk.sync_directory(moving.parent)

    def _files(self, kind: str) -> list[Path]:
        return sorted((self._own / kind).glob("[0-9]*.json"))

    def _make_directory(self, directory: Path) -> None:
        """Create a directory and its parents, durably."""
        if directory.is_dir():
            return
        self._make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
        self._disk.sync_directory(directory.parent)

    def _write(self, path: Path, content: Mapping[str, Any]) -> None:
        with whole_file(self._disk, path) as descriptor:
            self._disk.write(descriptor, memoryview(json.dumps(content, indent=1).encode()), 0)


def entry_of(said: Mapping[str, Any]) -> ArchivedJournal:
    """Return the entry in a JSON object."""
    parts = tuple(
        ArchivedPart(
            **{
                "last_name_offset": 0,  # of parts that were archived before journals had names
                **part,
                "message_types": tuple(part["message_types"]),
                "files": tuple(ArchivedFile(**file) for file in part["files"]),
            }
        )
        for part in said["parts"]
    )
    return ArchivedJournal(**{**said, "parts": parts})


def failure_of(error: OSError, directory: Path) -> str:
    """Return the message for a failure. For a full disk it adds the directory and the remedy."""
    if error.errno not in _NO_ROOM:
        return str(error)
    return (
        f"there is no room left for {directory} ({error.strerror}): make room and run the same command again, which "
        "completes or removes the unfinished files; until then they do not count as archived"
    )


def _number_of(path: Path) -> int:
    return int(path.stem)


def _read_entry(path: Path) -> ArchivedJournal:
    """Read the entry in a file of `journals` or `moving`. Raises PipelineError, OSError."""
    said = _read(path)
    try:
        entry = entry_of(said["entry"] if path.parent.name == "moving" else said)
        if entry.number != _number_of(path):
            raise ValueError(f"it is of journal {entry.number}")
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, error) from None
    return entry


def _read(path: Path) -> dict[str, Any]:
    try:
        said: dict[str, Any] = json.loads(path.read_bytes())
    except ValueError as error:
        raise _damaged(path, error) from None
    return said


def _damaged(path: Path, error: Exception) -> PipelineError:
    return PipelineError(
        f"{path} is damaged ({' '.join(str(error).split())}): restore it, or archive the journal again "
        f"(-again {_number_of(path)}, with -current if it is in use)"
    )


def _raise(error: OSError) -> None:
    raise error
