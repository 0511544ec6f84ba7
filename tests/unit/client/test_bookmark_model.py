"""Random histories of bookmark stores against a model that follows the words of client.md §19.7."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from amps.client import FileBookmarkStore, MemoryBookmarkStore, Message, RingBookmarkStore

Key = tuple[int, int]


@dataclass
class Entry:
    store_seq: int
    key: Key
    discarded: bool = False
    in_run: bool = True


class Model:
    """The words, without any thought of speed."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.point: dict[int, int] = {}
        self.last = 0
        self.stable: list[tuple[int, Key]] = []

    def find(self, key: Key) -> Entry | None:
        return next((entry for entry in self.entries if entry.key == key), None)

    def is_discarded(self, key: Key) -> bool:
        entry = self.find(key)
        below = key[1] <= self.point.get(key[0], -1)
        return below or (entry is not None and (entry.discarded or entry.in_run))

    def log(self, key: Key) -> int:
        entry = self.find(key)
        if entry is None:
            self.last += 1
            entry = Entry(self.last, key)
            self.entries.append(entry)
        entry.in_run = True
        return entry.store_seq

    def discard(self, store_seq: int) -> None:
        for entry in self.entries:
            entry.discarded |= entry.store_seq == store_seq
        self.fold()

    def persisted(self, key: Key) -> None:
        self.stable.append((self.last, key))
        self.fold()

    def fold(self) -> None:
        while self.entries and self.entries[0].discarded:
            publisher, number = self.entries.pop(0).key
            self.point[publisher] = max(number, self.point.get(publisher, -1))
        oldest = self.entries[0].store_seq if self.entries else self.last + 1
        for received, (publisher, number) in self.stable:
            if received < oldest:
                self.point[publisher] = max(number, self.point.get(publisher, -1))
        self.stable = [item for item in self.stable if item[0] >= oldest]

    def released(self) -> None:
        for entry in self.entries:
            entry.in_run = False

    def place(self) -> tuple[bool, set[Key]]:
        """Where to resume: whether at the bookmarks themselves, and the bookmarks."""
        all_in_run = all(entry.in_run for entry in self.entries)
        known = {(publisher, number) for publisher, number in self.point.items()}
        inclusive = False
        for publisher in {entry.key[0] for entry in self.entries} - self.point.keys():
            numbers = [entry.key[1] for entry in self.entries if entry.key[0] == publisher]
            known.add((publisher, max(numbers) if all_in_run else min(numbers)))
            inclusive |= not all_in_run
        return inclusive, known


def place(text: str | None) -> tuple[bool, set[Key]]:
    """Read what a store returns."""
    if text is None:
        return False, set()
    inclusive = text.startswith("[")
    bookmarks = text[1:].partition(":")[0] if inclusive else text
    parts = [bookmark.split("|") for bookmark in bookmarks.split(",")]
    return inclusive, {(int(publisher), int(number)) for publisher, number, _ in parts}


def message(key: Key) -> Message:
    return Message.parsed(b"", {"bookmark": f"{key[0]}|{key[1]}|"}, 0, sub_id="S")


class Histories(RuleBasedStateMachine):
    """A server's log of several publishers; a subscription that is delivered, broken off, and entered again."""

    keeps_all = True
    """Whether a crash loses nothing of what was received."""

    def opened(self) -> Any:
        return MemoryBookmarkStore()

    @initialize(publishers=st.lists(st.integers(1, 3), min_size=1, max_size=40))
    def begin(self, publishers: list[int]) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.server: list[Key] = []
        counts: dict[int, int] = {}
        for publisher in publishers:
            counts[publisher] = counts.get(publisher, 10) + 1
            self.server.append((publisher, counts[publisher]))
        self.store = self.opened()
        self.model = Model()
        self.sent = 0
        self.ever_discarded: set[Key] = set()
        self.delivered: dict[Key, int] = {}

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.directory)

    @precondition(lambda self: self.sent < len(self.server))
    @rule(count=st.integers(1, 5))
    def deliver(self, count: int) -> None:
        for key in self.server[self.sent : self.sent + count]:
            arrived = message(key)
            duplicate = self.store.is_discarded(arrived)
            assert duplicate == self.model.is_discarded(key)
            if not duplicate:
                number = self.store.log(arrived)
                assert number == self.model.log(key)
                assert key not in self.ever_discarded or not self.keeps_all
                self.delivered[key] = number
        self.sent = min(self.sent + count, len(self.server))

    @precondition(lambda self: self.delivered)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.delivered)[:6] + sorted(self.delivered)[-2:]))
        number = self.delivered.pop(key)
        self.store.discard("S", number)
        self.model.discard(number)
        self.ever_discarded.add(key)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def persisted(self, data: st.DataObject) -> None:
        key = self.server[data.draw(st.integers(max(0, self.sent - 3), self.sent - 1))]
        self.store.persisted("S", f"{key[0]}|{key[1]}|")
        self.model.persisted(key)

    @rule(released=st.booleans())
    def enter_again(self, released: bool) -> None:
        """The connection was lost, or the subscription ended."""
        if released:
            self.store.released("S")
            self.model.released()
            self.delivered.clear()
        self.resume()

    def resume(self) -> None:
        inclusive, bookmarks = place(self.store.get_most_recent("S"))
        at = [self.server.index(key) for key in bookmarks]
        self.sent = min(at) + (not inclusive) if at else 0

    def needed(self) -> set[Key]:
        """The messages that are still to be processed: no place to resume may be after them."""
        return set(self.server) - self.ever_discarded - self.delivered.keys()

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "store"):
            return
        assert place(self.store.get_most_recent("S")) == self.model.place()
        entries = self.model.entries
        assert self.store.get_oldest_seq("S") == (entries[0].store_seq if entries else 0)
        for key in self.needed() & set(self.server[self.sent :]):
            assert not self.store.is_discarded(message(key)), key
        inclusive, bookmarks = place(self.store.get_most_recent("S"))
        first = min((self.server.index(key) for key in bookmarks), default=0) + bool(bookmarks and not inclusive)
        assert all(self.server.index(key) >= first for key in self.needed())


class FileHistories(Histories):
    """The same with a file, and processes that die."""

    def opened(self) -> Any:
        return FileBookmarkStore(self.directory / "b", sync="never")

    @rule()
    def prune(self) -> None:
        self.store.prune()

    @rule(closed=st.booleans())
    def restart(self, closed: bool) -> None:
        path = self.directory / "b"
        data = path.read_bytes()
        self.store.close()
        if not closed:  # what the file had before the process could write anything at its end
            path.write_bytes(data)
        self.store = self.opened()
        self.delivered.clear()
        self.restarted(closed)
        self.resume()

    def restarted(self, closed: bool) -> None:
        self.model.released()
        if not closed:  # messages that nothing was written after are not known: they come again
            file = {entry.key for entry in self.known()}
            while self.model.entries and self.model.entries[-1].key not in file:
                assert not self.model.entries.pop().discarded
            self.model.last = self.model.entries[-1].store_seq if self.model.entries else 0
            self.model.stable = [(min(at, self.model.last), key) for at, key in self.model.stable]
        self.renumber()

    def known(self) -> list[Entry]:
        return [entry for entry in self.model.entries if entry.store_seq <= self.progress_last()]

    def progress_last(self) -> int:
        progress = self.store._subscriptions.get("S")
        return progress.last if progress is not None else 0

    def renumber(self) -> None:
        if not self.model.entries:
            self.model.last = self.progress_last()


class RingHistories(FileHistories):
    """Only the recovery point survives."""

    keeps_all = False

    def opened(self) -> Any:
        return RingBookmarkStore(self.directory / "b", sync="never")

    def restarted(self, closed: bool) -> None:
        inclusive, bookmarks = place(self.store.get_most_recent("S"))
        before = self.model
        before.released()
        assert (inclusive, bookmarks) == before.place()
        self.model = RingModel(dict(before.point), bookmarks if inclusive else set())
        self.ever_discarded -= {entry.key for entry in before.entries}


class RingModel(Model):
    """A model that begins at a recovery point."""

    def __init__(self, point: dict[int, int], start: set[Key]) -> None:
        super().__init__()
        self.point = {} if start else point
        self.start = dict(start)

    def place(self) -> tuple[bool, set[Key]]:
        inclusive, known = super().place()
        for publisher, number in self.start.items():
            if publisher not in {key[0] for key in known}:
                known.add((publisher, number))
                inclusive = True
        return inclusive, known


def checked(machine: Callable[[], Histories]) -> Any:
    case = machine.TestCase  # type: ignore[attr-defined]
    case.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
    return case


TestMemory = checked(Histories)
TestFile = checked(FileHistories)
TestRing = checked(RingHistories)
