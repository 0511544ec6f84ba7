"""`sow_delete` on a queue: acknowledging its messages (queues.md §8).

Plain acknowledgements of messages that the connection holds do not reach this module: the ingress passes them on
(wire/publishes.pxi). The commands handled here request an acknowledgement of their own, or name bookmarks that the
connection does not hold (any more). Such bookmarks are looked up in the journal, in turns of the worker, and the
connection's input is held meanwhile. A bookmark that is not in the log is passed on as well: the message may still
arrive by replication.

A filter stands for all active messages that match, whichever client holds them (§8.1), in all queues that the topic
stands for and that the client may read. The search begins when everything that the client published before is in the
queues. The messages found are acknowledged by their log positions.

The core keeps acknowledgements of unknown messages, up to a limit. For such an acknowledgement the core reports
whether there was room. Only then is the command answered and the next command read.

Decisions (§22): D-08 and D-09 define what is refused. An acknowledgement with bookmarks that match no message succeeds
(D-27), and its counts show it (D-10). A list with malformed bookmarks fails, but the well-formed ones are acknowledged
all the same: a batch of a consumer must not be delivered again because of one entry.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from amps._core.journal.writer import IndexReader
from amps._core.queues.engine import CANCEL_WITHOUT_DELAY
from amps._core.wire import ingress as inbound
from amps._core.wire.ingress import (
    ACTION_ACKNOWLEDGE,
    ACTION_CANCEL,
    ACTION_EXPIRE,
    ACTION_EXTEND_LEASE,
    AckList,
)
from amps._core.wire.topics import TopicEntry
from amps.server.shared.journal_view import JournalView, Steps
from amps.server.transport.answering import Header, tell_counts, text_of, wanted_acks
from amps.server.transport.command import Command
from amps.server.transport.context import WorkerContext
from amps.server.transport.failures import (
    STORE_FAILED_DETAIL,
    TOO_MANY_DEFERRED,
    TOO_MANY_DEFERRED_DETAIL,
    TX_STORE_FAILED,
    CommandFailure,
)
from amps.server.transport.options import Acknowledgement, parse_acknowledgement_options
from amps.server.transport.queries import topics_with_state
from amps.server.transport.queue_searches import QueueSearches
from amps.server.transport.session import Session

SELECTORS = ("sow_keys", "filter", "bookmark")
TOKEN_MASK = 0xFFFFFFFF
SHOWN_CHARACTERS = 100
_ACTIONS = {
    Acknowledgement.ACKNOWLEDGE: ACTION_ACKNOWLEDGE,
    Acknowledgement.CANCEL: ACTION_CANCEL,
    Acknowledgement.EXPIRE: ACTION_EXPIRE,
    Acknowledgement.EXTEND_LEASE: ACTION_EXTEND_LEASE,
}
_DEFERRABLE = (Acknowledgement.ACKNOWLEDGE, Acknowledgement.EXPIRE)
_STORE_FAILED = CommandFailure(TX_STORE_FAILED, STORE_FAILED_DETAIL)
_TOO_MANY_DEFERRED = CommandFailure(TOO_MANY_DEFERRED, TOO_MANY_DEFERRED_DETAIL)


class PositionSearch:
    """A search for the log positions of the messages of an acknowledgement, a few at a time."""

    LOOKUPS_PER_STEP = 50
    STEP_S = 0.001

    def __init__(self, journal: JournalView, acks: AckList) -> None:
        self._journal = journal
        self._acks = acks
        self.searched_until = journal.end
        """Log position. A message that is not found is not before it."""
        self._indexes: dict[int, IndexReader | None] = {}
        self._lookups = 0
        self._steps = self._search()

    def step(self) -> bool:
        """Continue for a millisecond. Return True when the search is complete. Raises LogDamaged, or PagesMissing: then
        call it again.
        """
        self._indexes.clear()  # the index of a journal in use, or just become full, may have been replaced
        self._lookups = 0
        until_s = time.perf_counter() + self.STEP_S
        for missing in self._steps:
            if missing is not None:
                raise missing
            if self._lookups >= self.LOOKUPS_PER_STEP or time.perf_counter() >= until_s:
                return False
        return True

    def _search(self) -> Steps[None]:
        for number, publisher_id, sequence in self._acks.unknown_bookmarks():
            if self._lookups >= self.LOOKUPS_PER_STEP:
                yield None
            self._lookups += 1
            found = yield from self._journal.find(publisher_id, sequence, self._indexes)
            if found is not None:
                self._acks.set_position(number, found[0])


@dataclass(slots=True)
class _Counting:
    """An acknowledgement whose outcome the core reports: `parts` records have not been answered yet."""

    parts: int
    matches: int = 0
    deleted: int = 0
    refused: bool = False
    answered: Callable[[], None] | None = None

    def wait(self, answered: Callable[[], None]) -> None:
        """Call `answered` when the core has answered all records."""
        if self.parts:
            self.answered = answered
        else:
            answered()


@dataclass(slots=True)
class _Target:
    """A queue, and the messages of it that are acknowledged."""

    queue: int
    entry: TopicEntry
    acks: AckList


@dataclass(slots=True)
class _Accepted:
    """A command that has passed the checks and is being carried out."""

    header: Header
    wanted: set[str]
    acknowledgement: Acknowledgement
    extension_ns: int
    """Of a lease; of a cancel: its delay, as the core takes it."""
    sequence: int
    targets: list[_Target]
    filter_text: str = ""
    malformed: CommandFailure | None = None
    """The failure if some of its bookmarks are malformed."""
    searched_until: int = 0
    compared: int = 0
    matching: int | None = None


class Acknowledging:
    """The `sow_delete` commands of one connection."""

    def __init__(self, connection: Session, worker: WorkerContext) -> None:
        self._connection = connection
        self._worker = worker
        self._counting: dict[int, _Counting] = {}
        self._token = 0

    def do(self, header: Header) -> None:
        """The command `sow_delete`. Raises CommandFailure."""
        accepted = self._checked(header)
        if accepted is None:
            self._connection.ingress.unread()
            return
        connection, worker = self._connection, self._worker
        if "received" in accepted.wanted:
            connection.acknowledge("received", header.get("cmd_id"), **_query_id(header))
        command = Command(connection, worker, header)
        command.run(self._carry_out(command, accepted))

    async def _carry_out(self, command: Command, accepted: _Accepted) -> None:
        core = self._worker.core
        if accepted.filter_text:
            await self._find_matching(command, accepted)
        else:
            await self._find_positions(command, accepted)
        # An empty acknowledgement goes to the core, too, for its sequence.
        targets = [target for target in accepted.targets if target.acks.count] or accepted.targets[-1:]
        awaits = accepted.acknowledgement in _DEFERRABLE and any(target.acks.unknown for target in targets)
        token = 0
        if targets and (awaits or "stats" in accepted.wanted):
            token = self._token = self._token % TOKEN_MASK + 1
        records = self._records(accepted, targets, token)
        if isinstance(records, int):
            self._refuse(accepted, _STORE_FAILED, may_be_told=records != inbound.AFTER_REFUSAL)
            return
        counting = _Counting(len(records))
        if token:
            self._counting[token] = counting
        for record in records[:-1]:
            core.push_control(record)
        if awaits:
            core.push_control(records[-1])
            await command.until(counting.wait)
            if counting.refused:
                self._refuse_deferred(accepted)
                return
        elif records:
            await command.until(partial(core.push_control, records[-1]))
        self._answer(accepted)
        if token:
            command.release()
            await command.until(counting.wait)
            self._tell_counts(accepted, counting)

    async def _find_positions(self, command: Command, accepted: _Accepted) -> None:
        """Look up the bookmarks whose log positions are unknown."""
        (target,) = accepted.targets
        accepted.compared = target.acks.count
        if not target.acks.unknown:
            return

        def search(journal: JournalView) -> PositionSearch:
            positions = PositionSearch(journal, target.acks)
            accepted.searched_until = positions.searched_until
            return positions

        await command.looked_up(search)

    async def _find_matching(self, command: Command, accepted: _Accepted) -> None:
        """Compile the filter, and search for the messages that match."""
        worker = self._worker
        filter_ = await command.filter(accepted.filter_text)
        await command.consumed()
        queues = [target.queue for target in accepted.targets]
        searches = QueueSearches(worker.queues.filters, queues, filter_)
        searches.begin(worker.core.written())
        await command.looked_up(lambda _: searches)
        accepted.compared = searches.compared
        accepted.matching = 0
        for target, search in zip(accepted.targets, searches.done, strict=True):
            target.acks = search.found
            accepted.matching += search.found.count

    def _checked(self, header: Header) -> _Accepted | None:
        """Check the command. None: the ring is full, so that its topic could not be declared. Raises CommandFailure."""
        connection, names = self._connection, self._worker.queues.names
        topic = text_of(header, "topic")
        selectors = [name for name in SELECTORS if header.get(name) is not None]
        if connection.ingress.body_length:
            selectors.append("body")
        if not topic:
            raise CommandFailure("no topic")
        if not selectors:
            raise CommandFailure("no filter or bookmark")
        if len(selectors) > 1:
            raise CommandFailure("invalid options", "selectors exclude each other: " + ", ".join(selectors))
        options = parse_acknowledgement_options(text_of(header, "opts"))
        queue = names.acknowledged(topic, connection.message_type)
        _, matching = topics_with_state(connection, self._worker, topic, options.non_regex_topic)
        if selectors[0] == "bookmark" and queue is None and not matching:
            raise CommandFailure("invalid topic", f"{topic!r} is no queue")
        if selectors[0] in ("sow_keys", "body"):
            raise CommandFailure("invalid options", "messages of a queue are selected by bookmark or filter")
        sequence = header.get("seq") or 0
        if not isinstance(sequence, int) or sequence != connection.ingress.frame_sequence:
            raise CommandFailure("parse error", "the sequence is no number")
        if selectors[0] == "filter":
            if options.action is Acknowledgement.EXTEND_LEASE:  # D-31
                raise CommandFailure("invalid options", "lease_extension needs bookmarks")
            found = {number: names.queues[number].name for number in matching}
            permitted = {number: name for number, name in found.items() if connection.may("read", name)}
            if list(found.values()) == [topic] and not permitted:
                raise CommandFailure("not entitled", f"to read {topic!r}")
        else:
            if queue is None:
                raise CommandFailure("invalid options", "bookmarks need the literal name of one queue")
            if not connection.may("read", topic):
                raise CommandFailure("not entitled", f"to read {topic!r}")
            permitted = {queue: topic}
        targets = []
        for number, name in permitted.items():
            if not connection.declare_topic(name):
                return None
            entry = self._worker.topics.entry(name, connection.message_type)
            connection.ingress.allow_acknowledging(entry)
            targets.append(_Target(number, entry, AckList()))
        malformed: CommandFailure | None = None
        if selectors[0] == "bookmark":
            text = text_of(header, "bookmark").encode(errors="replace")
            acks = targets[0].acks
            if not acks.parse_text(text, connection.leases, targets[0].queue):
                malformed = malformed_bookmarks(acks)
                if not acks.count:
                    raise malformed
        return _Accepted(
            header,
            wanted_acks(header),
            options.action,
            _delay_ns(options.delay_s) if options.delay_s is not None else int(options.extension_s * 1e9),
            sequence,
            targets,
            text_of(header, "filter") if selectors[0] == "filter" else "",
            malformed,
        )

    def _records(self, accepted: _Accepted, targets: Sequence[_Target], token: int) -> list[bytes] | int:
        """The records for the core, made when the search for positions is complete. A constant of
        `amps._core.wire.ingress` instead: the acknowledgement cannot be accepted now.
        """
        connection = self._connection
        records: list[bytes] = []
        for target in targets:
            made = connection.ingress.acknowledgement_records(
                target.acks,
                target.entry,
                _ACTIONS[accepted.acknowledgement],
                accepted.extension_ns,
                accepted.searched_until,
                token,
                accepted.sequence if target is targets[-1] else 0,
            )
            if isinstance(made, int):
                return made
            records += made
        for target in targets:
            if connection.leases is not None and accepted.acknowledgement is not Acknowledgement.EXTEND_LEASE:
                target.acks.end_leases_of(connection.leases, target.queue)
        return records

    def _answer(self, accepted: _Accepted) -> None:
        """Answer the client: the records are in the ring."""
        connection, worker = self._connection, self._worker
        header, wanted = accepted.header, accepted.wanted
        command_id, sequence = header.get("cmd_id"), accepted.sequence
        if accepted.malformed is not None:
            connection.ingress.note_acknowledgement(sequence, False)
            self._refuse_malformed(accepted, accepted.malformed)
            return
        conflated = "persisted" in wanted and sequence > 0 and worker.conflated
        connection.ingress.note_acknowledgement(sequence, conflated)
        if connection.acks.pending:
            worker.ack_schedule.expect(connection)
        if "processed" in wanted:
            connection.acknowledge("processed", command_id, **_query_id(header))
        if "persisted" in wanted and not conflated:
            stored = Command(connection, worker, header)
            stored.run(self._tell_persisted(stored, accepted), holds=False)
        if "completed" in wanted and accepted.filter_text:
            connection.acknowledge("completed", command_id, **_query_id(header))
        if "stats" in wanted and not accepted.targets:
            self._tell_counts(accepted, _Counting(0))

    async def _tell_persisted(self, command: Command, accepted: _Accepted) -> None:
        header = accepted.header
        await command.consumed()
        await command.persisted(self._worker.core.written())
        self._connection.acknowledge(
            "persisted", header.get("cmd_id"), seq=accepted.sequence or None, **_query_id(header)
        )

    def _refuse_malformed(self, accepted: _Accepted, failure: CommandFailure) -> None:
        """Refuse a list with malformed bookmarks, whose other bookmarks have been acknowledged."""
        self._log_failure(failure)
        if accepted.wanted & {"processed", "persisted"}:
            self._refuse(accepted, failure)

    def _refuse_deferred(self, accepted: _Accepted) -> None:
        """Refuse the command: the core has no room for more deferred acknowledgements."""
        self._log_failure(_TOO_MANY_DEFERRED)
        self._refuse(accepted, _TOO_MANY_DEFERRED)

    def _log_failure(self, failure: CommandFailure) -> None:
        self._worker.log.log(
            "02-0030", client=self._connection.shown_name, command="sow_delete", reason=str(failure)
        )

    def _refuse(self, accepted: _Accepted, failure: CommandFailure, *, may_be_told: bool = True) -> None:
        """Refuse a command that cannot be accepted now, as a publish is refused. A client that requested no answer
        is disconnected.
        """
        connection, wanted, reason = self._connection, accepted.wanted, failure.reason
        if not may_be_told or not wanted & {"processed", "persisted"}:
            connection.dismiss(reason, failure.detail)
            return
        command_id, sequence = accepted.header.get("cmd_id"), accepted.sequence
        if "processed" in wanted:
            connection.acknowledge(
                "processed", command_id, reason, **failure.fields, **_query_id(accepted.header)
            )
        if "persisted" in wanted and sequence and self._worker.conflated:
            # After the acknowledgement of the messages that were published before.
            connection.acks.refuse(self._worker.core.ring.pushed, sequence, reason)
            self._worker.ack_schedule.expect(connection)
        elif "persisted" in wanted:
            connection.acknowledge("persisted", command_id, reason, seq=sequence or None, **failure.fields)

    def counted(self, token: int, matches: int, deleted: int, refused: bool) -> None:
        """Handle the core's answer `queue_acknowledged` to one record."""
        counting = self._counting[token]
        counting.parts -= 1
        counting.matches += matches
        counting.deleted += deleted
        counting.refused |= refused
        if counting.parts:
            return
        del self._counting[token]
        if counting.answered is not None:
            counting.answered()

    def _tell_counts(self, accepted: _Accepted, counting: _Counting) -> None:
        header = accepted.header
        tell_counts(
            self._connection,
            self._worker,
            header,
            self._connection.acknowledge,
            **_query_id(header),
            topic_matches=accepted.compared,
            matches=counting.matches if accepted.matching is None else accepted.matching,
            records_deleted=counting.deleted,
        )


def malformed_bookmarks(acks: AckList) -> CommandFailure:
    """The failure that describes the malformed bookmarks of a list."""
    named = (acks.first_malformed or b"").decode(errors="replace").strip()[:SHOWN_CHARACTERS]
    more = f", nor are {acks.malformed - 1} others" if acks.malformed > 1 else ""
    rest = f"; the {acks.count} valid ones of the list are acknowledged" if acks.count else ""
    return CommandFailure("invalid bookmark", f"{named!r} is no bookmark of a message{more}{rest}")


def _delay_ns(delay_s: float) -> int:
    """The delay of a cancel, as the core takes it: 0 would mean that none was requested."""
    return round(delay_s * 1e9) or CANCEL_WITHOUT_DELAY


def _query_id(header: Header) -> Header:
    return {"query_id": header["query_id"]} if header.get("query_id") else {}
