"""The evaluation contexts of one process, and the failures of evaluation that it reports.

There is one context per message type, with the extractor that finds fields. All contexts share the values and facts of
the current message, because a process works on one message at a time. The core evaluates the expressions of queues,
the workers evaluate filters.
"""

from collections.abc import Mapping
from typing import Protocol

from amps._core.expressions.machine import EvaluationContext
from amps._core.values.documents import Documents
from amps._core.values.fields import FieldValues, MessageContext, searches_given_up
from amps.expressions.functions import SHIPPED, Functions
from amps.journal.bookmark_text import format_bookmark
from amps.messages import MessageType
from amps.server.eventlog import EventLog

MEMORY_BYTES_MAX = 256 << 20
"""Memory for texts that may be made of one message."""


class KnownPublishers(Protocol):
    """The facts about publishers, as in `Publishers` of a worker."""

    def find(self, name_hash: int) -> Mapping[str, str] | None:
        """The facts about the client whose name has that hash; None if there are none."""


class EvaluationContexts:
    """The contexts of one process, by message type, and counts of the messages they could not evaluate."""

    def __init__(
        self,
        types: Mapping[str, MessageType],
        instance: str,
        group: str,
        log: EventLog,
        publishers: KnownPublishers | None = None,
        functions: Functions = SHIPPED,
    ) -> None:
        """`publishers`: provides the facts about publishers; None: these are NULL in expressions."""
        self._types = types
        self._publishers = publishers
        self._log = log
        self._values = FieldValues(MEMORY_BYTES_MAX)
        self._context = MessageContext(
            instance.encode("utf-8", "surrogatepass"), group.encode("utf-8", "surrogatepass")
        )
        self._evaluations: dict[str, EvaluationContext] = {}
        self._documents: dict[str, Documents | None] = {}
        self._reported: dict[str, tuple[int, int, int]] = {}
        self._functions = functions
        self._failures: dict[str, int] = {}
        self._given_up = searches_given_up()

    def of_type(self, message_type: str) -> EvaluationContext:
        """The context of a message type. A type that is not configured any more has no fields."""
        found = self._evaluations.get(message_type)
        if found is None:
            kind = self._types.get(message_type) or self._types["binary"]
            found = EvaluationContext(kind.extractor(), self._values, self._context, self._tell_publisher)
            self._evaluations[message_type] = found
        return found

    def documents_of(self, message_type: str) -> Documents | None:
        """What merges, compares and reduces messages of a type; None: it has no such operations (sow.md §14)."""
        if message_type not in self._documents:
            kind = self._types.get(message_type)
            try:
                self._documents[message_type] = None if kind is None else kind.documents()
            except ValueError:
                self._documents[message_type] = None
        return self._documents[message_type]

    def _tell_publisher(self, name_hash: int) -> None:
        """Set the facts about a publisher in the context of the current message."""
        known = self._publishers.find(name_hash) if self._publishers is not None else None
        for fact, value in (known or {}).items():
            self._context.set(fact, value.encode("utf-8", "surrogatepass"))

    def report(self) -> None:
        """Log messages that could not be read or evaluated since the last call, one line for each type or function."""
        for message_type, evaluation in self._evaluations.items():
            unreadable, exhausted, cut_short = self._reported.get(message_type, (0, 0, 0))
            now = evaluation.unreadable, evaluation.exhausted, evaluation.extractor.messages_cut_short()
            if now == (unreadable, exhausted, cut_short):
                continue
            self._reported[message_type] = now
            if evaluation.unreadable != unreadable and isinstance(evaluation.last_unreadable, tuple):
                topic, publisher, sequence = evaluation.last_unreadable
                self._log.log(
                    "14-0003",
                    message_type=message_type,
                    topic=topic,
                    count=evaluation.unreadable - unreadable,
                    bookmark=format_bookmark(publisher, sequence),
                )
            if evaluation.exhausted != exhausted:
                self._log.log("14-0004", message_type=message_type, count=evaluation.exhausted - exhausted)
            if now[2] != cut_short:
                self._log.log("14-0007", message_type=message_type, count=now[2] - cut_short)
        given_up = searches_given_up()
        if given_up != self._given_up:
            self._log.log("14-0006", count=given_up - self._given_up)
            self._given_up = given_up
        for name, function in self._functions.own.items():
            failures = function.failures - self._failures.get(name, 0)
            if failures:
                self._failures[name] = function.failures
                self._log.log("14-0005", function=name, count=failures, reason=function.last_failure)
