"""Logging on (protocol.md §6): the credentials, then the name, then the sequence of the client's last message.

The core decides about names, for all transports. Input is held until the core has answered, and until the last sequence
in its answer is durable: a publisher forgets messages that the server acknowledges.

So with destinations of replication, the answer has two numbers (replication.md 25.36): `seq` is the sequence up to
which all messages are fully persisted, and `bookmark` has the highest one in the log. It takes a moment after a start
until it is known which records the destinations are to get. If that takes long, the answer says less than is persisted:
then the publisher keeps more messages than it must.
"""

import json
from collections.abc import Callable
from functools import partial

from amps._core.values.value import derived_publisher_id, publisher_id
from amps.server.records import KIND_LOGON, NAME_BYTES_MAX, RESERVED_NAMES, control_record
from amps.server.transport.answering import Header, refuse, text_of, wanted_acks
from amps.server.transport.command import Command
from amps.server.transport.context import WorkerContext
from amps.server.transport.failures import CommandFailure
from amps.server.transport.options import Options, parse_logon_options
from amps.server.transport.session import Phase, Session
from amps.version import WIRE_VERSION

KNOWN_WAIT_S = 2.0


class Logon:
    """The logon of one connection."""

    def __init__(self, connection: Session, worker: WorkerContext) -> None:
        self._connection = connection
        self._worker = worker
        self.known_to_core = False
        self._answered: Callable[[tuple[bool, int, int]], None] | None = None

    def implicit(self, header: Header) -> None:
        """Begin a logon with empty user and password for a command before the logon (protocol.md §6, rule 1)."""
        connection = self._connection
        if connection.listener.authenticator.implicit_logon:
            connection.ingress.unread()
            try:
                self._begin({"cmd": "logon"})
            except CommandFailure as failure:
                connection.ingress.consume()
                refuse(connection, header, failure)
                connection.close("auth")
            return
        refuse(connection, header, CommandFailure("logon required"))
        connection.close("auth")

    def do(self, header: Header) -> None:
        """The command `logon`. Raises CommandFailure."""
        connection = self._connection
        if connection.phase is not Phase.CONNECTED:
            raise CommandFailure("duplicate logon")
        if "received" in wanted_acks(header):
            connection.acknowledge("received", header.get("cmd_id"))
        try:
            self._begin(header)
        except CommandFailure as failure:
            self._refuse(header, failure)

    def _refuse(self, header: Header, failure: CommandFailure) -> None:
        connection = self._connection
        self._worker.log.log(
            "25-0001", client=connection.shown_name, user=text_of(header, "user_id"), reason=str(failure)
        )
        if "processed" in wanted_acks(header):
            client_name = header.get("client_name")
            connection.acknowledge(
                "processed",
                header.get("cmd_id"),
                failure.reason,
                client_name=client_name,
                **failure.fields,
            )
        close_reasons = {"name in use": "name in use", "not entitled": "entitlement"}
        connection.close(close_reasons.get(failure.reason, "auth"))

    def _begin(self, header: Header) -> None:
        """Check credentials, then ask the core for the name. Raises CommandFailure."""
        connection, listener = self._connection, self._connection.listener
        message_type = text_of(header, "message_type") or listener.message_type or ""
        if message_type not in self._worker.config.message_types or (
            listener.message_type is not None and message_type != listener.message_type
        ):
            raise CommandFailure("invalid message type", self._expected(message_type))
        options = parse_logon_options(text_of(header, "opts"))
        user = text_of(header, "user_id")
        decision = listener.authenticator.authenticate(user, text_of(header, "password"))
        if not decision.accepted:
            raise CommandFailure(decision.reason or "auth failure")
        if not listener.entitlement.may_log_on(decision.identity):
            raise CommandFailure("not entitled", "to log on")
        client_name = text_of(header, "client_name") or connection.name
        if max(len(client_name.encode()), len(decision.identity.encode())) > NAME_BYTES_MAX:
            raise CommandFailure("auth failure", "the client name or user name is too long")
        if client_name.startswith(RESERVED_NAMES):
            raise CommandFailure(
                "auth failure", f"names that begin with '{RESERVED_NAMES}' are the server's own"
            )
        connection.identity = decision.identity
        connection.message_type = message_type
        connection.client_version = text_of(header, "version")
        connection.correlation_id = text_of(header, "correlation_id")
        connection.logging_on(client_name)
        self.known_to_core = True
        command = Command(connection, self._worker, header)
        command.run(self._log_on(command, options, decision.reason))

    async def _log_on(self, command: Command, options: Options, accepted_because: str | None) -> None:
        """Request the name from the core. `accepted_because`: the reason that the authentication gave."""
        connection, worker, header = self._connection, self._worker, command.header
        name = connection.client_name
        record = control_record((name, connection.identity), KIND_LOGON, connection.slot, connection.serial)
        worker.core.push_control(record)
        answer: tuple[bool, int, int] = await command.wait(self._expect_answer)
        accepted, last_sequence, journal_position = answer
        if not accepted:
            self.known_to_core = False
            self._refuse(header, CommandFailure("name in use", "by another user"))
            return
        # The last sequence that the core reports may be sent only once it is durable.
        await command.durable(journal_position)
        connection.publisher_id = publisher_id(name)
        connection.logged_sequence = last_sequence
        persisted = await self._persisted_sequence(command, last_sequence, journal_position)
        user = json.dumps(connection.identity, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")
        connection.ready(derived_publisher_id(name, worker.config.name), user, options.ack_conflation_s)
        self._tell_others(name)
        worker.log.log(
            "1F-0004",
            connection=connection.name,
            client=name,
            auth_id=connection.identity,
            name_hash=connection.publisher_id,
            version=connection.client_version,
            last_acked=persisted,
            last_logged=last_sequence,
            correlation_id=connection.correlation_id,
        )
        if "processed" in wanted_acks(header):
            connection.acknowledge(
                "processed",
                header.get("cmd_id"),
                client_name=name,
                seq=persisted,
                bookmark=f"{connection.publisher_id}|{last_sequence}|",
                version=WIRE_VERSION,
                reason=accepted_because,
            )

    async def _persisted_sequence(self, command: Command, last_sequence: int, journal_position: int) -> int:
        """The sequence up to which the publisher's messages before a log position are fully persisted."""
        destinations = self._worker.persisted.destinations
        if destinations is None or last_sequence == 0:
            return last_sequence
        await command.until(partial(self._when_known, journal_position))
        publisher = self._connection.publisher_id
        return destinations.persisted_sequence(publisher, last_sequence, journal_position)

    def _when_known(self, position: int, known: Callable[[], None]) -> None:
        """Call `known` when it is known which records before a log position the destinations are to get, or after
        KNOWN_WAIT_S.
        """
        connection, worker = self._connection, self._worker

        def in_time() -> None:
            if token is not None:
                timer.cancel()
            known()

        def too_late() -> None:
            if token is not None:
                worker.persisted.give_up(connection, token)
            known()

        token: int | None = None
        token = worker.persisted.when_acknowledged(
            connection, connection.publisher_id, position, in_time, known_only=True
        )
        if token is not None:
            timer = worker.clock.call_later(worker.loop, KNOWN_WAIT_S, too_late)

    def _expect_answer(self, answered: Callable[[tuple[bool, int, int]], None]) -> None:
        self._answered = answered

    def answered(self, accepted: bool, last_sequence: int, journal_position: int) -> None:
        """Pass the core's answer to the waiting command."""
        assert self._answered is not None
        self._answered((accepted, last_sequence, journal_position))

    def _expected(self, message_type: str) -> str:
        """Describe why a message type is not accepted, and list the accepted ones."""
        only = self._connection.listener.message_type
        known = (
            f"this transport takes {only}"
            if only
            else f"there are {', '.join(self._worker.config.message_types)}"
        )
        return f"{message_type[:100]!r}, and {known}" if message_type else f"none is named, and {known}"

    def _tell_others(self, name: str) -> None:
        """Publish the client's name and address for the filters in all workers."""
        connection, worker = self._connection, self._worker
        facts = {
            "client_name": name,
            "connection_name": connection.name,
            "client_version": connection.client_version,
            "remote_address": connection.address,
        }
        try:
            worker.publishers.tell(connection.slot, connection.publisher_id, facts)
        except OSError as error:
            detail = f"filters will not know who publishes as {name!r}: {error}"
            worker.log.log("01-0005", place=connection.shown_name, data=detail)
