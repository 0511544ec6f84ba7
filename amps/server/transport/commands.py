"""What each command of a client does (protocol.md §§6-16).

Commands of one connection take effect in the order in which they were sent. Publishes go through the ring. A command
that depends on earlier publishes (subscribe, flush) is a *barrier*: it takes effect when the core has read the ring up
to the place where the command arrived. A subscribe holds the connection's input meanwhile, so that later commands are
ordered after it.

A refused command is answered with a failure if it requests an acknowledgement, and is always logged.
"""

from collections.abc import Callable

from amps.server.transport import queries
from amps.server.transport.acknowledging import Acknowledging
from amps.server.transport.answering import SUBSCRIBE_COMMANDS, Header, refuse, text_of, wanted_acks
from amps.server.transport.command import Command
from amps.server.transport.context import WorkerContext
from amps.server.transport.failures import CommandFailure
from amps.server.transport.heartbeats import Heartbeat
from amps.server.transport.logons import Logon
from amps.server.transport.publishing import Publishing
from amps.server.transport.session import Phase, Session
from amps.server.transport.sow_deletions import Deleting
from amps.server.transport.spilling import Spilling
from amps.server.transport.subscribing import Subscribing
from amps.server.transport.transacting import Transacting

TRACE_IDS = {
    "publish": "12-0001",
    "subscribe": "12-0002",
    "unsubscribe": "12-0003",
    "flush": "12-0004",
    "heartbeat": "12-0005",
    "logon": "12-0010",
}


class Commands:
    """Carries out the commands of one connection."""

    def __init__(self, connection: Session, worker: WorkerContext, spilling: Spilling) -> None:
        self._connection = connection
        self._worker = worker
        self.logon = Logon(connection, worker)
        self.publishing = Publishing(connection, worker, spilling)
        self.subscribing = Subscribing(connection, worker)
        self.acknowledging = Acknowledging(connection, worker)
        self.deleting = Deleting(connection, worker)
        self.transacting = Transacting(connection, worker)
        self.heartbeat = Heartbeat(connection, worker)
        self._handlers: dict[str, Callable[[Header], None]] = {
            "logon": self.logon.do,
            "publish": self.publishing.do,
            "p": self.publishing.do,
            "delta_publish": self.publishing.do,
            "d": self.publishing.do,
            "unsubscribe": self.subscribing.unsubscribe,
            "sow": lambda header: queries.query(connection, worker, header),
            "sow_delete": self._do_sow_delete,
            "transaction": self.transacting.do,
            "flush": self._do_flush,
            "heartbeat": self.heartbeat.do,
            "start_timer": self._do_timer,
            "stop_timer": self._do_timer,
        }
        for command in SUBSCRIBE_COMMANDS:
            self._handlers[command] = self.subscribing.subscribe

    def execute(self) -> None:
        """Carry out the command in the current frame of the ingress."""
        connection = self._connection
        header: Header = connection.ingress.header
        command = text_of(header, "cmd")
        handler = self._handlers.get(command)
        if handler is None:
            connection.protocol_violation(f"unknown command {command[:100]!r}")
            return
        if self._worker.trace:
            self._trace(command)
        if connection.phase is Phase.CONNECTED and command != "logon":
            self.logon.implicit(header)
            return
        try:
            handler(header)
        except CommandFailure as failure:
            refuse(connection, header, failure)

    def _trace(self, command: str) -> None:
        ingress = self._connection.ingress
        record_id = TRACE_IDS.get("publish" if command in ("p", "publish") else command, "12-0009")
        body = ingress.body if record_id == "12-0001" else b""
        self._worker.log.log(
            record_id, client=self._connection.shown_name, command=command, data=ingress.raw_header + body
        )

    def _do_sow_delete(self, header: Header) -> None:
        # A bookmark names a message of a queue.
        if header.get("bookmark") is None and self.deleting.concerns(header):
            self.deleting.do(header)
        else:
            self.acknowledging.do(header)

    def _do_flush(self, header: Header) -> None:
        connection, worker = self._connection, self._worker
        wanted = wanted_acks(header)
        command_id = header.get("cmd_id")
        for kind in ("received", "processed"):
            if kind in wanted:
                connection.acknowledge(kind, command_id)
        if wanted & {"completed", "persisted"}:
            command = Command(connection, worker, header)
            command.run(self._flush(command, wanted), holds=False)

    async def _flush(self, command: Command, wanted: set[str]) -> None:
        connection, worker = self._connection, self._worker
        command_id = command.header.get("cmd_id")
        await command.consumed()
        if "completed" in wanted:
            connection.acknowledge("completed", command_id)
        if "persisted" in wanted:
            await command.persisted(worker.core.written())
            # The publishes' own acknowledgements come first, whatever their interval.
            connection.acks.advance(worker.core, worker.now_s(), force=True)
            connection.acknowledge("persisted", command_id)

    def _do_timer(self, header: Header) -> None:
        """start_timer and stop_timer are only named in the documents: accepted, without effect (D25)."""
        if "processed" in wanted_acks(header):
            self._connection.acknowledge("processed", header.get("cmd_id"))
