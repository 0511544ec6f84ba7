"""Replays: finding where a bookmark lies, and serving a subscription from there at its own pace.

A bookmark subscription begins with a tailer of its own. It reads as fast as its connection takes (nothing more is
read while the connection's output waits), up to the durable watermark. When it has reached the watermark it joins the
durable group, whose tailer stands at the same place: no gap, no duplicate. When a connection of the durable group
stops reading, its subscriptions leave it and go on as replays. With `live`, it joins the live group instead.
"""

import contextlib
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from amps._core.bookmark_index import IndexDamaged, IndexReader
from amps._core.delivery import Group, JournalTailer
from amps._core.log_reader import FILE_HEADER_SIZE, LogCursor, LogDirectory
from amps._core.topic_table import TopicEntry
from amps.server.journal_names import index_path
from amps.server.runtime import Runtime
from amps.server.transport.bookmarks import StartPoint
from amps.server.transport.failures import CommandFailure
from amps.server.transport.subscriptions import Subscription, single_route

if TYPE_CHECKING:
    from amps._core.delivery import Route


class JournalView:
    """The journal as a reader sees it: files, indexes, places of bookmarks."""

    def __init__(
        self, directory: LogDirectory, journal_directory: Path, instance_name: str, runtime: Runtime
    ) -> None:
        self.directory = directory
        self._journal_directory = journal_directory
        self._instance_name = instance_name
        self._runtime = runtime
        self._closed_indexes: dict[int, IndexReader] = {}

    def cursor_at(self, position: int, verify: bool) -> LogCursor:
        """A cursor at a log position, with the topics before it learnt."""
        control = self._runtime.control
        last = control.watermarks()[3]
        number = self.directory.number_at(position, control.first_journal_number, last)
        return self._cursor_in(number, position, verify)

    def cursor_at_start(self, verify: bool) -> LogCursor:
        """A cursor at the first message there is."""
        number = self._runtime.control.first_journal_number
        return LogCursor(self.directory, number, 0, verify)

    def _cursor_in(self, number: int, position: int, verify: bool) -> LogCursor:
        cursor = LogCursor(self.directory, number, position, verify)
        index = self.index(number)
        if index is None:
            # Without an index the topics are found by reading the file up to the place.
            LogCursor(self.directory, number, 0, verify).skip_to(position)
        else:
            cursor.file.learn_topics_before(index.last_topic_offset, self.directory.resolver)
        return cursor

    def index(self, number: int) -> IndexReader | None:
        """The index of a journal, of the one in use too; None if there is none to be had."""
        closed = self._closed_indexes.get(number)
        if closed is not None:
            return closed
        unusable = contextlib.suppress(FileNotFoundError, ValueError, IndexDamaged)
        with unusable, self._runtime.index_path(number).open("rb") as file:
            return IndexReader(mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ), False)
        with unusable, index_path(self._journal_directory, self._instance_name, number).open("rb") as file:
            index = IndexReader(mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ), True)
            self._closed_indexes[number] = index
            return index
        return None

    def _numbers_backwards(self) -> Iterator[int]:
        control = self._runtime.control
        yield from range(control.watermarks()[3], control.first_journal_number - 1, -1)

    def find(self, publisher_id: int, sequence: int) -> LogCursor | None:
        """A cursor just after the message with that bookmark; None if it is not in the log."""
        written = self._runtime.control.watermarks()[0]
        for number in self._numbers_backwards():
            index = self.index(number)
            start = self.directory.start_position(number)
            if index is None:
                cursor = LogCursor(self.directory, number, 0, True)
                limit = min(written, start + cursor.file.size)
                if cursor.find(publisher_id, sequence, limit):
                    return self._cursor_in(number, cursor.position, True)
                continue
            if not index.may_hold(publisher_id, sequence):
                continue
            for block in index.candidate_blocks(publisher_id, sequence):
                first, end = index.block_range(block)
                cursor = self._cursor_in(number, start + first, True)
                limit = min(written, start + end if end else start + cursor.file.size)
                if cursor.find(publisher_id, sequence, limit):
                    return cursor
        return None

    def last_bookmark_before(self, position: int) -> tuple[int, int]:
        """Bookmark of the last message before a log position; (0, 0) if there is none."""
        for number in self._numbers_backwards():
            start = self.directory.start_position(number)
            if start >= position:
                continue
            index = self.index(number)
            # A journal may be full without a message, when the first one was too large for it: nothing is indexed.
            offset = position - start if index is None else min(position - start, index.end_offset)
            while index is not None and offset > FILE_HEADER_SIZE:
                first, _ = index.block_range(offset - 1)
                found = self._cursor_in(number, start + first, False).skip_to(min(position, start + offset))
                if found is not None:
                    return found
                offset = first
            if index is None:
                cursor = LogCursor(self.directory, number, 0, False)
                found = cursor.skip_to(min(position, start + cursor.file.size))
                if found is not None:
                    return found
        return 0, 0

    def start(self, point: StartPoint, not_found: str) -> tuple[LogCursor, tuple[int, int]]:
        """The cursor where a subscription begins, and the bookmark just before it. Raises CommandFailure."""
        if point.epoch:
            return self.cursor_at_start(True), (0, 0)
        written = self._runtime.control.watermarks()[0]
        found: list[tuple[int, LogCursor, tuple[int, int]]] = []
        for message in point.messages:
            cursor = self.find(message.publisher_id, message.sequence)
            if cursor is not None:
                found.append((cursor.position, cursor, (message.publisher_id, message.sequence)))
        if found:
            _, cursor, bookmark = min(found, key=lambda entry: entry[0])
            return cursor, bookmark
        if not point.now:
            if not_found == "fail":
                raise CommandFailure("invalid bookmark", "none of the bookmarks is in the log")
            if not_found == "epoch":
                return self.cursor_at_start(True), (0, 0)
        return self.cursor_at(written, True), self.last_bookmark_before(written)


class Replay:
    """One subscription served by a tailer of its own."""

    LOG_BYTES_PER_TURN = 1 << 20
    OUTPUT_BYTES_PER_TURN = 512 << 10

    def __init__(
        self,
        subscription: Subscription,
        cursor: LogCursor,
        last_bookmark: tuple[int, int],
        completed_at: int | None,
    ) -> None:
        """`completed_at`: log position at which the `completed` acknowledgement is due; None = it was sent."""
        self.subscription = subscription
        self.completed_at = completed_at
        self.group = Group(self._routes)
        self.tailer = JournalTailer(cursor, self.group, *last_bookmark)

    def _routes(self, entry: TopicEntry) -> "list[Route]":
        return [single_route(self.subscription, entry)] if self.subscription.matches(entry) else []

    @property
    def last_bookmark(self) -> tuple[int, int]:
        """Bookmark of the last message evaluated."""
        return self.tailer.last_publisher_id, self.tailer.last_sequence

    def run(self, limit: int) -> bool:
        """Deliver up to `limit`, as far as one turn goes. True: the limit is reached.

        Raises LogDamaged where the journal is not what it must be.
        """
        connection = self.subscription.connection
        while True:
            stop = limit if self.completed_at is None else min(limit, self.completed_at)
            reached = self.tailer.run_for(
                connection.outlet, stop, self.LOG_BYTES_PER_TURN, self.OUTPUT_BYTES_PER_TURN
            )
            if reached and self.completed_at is not None and limit >= self.completed_at:
                self.completed_at = None
                connection.send_completed(self.subscription, self.last_bookmark)
                continue
            return reached
