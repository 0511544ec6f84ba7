"""The transport worker: one process with an event loop, its connections, and its view of the instance.

Everything happens in *turns*. A turn takes the core's answers, lets barriers pass that the watermarks allow, runs the
tailers, sends acknowledgements and hands output to the event loop. Turns are started by received input, by the
doorbell and by timers; a turn that leaves work behind (more log to read than one turn may) schedules the next one, so
that sockets are served in between. Before the worker sleeps it says so in shared memory and looks once more.

Order matters inside a turn: watermarks are read after the ring's tail (what was consumed is then below them), and
every tailer stops at the one reading.
"""

import asyncio
import heapq
import itertools
import math
import signal
import socket
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import msgpack
import uvloop

from amps._core.delivery import JournalTailer, LiveTailer
from amps._core.log_reader import LogCursor, LogDamaged, LogDirectory
from amps._core.shared import InstanceView
from amps._core.topic_table import TopicEntry, TopicTable
from amps.config import ServerConfig, TransportConfig
from amps.server.eventlog import EventLog
from amps.server.journal_names import JOURNAL_SUFFIX, journal_prefix
from amps.server.records import KIND_DECLARE_TOPIC, control_payload, control_record
from amps.server.runtime import Runtime
from amps.server.security import Authenticator, Entitlement, make_authenticator, make_entitlement
from amps.server.topics import RESERVED_PREFIX, TopicMatcher
from amps.server.transport.bookmarks import StartPoint, format_bookmark
from amps.server.transport.connection import Connection, now_name_number
from amps.server.transport.journal_view import JournalView, StartSearch
from amps.server.transport.listeners import tls_context
from amps.server.transport.replay import Replay
from amps.server.transport.slow_clients import MemoryPool
from amps.server.transport.subscriptions import Place, Subscription, SubscriptionSet

MESSAGE_BYTES_MAX = 200 * 2**20
LOG_BYTES_PER_TURN = 4 << 20
DURABLE_STEP_BYTES = 256 << 10
TICK_S = 0.1
SPIN_NS = 50_000
SPIN_BATCH_BYTES = 16 << 10
SPIN_FAILURES_MAX = 10
PERSISTED_INTERVAL_S = 1.0
DRAIN_WAIT_S = 5.0
EXIT_FAILED_TURN = 70
SERIAL_MASK = 0xFFFFFFFF


@dataclass(slots=True)
class Listener:
    """One configured transport, as connections see it."""

    name: str
    config: TransportConfig
    message_type: str | None
    authenticator: Authenticator
    entitlement: Entitlement
    pool: MemoryPool


class Worker:
    """One transport process. Made in the child after the fork."""

    def __init__(
        self,
        config: ServerConfig,
        runtime: Runtime,
        index: int,
        log: EventLog,
        supervisor: socket.socket,
        sockets: dict[str, list[socket.socket]],
    ) -> None:
        """`sockets`: listening sockets by transport name."""
        self.config = config
        self.runtime = runtime
        self.index = index
        self.log = log
        self.trace = log.enabled("trace")
        self.ring = runtime.ingress[index]
        self.ring.attach_producer()
        self.matcher = TopicMatcher(config)
        self.has_journal = config.transaction_log is not None
        self.conflated = self.matcher.records_anything
        self.message_bytes_max = MESSAGE_BYTES_MAX
        self.topics = TopicTable(self._classify)
        self.dirty: list[Connection] = []
        self.loop: asyncio.AbstractEventLoop
        self._egress = runtime.egress[index]
        self._bell = runtime.transport_bells[index]
        self._supervisor = supervisor
        self._sockets = sockets
        self._servers: list[asyncio.Server] = []
        self._connections: dict[int, Connection] = {}
        self._free_slots: list[int] = []
        self._slot_count = 0
        self._serial = time.monotonic_ns() // 1000 & SERIAL_MASK
        self._spill_number = itertools.count()
        self._control_waiting: deque[bytes] = deque()
        self._ring_waiters: dict[Connection, None] = {}
        self._barriers: deque[tuple[int, Callable[[], None]]] = deque()
        self._durable_waiters: list[tuple[int, int, Callable[[], None]]] = []
        self._waiter_number = itertools.count()
        self._acks_active: dict[Connection, None] = {}
        self._acks_due: list[tuple[float, int, Connection]] = []
        self._acks_scheduled: set[Connection] = set()
        self._acks_timer_s = math.inf
        self._turn_scheduled = False
        self._in_turn = False
        self._spin_pause = 0
        self._spin_failures = 0
        self._draining = False
        self._closing: list[asyncio.Transport] = []
        self.view = InstanceView(runtime.control, self.ring, self._egress, index)
        # tailers and who they serve
        self._live = SubscriptionSet(self.topics, combine=True)
        self._live_tailer: LiveTailer | None = None
        self._durable_set = SubscriptionSet(self.topics, combine=False)
        self._durable_tailer: JournalTailer | None = None
        self._replays: deque[Replay] = deque()
        self._paused_replays: dict[Connection, list[Replay]] = {}
        self._searches: deque[tuple[StartSearch, Connection, Callable[[StartSearch], None]]] = deque()
        self._transient = LogDirectory(runtime.transient_prefix, ".log", self.topics.entry)
        self._journal: JournalView | None = None
        settings = config.transaction_log
        if settings is not None:
            prefix = journal_prefix(settings.journal_directory, config.name)
            directory = LogDirectory(prefix, JOURNAL_SUFFIX, self.topics.entry)
            self._journal = JournalView(directory, settings.journal_directory, config.name, runtime)
        instance_pool = MemoryPool(self, config.message_memory_limit_bytes // max(1, runtime.transports))
        self._listeners = {t.name: self._listener(t, instance_pool) for t in config.transports}

    def _listener(self, transport: TransportConfig, instance_pool: MemoryPool) -> Listener:
        pool = instance_pool
        if transport.message_memory_limit_bytes is not None:
            pool = MemoryPool(self, transport.message_memory_limit_bytes // max(1, self.runtime.transports))
        return Listener(
            transport.name,
            transport,
            transport.message_type,
            make_authenticator(self.config, transport),
            make_entitlement(self.config, transport),
            pool,
        )

    def _classify(self, topic: str, message_type: str) -> tuple[bool, bool, str | None]:
        """For the topic table: recorded, discarded, refusal."""
        if topic == "/AMPS/devnull":
            return False, True, None
        if topic.startswith(RESERVED_PREFIX):
            return False, False, "invalid topic"
        return self.has_journal and self.matcher.is_logged(topic, message_type), False, None

    # --- life -------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Serve until told to drain. Returns the exit code of the process."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(self._main())

    async def _main(self) -> int:
        self.loop = asyncio.get_running_loop()
        self._stopped = self.loop.create_future()
        control = self.runtime.control
        self.view.set_transient_read(self.view.transient_written)
        control.set_transport_alive(self.index, True)
        self.loop.add_reader(self._bell.fd, self._rung)
        self.loop.add_reader(self._supervisor.fileno(), self._listen)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # The supervisor says when to stop; a signal to the whole process group must not end workers early.
            self.loop.add_signal_handler(number, lambda: None)
        for name, sockets in self._sockets.items():
            await self._serve(self._listeners[name], sockets)
        self._tell("ready")
        self._tick()
        # The first turn ends with the worker saying that it sleeps: from then on the core rings.
        self.schedule()
        code: int = await self._stopped
        return code

    async def _serve(self, listener: Listener, sockets: list[socket.socket]) -> None:
        context = tls_context(listener.config.tls) if listener.config.tls is not None else None
        for listening in sockets:
            if listening.family == socket.AF_UNIX:
                server = await self.loop.create_unix_server(
                    lambda: Connection(self, listener), sock=listening.dup(), ssl=context, start_serving=True
                )
            else:
                server = await self.loop.create_server(
                    lambda: Connection(self, listener), sock=listening.dup(), ssl=context, start_serving=True
                )
            self._servers.append(server)

    def _tell(self, *message: object) -> None:
        try:
            self._supervisor.send(msgpack.packb(message))
        except OSError:
            self._drain()

    def _listen(self) -> None:
        try:
            data = self._supervisor.recv(65536, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        if not data or msgpack.unpackb(data)[0] == "drain":
            self._drain()

    def _drain(self) -> None:
        """Accept nobody, let what was received be sequenced and acknowledged, then close everything."""
        if self._draining:
            return
        self._draining = True
        for server in self._servers:
            server.close()
        for connection in list(self._connections.values()):
            connection.stop_input()
        self._drain_until_s = self.now_s() + DRAIN_WAIT_S
        self.when_consumed(self.ring.pushed, lambda: self.when_durable(self.written(), self._drained))
        self.loop.call_later(DRAIN_WAIT_S, self._finish)
        self.schedule()

    def _drained(self) -> None:
        # The turn that runs this still delivers what has become durable.
        self.loop.call_later(0.01, self._close_connections)

    def _close_connections(self) -> None:
        now = self.now_s()
        for connection in list(self._connections.values()):
            connection.acks.advance(self, now, force=True)
            if connection.transport is not None:
                self._closing.append(connection.transport)
            connection.close(None)
        self._finish_when_flushed()

    def _finish_when_flushed(self) -> None:
        if self._connections_flushed() or self.now_s() >= self._drain_until_s:
            self._finish()
        else:
            self.loop.call_later(0.05, self._finish_when_flushed)

    def _connections_flushed(self) -> bool:
        self._closing = [transport for transport in self._closing if transport.get_write_buffer_size() > 0]
        return not self._closing and not self._control_waiting and bool(self.ring.head == self.ring.pushed)

    def _finish(self) -> None:
        if not self._stopped.done():
            self.ring.publish_pushed()
            self.runtime.core_bell.ring()
            self.runtime.control.set_transport_alive(self.index, False)
            self._stopped.set_result(0)

    # --- connections ------------------------------------------------------------------------------------------

    def new_slot(self, connection: Connection) -> tuple[int, int]:
        """A slot and a serial number for a connection; the slot is used again only after its end was announced."""
        if self._free_slots:
            slot = self._free_slots.pop()
        else:
            slot = self._slot_count
            self._slot_count += 1
        self._serial = (self._serial + 1) & SERIAL_MASK
        self._connections[slot] = connection
        return slot, self._serial

    def connection_name(self, listener: Listener, serial: int) -> str:
        """`<instance>-<transport>-<worker>-<number>` (protocol.md §6)."""
        return f"{self.config.name}-{listener.name}-{self.index}-{now_name_number() + serial % 1000}"

    def connected(self, connection: Connection) -> None:
        """A connection exists."""
        self.runtime.control.set_connections(self.index, len(self._connections))

    def disconnected(self, connection: Connection) -> None:
        """A connection has ended; forget everything about it."""
        self._ring_waiters.pop(connection, None)
        self._acks_active.pop(connection, None)
        self._acks_scheduled.discard(connection)
        self._paused_replays.pop(connection, None)
        self._connections.pop(connection.slot, None)
        self._free_slots.append(connection.slot)
        self.runtime.control.set_connections(self.index, len(self._connections))

    def now_s(self) -> float:
        """The event loop's clock."""
        return time.monotonic()

    def spill_token(self) -> str:
        """Name of a new spill file."""
        return f"{self.index}.{self._serial}.{next(self._spill_number)}"

    # --- ring -------------------------------------------------------------------------------------------------

    def pushed(self) -> None:
        """Records may have been pushed: let the core see them, and schedule a turn."""
        published = self.ring.publish_pushed()
        if published and self.runtime.control.core_needs_bell():
            self.runtime.core_bell.ring()
        if self._in_turn:
            return
        # What the core does with them starts a turn; only output needs one before.
        if self.dirty:
            self.schedule()
        elif published and not self._turn_scheduled:
            self._wait_briefly()

    def _wait_briefly(self) -> None:
        """After a small batch: wait actively for the core instead of going to sleep and being woken at once.

        It pays while the core has a processor of its own. Where it does not answer in time, that is noticed, and the
        next tries come ever more rarely.
        """
        if self._spin_pause:
            self._spin_pause -= 1
            return
        if self.ring.pushed - self.view.consumed > SPIN_BATCH_BYTES or self._live_tailer is None:
            return
        self.view.wake()
        if self.ring.spin_until_consumed(SPIN_NS):
            self._spin_failures = 0
            self._turn()
            return
        self._spin_failures = min(self._spin_failures + 1, SPIN_FAILURES_MAX)
        self._spin_pause = 1 << self._spin_failures
        if not self.view.fall_asleep():
            self.schedule()

    def push_control(self, record: bytes) -> None:
        """Push a control record, now or as soon as there is room; order is kept."""
        if self._control_waiting or not self.ring.push(record):
            self._control_waiting.append(record)
        elif self.runtime.control.core_needs_bell():
            self.runtime.core_bell.ring()

    def declare(self, entry: TopicEntry) -> bool:
        """Tell the core a topic's number. False: no room in the ring."""
        record = control_record(
            (entry.raw_name, entry.message_type.encode()), KIND_DECLARE_TOPIC, topic=entry.number
        )
        return not self._control_waiting and self.ring.push(record)

    def wait_for_ring(self, connection: Connection) -> None:
        """Release the connection's input when the core has taken something."""
        self._ring_waiters[connection] = None
        self.schedule()

    # --- barriers ---------------------------------------------------------------------------------------------

    def when_consumed(self, position: int, action: Callable[[], None]) -> None:
        """Run `action` once the core has consumed the ring up to a position; at once if it has."""
        self.view.read()
        if not self._barriers and self.view.consumed >= position:
            action()
        else:
            self._barriers.append((position, action))
            self.schedule()

    def when_durable(self, position: int, action: Callable[[], None]) -> None:
        """Run `action` once the journal is durable up to a position; at once if it is."""
        if not self.has_journal or self.runtime.control.durable >= position:
            action()
        else:
            heapq.heappush(self._durable_waiters, (position, next(self._waiter_number), action))
            self.schedule()

    def consumed(self) -> int:
        """Ring position up to which the core has taken records."""
        return self.view.consumed

    def written(self) -> int:
        """Log position up to which the journal is written."""
        return self.view.journal_written

    def durable(self) -> int:
        """Log position up to which the journal is durable."""
        return self.view.durable

    # --- acknowledgements -------------------------------------------------------------------------------------

    def acknowledge(self, connection: Connection) -> None:
        """The connection has persisted acknowledgements to come."""
        if connection.acks.urgent:
            self._acks_scheduled.discard(connection)
        if connection not in self._acks_scheduled:
            self._acks_active[connection] = None
            if self.ring.pushed == self.ring.tail:
                # Nothing is on its way to the core that would bring a turn.
                self.schedule()

    def _send_acks(self) -> None:
        now = self.now_s()
        while self._acks_due and self._acks_due[0][0] <= now:
            _, _, connection = heapq.heappop(self._acks_due)
            if connection in self._acks_scheduled:
                self._acks_scheduled.discard(connection)
                self._acks_active[connection] = None
        for connection in list(self._acks_active):
            due = connection.acks.advance(self, now)
            if due == 0.0:
                continue
            del self._acks_active[connection]
            if due is not None:
                self._acks_scheduled.add(connection)
                heapq.heappush(self._acks_due, (due, next(self._waiter_number), connection))
        if self._acks_due and self._acks_due[0][0] < self._acks_timer_s:
            # The event loop counts in milliseconds and may fire early: a millisecond more costs less than a miss.
            self._acks_timer_s = self._acks_due[0][0]
            self.loop.call_later(max(0.0, self._acks_timer_s - now) + 0.001, self._acks_timer)

    def _acks_timer(self) -> None:
        self._acks_timer_s = math.inf
        self.schedule()

    # --- turns ------------------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Have a turn soon; during a turn: another one right after it."""
        if not self._turn_scheduled:
            self._turn_scheduled = True
            if self._in_turn:
                return
            self.view.wake()
            self.loop.call_soon(self._turn)

    def _rung(self) -> None:
        self._bell.clear()
        if not self._turn_scheduled:
            self.view.wake()
            self._turn()

    def _turn(self) -> None:
        self._turn_scheduled = False
        self._in_turn = True
        try:
            more = self._work()
        except Exception:
            # Half a turn leaves the worker in no state to go on: end it, the supervisor starts another one.
            self.log.log("01-0005", place=f"transport {self.index}", data=traceback.format_exc())
            if not self._stopped.done():
                self._stopped.set_result(EXIT_FAILED_TURN)
            return
        finally:
            self._in_turn = False
        if more or self._turn_scheduled:
            self._turn_scheduled = True
            self.loop.call_soon(self._turn)
            return
        if not self.view.fall_asleep():
            self.schedule()

    def _work(self) -> bool:
        """One turn. True: there is more to do at once."""
        view = self.view
        if view.has_answers():
            self._take_answers()
        view.read()
        while self._control_waiting and self.ring.push(self._control_waiting[0]):
            self._control_waiting.popleft()
        if self._ring_waiters and not self._control_waiting:
            waiters = list(self._ring_waiters)
            self._ring_waiters.clear()
            for connection in waiters:
                if connection.acks.crowded:
                    self._ring_waiters[connection] = None
                else:
                    connection.release()
        while self._barriers and self._barriers[0][0] <= view.consumed:
            self._barriers.popleft()[1]()
        while self._durable_waiters and self._durable_waiters[0][0] <= view.durable:
            heapq.heappop(self._durable_waiters)[2]()
        if self._searches:
            # One step per turn, whoever searches: everybody else is served in between.
            self._search_on(*self._searches.popleft())
        more = self._run_tailers() or bool(self._searches)
        if self._acks_active or self._acks_due:
            self._send_acks()
        if self.dirty:
            self._flush()
        self.pushed()
        waited_for = (
            self._acks_active or self._durable_waiters or self._durable_tailer is not None or self._replays
        )
        if waited_for and view.durable < view.journal_written and view.want_durable(view.journal_written):
            # Somebody waits for what is not durable yet, and the core does not know.
            self.runtime.core_bell.ring()
        return more

    def _take_answers(self) -> None:
        for record in self._egress.pop_all():
            message = control_payload(record)
            assert isinstance(message, list)
            kind, slot, serial, *rest = message
            connection = self._connections.get(slot)
            if connection is None or connection.serial != serial:
                continue
            if kind == "logon":
                connection.commands.logon.answered(*rest)
            elif kind == "kick":
                name, user = rest
                self.log.log("02-0025", client=name, user=user)
                connection.abort("name in use")

    def _flush(self) -> None:
        while self.dirty:
            waiting = self.dirty
            self.dirty = []
            for connection in waiting:
                connection.flush()
                if not connection.writable:
                    connection.listener.pool.check(connection)

    def _tick(self) -> None:
        self.runtime.control.transport_beat(self.index, time.monotonic_ns())
        now = self.now_s()
        self._send_persisted(now)
        for listener in self._listeners.values():
            listener.pool.check_ages(now)
        self.loop.call_later(TICK_S, self._tick)

    # --- tailers ----------------------------------------------------------------------------------------------

    def _run_tailers(self) -> bool:
        more = False
        if self._live_tailer is not None:
            more = not self._run_live(LOG_BYTES_PER_TURN)
            self.view.set_transient_read(self._live_tailer.transient_position)
        else:
            self.view.set_transient_read(self.view.transient_written)
        if self._durable_tailer is not None:
            more |= not self._run_durable_in_steps()
        if self._replays:
            more |= self._run_replays()
        return more

    def _run_live(self, bytes_max: int) -> bool:
        assert self._live_tailer is not None
        return self._live_tailer.run(self.view.journal_written, self.view.transient_written, bytes_max)

    def _run_durable(self, bytes_max: int) -> bool:
        assert self._durable_tailer is not None
        return self._durable_tailer.run(self.view.durable, bytes_max)

    def _run_durable_in_steps(self) -> bool:
        """The durable tailer's turn. Between steps output goes out, so that who does not keep up leaves in time."""
        for _ in range(LOG_BYTES_PER_TURN // DURABLE_STEP_BYTES):
            if self._durable_tailer is None or self._run_durable(DURABLE_STEP_BYTES):
                return True
            self._flush()
        return False

    def _run_replays(self) -> bool:
        more = False
        for _ in range(len(self._replays)):
            replay = self._replays.popleft()
            subscription = replay.subscription
            connection = subscription.connection
            if subscription.replay is not replay:
                continue
            if not connection.writable:
                self._paused_replays.setdefault(connection, []).append(replay)
                continue
            live = subscription.options.live
            limit = self.view.journal_written if live else self.view.durable
            try:
                reached = replay.run(limit)
            except LogDamaged as damage:
                self.journal_damaged(connection, damage)
                continue
            if not reached:
                self._replays.append(replay)
                more = True
            elif replay.tailer.position <= limit and replay.completed_at is None:
                self._caught_up(replay, live)
            else:
                # It begins beyond what is durable yet: wait for the watermark.
                self._replays.append(replay)
        return more

    def _caught_up(self, replay: Replay, live: bool) -> None:
        """A replay stands at the watermark: its subscription goes to the tailer that stands there too."""
        subscription = replay.subscription
        subscription.replay = None
        if live:
            self._catch_up_live()
            subscription.place = Place.LIVE
            self._live.add(subscription)
        else:
            if self._durable_tailer is None:
                cursor = LogCursor(replay.tailer.cursor.directory_of(), *replay.tailer.cursor.place(), False)
                self._durable_tailer = JournalTailer(cursor, self._durable_set.group, *replay.last_bookmark)
            else:
                while not self._run_durable(1 << 62):
                    pass
            subscription.place = Place.DURABLE
            self._durable_set.add(subscription)
        self.log.log("21-0002", client=subscription.connection.shown_name, sub_id=subscription.sub_id)

    def _catch_up_live(self) -> None:
        """Bring the live tailer to this turn's watermarks, making it if nobody needed it before."""
        if self._live_tailer is None:
            self._live_tailer = self._new_live_tailer()
            self.view.set_transient_read(self._live_tailer.transient_position)
        else:
            while not self._run_live(1 << 62):
                pass

    def _new_live_tailer(self) -> LiveTailer:
        view = self.view
        journal = None
        if self._journal is not None:
            journal = self._journal.cursor_at(view.journal_written, False)
        transient = LogCursor(self._transient, view.transient_number, 0, False)
        transient.skip_to(view.transient_written)
        return LiveTailer(journal, transient, self._live.group)

    # --- subscriptions ----------------------------------------------------------------------------------------

    def enter_live(self, subscription: Subscription) -> None:
        """An ordinary subscription: everything sequenced after this moment."""
        self.view.read()
        self._catch_up_live()
        subscription.place = Place.LIVE
        subscription.connection.subscriptions[subscription.sub_id] = subscription
        self._live.add(subscription)

    def enter_idle(self, subscription: Subscription) -> None:
        """A bookmark subscription on an instance without a journal: it exists and gets nothing."""
        subscription.place = Place.REPLAY
        subscription.connection.subscriptions[subscription.sub_id] = subscription

    def search(
        self, subscription: Subscription, start: StartPoint, then: Callable[[StartSearch], None]
    ) -> None:
        """Find where a bookmark subscription begins: now, or over several turns if it names many bookmarks."""
        if self._journal is None:
            raise AssertionError("a bookmark subscription without a journal")
        search = StartSearch(self._journal, start, subscription.options.bookmark_not_found)
        self._search_on(search, subscription.connection, then)

    def _search_on(
        self, search: StartSearch, connection: Connection, then: Callable[[StartSearch], None]
    ) -> None:
        if connection.phase.value == "closed":
            return
        try:
            finished = search.step()
        except LogDamaged as damage:
            self.journal_damaged(connection, damage)
            return
        if finished:
            then(search)
        else:
            self._searches.append((search, connection, then))
            self.schedule()

    def prepare_replay(self, subscription: Subscription, search: StartSearch) -> Replay:
        """Make the replay that begins where a finished search says. Raises CommandFailure, LogDamaged."""
        self.view.read()
        cursor, bookmark = search.result()
        replay = Replay(subscription, cursor, bookmark, None)
        subscription.place = Place.REPLAY
        subscription.replay = replay
        subscription.persisted_sent = bookmark
        subscription.connection.subscriptions[subscription.sub_id] = subscription
        return replay

    def start_replay(self, replay: Replay) -> None:
        """Begin to serve a prepared replay."""
        subscription = replay.subscription
        self.log.log(
            "21-0001",
            client=subscription.connection.shown_name,
            sub_id=subscription.sub_id,
            bookmark=format_bookmark(*replay.last_bookmark),
        )
        self._replays.append(replay)
        self.schedule()

    def replace_subscription(self, existing: Subscription, replacement: Subscription) -> None:
        """Topic and options change at this point of the order; the place in the log stays (protocol.md §8.2)."""
        self.view.read()
        if existing.place is Place.REPLAY:
            existing.become(replacement)
            if existing.replay is not None:
                existing.replay.group.changed()
            return
        if existing.place is Place.LIVE:
            self._catch_up_live()
            members = self._live
        else:
            while not self._run_durable(1 << 62):
                pass
            members = self._durable_set
        members.remove(existing)
        existing.become(replacement)
        members.add(existing)

    def remove_subscription(self, subscription: Subscription) -> None:
        """Nothing more is sent for it."""
        subscription.connection.subscriptions.pop(subscription.sub_id, None)
        subscription.replay = None
        if subscription.place is Place.LIVE:
            self._live.remove(subscription)
            if not self._live:
                self._live_tailer = None
        elif subscription.place is Place.DURABLE:
            self._durable_set.remove(subscription)
            if not self._durable_set:
                self._durable_tailer = None

    def stopped_reading(self, connection: Connection) -> None:
        """The client's output is full: its bookmark subscriptions leave the shared tailer and wait as replays."""
        if self._durable_tailer is None:
            return
        for subscription in list(connection.subscriptions.values()):
            if subscription.place is Place.DURABLE:
                tailer = self._durable_tailer
                cursor = LogCursor(tailer.cursor.directory_of(), *tailer.cursor.place(), True)
                bookmark = (tailer.last_publisher_id, tailer.last_sequence)
                replay = Replay(subscription, cursor, bookmark, None)
                self._durable_set.remove(subscription)
                subscription.place = Place.REPLAY
                subscription.replay = replay
                self._paused_replays.setdefault(connection, []).append(replay)
        if not self._durable_set:
            self._durable_tailer = None

    def reads_again(self, connection: Connection) -> None:
        """The client has taken its output."""
        self._replays.extend(self._paused_replays.pop(connection, ()))
        self.schedule()

    def journal_damaged(self, connection: Connection, damage: LogDamaged) -> None:
        """A replay met damage: it must not skip it, so the client is disconnected and the damage logged."""
        self.log.log(
            "1D-0010",
            path=damage.path,
            offset=damage.offset,
            reason=damage.detail + "; run 'amps journal verify'",
        )
        connection.close("journal damaged")

    def _send_persisted(self, now_s: float) -> None:
        """Periodic persisted acknowledgements of bookmark subscriptions (protocol.md §5.4, D10)."""
        if now_s < self._next_persisted_s:
            return
        self._next_persisted_s = now_s + PERSISTED_INTERVAL_S
        for connection in list(self._connections.values()):
            for subscription in connection.subscriptions.values():
                if subscription.wants_persisted:
                    self._send_persisted_of(subscription)

    _next_persisted_s = 0.0

    def _send_persisted_of(self, subscription: Subscription) -> None:
        if subscription.replay is not None:
            bookmark = subscription.replay.last_bookmark
        elif subscription.place is Place.DURABLE and self._durable_tailer is not None:
            tailer = self._durable_tailer
            bookmark = (tailer.last_publisher_id, tailer.last_sequence)
        else:
            return
        if bookmark != subscription.persisted_sent and bookmark[0]:
            subscription.persisted_sent = bookmark
            subscription.connection.acknowledge(
                "persisted", None, sub_id=subscription.sub_id, bookmark=format_bookmark(*bookmark)
            )
            self.schedule()


def run_transport(
    config: ServerConfig,
    runtime: Runtime,
    index: int,
    log: EventLog,
    supervisor: socket.socket,
    sockets: dict[str, list[socket.socket]],
) -> int:
    """Body of a transport process; returns its exit code."""
    return Worker(config, runtime, index, log, supervisor, sockets).run()
