"""This server's delivery from the log to the output, in one process, with the code of a transport process.

A tailer reads records from mapped journal files, finds the routes of their topic, evaluates the filters and appends a
frame to the output buffer of each subscriber whose filter matches. The output buffers are emptied as in a transport,
once per turn of the tailer; then the bytes are dropped instead of sent. The peers that are compared with this only
parse and decide.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from amps._core.delivery.delivery import Group, JournalTailer, TopicRoutes
from amps._core.delivery.output import OutputBuffer
from amps._core.expressions.machine import EvaluationContext, Filter, FilterSet
from amps._core.journal.reader import LogCursor, LogDirectory
from amps._core.values.fields import FieldValues, MessageContext
from amps._core.wire.topics import TopicEntry, TopicTable
from amps.expressions.filters import compile_filter
from amps.messages import make_message_types, standard_settings
from amps.server.shared.allocation import keep_chunk_memory
from perf.machine import own_version
from perf.orders.corpus import MATCHING_TOPIC, TOPIC, Corpus, split_log
from perf.orders.formats import FORMATS
from perf.orders.journal import SUFFIX
from perf.orders.records import filter_text, symbol
from perf.peers.process import ProcessPeer, Work
from perf.pump import PeerError

STEP_BYTES = 256 << 10
"""Bytes of a tailer's turn in a transport: bytes of the log, plus the cost of evaluating in terms of bytes."""
EVALUATIONS_COUNTED = 1000
"""Number of messages that are matched again to count the evaluated filters."""


class Delivery(Work):
    """One tailer over one log, and one subscriber per filter. None instead of a filter: every message of the topic."""

    def __init__(
        self,
        corpus: Corpus,
        log: str,
        format_name: str,
        topic: str,
        filters: Sequence[Filter | None],
        expected: Callable[[Corpus], list[list[int]]],
    ) -> None:
        """expected: returns the numbers of the messages that each subscriber must get."""
        keep_chunk_memory()
        self._filters = filters
        self._topic = topic
        self._log = log
        self._expected = expected
        self._positions = corpus.positions(log)
        self.count = len(self._positions) - 1
        self._sample = corpus.messages(log, EVALUATIONS_COUNTED)
        settings = [*standard_settings().values(), FORMATS[format_name]().settings(corpus.directory)]
        self._extractor = make_message_types(settings)[format_name].extractor()
        topics = TopicTable(lambda name, message_type: (True, False, None, None))
        self._directory = LogDirectory(corpus.prefix(log), SUFFIX, topics.entry)
        self._file = self._directory.file(0)  # stays mapped between passes
        self._ready: list[OutputBuffer] = []
        self._outputs: list[OutputBuffer] = []
        self._group = Group(self._find_routes)
        self._tailer = self._new_tailer()

    def _evaluation(self) -> EvaluationContext:
        return EvaluationContext(self._extractor, FieldValues(), MessageContext(b"perf", b"perf"))

    def _new_tailer(self) -> JournalTailer:
        return JournalTailer(LogCursor(self._directory, 0, 0, False), self._group, 0, 0)

    def _find_routes(self, entry: TopicEntry, since: int, current: TopicRoutes | None) -> TopicRoutes:
        if current is not None:
            return current
        routes = TopicRoutes(entry, self._evaluation())
        if entry.name == self._topic:
            for number, filter_ in enumerate(self._filters):
                output = self._new_outlet()
                routes.add(number, number, output, b"%d" % number, 0, filter_)
        return routes

    def _new_outlet(self) -> OutputBuffer:
        output = OutputBuffer(lambda: self._ready.append(output))
        self._outputs.append(output)
        return output

    def run(self, first: int, end: int) -> None:
        if first == 0:
            self._tailer = self._new_tailer()
        limit = self._positions[end]
        while not self._tailer.run(limit, STEP_BYTES):
            self._flush()
        self._flush()

    def _flush(self) -> None:
        for output in self._ready:
            output.take()
        self._ready.clear()

    def verify(self, corpus: Corpus) -> None:
        messages = corpus.messages(self._log)
        expected = [[messages[number] for number in numbers] for numbers in self._expected(corpus)]
        self._tailer = self._new_tailer()
        while not self._tailer.run(self._positions[-1], STEP_BYTES):
            pass
        for number, (output, wanted) in enumerate(zip(self._outputs, expected, strict=True)):
            got = frame_bodies(b"".join(output.take()))
            if got != wanted:
                raise PeerError(
                    f"subscriber {number} of {self._log} gets {len(got)} messages instead of {len(wanted)} "
                    "or not the same ones: the filter is not evaluated as it should be"
                )

    def facts(self) -> dict[str, float]:
        filters = FilterSet(self._evaluation())
        for number, filter_ in enumerate(self._filters):
            if filter_ is not None:
                filters.add(filter_, number)
        for message in self._sample:
            filters.matching(message)
        return {
            "evaluations_per_message": filters.evaluations / len(self._sample),
            "bytes_per_message": round(sum(map(len, self._sample)) / len(self._sample)),
        }


def frame_bodies(data: bytes) -> list[bytes]:
    """The messages in frames of the protocol: four bytes of length, a header without braces inside, a message."""
    bodies = []
    at = 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        bodies.append(data[data.index(b"}", at + 4) + 1 : end])
        at = end
    return bodies


def matching_messages(corpus: Corpus) -> list[list[int]]:
    """The matching messages, for one subscriber with the filter of five predicates."""
    return [[number for number, matches in enumerate(corpus.matching) if matches]]


class DeliveryPeer(ProcessPeer):
    """This server in one configuration."""

    def version(self) -> str:
        return own_version()


@dataclass(frozen=True)
class FilteredPeer(DeliveryPeer):
    """One subscription with the filter of five predicates."""

    name: str
    title: str
    format_name: str = "json"

    def prepare(self, corpus: Corpus) -> Delivery:
        filter_ = compile_filter(filter_text(FORMATS[self.format_name]().path))
        return Delivery(corpus, self.format_name, self.format_name, TOPIC, [filter_], matching_messages)


@dataclass(frozen=True)
class UnfilteredPeer(DeliveryPeer):
    """One subscription without a filter. It gets the same messages, because they have a topic of their own."""

    name: str
    title: str
    format_name: str = "json"

    def prepare(self, corpus: Corpus) -> Delivery:
        log = split_log(self.format_name)
        return Delivery(corpus, log, self.format_name, MATCHING_TOPIC, [None], matching_messages)


@dataclass(frozen=True)
class SubscriptionsPeer(DeliveryPeer):
    """Many subscribers, each with a filter for one symbol: `text`, in which `%s` is the symbol.

    indexed: the filters are filed under the symbol they require, as always in the server. Otherwise each is evaluated
    for each message.
    """

    name: str
    title: str
    subscriptions: int
    text: str = "/symbol = '%s'"
    indexed: bool = True

    def prepare(self, corpus: Corpus) -> Delivery:
        filters = [compile_filter(self.text % symbol(number)) for number in range(self.subscriptions)]
        if not self.indexed:
            filters = [without_equalities(filter_) for filter_ in filters]
        return Delivery(corpus, "json", "json", TOPIC, filters, self.takers)

    def takers(self, corpus: Corpus) -> list[list[int]]:
        """The messages of each subscriber's symbol."""
        numbers: list[list[int]] = [[] for _ in range(self.subscriptions)]
        for number, symbol_number in enumerate(corpus.symbols):
            if symbol_number < self.subscriptions:
                numbers[symbol_number].append(number)
        return numbers


def without_equalities(filter_: Filter) -> Filter:
    """The same filter without its list of equalities, so that it is evaluated for every message."""
    return Filter(
        program=filter_.program,
        canonical_text=filter_.canonical,
        equalities=(),
        exact=False,
        asks_message=filter_.asks_message,
        asks_publisher=filter_.asks_publisher,
        deterministic=filter_.deterministic,
    )
