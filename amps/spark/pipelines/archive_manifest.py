"""What is in an archive, and how a journal gets into it so that a death at any moment does no harm.

    _amps/archive.json                      of which instance it is
    _amps/journals/0000000004.json          a journal that is in: `ArchivedJournal`. The manifest is all of these
    _amps/moving/0000000004.json            a journal on its way in: its entry, and where its files are
    _amps/staging/…                         files of a run that were not accepted yet
    _amps/lock                              held (flock) by the run at work

A run writes the files of a journal into `staging` and compares them with the journal. Then it *commits*:

1. Everything is brought to the device, and the file in `moving` is written. From here on the journal will be in.
2. The files get their places, one by one; files that they replace are removed.
3. The file in `journals` is written. From here on the journal is in.
4. The one in `moving` is removed.

Each JSON file is whole at its place or not there (`amps.journal.disk.whole_file`). The next run does steps 2 to 4
again for what it finds in `moving`, each of which may be done twice, and removes what is in `staging`. So all that a
death can leave to see are files of a journal of which others are not at their places yet, between steps 1 and 3.

An entry that cannot be read is an error, unless its journal is archived again: then all files that have its name are
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
    """Below the archive's directory."""
    topic: str | None
    """Bytes that are no UTF-8 as surrogates."""
    date: str
    """YYYY-MM-DD, UTC, of the rows' times."""
    rows: int
    size_bytes: int
    sha256: str
    """Of the file's content."""
    first_position: int
    last_position: int
    first_time_us: int
    last_time_us: int


@dataclass(frozen=True, slots=True)
class ArchivedPart:
    """A range of a journal that one task has archived, and its rows' files."""

    number: int
    """Counted from 0 in each journal."""
    first_offset: int
    """File offset in the journal at which reading begins; a record begins there."""
    end_offset: int
    """File offset before which the last record of the range begins."""
    last_topic_offset: int
    """Of a topic record of the journal, as `planning.Split` has it."""
    last_name_offset: int
    """Of a name record of the journal, the same."""
    first_position: int
    """Log position before which rows are not of this part, though they may be of its range."""
    rows: int
    kinds: Mapping[str, int]
    """How many rows there are of each kind."""
    message_types: tuple[str, ...]
    first_bookmark: str | None
    last_bookmark: str | None
    files: tuple[ArchivedFile, ...]


@dataclass(frozen=True, slots=True)
class ArchivedJournal:
    """A journal that is in the archive, as far as `next_position`."""

    instance: str
    number: int
    start_position: int
    size_bytes: int
    """Of the journal, not compressed."""
    first_txid: int
    """With position and size it tells this journal from another of the same name and number."""
    full: bool
    """All of it is in, and nothing will be added to it."""
    next_position: int
    """Log position behind the last row that is in; the end of the journal if it is full."""
    parts: tuple[ArchivedPart, ...]

    @property
    def rows(self) -> int:
        """How many rows are in."""
        return sum(part.rows for part in self.parts)

    @property
    def files(self) -> tuple[ArchivedFile, ...]:
        """All of its files."""
        return tuple(file for part in self.parts for file in part.files)

    @property
    def stored_bytes(self) -> int:
        """Size of its files."""
        return sum(file.size_bytes for file in self.files)


class Archive:
    """An archive's directory. Paths in it are those of the driver; tasks see the same file system."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self._own = manifest_path(self.directory)
        self._disk = Disk()

    @property
    def staging(self) -> Path:
        """Where files lie that were not accepted yet."""
        return self._own / "staging"

    def instance(self) -> str | None:
        """Whose journals these are; None if there is no archive yet. Raises PipelineError, OSError."""
        try:
            said = json.loads((self._own / "archive.json").read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:
            raise PipelineError(f"{self._own / 'archive.json'} cannot be read: {error}") from None
        instance = said.get("instance") if isinstance(said, dict) and "format" in said else None
        if not isinstance(instance, str):
            raise PipelineError(
                f"{self._own / 'archive.json'} cannot be read: it names no format and instance"
            )
        if said["format"] != FORMAT_VERSION:
            raise PipelineError(
                f"{self.directory} is an archive of format {said['format']!r}, and this program knows "
                f"{FORMAT_VERSION} only: use the program that has written it"
            )
        return instance

    def journals(self, again: Collection[int] = ()) -> dict[int, ArchivedJournal]:
        """What is in, by number, rising; what is on its way in, too: it will be. Raises PipelineError, OSError.

        `again`: numbers of journals that are archived again, whose entries need not be readable.
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
        """What readers see of a journal, told by the names of files: paths below the directory. Raises OSError."""
        return tuple(sorted(path for path in self._visible() if is_of_journal(path, instance, number)))

    def strays(self, entries: Iterable[ArchivedJournal]) -> tuple[Path, ...]:
        """Files that readers see, and that belong to none of these journals. Raises OSError."""
        known = {file.path for entry in entries for file in entry.files}
        return tuple(sorted(self.directory / path for path in self._visible() if path not in known))

    def _visible(self) -> Iterator[str]:
        """All files that readers look at, by their paths below the directory."""
        if not self.directory.exists():
            return
        for place, directories, names in os.walk(self.directory, onerror=_raise, followlinks=True):
            directories[:] = filter(is_visible, directories)
            for name in filter(is_visible, names):
                yield str((Path(place) / name).relative_to(self.directory))

    @contextlib.contextmanager
    def working(self, instance: str, again: Collection[int] = ()) -> Iterator[None]:
        """Make the archive if there is none, keep other runs out, and finish what an earlier one has left.

        `again`: numbers of journals that are archived again, of which it need not be possible to finish. Raises
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
        """A journal is in. `staged`: where its new files lie, by their paths in the archive; they are on the device.

        `replaced`: files that are in no longer. Raises PipelineError, OSError.
        """
        moving = self._own / "moving" / f"{entry.number:010d}.json"
        moves = {path: str(file.relative_to(self.directory)) for path, file in staged.items()}
        for directory in {file.parent for file in staged.values()}:
            self._disk.sync_directory(directory)
        self._write(moving, {"entry": asdict(entry), "moves": moves, "removes": list(replaced)})
        self._finish(moving)

    def _finish(self, moving: Path) -> None:
        """Steps 2 to 4. Raises PipelineError, OSError."""
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
                        f"somebody has removed it; archive the journal again (-again {_number_of(moving)})"
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
        """With all above it, durably."""
        if directory.is_dir():
            return
        self._make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
        self._disk.sync_directory(directory.parent)

    def _write(self, path: Path, content: Mapping[str, Any]) -> None:
        with whole_file(self._disk, path) as descriptor:
            self._disk.write(descriptor, memoryview(json.dumps(content, indent=1).encode()), 0)


def entry_of(said: Mapping[str, Any]) -> ArchivedJournal:
    """An entry as JSON tells it."""
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
    """What to tell of a failure. Of a disk that is full the system says neither which one nor what to do."""
    if error.errno not in _NO_ROOM:
        return str(error)
    return (
        f"there is no room left for {directory} ({error.strerror}): make room and give the same command again, which "
        "finishes or removes what was begun; until then that does not count as archived"
    )


def _number_of(path: Path) -> int:
    return int(path.stem)


def _read_entry(path: Path) -> ArchivedJournal:
    """Of a file in `journals` or `moving`. Raises PipelineError, OSError."""
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
