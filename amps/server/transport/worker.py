"""The transport worker: one process with an event loop, its connections, and its view of the instance.

All work is done in *turns* (turns.py). A turn reads the core's answers, lets barriers pass that the watermarks allow
(core_link.py), runs the tailers (feeds.py), sends acknowledgements (ack_schedule.py) and passes output to the event
loop. This module combines these parts, and owns the process's life: listening sockets, connections, the end.

The order inside a turn matters: watermarks are read after the ring's tail, so that records read by the core are below
them, and every tailer stops at the watermarks of that one reading.
"""

import asyncio
import itertools
import signal
import socket
import time
import traceback
from typing import Any

import msgpack
import uvloop

from amps.config import ServerConfig, TransportConfig
from amps.messages import make_message_types
from amps.server.clock import ManualClock, Timer
from amps.server.evaluation_contexts import EvaluationContexts
from amps.server.eventlog import EventLog
from amps.server.memory_use import Deciding, pool_limits
from amps.server.runtime import Runtime
from amps.server.security import (
    SwitchableAuthenticator,
    SwitchableEntitlement,
    make_authenticator,
    make_entitlement,
)
from amps.server.shared.allocation import keep_chunk_memory
from amps.server.shared.core_link import CoreLink
from amps.server.shared.filters import FilterCompiler
from amps.server.shared.listeners import tls_context
from amps.server.shared.queue_names import QueueNames
from amps.server.shared.sow_topics import make_sow_rules
from amps.server.shared.topic_classes import make_topic_table, queue_topics
from amps.server.topics import TopicMatcher
from amps.server.transport.accepting import Acceptor
from amps.server.transport.ack_schedule import AckSchedule
from amps.server.transport.connection import Connection, now_name_number
from amps.server.transport.failures import STORE_FAILED_DETAIL, TX_STORE_FAILED, UNDECIDED, undecided_detail
from amps.server.transport.feeds import Feeds
from amps.server.transport.persisted_waits import PersistedWaits, make_destinations
from amps.server.transport.publishers import Publishers
from amps.server.transport.queue_filters import QueueFilters
from amps.server.transport.queues import Queues
from amps.server.transport.scans import Scans
from amps.server.transport.session import Listener, TransactionAnswers
from amps.server.transport.slow_clients import MemoryPool
from amps.server.transport.subscription_list import SubscriptionList
from amps.server.transport.turns import Turns

MESSAGE_BYTES_MAX = 200 * 2**20
TICK_S = 0.1
REPORT_INTERVAL_S = 1.0
DRAIN_WAIT_S = 5.0
TIMER_S_MIN = 0.001
TIMER_S_MAX = 60.0
EXIT_FAILED_TURN = 70
SERIAL_MASK = 0xFFFFFFFF


class Worker:
    """One transport process. It is made in the child after the fork."""

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
        self.matcher = TopicMatcher(config)
        self.has_journal = config.transaction_log is not None
        self.conflated = self.matcher.records_anything
        self.message_bytes_max = MESSAGE_BYTES_MAX
        self.dirty: list[Connection] = []
        self.loop: asyncio.AbstractEventLoop
        self._supervisor = supervisor
        self._sockets = sockets
        self._connections: dict[int, Connection] = {}
        self._free_slots: list[int] = []
        self._slot_count = 0
        self.clock = runtime.clock
        self._clock_round = 0  # a round of amps/server/advancing.py to answer; 0: none
        self._serial = time.monotonic_ns() // 1000 & SERIAL_MASK
        self._subscription_number = self._serial
        self._spill_number = itertools.count()
        self._draining = False
        self._next_report_s = 0.0
        self._timer: Timer | None = None
        self._timer_due_s = 0.0
        self._closing: list[asyncio.Transport] = []
        self._acceptor = Acceptor(runtime, index, log)
        self._subscription_list: SubscriptionList | None = None
        if runtime.transport_requests:
            channel, _ = runtime.transport_requests[index]
            self._subscription_list = SubscriptionList(channel, self._connections.values)
        self.core = CoreLink(runtime, index, self.has_journal, self.schedule)
        self.turns = Turns(
            self.core,
            runtime.transport_wake_ups[index],
            self._work,
            self._may_deliver,
            lambda: bool(self._connections),
            self._failed,
        )
        self.persisted = PersistedWaits(self.core, make_destinations(config, runtime), self.schedule)
        self.ack_schedule = AckSchedule(self.core, self.persisted, self.schedule, self.clock)
        self.transacting: dict[TransactionAnswers, None] = {}
        types = make_message_types(config.message_types.values())
        self.publishers = Publishers(runtime, index)
        self._evaluations = EvaluationContexts(
            types, config.name, config.group, log, self.publishers, config.functions
        )
        self.filters = FilterCompiler(config.functions)
        self.topics = make_topic_table(
            self.matcher,
            self.has_journal,
            self._evaluations.of_type,
            self.filters,
            queue_topics(config),
            make_sow_rules(config, types),
        )
        self.feeds = Feeds(
            config,
            runtime,
            self.topics,
            self.core,
            self.persisted,
            log,
            self._evaluations,
            self.schedule,
            self._flush,
            self._schedule_after,
            lambda action: self.loop.call_soon_threadsafe(action),
        )
        self.scans = Scans(
            self.core,
            self.feeds.states,
            self.feeds.read_ahead,
            self.schedule,
            self._schedule_after,
            self.feeds.journal_damaged,
        )
        deciding = Deciding(runtime.deciding_path)
        self._pools = {
            transport: MemoryPool(self, number, limit_bytes, deciding)
            for number, (transport, limit_bytes) in enumerate(pool_limits(config).items())
        }
        queue_filters = QueueFilters(
            runtime, self.core, QueueNames(config), self.topics, self.feeds, self._evaluations, self.schedule
        )
        self.queues = Queues(self.core, runtime.control, self.feeds, queue_filters, self.schedule)
        self._listeners = {t.name: self._listener(t) for t in config.transports}

    def _listener(self, transport: TransportConfig) -> Listener:
        return Listener(
            transport.name,
            transport,
            transport.message_type,
            SwitchableAuthenticator(make_authenticator(self.config, transport)),
            SwitchableEntitlement(make_entitlement(self.config, transport)),
            self._pools.get(transport.name, self._pools[None]),
        )

    # --- life -------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Serve until the supervisor requests the drain. Returns the exit code of the process."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(self._main())

    async def _main(self) -> int:
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(self._callback_failed)
        self._stopped = self.loop.create_future()
        control = self.runtime.control
        self.feeds.release_transient()
        control.set_transport_alive(self.index, True)
        self._acceptor.begin(self.loop)
        self.turns.begin(self.loop)
        self.loop.add_reader(self._supervisor.fileno(), self._listen)
        if self._subscription_list is not None:
            self._subscription_list.begin(self.loop)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # The supervisor requests the stop; a signal to the whole process group must not end workers early.
            self.loop.add_signal_handler(number, lambda: None)
        for name, sockets in self._sockets.items():
            self._serve(self._listeners[name], sockets)
        self._tell("ready")
        self._tick()
        code: int = await self._stopped
        return code

    def _serve(self, listener: Listener, sockets: list[socket.socket]) -> None:
        context = tls_context(listener.config.tls) if listener.config.tls is not None else None
        for listening in sockets:
            self._acceptor.open(listener.name, listening.dup(), context, lambda: Connection(self, listener))

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
        what, *rest = msgpack.unpackb(data) if data else ("drain",)
        if what == "drain":
            self._drain()
        elif what == "switch":
            self._switch(*rest)
        elif what == "clock":
            self._clock_round = rest[0]
            if isinstance(self.clock, ManualClock):
                self.clock.run_due()
            self._look_around(self.now_s())
            self.schedule()

    def _switch(self, what: str, enabled: bool) -> None:
        """Switch authentication or entitlement on or off, for the whole instance (operations.md §8.3)."""
        for listener in self._listeners.values():
            if what == "authentication":
                listener.authenticator.enabled = enabled
            else:
                listener.entitlement.enabled = enabled
        if what == "entitlement":
            for connection in self._connections.values():
                connection.forget_permissions()

    def _drain(self) -> None:
        """Accept no connections, wait until received publishes are sequenced and acknowledged, then close all
        connections.
        """
        if self._draining:
            return
        self._draining = True
        self._acceptor.stop()
        for connection in list(self._connections.values()):
            connection.stop_input()
        self._drain_until_s = self.now_s() + DRAIN_WAIT_S
        core = self.core
        core.when_consumed(core.ring.pushed, lambda: core.when_durable(core.written(), self._drained))
        self.loop.call_later(DRAIN_WAIT_S, self._finish)
        self.schedule()

    def _drained(self) -> None:
        # The turn that calls this still delivers the messages that have become durable.
        self.loop.call_later(0.01, self._close_connections)

    def _close_connections(self) -> None:
        now = self.now_s()
        for connection in list(self._connections.values()):
            connection.acks.advance(self.core, now, force=True)
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
        return not self._closing and self.core.all_taken

    def _finish(self) -> None:
        if not self._stopped.done():
            self.core.ring.publish_pushed()
            self.runtime.core_wake_up.send()
            self.runtime.control.set_transport_alive(self.index, False)
            self._stopped.set_result(0)

    # --- connections ------------------------------------------------------------------------------------------

    def new_slot(self, connection: Connection) -> tuple[int, int]:
        """A slot and a serial number for a connection; reused only after the end was announced."""
        if self._free_slots:
            slot = self._free_slots.pop()
        else:
            slot = self._slot_count
            self._slot_count += 1
        self._serial = (self._serial + 1) & SERIAL_MASK
        self._connections[slot] = connection
        return slot, self._serial

    def new_subscription_number(self) -> int:
        """A number for a subscription in the administration interface. Numbers begin with the time, so that a worker
        that replaces one that died uses others.
        """
        self._subscription_number = (self._subscription_number + 1) & SERIAL_MASK
        return self._subscription_number

    def connection_name(self, listener: Listener, serial: int) -> str:
        """The name `<instance>-<transport>-<worker>-<number>` (protocol.md §6)."""
        return f"{self.config.name}-{listener.name}-{self.index}-{now_name_number() + serial % 1000}"

    def disconnected(self, connection: Connection) -> None:
        """Remove all state of a connection that has ended."""
        self.core.forget(connection)
        connection.listener.pool.forget(connection)
        self.publishers.forget(connection.slot)
        self.ack_schedule.forget(connection)
        self.persisted.forget(connection)
        self.transacting.pop(connection.commands.transacting, None)
        self.feeds.forget(connection)
        self.scans.forget(connection)
        self.queues.forget(connection)
        self._connections.pop(connection.slot, None)
        self._free_slots.append(connection.slot)
        self._acceptor.lost()

    def now_s(self) -> float:
        """The instance's clock that never goes back."""
        return self.clock.monotonic_s()

    def spill_token(self) -> str:
        """A name for a new spill file."""
        return f"{self.index}.{self._serial}.{next(self._spill_number)}"

    # --- turns ------------------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Request a turn soon."""
        self.turns.schedule()

    def _schedule_after(self, delay_s: float) -> None:
        """Request a turn after so many seconds, or earlier."""
        delay_s = min(max(delay_s, TIMER_S_MIN), TIMER_S_MAX)
        due_s = self.now_s() + delay_s
        if self._timer is not None:
            if self._timer_due_s <= due_s:
                return
            self._timer.cancel()
        self._timer_due_s = due_s
        self._timer = self.clock.call_later(self.loop, delay_s, self._timer_rang)

    def _timer_rang(self) -> None:
        self._timer = None
        self.schedule()

    def _may_deliver(self) -> bool:
        """Whether a subscription here may get messages soon."""
        return self.feeds.has_live or self.queues.has_subscriptions

    def input_taken(self) -> None:
        """Publish the records of a connection's processed input, and request a turn if one is due."""
        self.turns.pushed(bool(self.dirty))

    def _work(self) -> bool:
        """Run one turn. True: there is more work to do at once."""
        core = self.core
        self._take_answers()
        core.view.read()
        if self.transacting:
            self._answer_transactions()
        core.push_waiting()
        core.run_waiting()
        self.persisted.run()
        more = self.queues.run()
        more |= self.feeds.run()
        more |= self.scans.run()
        if self.ack_schedule:
            self.ack_schedule.send(self.loop, self.now_s())
        self._flush()
        core.publish_pushed()
        # The core itself knows of deliveries of queues that wait for the durable watermark.
        if (
            core.durable_awaited
            or self.persisted.durable_awaited
            or self.ack_schedule.durable_awaited
            or self.feeds.durable_awaited
            or any(one.awaits_durable for one in self.transacting)
        ):
            core.ask_for_durable()
        more = more or core.release_is_due
        if self._clock_round and not more and not self.turns.scheduled and not core.view.moved():
            # All deliveries that the core sent before it passed the time have been passed on.
            self._tell("clock passed", self._clock_round)
            self._clock_round = 0
        return more

    def _answer_transactions(self) -> None:
        """Send the answers to transactions that the watermarks of this turn allow."""
        core = self.core
        # The core tells a refusal before it frees the ring. So the answers are taken after the ring's tail was read,
        # and before the queues run, which send the deliveries among them.
        consumed, written = core.consumed(), core.written()
        self._take_answers()
        for transacting in list(self.transacting):
            if not transacting.advance(consumed, written, core.durable()):
                self.transacting.pop(transacting, None)

    def _failed(self, trace: str) -> None:
        """End the process after a failed turn, which may leave inconsistent state. The supervisor starts another."""
        self.log.log("01-0005", place=f"transport {self.index}", data=trace)
        if not self._stopped.done():
            self._stopped.set_result(EXIT_FAILED_TURN)

    def _callback_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an exception in a callback of the event loop, which has closed the connection concerned, if any."""
        error = context.get("exception")
        trace = "" if error is None else "\n" + "".join(traceback.format_exception(error))
        # A connection whose TLS handshake failed has no name.
        name = getattr(context.get("protocol"), "name", None)
        place = f"transport {self.index}" + (f", connection {name}" if name else "")
        self.log.log("01-0005", place=place, data=f"{context.get('message', '')}{trace}")

    def _take_answers(self) -> None:
        for kind, slot, serial, *rest in self.core.answers():
            if kind == "queue_evaluate":
                self.queues.filters.begin(*rest)
            elif kind == "queue_evaluated_enough":
                self.queues.filters.end(*rest)
            connection = self._connections.get(slot)
            if connection is None or connection.serial != serial:
                continue
            if kind == "logon":
                connection.commands.logon.answered(*rest)
            elif kind == "queue_entered":
                self.queues.entered(*rest)
            elif kind == "queue_acknowledged":
                connection.commands.acknowledging.counted(*rest)
            elif kind == "publish_refused":
                connection.commands.publishing.refused(*rest)
            elif kind == "sow_deleted":
                connection.commands.deleting.answered(*rest)
            elif kind == "transaction_refused":
                connection.commands.transacting.refused(*rest)
            elif kind == "kick":
                connection.dismiss("name in use", "another client of this name has logged on")
            elif kind == "undecided":
                connection.dismiss(UNDECIDED, undecided_detail(*rest))
            elif kind == "refused":
                # Its publishes on their way are in no log: the publisher must send them again.
                connection.dismiss(TX_STORE_FAILED, STORE_FAILED_DETAIL)

    def _flush(self) -> None:
        while self.dirty:
            waiting = self.dirty
            self.dirty = []
            for connection in waiting:
                connection.flush()
                if not connection.writable:
                    connection.listener.pool.check(connection)
        for pool in self._pools.values():
            pool.settle(self.now_s())

    def _tick(self) -> None:
        try:
            self._look_around(self.now_s())
        except Exception:
            self._failed(traceback.format_exc())
            return
        self.loop.call_later(TICK_S, self._tick)

    def _look_around(self, now: float) -> None:
        self.runtime.control.transport_beat(self.index, time.monotonic_ns())
        self.queues.release_journals()
        self.feeds.release_journals()
        self.scans.look_around(now)
        self.feeds.send_persisted(list(self._connections.values()), now)
        for pool in self._pools.values():
            pool.look_around(now)
        if now >= self._next_report_s:
            self._next_report_s = now + REPORT_INTERVAL_S
            self._evaluations.report()


def run_transport(
    config: ServerConfig,
    runtime: Runtime,
    index: int,
    log: EventLog,
    supervisor: socket.socket,
    sockets: dict[str, list[socket.socket]],
) -> int:
    """The body of a transport process; returns its exit code."""
    keep_chunk_memory()
    return Worker(config, runtime, index, log, supervisor, sockets).run()
