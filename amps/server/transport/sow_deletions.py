"""`sow_delete` on SOW topics (sow.md §6, D28): deletes the records of keys, of a message, or of a filter's matches.

A deletion is a record of the log, as a publish is: it goes through the ring, in order with what the client publishes.
The keys of a large deletion are divided over several records; the last one has the sequence of the command. The core
removes the keys that have a value, and reports how many.

A filter is a query first. Its matches are removed only if they have not changed since: keys that have are compared with
the filter again. So no record is deleted that does not match, and none stays that matched all the time. A record that
keeps changing is left after ROUNDS_MAX rounds: the deletion then counts as before its last change.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy

from amps._core.delivery.results import SCAN_DONE, SCAN_MISSING, StateScan
from amps._core.expressions.machine import Filter
from amps._core.wire import ingress as inbound
from amps._core.wire.topics import TopicEntry
from amps.server.shared.journal_view import PagesMissing
from amps.server.transport.answering import Header, tell_counts, text_of, wanted_acks
from amps.server.transport.command import Command
from amps.server.transport.context import WorkerContext
from amps.server.transport.failures import STORE_FAILED_DETAIL, TX_STORE_FAILED, CommandFailure
from amps.server.transport.options import parse_acknowledgement_options
from amps.server.transport.queries import topics_with_state
from amps.server.transport.session import Session
from amps.server.transport.sow_queries import FILE_UNREADABLE, Target, keys_of, targets_of

KEYS_PER_RECORD = 2048
KEYS_PER_PART = 32 * KEYS_PER_RECORD
"""Matches that are found before they are removed: the memory of a deletion is bounded."""
ROUNDS_MAX = 20
TOKEN_MASK = 0xFFFFFFFF
SELECTORS = ("sow_keys", "filter")
KEY = numpy.dtype([("key", "<u8"), ("seen_txid", "<u8")])
"""A RequestedKey of amps/_core/sow/slots.pxd."""

_STORE_FAILED = CommandFailure(TX_STORE_FAILED, STORE_FAILED_DETAIL)

Keys = numpy.ndarray[Any, numpy.dtype[Any]]


@dataclass(slots=True)
class _Deletion:
    """A command that has passed the checks."""

    header: Header
    wanted: set[str]
    sequence: int
    targets: Sequence[tuple[Target, list[TopicEntry | None]]]
    filter_text: str
    keys: list[tuple[TopicEntry, list[int]]] = field(default_factory=list)  # that are named
    searched: list[list[int]] = field(default_factory=list)
    """Of each topic, if one of them has a `Pattern`: the named keys, whose logical topics are not known."""
    compared: int = 0
    matched: int = 0
    deleted: int = 0


class _Answers:
    """The core's answers to the records of one step of a deletion."""

    def __init__(self) -> None:
        self.awaited = 0
        self.deleted = 0
        self.changed: list[int] = []
        self._then: Callable[[], None] | None = None

    def came(self, deleted: int, changed: list[int]) -> None:
        self.awaited -= 1
        self.deleted += deleted
        self.changed += changed
        if self.awaited == 0 and self._then is not None:
            self._then()

    def wait(self, then: Callable[[], None]) -> None:
        """Call `then` when all answers have come."""
        if self.awaited:
            self._then = then
        else:
            then()


class _Search:
    """Finds the keys of the matches in one topic: a Run of scans.py, which ends when it has a part of them."""

    def __init__(self, scan: StateScan) -> None:
        self.scan = scan
        self.complete = False
        self._found: dict[int, bytearray] = {}

    def step(self, written: int, until_ns: int) -> int:
        """See scans.py."""
        state = self.scan.run(written, until_ns)
        for number, keys in self.scan.take_keys().items():
            self._found.setdefault(number, bytearray()).extend(keys)
        if state == SCAN_MISSING:
            raise PagesMissing(*self.scan.missing)
        self.complete = state == SCAN_DONE
        enough = sum(map(len, self._found.values())) >= KEYS_PER_PART * KEY.itemsize
        return SCAN_DONE if enough else state

    def take(self) -> list[tuple[int, Keys]]:
        """The keys that were found since the last call, ascending, by the number of the logical topic."""
        found, self._found = self._found, {}
        parts = []
        for number, data in found.items():
            keys = numpy.frombuffer(bytes(data), KEY)
            parts.append((number, keys[numpy.argsort(keys["key"])]))
        return parts


@dataclass(slots=True)
class _Round:
    """What is still to be deleted in a topic. `keys`: the keys that are looked at; None: all. `sequence`: of the
    command, until it is in a record.
    """

    target: Target
    entries: list[TopicEntry | None]
    filter: Filter | None
    sequence: int
    keys: list[int] | None = None
    is_first: bool = True


class Deleting:
    """The `sow_delete` commands of one connection that concern SOW topics."""

    def __init__(self, connection: Session, worker: WorkerContext) -> None:
        self._connection = connection
        self._worker = worker
        self._answers: dict[int, _Answers] = {}
        self._token = 0

    def concerns(self, header: Header) -> bool:
        """Whether the topic of a command stands for SOW topics. Raises CommandFailure."""
        topic = text_of(header, "topic")
        if not topic or not self._worker.config.sow_topics:
            return False
        options = parse_acknowledgement_options(text_of(header, "opts"))
        topics, queues = topics_with_state(self._connection, self._worker, topic, options.non_regex_topic)
        if topics and queues:
            raise CommandFailure(
                "invalid topic", f"{topic!r} matches SOW topics and queues: delete from them by separate commands"
            )
        return bool(topics)

    def do(self, header: Header) -> None:
        """Carry out a command. Raises CommandFailure."""
        deletion = self._checked(header)
        if deletion is None:
            self._connection.ingress.unread()
            return
        if "received" in deletion.wanted:
            self._connection.acknowledge("received", header.get("cmd_id"), **_query_id(header))
        command = Command(self._connection, self._worker, header)
        command.run(self._carry_out(command, deletion))

    def _checked(self, header: Header) -> _Deletion | None:
        """Check a command. None: the ring is full, so that its topic could not be declared. Raises CommandFailure."""
        connection, worker = self._connection, self._worker
        topic = text_of(header, "topic")
        selectors = [name for name in SELECTORS if header.get(name) is not None]
        if connection.ingress.body_length:
            selectors.append("body")
        if not selectors:
            raise CommandFailure("no filter or bookmark", "nor sow_keys or a message: nothing is selected")
        if len(selectors) > 1:
            raise CommandFailure("invalid options", "selectors exclude each other: " + ", ".join(selectors))
        (selector,) = selectors
        options_text = text_of(header, "opts")
        options = parse_acknowledgement_options(options_text)
        if options.action.value:
            raise CommandFailure("invalid options", f"{options.action.value} is for queues")
        sequence = header.get("seq") or 0
        if not isinstance(sequence, int) or sequence != connection.ingress.frame_sequence:
            raise CommandFailure("parse error", "the sequence is no number")
        topics, _ = topics_with_state(connection, worker, topic, options.non_regex_topic)
        targets = targets_of(connection, worker, header, topics, "write")
        of_targets = [target.entries(worker) for target in targets]
        for entry in (entry for entries in of_targets for entry in entries):
            if entry is not None and not connection.declare_topic(entry.name):
                return None
        deletion = _Deletion(
            header,
            wanted_acks(header),
            sequence,
            list(zip(targets, of_targets, strict=True)),
            text_of(header, "filter") if selector == "filter" else "",
        )
        if selector == "body":
            for entries in of_targets:
                deletion.keys += [(entry, [self._key_of_body(entry)]) for entry in entries if entry is not None]
        elif selector == "sow_keys":
            searches = any(target.predicate is not None for target in targets)
            for entries in of_targets:
                keys = keys_of(header, entries) or []
                if searches:
                    deletion.searched.append(keys)
                elif (entry := entries[0]) is not None:
                    deletion.keys.append((entry, keys))
        return deletion

    def _key_of_body(self, entry: TopicEntry) -> int:
        """The key of the command's message, computed as for a publish. Raises CommandFailure."""
        ingress = self._connection.ingress
        rules = entry.sow
        assert rules is not None
        if rules.generated_keys:
            raise CommandFailure(
                "invalid options", "the keys of this topic depend on earlier messages: use sow_keys or a filter"
            )
        if rules.given_keys:
            text = text_of(ingress.header, "sow_key")
            if not text:
                raise CommandFailure("no sow key", "publishers provide the keys of this topic: use sow_keys")
            return rules.keys.text_key(text.encode("utf-8", "surrogatepass"))
        body: bytes | None = ingress.body
        if rules.preprocessing is not None and body is not None:
            body = rules.preprocessing.apply(body)
        key = 0 if body is None else rules.keys.key(body)
        if not key:
            raise CommandFailure("parse error", "the key fields of the message cannot be read")
        return key

    async def _carry_out(self, command: Command, deletion: _Deletion) -> None:
        worker, connection = self._worker, self._connection
        filter_ = await command.filter(deletion.filter_text) if deletion.filter_text else None
        if filter_ is not None or deletion.searched:
            await command.consumed()
            sent = await self._delete_matches(command, deletion, filter_)
        else:
            sent = await self._delete_keys(command, deletion)
        if not sent:
            return
        header, wanted = deletion.header, deletion.wanted
        conflated = "persisted" in wanted and deletion.sequence > 0 and worker.conflated
        connection.ingress.note_acknowledgement(deletion.sequence, conflated)
        if connection.acks.pending:
            worker.ack_schedule.expect(connection)
        if "processed" in wanted:
            connection.acknowledge("processed", header.get("cmd_id"), **_query_id(header))
        if "persisted" in wanted and not conflated:
            stored = Command(connection, worker, header)
            stored.run(self._tell_persisted(stored, deletion), holds=False)
        if "completed" in wanted and deletion.filter_text:
            connection.acknowledge("completed", header.get("cmd_id"), **_query_id(header))
        tell_counts(
            connection,
            worker,
            header,
            connection.acknowledge,
            **_query_id(header),
            topic_matches=deletion.compared,
            matches=deletion.matched,
            records_deleted=deletion.deleted,
        )

    async def _tell_persisted(self, command: Command, deletion: _Deletion) -> None:
        header = deletion.header
        await command.consumed()
        if any(target.is_logged for target, _ in deletion.targets):
            await command.persisted(self._worker.core.written())
        self._connection.acknowledge(
            "persisted", header.get("cmd_id"), seq=deletion.sequence or None, **_query_id(header)
        )

    # --- keys -------------------------------------------------------------------------------------------------

    async def _delete_keys(self, command: Command, deletion: _Deletion) -> bool:
        """Delete the named keys. False: the command was refused."""
        answers = _Answers() if "stats" in deletion.wanted else None
        for number, (entry, keys) in enumerate(deletion.keys):
            requested = numpy.zeros(len(set(keys)), KEY)
            requested["key"] = sorted(set(keys))
            sequence = deletion.sequence if number == len(deletion.keys) - 1 else 0
            if not await self._push(command, deletion, entry, requested, sequence, answers):
                return False
        if answers is not None:
            await command.until(answers.wait)
            deletion.compared = deletion.matched = deletion.deleted = answers.deleted
        return True

    async def _push(
        self,
        command: Command,
        deletion: _Deletion,
        entry: TopicEntry,
        keys: Keys,
        sequence: int,
        answers: _Answers | None,
    ) -> bool:
        """Request the removal of keys of a topic. `sequence`: of the last record. False: the command was refused."""
        if not len(keys) and not sequence:
            return True
        core = self._worker.core
        at = 0
        while at < len(keys) or not at:
            part = keys[at : at + KEYS_PER_RECORD]
            at += KEYS_PER_RECORD
            token = self._token_for(answers) if answers is not None else 0
            record = self._connection.ingress.removal_record(
                entry, part.tobytes(), token, sequence if at >= len(keys) else 0
            )
            if isinstance(record, int):
                self._answers.pop(token, None)
                self._refuse(deletion, may_be_told=record != inbound.AFTER_REFUSAL)
                return False
            await command.until(partial(core.push_control, record))
        return True

    def _token_for(self, answers: _Answers) -> int:
        self._token = self._token % TOKEN_MASK + 1
        self._answers[self._token] = answers
        answers.awaited += 1
        return self._token

    def answered(self, token: int, deleted: int, changed: list[int]) -> None:
        """Handle the core's answer `sow_deleted`."""
        answers = self._answers.pop(token, None)
        if answers is not None:
            answers.came(deleted, changed)

    # --- a filter ---------------------------------------------------------------------------------------------

    async def _delete_matches(self, command: Command, deletion: _Deletion, filter_: Filter | None) -> bool:
        """Delete the matches of a filter, or the records of keys that are searched for. False: it was refused."""
        for number, (target, entries) in enumerate(deletion.targets):
            last = number == len(deletion.targets) - 1
            search = _Round(target, entries, filter_, deletion.sequence if last else 0)
            if filter_ is None:
                search.keys = deletion.searched.pop(0)
            for _ in range(ROUNDS_MAX):
                if not await self._delete_round(command, deletion, search):
                    return False
                if not search.keys:
                    break
        return True

    async def _delete_round(self, command: Command, deletion: _Deletion, search: "_Round") -> bool:
        """Find and delete matches, and note the keys that changed meanwhile. False: the command was refused."""
        worker, connection = self._worker, self._connection
        states, entries = worker.feeds.states, search.entries
        first = next((entry for entry in entries if entry is not None), None)
        filters = None
        if search.filter is not None:
            filters = worker.queues.filters.filters_with(search.filter, connection.message_type)
        answers = _Answers()
        with states.snapshot() as snapshot:
            worker.core.view.read()
            snapshot.txid = worker.core.view.next_txid
            if first is None:
                search.keys = []
                return True
            try:
                reader = states.reader(search.target.config.number)
            except OSError as problem:
                raise CommandFailure("invalid topic", f"{FILE_UNREADABLE}: {problem}") from problem
            logical = [None if entry is None else (entry, b"") for entry in entries]
            scan = StateScan(
                reader,
                first,
                filters,
                snapshot.txid,
                search.keys,
                collects_keys=True,
                logical=None if search.target.predicate is None else logical,
            )
            run = _Search(scan)
            while not run.complete:
                await command.until(partial(worker.scans.begin, run, connection))
                parts = run.take() or [(0, numpy.zeros(0, KEY))]
                for at, (number, keys) in enumerate(parts):
                    entry = entries[number] or first
                    sequence = search.sequence if run.complete and at == len(parts) - 1 else 0
                    if not await self._push(command, deletion, entry, keys, sequence, answers):
                        return False
        await command.until(answers.wait)
        deletion.deleted += answers.deleted
        if search.is_first:
            deletion.compared += scan.compared
            deletion.matched += scan.matched
        search.is_first = False
        search.sequence = 0
        search.keys = answers.changed
        return True

    # --- refusals ---------------------------------------------------------------------------------------------

    def _refuse(self, deletion: _Deletion, *, may_be_told: bool) -> None:
        """Refuse a command that the transaction log cannot accept now, as a publish is refused. A client that requested
        no answer is disconnected.
        """
        connection, wanted, header = self._connection, deletion.wanted, deletion.header
        if not may_be_told or not wanted & {"processed", "persisted"}:
            connection.dismiss(_STORE_FAILED.reason, _STORE_FAILED.detail)
            return
        command_id, reason = header.get("cmd_id"), _STORE_FAILED.reason
        if "processed" in wanted:
            connection.acknowledge(
                "processed", command_id, reason, **_STORE_FAILED.fields, **_query_id(header)
            )
        if "persisted" in wanted and deletion.sequence and self._worker.conflated:
            connection.acks.refuse(self._worker.core.ring.pushed, deletion.sequence, reason)
            self._worker.ack_schedule.expect(connection)
        elif "persisted" in wanted:
            connection.acknowledge(
                "persisted", command_id, reason, seq=deletion.sequence or None, **_STORE_FAILED.fields
            )


def _query_id(header: Header) -> Header:
    return {"query_id": header["query_id"]} if header.get("query_id") else {}
