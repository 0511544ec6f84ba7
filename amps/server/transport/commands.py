"""What each command of a client does (protocol.md §§6-16).

Commands of one connection take effect in the order in which they were sent. Publishes go through the ring; a
command that depends on what was published before it (subscribe, flush) is a *barrier*: it takes effect when the core
has consumed the ring up to the place where the command came. A subscribe holds the connection's input meanwhile, so
that what follows it is ordered after it.

A command that is refused answers with a failure if an acknowledgement was asked for, and is always logged.
"""

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from amps._core import ingress as inbound
from amps._core.identity import derived_publisher_id, publisher_id
from amps._core.log_reader import LogDamaged
from amps._core.topic_table import TopicEntry
from amps.server.records import KIND_LOGON, control_record
from amps.server.topics import BadTopicExpression, has_regex_characters, topic_predicate
from amps.server.transport.bookmarks import StartPoint, format_bookmark, parse_bookmark
from amps.server.transport.failures import CommandFailure, not_supported_yet
from amps.server.transport.journal_view import StartSearch
from amps.server.transport.options import Options, parse_interval, parse_logon_options, parse_options
from amps.server.transport.subscriptions import Subscription
from amps.version import WIRE_VERSION

if TYPE_CHECKING:
    from amps.server.transport.connection import Connection

Header = dict[str, Any]

SUBSCRIBE_COMMANDS = ("subscribe", "delta_subscribe", "sow_and_subscribe", "sow_and_delta_subscribe")
BATCH_SIZE_MAX = 10_000
NAME_BYTES_MAX = 60_000
TRACE_IDS = {
    "publish": "12-0001",
    "subscribe": "12-0002",
    "unsubscribe": "12-0003",
    "flush": "12-0004",
    "heartbeat": "12-0005",
    "logon": "12-0010",
}


def wanted_acks(header: Header) -> set[str]:
    """The acknowledgement types a command asks for; unknown words and `none` ask for nothing (D30)."""
    text = header.get("ack_type", "")
    words = {word.strip() for word in str(text).split(",")}
    return words & {"received", "processed", "persisted", "completed", "stats"}


def text_of(header: Header, name: str) -> str:
    """A header field as text, empty if absent."""
    value = header.get(name)
    return "" if value is None else str(value)


class Commands:
    """Carries out the commands of one connection."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._worker = connection.worker
        self.known_to_core = False
        self.completed_ids: dict[str, str | None] = {}  # subscription id -> command id of its `completed` ack
        self._logon: Header | None = None
        self._decision_reason: str | None = None
        self._options = Options()
        self._generated_ids = 0
        self._heartbeat_s = 0.0
        self._heartbeat_timer: asyncio.TimerHandle | None = None
        self._handlers: dict[str, Callable[[Header], None]] = {
            "logon": self._do_logon,
            "publish": self._do_publish,
            "p": self._do_publish,
            "delta_publish": self._do_publish,
            "d": self._do_publish,
            "unsubscribe": self._do_unsubscribe,
            "sow": self._do_sow,
            "sow_delete": self._do_sow_delete,
            "flush": self._do_flush,
            "heartbeat": self._do_heartbeat,
            "start_timer": self._do_timer,
            "stop_timer": self._do_timer,
        }
        for command in SUBSCRIBE_COMMANDS:
            self._handlers[command] = self._do_subscribe

    def execute(self) -> None:
        """Carry out the ingress's current frame."""
        connection = self._connection
        header: Header = connection.ingress.header
        command = text_of(header, "cmd")
        handler = self._handlers.get(command)
        if handler is None:
            connection.protocol_violation(f"unknown command {command[:100]!r}")
            return
        if self._worker.trace:
            self._trace(command)
        if connection.phase.value == "connected" and command != "logon":
            self._implicit_logon(header)
            return
        try:
            handler(header)
        except CommandFailure as failure:
            self.refuse(header, failure)

    def _trace(self, command: str) -> None:
        ingress = self._connection.ingress
        record_id = TRACE_IDS.get("publish" if command in ("p", "publish") else command, "12-0009")
        body = ingress.body if record_id == "12-0001" else b""
        self._worker.log.log(
            record_id, client=self._connection.shown_name, command=command, data=ingress.raw_header + body
        )

    def refuse(self, header: Header, failure: CommandFailure) -> None:
        """Answer a command with a failure, and log it."""
        connection = self._connection
        command_id = header.get("cmd_id")
        wanted = wanted_acks(header)
        self._worker.log.log(
            "02-0030", client=connection.shown_name, command=text_of(header, "cmd"), reason=str(failure)
        )
        if "received" in wanted and command_id is not None:
            connection.acknowledge("received", command_id)
        extra: Header = {}
        if text_of(header, "cmd") in SUBSCRIBE_COMMANDS:
            extra["sub_id"] = header.get("sub_id") or command_id
        if header.get("query_id"):
            extra["query_id"] = header["query_id"]
        if "processed" in wanted:
            connection.acknowledge("processed", command_id, failure.reason, **extra)
        elif "persisted" in wanted and text_of(header, "cmd") == "sow_delete":
            connection.acknowledge("persisted", command_id, failure.reason, **extra)

    def cancel(self) -> None:
        """The connection ended."""
        if self._heartbeat_timer is not None:
            self._heartbeat_timer.cancel()

    # --- logon --------------------------------------------------------------------------------------------

    def _implicit_logon(self, header: Header) -> None:
        """A command before the logon: an implicit one with empty user and password (protocol.md §6, rule 1)."""
        connection = self._connection
        if connection.listener.authenticator.implicit_logon:
            connection.ingress.unread()
            try:
                self._begin_logon({"cmd": "logon"})
            except CommandFailure as failure:
                connection.ingress.consume()
                self.refuse(header, failure)
                connection.close("auth")
            return
        self.refuse(header, CommandFailure("logon required"))
        connection.close("auth")

    def _do_logon(self, header: Header) -> None:
        connection = self._connection
        if connection.phase.value != "connected":
            raise CommandFailure("duplicate logon")
        if "received" in wanted_acks(header):
            connection.acknowledge("received", header.get("cmd_id"))
        try:
            self._begin_logon(header)
        except CommandFailure as failure:
            self._refuse_logon(header, failure.reason, str(failure))

    def _refuse_logon(self, header: Header, reason: str, detail: str) -> None:
        connection = self._connection
        self._worker.log.log(
            "25-0001", client=connection.shown_name, user=text_of(header, "user_id"), reason=detail
        )
        if "processed" in wanted_acks(header):
            client_name = header.get("client_name")
            connection.acknowledge("processed", header.get("cmd_id"), reason, client_name=client_name)
        close_reasons = {"name in use": "name in use", "not entitled": "entitlement"}
        connection.close(close_reasons.get(reason, "auth"))

    def _begin_logon(self, header: Header) -> None:
        """Check credentials, then ask the core for the name. Raises CommandFailure."""
        connection, listener = self._connection, self._connection.listener
        message_type = text_of(header, "message_type") or listener.message_type or ""
        if message_type not in self._worker.config.message_types or (
            listener.message_type is not None and message_type != listener.message_type
        ):
            raise CommandFailure("invalid message type", repr(message_type[:100]))
        self._options = parse_logon_options(text_of(header, "opts"))
        user = text_of(header, "user_id")
        decision = listener.authenticator.authenticate(user, text_of(header, "password"))
        if not decision.accepted:
            raise CommandFailure(decision.reason or "auth failure")
        if not listener.entitlement.may_log_on(decision.identity):
            raise CommandFailure("not entitled", "to log on")
        client_name = text_of(header, "client_name") or connection.name
        if max(len(client_name.encode()), len(decision.identity.encode())) > NAME_BYTES_MAX:
            raise CommandFailure("auth failure", "the client name or user name is too long")
        connection.identity = decision.identity
        connection.message_type = message_type
        connection.client_version = text_of(header, "version")
        connection.correlation_id = text_of(header, "correlation_id")
        self._logon = header
        self._decision_reason = decision.reason
        connection.logging_on(client_name)
        connection.hold()
        self.known_to_core = True
        self._worker.push_control(
            control_record((client_name, decision.identity), KIND_LOGON, connection.slot, connection.serial)
        )

    def logon_answered(self, accepted: bool, last_sequence: int, journal_position: int) -> None:
        """The core's answer. What it says of the last sequence is only promised once that is durable."""
        if not accepted:
            assert self._logon is not None
            self.known_to_core = False
            self._refuse_logon(self._logon, "name in use", "name in use by another user")
            return
        self._worker.when_durable(journal_position, lambda: self._complete_logon(last_sequence))

    def _complete_logon(self, last_sequence: int) -> None:
        connection, worker, header = self._connection, self._worker, self._logon
        if connection.phase.value == "closed" or header is None:
            return
        name = connection.client_name
        connection.publisher_id = publisher_id(name)
        user = json.dumps(connection.identity, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")
        connection.ready(derived_publisher_id(name, worker.config.name), user, self._options.ack_conflation_s)
        worker.log.log(
            "1F-0004",
            connection=connection.name,
            client=name,
            auth_id=connection.identity,
            name_hash=connection.publisher_id,
            version=connection.client_version,
            last_acked=last_sequence,
            last_logged=last_sequence,
            correlation_id=connection.correlation_id,
        )
        if "processed" in wanted_acks(header):
            connection.acknowledge(
                "processed",
                header.get("cmd_id"),
                client_name=name,
                seq=last_sequence,
                bookmark=f"{connection.publisher_id}|{last_sequence}|",
                version=WIRE_VERSION,
                reason=self._decision_reason,
            )
        self._logon = None
        connection.release()

    # --- publish ------------------------------------------------------------------------------------------

    def _do_publish(self, header: Header) -> None:
        """A publish that the ingress does not take by itself: acks of its own, unusual headers."""
        connection, ingress = self._connection, self._connection.ingress
        try:
            entry = self._publish_target(header)
        except CommandFailure as failure:
            self._publish_failed(header, failure)
            return
        if entry is None:
            ingress.unread()
            return
        wanted = wanted_acks(header)
        sequence = int(header.get("seq") or 0)
        conflated = "persisted" in wanted and sequence > 0 and self._worker.conflated
        while True:
            result = ingress.publish_current(entry, conflated)
            if result == inbound.PERMISSION:
                ingress.set_permission(entry, connection.may("write", entry.name))
                continue
            break
        if result == inbound.RING_FULL:
            ingress.unread()
            connection.hold()
            self._worker.wait_for_ring(connection)
            return
        if result == inbound.DENIED:
            self._publish_failed(header, CommandFailure(entry.refusal or "not entitled"))
            return
        if result == inbound.SPILL:
            ingress.unread()
            if not connection.spill():
                return
        self._acknowledge_publish(header, wanted, sequence, conflated, entry.logged)

    def _publish_target(self, header: Header) -> TopicEntry | None:
        """The topic's entry; None if the ring had no room to declare it. Raises CommandFailure."""
        topic = header.get("topic")
        if not topic or not isinstance(topic, str):
            raise CommandFailure("no topic")
        try:
            topic.encode()
        except UnicodeEncodeError as error:
            raise CommandFailure("invalid topic", str(error)) from error
        sequence = header.get("seq", 0)
        expiration = header.get("expiration", 0)
        if not isinstance(sequence, int) or sequence != self._connection.ingress.frame_sequence:
            raise CommandFailure("parse error", "the sequence is no number")
        if not isinstance(expiration, int) or not 0 <= expiration < (1 << 32) - 1:
            raise CommandFailure("parse error", "the expiration is no number of seconds")
        if not self._connection.ingress.parts_fit:
            raise CommandFailure("parse error", "correlation id or SOW key is too long")
        if not self._connection.declare_topic(topic):
            return None
        return self._worker.topics.entry(topic, self._connection.message_type)

    def _acknowledge_publish(
        self, header: Header, wanted: set[str], sequence: int, conflated: bool, logged: bool
    ) -> None:
        connection, worker = self._connection, self._worker
        command_id = header.get("cmd_id")
        for kind in ("received", "processed"):
            if kind in wanted:
                connection.acknowledge(kind, command_id)
        position = worker.ring.pushed
        if "completed" in wanted:
            worker.when_consumed(position, lambda: connection.acknowledge("completed", command_id))
        if "persisted" in wanted and not conflated:
            extra: Header = {"seq": sequence or None}

            def stored() -> None:
                connection.acknowledge("persisted", command_id, **extra)

            def consumed() -> None:
                worker.when_durable(worker.written() if logged else 0, stored)

            worker.when_consumed(position, consumed)

    def publish_denied(self) -> None:
        """The ingress refused a plain publish."""
        ingress = self._connection.ingress
        entry = ingress.topic_entry
        reason = "no topic" if entry is None else (entry.refusal or "not entitled")
        self._publish_failed(ingress.header, CommandFailure(reason))

    def _publish_failed(self, header: Header, failure: CommandFailure) -> None:
        connection, worker = self._connection, self._worker
        worker.log.log("02-0030", client=connection.shown_name, command="publish", reason=str(failure))
        wanted = wanted_acks(header)
        command_id = header.get("cmd_id")
        sequence = header.get("seq")
        if "received" in wanted:
            connection.acknowledge("received", command_id)
        if "processed" in wanted:
            connection.acknowledge("processed", command_id, failure.reason)
        if "persisted" in wanted:
            if worker.conflated and isinstance(sequence, int) and sequence > 0:
                connection.acks.refuse(worker.ring.pushed, sequence, failure.reason)
                worker.acknowledge(connection)
                if connection.acks.crowded:
                    connection.hold()
                    worker.wait_for_ring(connection)
            else:
                number = sequence if type(sequence) is int else None
                connection.acknowledge("persisted", command_id, failure.reason, seq=number)

    # --- subscriptions ------------------------------------------------------------------------------------

    def _do_subscribe(self, header: Header) -> None:
        connection, worker = self._connection, self._worker
        command = text_of(header, "cmd")
        subscription, start = self._checked_subscription(header, command)
        wanted = wanted_acks(header)
        if "received" in wanted:
            connection.acknowledge("received", header.get("cmd_id"))
        connection.hold()

        def enter(search: StartSearch | None = None) -> None:
            try:
                self._activate(header, command, subscription, start, search, wanted)
            except CommandFailure as failure:
                self.refuse({**header, "ack_type": ",".join(wanted - {"received"})}, failure)
            except LogDamaged as damage:
                worker.journal_damaged(connection, damage)
            connection.release()

        def activate() -> None:
            if connection.phase.value == "closed":
                return
            replaces = subscription.sub_id in connection.subscriptions
            if start is not None and worker.has_journal and not replaces:
                worker.search(subscription, start, enter)
            else:
                enter()

        worker.when_consumed(worker.ring.pushed, activate)

    def _checked_subscription(self, header: Header, command: str) -> tuple[Subscription, StartPoint | None]:
        """Everything about a subscription that needs no log. Raises CommandFailure."""
        connection, worker = self._connection, self._worker
        topic = text_of(header, "topic")
        bookmark = header.get("bookmark")
        if not topic and text_of(header, "opts") in ("pause", "resume"):  # by sub_id; needs no topic (D16)
            raise not_supported_yet("pausing subscriptions")
        if not topic:
            raise CommandFailure("no topic")
        if bookmark is not None and command in ("delta_subscribe", "sow_and_delta_subscribe"):
            raise CommandFailure("invalid options", "a delta subscription takes no bookmark")
        options = parse_options(text_of(header, "opts"), command, bookmark is not None)
        start = parse_bookmark(str(bookmark)) if bookmark is not None else None
        self._check_batch_size(header)
        if header.get("top_n") is not None and command == "subscribe":
            if start is None or start.now:
                raise CommandFailure("invalid options", "top_n is for replays")
            raise not_supported_yet("top_n on replays")
        if header.get("filter") is not None:
            raise not_supported_yet("content filters")
        if command == "sow_and_subscribe" and start is not None and start != StartPoint(now=True):
            raise CommandFailure("invalid bookmark", "a topic without History can only start now")
        try:
            predicate = topic_predicate(
                topic, worker.config.regex_topic_support and not options.non_regex_topic
            )
        except BadTopicExpression as error:
            raise CommandFailure("bad regex topic", str(error)) from error
        sub_id = text_of(header, "sub_id") or text_of(header, "cmd_id")
        if not sub_id:
            self._generated_ids += 1
            sub_id = f"SAMPS-{connection.serial}-{self._generated_ids}"
        if "," in sub_id:
            raise CommandFailure("invalid sub id", "an id holds no comma")
        if sub_id in connection.subscriptions and not options.replace:
            raise CommandFailure("subscription already exists")
        # A topic whose only regex character is the dot may well be meant as a name: then it must be permitted.
        permitted = True
        as_name = predicate is None or not has_regex_characters(topic.replace(".", ""))
        if as_name and not connection.may("read", topic):
            if not options.replace:
                raise CommandFailure("not entitled", f"to read {topic!r}")
            permitted = False
        by_name = predicate is None and permitted and start is not None
        if by_name and not worker.matcher.is_logged(topic, connection.message_type):
            raise CommandFailure("invalid topic", f"{topic!r} is not recorded in the transaction log")
        subscription = Subscription(
            connection,
            sub_id,
            topic,
            predicate,
            options,
            None if bookmark is None else str(bookmark),
            send_ids=header.get("send_matching_ids") is not False,
            permitted=permitted,
            wants_persisted=bookmark is not None
            and command == "subscribe"
            and "persisted" in wanted_acks(header),
        )
        return subscription, start

    def _check_batch_size(self, header: Header) -> None:
        size = header.get("batch_size")
        if size is not None and (not isinstance(size, int) or not 1 <= size <= BATCH_SIZE_MAX):
            raise CommandFailure("invalid options", f"batch size {size}")

    def _activate(
        self,
        header: Header,
        command: str,
        subscription: Subscription,
        start: StartPoint | None,
        search: StartSearch | None,
        wanted: set[str],
    ) -> None:
        """Enter the subscription at this point of the order of the instance. Raises CommandFailure."""
        connection, worker = self._connection, self._worker
        command_id = header.get("cmd_id")
        existing = connection.subscriptions.get(subscription.sub_id)
        replay = None
        if existing is not None:
            worker.replace_subscription(existing, subscription)
        elif start is None:
            worker.enter_live(subscription)
        elif search is not None:
            replay = worker.prepare_replay(subscription, search)
        else:
            # An expression, and nothing is recorded: there is nothing to deliver, now or later.
            worker.enter_idle(subscription)
        query = command.startswith("sow_and")
        query_id = header.get("query_id") or command_id or subscription.sub_id
        extra: Header = {"sub_id": subscription.sub_id}
        if query:
            extra["query_id"] = header.get("query_id")
        if "processed" in wanted:
            connection.acknowledge("processed", command_id, **extra)
        if query:
            # No topic has a SOW: the query part is an empty group (protocol.md §9.2).
            connection.send({"cmd": "group_begin", "query_id": query_id})
            connection.send({"cmd": "group_end", "query_id": query_id})
        if "completed" in wanted:
            if query:
                connection.acknowledge("completed", command_id, **extra)
            elif replay is not None:
                self.completed_ids[subscription.sub_id] = command_id
                replay.completed_at = worker.written()
            elif start is not None:
                connection.acknowledge("completed", command_id, **extra, bookmark=format_bookmark(0, 0))
        if replay is not None:
            worker.start_replay(replay)
        worker.log.log(
            "14-0001",
            client=connection.shown_name,
            sub_id=subscription.sub_id,
            topic=subscription.topic,
            options=text_of(header, "opts"),
        )

    def _do_unsubscribe(self, header: Header) -> None:
        connection, worker = self._connection, self._worker
        sub_ids, query_ids = text_of(header, "sub_id"), text_of(header, "query_id")
        if not sub_ids and not query_ids:
            raise CommandFailure("invalid sub id", "unsubscribe needs a sub_id or a query_id")
        if "received" in wanted_acks(header):
            connection.acknowledge("received", header.get("cmd_id"))
        if sub_ids.strip() == "all":
            names = list(connection.subscriptions)
        else:
            names = [name.strip() for name in sub_ids.split(",") if name.strip()]
        for name in names:
            subscription = connection.subscriptions.get(name)
            if subscription is not None:
                worker.remove_subscription(subscription)
                worker.log.log("14-0002", client=connection.shown_name, sub_id=name, topic=subscription.topic)
        if "processed" in wanted_acks(header):
            connection.acknowledge("processed", header.get("cmd_id"), sub_id=header.get("sub_id"))

    # --- queries and deletes: no topic has a SOW yet --------------------------------------------------------

    def _do_sow(self, header: Header) -> None:
        connection = self._connection
        topic = text_of(header, "topic")
        if not topic:
            raise CommandFailure("no topic")
        self._check_batch_size(header)
        options = parse_options(text_of(header, "opts"), "sow", False)
        if header.get("filter") is not None:
            raise not_supported_yet("content filters")
        regex = self._worker.config.regex_topic_support and not options.non_regex_topic
        try:
            predicate = topic_predicate(topic, regex)
        except BadTopicExpression as error:
            raise CommandFailure("bad regex topic", str(error)) from error
        if predicate is None:
            raise CommandFailure("invalid topic", f"{topic!r} has no SOW")
        wanted = wanted_acks(header)
        command_id = header.get("cmd_id")
        query_id = header.get("query_id") or command_id
        sent_id = {"query_id": header.get("query_id")}
        for kind in ("received", "processed"):
            if kind in wanted:
                connection.acknowledge(kind, command_id, **sent_id)
        connection.send({"cmd": "group_begin", "query_id": query_id})
        connection.send({"cmd": "group_end", "query_id": query_id})
        if "completed" in wanted:
            connection.acknowledge("completed", command_id, **sent_id)
        if "stats" in wanted:
            connection.acknowledge(
                "stats", command_id, **sent_id, topic_matches=0, matches=0, records_returned=0
            )

    def _do_sow_delete(self, header: Header) -> None:
        selectors = [name for name in ("sow_keys", "filter", "bookmark") if header.get(name) is not None]
        if self._connection.ingress.body_length:
            selectors.append("body")
        if not text_of(header, "topic"):
            raise CommandFailure("no topic")
        if not selectors:
            raise CommandFailure("no filter or bookmark")
        if len(selectors) > 1:
            raise CommandFailure("invalid options", "selectors exclude each other: " + ", ".join(selectors))
        raise CommandFailure("invalid topic", f"{text_of(header, 'topic')!r} has no SOW")

    # --- flush, heartbeat, timers ---------------------------------------------------------------------------

    def _do_flush(self, header: Header) -> None:
        connection, worker = self._connection, self._worker
        wanted = wanted_acks(header)
        command_id = header.get("cmd_id")
        for kind in ("received", "processed"):
            if kind in wanted:
                connection.acknowledge(kind, command_id)
        if not wanted & {"completed", "persisted"}:
            return

        def persisted() -> None:
            # The publishes' own acknowledgements come first, whatever their interval.
            connection.acks.advance(worker, worker.now_s(), force=True)
            connection.acknowledge("persisted", command_id)

        def consumed() -> None:
            if "completed" in wanted:
                connection.acknowledge("completed", command_id)
            if "persisted" in wanted:
                worker.when_durable(worker.written(), persisted)

        worker.when_consumed(worker.ring.pushed, consumed)

    def _do_heartbeat(self, header: Header) -> None:
        connection = self._connection
        text = text_of(header, "opts") or text_of(header, "heartbeat")
        if header.get("heartbeat") is not None and header.get("timeout_interval") is not None:
            text += f",{header['timeout_interval']}"
        words = [word.strip() for word in text.split(",") if word.strip()]
        wanted = wanted_acks(header)
        if words[:1] == ["start"] and len(words) == 2:
            try:
                interval_s = parse_interval(words[1])
            except ValueError as error:
                raise CommandFailure("invalid options", str(error)) from error
            self._start_heartbeat(interval_s)
        elif words == ["stop"]:
            self._start_heartbeat(0.0)
        elif words not in ([], ["beat"], ["none"]):
            raise CommandFailure("invalid options", f"heartbeat {text!r}")
        for kind in ("received", "processed"):
            if kind in wanted:
                connection.acknowledge(kind, header.get("cmd_id"))

    def _start_heartbeat(self, interval_s: float) -> None:
        if self._heartbeat_timer is not None:
            self._heartbeat_timer.cancel()
            self._heartbeat_timer = None
        self._heartbeat_s = interval_s
        if interval_s > 0:
            self._heartbeat_timer = self._worker.loop.call_later(interval_s, self._heartbeat_due)

    def _heartbeat_due(self) -> None:
        """Once per interval: beat if nothing else was sent; a client silent for two intervals is gone (§15)."""
        connection, worker = self._connection, self._worker
        now = worker.now_s()
        interval = self._heartbeat_s
        if not connection.held and now - connection.last_input_s > 2 * interval:
            worker.log.log("07-0042", client=connection.shown_name)
            connection.abort("heartbeat")
            return
        idle = now - connection.last_output_s
        wait = interval
        if idle + 0.001 >= interval:
            connection.send({"cmd": "heartbeat"})
            worker.schedule()
        else:
            wait = interval - idle
        self._heartbeat_timer = worker.loop.call_later(wait, self._heartbeat_due)

    def _do_timer(self, header: Header) -> None:
        """start_timer and stop_timer are only named in the documents: accepted, without effect (D25)."""
        if "processed" in wanted_acks(header):
            self._connection.acknowledge("processed", header.get("cmd_id"))
