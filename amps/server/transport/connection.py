"""A client connection on the event loop: its input, its output and its end.

commands.py carries out the commands; this module owns the byte streams. Input is *held* while the ring is full or a
command waits for the core: then the socket is not read, which causes back-pressure for the client. Output collects in
the output buffer and is passed to the event loop once per turn.

Other modules use a connection as the `Session` of its client (session.py); they never import this module.
"""

import asyncio
import time
import traceback
from typing import Protocol, cast

from amps._core.delivery.output import OutputBuffer
from amps._core.wire import ingress as inbound
from amps._core.wire.framing import MAX_HEADER_BYTES, HeaderError
from amps.server.records import KIND_DISCONNECT, control_record
from amps.server.transport import foreign_protocols, preflight
from amps.server.transport.commands import Commands
from amps.server.transport.context import WorkerContext
from amps.server.transport.failures import STORE_FAILED_DETAIL, TX_STORE_FAILED
from amps.server.transport.publisher_acks import PublisherAcks
from amps.server.transport.session import Listener, Phase, Session
from amps.server.transport.spilling import Spilling

OUTPUT_HIGH_BYTES = 1 << 20
OUTPUT_LOW_BYTES = 256 << 10
COMMANDS_PER_TURN = 200
DISMISSED_S = 2.0
"""Time that a client has to read the reason for its disconnection."""


class Host(WorkerContext, Protocol):
    """The worker, as a connection uses it."""

    message_bytes_max: int
    dirty: "list[Connection]"
    """Connections with output to be passed to the event loop."""

    def new_slot(self, connection: "Connection") -> tuple[int, int]:
        """Assign a slot and a serial number to a connection."""

    def connection_name(self, listener: Listener, serial: int) -> str:
        """Return a name for a connection."""

    def input_taken(self) -> None:
        """Note that a connection has processed its input."""

    def disconnected(self, connection: "Connection") -> None:
        """Remove all state of a connection that has ended."""


class Connection(Session, asyncio.BufferedProtocol):
    """The protocol object of one client socket."""

    def __init__(self, worker: Host, listener: Listener) -> None:
        super().__init__(listener, worker.log, worker.trace)
        self.worker = worker
        self.transport: asyncio.Transport | None = None

    def _set_up(self) -> None:
        """Register with the worker. This is done only when the connection is made: a failed TLS handshake is never
        reported.
        """
        worker = self.worker
        slot, serial = worker.new_slot(self)
        ingress = inbound.Ingress(
            slot, serial, worker.core.ring, worker.runtime.control, worker.topics, worker.message_bytes_max
        )
        name = worker.connection_name(self.listener, serial)
        self.begin(slot, serial, name, ingress, OutputBuffer(self._output_waits), worker.now_s())
        self.spilling = Spilling(self, worker)
        self.commands = Commands(self, worker, self.spilling)
        self.close_reason: str | None = None
        self._oldest_unsent_s: float | None = None
        self._started = False
        self._processing_input = False
        self._input_stopped = False
        self._paused = False
        self._keeps_up = True

    # --- asyncio ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set up the connection of a new client."""
        self._set_up()
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(OUTPUT_HIGH_BYTES, OUTPUT_LOW_BYTES)
        peer = transport.get_extra_info("peername")
        self.address = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "local"
        self.worker.log.log(
            "07-0001", connection=self.name, transport=self.listener.name, address=self.address
        )

    def get_buffer(self, sizehint: int) -> memoryview:
        """Memory into which the event loop receives."""
        return self.ingress.receive_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Process received bytes."""
        self.ingress.received(nbytes)
        self.last_input_s = self.worker.now_s()
        if self.phase is Phase.CLOSED:
            self.ingress.give_back_memory()
            return
        if self.held:
            # The read began before input was held: keep the bytes.
            self.ingress.keep()
            return
        self.process_input()

    def eof_received(self) -> bool:
        """Let the connection end after the received commands: the client has finished sending."""
        return False

    def pause_writing(self) -> None:
        """Note that the client does not keep up with its output."""
        self._keeps_up = False
        if self.results is None:
            self._stop_writing()

    def _stop_writing(self) -> None:
        self.writable = False
        self.worker.feeds.stopped_reading(self)

    def resume_writing(self) -> None:
        """Note that the client has caught up."""
        self._keeps_up = True
        self._oldest_unsent_s = None
        if self.results is None:
            self._go_on_writing()
        else:
            self.worker.scans.reads_again(self)

    def _go_on_writing(self) -> None:
        self.writable = True
        self.listener.pool.forget(self)
        self.worker.feeds.reads_again(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up: the socket is closed."""
        self.ended()

    # --- input --------------------------------------------------------------------------------------------

    def process_input(self) -> None:
        """Process received frames until no complete frame is left or input is held."""
        ingress = self.ingress
        if not self._started and not self._begin():
            return
        self._processing_input = True
        commands_left = COMMANDS_PER_TURN
        try:
            while not self.held and self.phase is not Phase.CLOSED:
                result = ingress.parse()
                if result == inbound.NEED_MORE:
                    break
                if result == inbound.COMMAND:
                    self.commands.execute()
                    commands_left -= 1
                    if commands_left == 0 and not self.held:
                        # A client may send thousands at once: other connections are served in between.
                        self.hold()
                        self.worker.core.release_later(self)
                else:
                    self._handle(result)
        except HeaderError as error:
            self.protocol_violation(str(error))
        except UnicodeError as error:
            self.protocol_violation(f"invalid text: {error}")
        except Exception:
            # The failure must not affect other connections: this may be called in the middle of a turn.
            self.failed(traceback.format_exc())
        finally:
            self._processing_input = False
        ingress.keep()
        self._pause_or_resume()
        if self.acks.pending:
            self.worker.ack_schedule.expect(self)
        if ingress.has_transactions:
            self.commands.transacting.expect()
        self.worker.input_taken()

    def _begin(self) -> bool:
        """Distinguish an HTTP preflight from frames. False: more bytes are needed, or the connection was closed."""
        first = self.ingress.first_bytes
        if first[:4] != b"GET "[: len(first)]:
            self._started = True
            return True
        if len(first) < 4:
            self.ingress.keep()
            return False
        answer = preflight.answer(first, self.listener.uri_scheme)
        if answer.consumed:
            self.ingress.discard(answer.consumed)
            self._started = True
        if answer.response:
            self.output.append(answer.response)
        if answer.refusal is not None:
            self.protocol_violation(answer.refusal)
        if not self._started:
            self.ingress.keep()
        return self._started

    def _handle(self, result: int) -> None:
        """Handle a result of `parse` other than a command."""
        ingress = self.ingress
        if result == inbound.RING_FULL:
            self.hold()
            self.worker.core.release_when_room(self)
        elif result == inbound.NEW_TOPIC:
            self.declare_topic(ingress.topic_name)
        elif result == inbound.PERMISSION:
            entry = ingress.topic_entry
            assert entry is not None
            ingress.set_permission(entry, self.may("write", entry.name))
        elif result == inbound.DENIED:
            self.commands.publishing.denied()
        elif result == inbound.NO_STORAGE:
            self.commands.publishing.no_storage()
        elif result == inbound.AFTER_REFUSAL:
            self.dismiss(TX_STORE_FAILED, STORE_FAILED_DETAIL)
        elif result == inbound.SPILL:
            self.spilling.spill()
        elif result == inbound.BAD_HEADER:
            limit = MAX_HEADER_BYTES >> 20
            self._violated(
                f"the header cannot be parsed, has no command, or is over {limit} MiB",
                foreign_protocols.recognise_header(ingress.first_bytes),
            )
        elif result == inbound.TOO_LARGE:
            limit = self.worker.message_bytes_max
            self._violated(
                f"a message is longer than the maximum of {limit} bytes",
                foreign_protocols.recognise(ingress.first_bytes, limit),
            )

    def _violated(self, detail: str, foreign: str | None) -> None:
        """Disconnect a client because of a frame. `foreign`: the protocol of a first frame that looks like this one."""
        if foreign is not None and self.phase is Phase.CONNECTED:
            detail = f"this is no frame of the protocol amps; the client probably sends {foreign}"
        self.protocol_violation(detail)

    def declare_topic(self, name: str) -> bool:
        """Declare a topic to the core. False: the ring is full, and input is held."""
        entry = self.worker.topics.entry(name, self.message_type)
        # For a queue, the topic that publishes go to is declared first: the queue's entry then implies both.
        for each in (entry,) if entry.target is None else (entry.target, entry):
            known = each.declared or each.discarded or each.refusal is not None
            if not known and not self.worker.core.declare(each):
                self.hold()
                self.worker.core.release_when_room(self)
                return False
            each.mark_declared()
        return True

    def hold(self) -> None:
        """Stop reading from the client for now."""
        self.held = True
        if not self._processing_input:
            self._pause_or_resume()

    def release(self) -> None:
        """Resume input, beginning with bytes that were received already."""
        if self.held and self.phase is not Phase.CLOSED and not self._input_stopped:
            self.held = False
            # A call from inside `process_input` returns to its loop: recursion would be unbounded.
            if not self._processing_input:
                self.process_input()

    def _pause_or_resume(self) -> None:
        """Pause or resume the event loop's reading from the socket."""
        if self._paused == self.held or self.transport is None or self.transport.is_closing():
            return
        self._paused = self.held
        if self.held:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def stop_input(self) -> None:
        """Stop reading from the client for good: the server is shutting down."""
        self._input_stopped = True
        self.hold()

    def protocol_violation(self, detail: str) -> None:
        """Disconnect the client, as documented for input that is not a command (protocol.md §3)."""
        self.worker.log.log("02-0001", client=self.shown_name, reason=detail)
        self.close("unknown command")

    def failed(self, trace: str) -> None:
        """Disconnect the client after an unexpected exception: a command may be half done."""
        self.worker.log.log("01-0005", place=f"client[{self.shown_name}] of {self.name}", data=trace)
        self.dismiss("unexpected failure", "see the log of the server")

    # --- output -------------------------------------------------------------------------------------------

    def _output_waits(self) -> None:
        self.worker.dirty.append(self)

    def flush(self) -> None:
        """Pass the collected output to the event loop."""
        transport = self.transport
        if transport is None or transport.is_closing():
            self.output.take()
            return
        chunks = self.output.take() if self.results is None else self.results.take()
        if chunks:
            self.last_output_s = self.worker.now_s()
            transport.writelines(chunks)
            if not self._keeps_up and self._oldest_unsent_s is None:
                self._oldest_unsent_s = self.last_output_s

    @property
    def takes_results(self) -> bool:
        """Whether the client keeps up with the output of the result."""
        return self._keeps_up

    def begin_result(self) -> None:
        """Begin to hold all output but that of a result. Output from before is sent first."""
        self.flush()
        self.results = OutputBuffer(self._output_waits)
        if self.writable:
            self._stop_writing()

    def flush_result(self) -> None:
        """Pass the output of the result on, and check the output that is held for it."""
        self.flush()
        if self.output.pending_bytes:
            self.listener.pool.check(self)

    def end_result(self) -> None:
        """Let the held output follow the result."""
        if self.results is None:
            return
        self.flush()
        self.results.close()
        self.results = None
        self.output.note_paced()
        if self.phase is Phase.CLOSED:
            return
        if self.output.pending_bytes:
            self._output_waits()
        if self._keeps_up:
            self._go_on_writing()
        waiting, self._await_results = self._await_results, []
        for then in waiting:
            self.when_no_result(then)

    @property
    def unsent_bytes(self) -> int:
        """The waiting output that counts against the memory limits.

        Messages of replays do not count: a replay reads no further while output waits. Nor do results of queries.
        Output is sent in order, so the bytes that were added after the last message of a replay are sent last.
        """
        if self.transport is None:
            return 0
        if self.results is not None:
            return int(self.output.pending_bytes)
        waiting = self.transport.get_write_buffer_size() + self.output.pending_bytes
        return min(waiting, self.output.unpaced_bytes)

    def unsent_age_s(self, now_s: float) -> float:
        """How long messages have waited for the client. 0 while it keeps up, or has no live subscriptions."""
        if not self.has_live_subscriptions:
            return 0.0
        return 0.0 if self._oldest_unsent_s is None else now_s - self._oldest_unsent_s

    # --- logon --------------------------------------------------------------------------------------------

    def ready(self, derived_id: int, user: bytes, interval_s: float) -> None:
        """Enter the phase READY after a logon. `user`: the identity as it stands inside the quotes of a header."""
        self.phase = Phase.READY
        self.acks = PublisherAcks(
            self.ingress, self, interval_s, self.publisher_id, self.worker.persisted.destinations
        )
        self.derived_id = derived_id
        # With tracing every publish goes through Python, which logs it.
        self.ingress.log_on(
            self.message_type,
            self.publisher_id,
            derived_id,
            user,
            self.worker.has_journal,
            self.worker.conflated,
            not self.listener.entitlement.allows_all,
            not self.worker.trace,
        )
        self.ingress.logged_sequence = self.logged_sequence

    # --- the end ------------------------------------------------------------------------------------------

    def close(self, reason: str | None) -> None:
        """End the connection from the server's side. Output that was appended before is still sent."""
        if self.phase is Phase.CLOSED:
            return
        self.close_reason = reason
        self.flush()
        self._await_results.clear()
        self.end_result()
        self.flush()
        self.ended()
        if self.transport is not None:
            self.transport.close()

    def dismiss(self, reason: str, detail: str) -> None:
        """End the connection from the server's side and send the client a stable reason and a detail text.

        They are sent in a failed acknowledgement without a command id, in the form of a refused logon
        (docs/messages.md). A client whose output is paused is disconnected without it.
        """
        if self.phase is Phase.CLOSED:
            return
        if not self._keeps_up or self.transport is None:
            self.abort(reason)
            return
        self.acknowledge("processed", None, reason, client_name=self.client_name or None, detail=detail)
        self.close(reason)
        self.worker.loop.call_later(DISMISSED_S, self.transport.abort)

    def abort(self, reason: str | None) -> None:
        """End the connection at once, dropping its output."""
        if self.phase is Phase.CLOSED:
            return
        self.close_reason = reason
        self.ended()
        if self.transport is not None:
            self.transport.abort()

    def ended(self) -> None:
        """Release all resources; idempotent."""
        if self.phase is Phase.CLOSED:
            return
        known_to_core = self.commands.logon.known_to_core
        self.phase = Phase.CLOSED
        self.output.close()
        for command in list(self.under_way):
            command.cancel()
        if self.results is not None:
            self.results.close()
        self._await_results.clear()
        for subscription in list(self.subscriptions.values()):
            self.worker.feeds.remove(subscription)
        self.subscriptions.clear()
        self.commands.heartbeat.cancel()
        self.spilling.discard()
        if known_to_core:
            self.worker.core.push_control(control_record(None, KIND_DISCONNECT, self.slot, self.serial))
        self.worker.disconnected(self)
        # A connection is part of reference cycles; its memory must not wait for the collector. The current frame may
        # still be in use, and is needed until this callback ends.
        self.worker.loop.call_soon(self.ingress.give_back_memory)
        self.worker.log.log("07-0013", client=self.shown_name, reason=self.close_reason)


def now_name_number() -> int:
    """The number in a connection's name: microseconds of its creation time, on the scale of journal dumps."""
    return time.time_ns() // 1000 + 210866803200000000
