"""Actions on messages of queues: one scan of the log for all of them, and their positions.

Removals from queues are in the log, with their reasons (`_core/journal/queue_records.pxd`). One tail reads durable
records, and passes each to the follower of its event (queue_follower.py). It polls instead of being woken, because
there would be a wake-up for every message of the instance. While one follower has too many waiting entries, the tail
waits, and so do the other followers.

The lowest position is published in shared memory, so that the core keeps the journals that are needed. From time to
time the positions are written to a file (amps/journal/action_positions.py), from which the next start continues.
"""

import asyncio
import time
import traceback
from collections.abc import Callable, Coroutine

from amps._core.journal.reader import LogDamaged
from amps._core.journal.search import RemovalScan
from amps.config import ServerConfig
from amps.config.queue_events import QueueEvent, queue_events
from amps.journal.action_positions import Key, read_action_positions, write_action_positions
from amps.journal.disk import Disk
from amps.journal.names import action_positions_path
from amps.server.eventlog import EventLog
from amps.server.runtime import Runtime
from amps.server.services.actions.engine import Engine
from amps.server.services.publisher import Publisher
from amps.server.services.queue_follower import Follower, Removals
from amps.server.services.queue_messages import QueueMessages
from amps.server.shared.journal_floor import SharedFloor
from amps.server.shared.journal_view import JournalView, make_journal_view

POLL_S = 0.02
STEP_BYTES = 1 << 20
ENTRIES_WAITING_MAX = 50_000
SAVE_INTERVAL_S = 1.0
SAVE_BYTES = 64 << 20
"""The file is written after actions, or when the tail has read so many bytes without any."""
RETRY_S = 1.0


class QueueEvents:
    """All events of queues that have actions. It is made in the services process, in its event loop."""

    def __init__(
        self,
        config: ServerConfig,
        runtime: Runtime,
        log: EventLog,
        engine: Engine,
        publisher: Publisher,
        floor: SharedFloor,
        failed: Callable[[str], None],
    ) -> None:
        """`floor`: that of the process. `failed` receives the traceback when a follower or the tail has ended by a
        defect.
        """
        settings = config.transaction_log
        assert settings is not None, "queues need a transaction log"
        self._runtime = runtime
        self._log = log
        self._failed = failed
        self._by_topic: dict[tuple[str, str], dict[bool, Follower]] = {}
        journal = make_journal_view(config, runtime, runtime.services_index, self._resolve, log, floor.share())
        assert journal is not None
        self._journal: JournalView = journal
        self._messages = QueueMessages(journal, runtime.control)
        self._disk = Disk()
        self._disk.expect(settings.journal_directory)
        self._path = action_positions_path(settings.journal_directory, config.name)
        self._saved: dict[Key, int] = read_action_positions(self._path)
        self._save_at_s = 0.0
        self._save_failed = ""
        self._done_since = False  # whether an action ran since the file was written
        self._tasks: list[asyncio.Task[None]] = []
        self._followers = {
            event: Follower(
                event,
                engine.sources[event.kind, event.which],
                engine,
                publisher,
                self._messages.read,
                log,
                self._begin_of(event),
            )
            for event in queue_events(config)
        }
        for event, follower in self._followers.items():
            self._by_topic.setdefault((event.queue, event.message_type), {})[event.expired] = follower
        self._position = min(follower.begin for follower in self._followers.values())

    def _begin_of(self, event: QueueEvent) -> int:
        """Position at which an event continues. An earlier process may have come further than its file says."""
        progress = self._runtime.action_progress.position
        return max(self._saved.get(event.key, progress or self._runtime.control.durable), progress)

    def _resolve(self, topic: str, message_type: str) -> object:
        """The followers of a topic, for the tail; None: the topic has no actions."""
        return self._by_topic.get((topic, message_type))

    def begin(self) -> None:
        """Begin to follow the log."""
        self._tell_progress()
        self._tasks = [
            asyncio.create_task(self._guarded(body))
            for body in (self._tail, *(follower.run for follower in self._followers.values()))
        ]

    async def _guarded(self, body: Callable[[], Coroutine[None, None, None]]) -> None:
        try:
            await body()
        except Exception:
            self._failed(traceback.format_exc())

    async def stop(self) -> None:
        """End at the current positions, from which the next start continues."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tell_progress()
        self._save(self._positions())

    @property
    def idle(self) -> bool:
        """Whether all durable removals have been read, and the actions for them have run."""
        read = self._position >= self._runtime.control.durable
        return read and not any(follower.waiting for follower in self._followers.values())

    # --- the tail -------------------------------------------------------------------------------------------

    async def _tail(self) -> None:
        said = ""
        while True:
            try:
                await self._follow_log()
            except LogDamaged as problem:
                if str(problem) != said:
                    said = str(problem)
                    self._log.log("29-0009", reason=said)
                await asyncio.sleep(RETRY_S)

    async def _follow_log(self) -> None:
        """Read the log. Raises LogDamaged; then a new cursor is needed."""
        steps = self._journal.cursor_at(self._position, True)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                scan = RemovalScan(end.value)
                break
            await asyncio.sleep(0)
        while True:
            found: object = None
            if all(follower.waiting < ENTRIES_WAITING_MAX for follower in self._followers.values()):
                found = scan.next(self._runtime.control.durable, STEP_BYTES)
                # The core cannot release mapped pages (amps/_core/journal/page_release.pxi).
                self._journal.directory.unmap_pages(self._position, scan.position)
                self._position = scan.position
            if isinstance(found, tuple):
                position, followers, expired, entries = found
                follower = followers.get(expired)
                if follower is not None:
                    follower.take(Removals(position, entries))
                    self._done_since = True
            await self._look_around()
            await asyncio.sleep(POLL_S if found is None else 0)

    # --- positions ------------------------------------------------------------------------------------------

    def _positions(self) -> dict[QueueEvent, int]:
        return {event: follower.done_until(self._position) for event, follower in self._followers.items()}

    def _tell_progress(self) -> None:
        self._runtime.action_progress.position = min(self._positions().values())

    async def _look_around(self) -> None:
        now_s = time.monotonic()
        if now_s < self._save_at_s:
            return
        self._save_at_s = now_s + SAVE_INTERVAL_S
        self._tell_progress()
        self._messages.release()
        self._journal.release_unused()
        positions = self._positions()
        came = min(positions.values()) - min(self._saved.values())
        if (self._done_since and came) or came >= SAVE_BYTES:
            self._done_since = any(follower.waiting for follower in self._followers.values())
            await asyncio.to_thread(self._save, positions)

    def _save(self, positions: dict[QueueEvent, int]) -> None:
        keyed = {event.key: position for event, position in positions.items()}
        if keyed == self._saved:
            return
        try:
            write_action_positions(self._disk, self._path, keyed)
        except OSError as problem:
            if str(problem) != self._save_failed:
                self._save_failed = str(problem)
                self._log.log(
                    "29-0010",
                    text=f"{self._path} cannot be written ({problem}); the next start reads more of the log",
                )
            return
        self._save_failed = ""
        self._saved = keyed
