"""Actions on published messages: an internal subscription for each event (operations.md §9.2).

Two tails read what is written: one the journal, the other the transient log, which has the messages of topics that are
not recorded. They poll instead of being woken, because there would be a wake-up for every message of the instance. Both
begin where the logs end when this process starts. So no action runs for a message that was published before, or while
the process was away, and none during a recovery.

What happens when actions are slower than messages: the tail of the journal waits until the event that is behind has
room, and its place keeps the journals. The tail of the transient log never waits, because that log is in memory;
occurrences without room are skipped, and so is what was removed before this process read it. Both are logged. The core
never waits for this process.
"""

import asyncio
import contextlib
import time
import traceback
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Final

from amps._core.delivery.delivery import MessageWatch, WatchedTopic
from amps._core.expressions.machine import Filter, FilterSet
from amps._core.journal.reader import LogCursor, LogDamaged, LogDirectory, LogMissing
from amps.config import ActionModule, ServerConfig
from amps.config.action_modules import PUBLISH_EVENT
from amps.journal.bookmark_text import format_bookmark
from amps.journal.layout import iso8601
from amps.server.evaluation_contexts import EvaluationContexts
from amps.server.eventlog import EventLog
from amps.server.runtime import Runtime
from amps.server.services.actions.engine import Busy, Engine, Source, published_key
from amps.server.services.actions.variables import from_bytes
from amps.server.shared.filters import FilterCompiler
from amps.server.shared.journal_floor import SharedFloor
from amps.server.shared.journal_view import JournalView, at_once, make_journal_view
from amps.server.topics import topic_predicate

POLL_S: Final = 0.02
STEP_BYTES: Final = 1 << 20
MESSAGES_PER_TURN: Final = 100
WAITING_BYTES_MAX: Final = 64 << 20
"""Of the messages whose actions have not run; one larger message may wait alone."""
RELEASE_INTERVAL_S: Final = 1.0
RETRY_S: Final = 1.0


def has_message_events(config: ServerConfig) -> bool:
    """Whether an action has the event of a published message."""
    return any(event.module == PUBLISH_EVENT for action in config.actions for event in action.events)


@dataclass(eq=False, slots=True)
class Watcher:
    """One event: which messages it has, and the source of its actions. `is_replicated` None: of any origin."""

    which: str
    message_type: str
    topic: str
    matches: Callable[[str], bool] | None
    """The test for names of topics; None: `topic` is the name."""
    is_replicated: bool | None
    filter: Filter | None
    source: Source
    skips: bool = False
    """Whether the last occurrence was skipped."""

    def has_topic(self, topic: str, message_type: str) -> bool:
        """Whether messages of a topic belong to the event."""
        if message_type != self.message_type:
            return False
        return topic == self.topic if self.matches is None else self.matches(topic)


def _watcher(
    event: ActionModule, engine: Engine, config: ServerConfig, compiler: FilterCompiler
) -> Watcher:
    options = event.options
    which = published_key(event)
    source = options.get("MessageSource", ("all",))[0]
    filter_text = options.get("Filter")
    return Watcher(
        which,
        options["MessageType"][0],
        options["Topic"][0],
        topic_predicate(options["Topic"][0], config.regex_topic_support),
        None if source == "all" else source == "replicated",
        compiler.compile(filter_text[0]) if filter_text is not None else None,
        engine.sources[PUBLISH_EVENT.removeprefix("amps-action-on-"), which],
    )


@dataclass(eq=False, slots=True)
class Tail:
    """One log: its watch, and its end now. `waits`: it may wait for actions; it is that of the journal."""

    watch: MessageWatch
    end: Callable[[], int]
    waits: bool


class MessageEvents:
    """All events of published messages. It is made in the services process, in its event loop."""

    def __init__(
        self,
        config: ServerConfig,
        runtime: Runtime,
        log: EventLog,
        engine: Engine,
        evaluations: EvaluationContexts,
        compiler: FilterCompiler,
        floor: SharedFloor,
        failed: Callable[[str], None],
    ) -> None:
        """`floor`: that of the process. `failed` receives the traceback when a tail has ended by a defect."""
        self._runtime = runtime
        self._log = log
        self._engine = engine
        self._evaluations = evaluations
        self._failed = failed
        watchers = {
            published_key(event): event
            for action in config.actions
            for event in action.events
            if event.module == PUBLISH_EVENT
        }
        self._watchers = [_watcher(event, engine, config, compiler) for event in watchers.values()]
        self._journal: JournalView | None = make_journal_view(
            config, runtime, runtime.services_index, self._resolve, log, floor.share()
        )
        self._transient = LogDirectory(runtime.transient_prefix, ".log", self._resolve)
        self._names: dict[int, bytes] = {}
        """Client names by their ids, as far as the journal at the cursor has them."""
        self._names_of = 0
        self._waiting_bytes = 0
        self._tails: list[Tail] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._release_at_s = 0.0

    def _resolve(self, topic: str, message_type: str) -> WatchedTopic | None:
        """The watchers of a topic, for a tail; None: nobody watches it."""
        found = [watcher for watcher in self._watchers if watcher.has_topic(topic, message_type)]
        if not found:
            return None
        filters: FilterSet | None = None
        for watcher in found:
            if watcher.filter is not None:
                filters = filters or FilterSet(self._evaluations.of_type(message_type))
                filters.add(watcher.filter, watcher)
        return WatchedTopic(topic, [watcher for watcher in found if watcher.filter is None], filters)

    # --- life -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to follow both logs, at their ends."""
        control, index = self._runtime.control, self._runtime.services_index
        control.set_transient_read(index, 0)  # until the tail has its place
        control.set_transport_alive(index, True)
        if self._journal is not None:
            self._tails.append(self._journal_tail(self._journal))
        self._tails.append(self._transient_tail())
        self._tasks = [asyncio.create_task(self._guarded(self._follow(tail))) for tail in self._tails]

    async def stop(self) -> None:
        """End; what is published from now on has no actions."""
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._runtime.control.set_transport_alive(self._runtime.services_index, False)

    @property
    def idle(self) -> bool:
        """Whether both tails are at the ends of their logs."""
        return all(tail.watch.position >= tail.end() for tail in self._tails)

    async def _guarded(self, body: Coroutine[None, None, None]) -> None:
        try:
            await body
        except Exception:
            self._failed(traceback.format_exc())

    # --- the tails ------------------------------------------------------------------------------------------

    def _journal_tail(self, journal: JournalView) -> Tail:
        cursor = at_once(journal.cursor_at(journal.end, True))
        index = journal.index(cursor.file.number)
        if index is not None:
            self._names = cursor.file.names_before(index.last_name_offset)
        self._names_of = cursor.file.number
        cursor.learns_names = lambda kind, name_id, text: self._learn(cursor.file.number, name_id, text)
        return Tail(MessageWatch(cursor, True), lambda: journal.end, waits=True)

    def _transient_tail(self) -> Tail:
        control = self._runtime.control
        return Tail(self._transient_watch(), lambda: int(control.watermarks()[1]), waits=False)

    def _transient_watch(self) -> MessageWatch:
        control = self._runtime.control
        while True:
            _, written, _, _, number = control.watermarks()
            try:
                cursor = LogCursor(self._transient, number, 0, False)
            except LogMissing:  # the log has gone on since
                continue
            cursor.skip_to(written)
            control.set_transient_read(self._runtime.services_index, cursor.position)
            return MessageWatch(cursor, False)

    def _learn(self, number: int, name_id: int, text: bytes) -> None:
        """Note a name. Each journal has the names that its records use, so those of the one before are dropped."""
        if number != self._names_of:
            self._names_of = number
            self._names = {}
        self._names[name_id] = text

    async def _follow(self, tail: Tail) -> None:
        said = ""
        while True:
            try:
                await self._read(tail)
            except LogDamaged as problem:
                if isinstance(problem, LogMissing) and not tail.waits:
                    self._log.log("29-0011")
                    tail.watch = self._transient_watch()
                    continue
                if str(problem) != said:
                    said = str(problem)
                    self._log.log("29-0009", reason=said)
                await asyncio.sleep(RETRY_S)

    async def _read(self, tail: Tail) -> None:
        """Read a log for ever. Raises LogDamaged."""
        while True:
            before, end = tail.watch.position, tail.end()
            found: object = None
            for _ in range(MESSAGES_PER_TURN):
                if tail.waits and not self._has_room():
                    break
                found = tail.watch.next(end, STEP_BYTES)
                if not isinstance(found, tuple):
                    break
                self._happened(tail, *found)
            self._release(tail, before)
            await asyncio.sleep(0 if found is not None else POLL_S)

    def _release(self, tail: Tail, before: int) -> None:
        """Release what the tail has read: pages of the journal at once, files from time to time."""
        if not tail.waits:
            self._runtime.control.set_transient_read(self._runtime.services_index, tail.watch.position)
            return
        assert self._journal is not None
        # The core cannot release mapped pages (amps/_core/journal/page_release.pxi).
        self._journal.directory.unmap_pages(before, tail.watch.position)
        now_s = time.monotonic()
        if now_s >= self._release_at_s:
            self._release_at_s = now_s + RELEASE_INTERVAL_S
            self._journal.release_unused()
            self._evaluations.report()

    # --- occurrences ----------------------------------------------------------------------------------------

    def _has_room(self) -> bool:
        """Whether each event takes one more occurrence."""
        return self._waiting_bytes < WAITING_BYTES_MAX and all(
            len(watcher.source.waiting) < watcher.source.waiting_max for watcher in self._watchers
        )

    def _happened(
        self,
        tail: Tail,
        watchers: list[Watcher],
        topic: WatchedTopic,
        payload: bytes,
        publisher: int,
        sequence: int,
        timestamp_ns: int,
        client: int,
        is_replicated: bool,
    ) -> None:
        variables: Mapping[str, str] | None = None
        has_room = tail.waits or self._waiting_bytes < WAITING_BYTES_MAX
        for watcher in watchers:
            if watcher.is_replicated not in (None, is_replicated):
                continue
            if not has_room:
                self._skip(watcher)
                continue
            if variables is None:
                variables = {
                    "AMPS_TOPIC": topic.name,
                    "AMPS_DATA": from_bytes(payload),
                    "AMPS_DATA_LENGTH": str(len(payload)),
                    "AMPS_BOOKMARK": format_bookmark(publisher, sequence) if tail.waits else "",
                    "AMPS_TIMESTAMP": iso8601(timestamp_ns),
                    "AMPS_CLIENT_NAME": from_bytes(self._names.get(client, b"")),
                }
            self._wait_for_actions(watcher, variables, len(payload))

    def _wait_for_actions(self, watcher: Watcher, variables: Mapping[str, str], byte_count: int) -> None:
        """Add an occurrence of an event, or skip it if too many wait."""
        try:
            done = self._engine.happened("publish-message", watcher.which, variables)
        except Busy:
            self._skip(watcher)
            return
        watcher.skips = False
        assert done is not None, "the event has actions"
        self._waiting_bytes += byte_count
        done.add_done_callback(lambda _: self._forget(byte_count))

    def _skip(self, watcher: Watcher) -> None:
        """Log the first of the occurrences that are skipped one after the other."""
        if not watcher.skips:
            self._log.log("29-0006", event=watcher.source.name)
        watcher.skips = True

    def _forget(self, byte_count: int) -> None:
        self._waiting_bytes -= byte_count
