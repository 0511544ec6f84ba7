"""Searching event logs and journals for texts, whole records at a time (transaction_log.md §16.3).

A record of an event log is a line that begins with a time, and the lines up to the next one. What the utilities print
for journals is understood too: there a record is what stands between lines of underscores. In other texts every line
is a record. An entry of a journal is searched as the text that `layout` makes of it, so that a topic, a client's hash
or a payload finds it alike. Every entry has the same labels: an exact text that could be a part of one is searched for
in the values alone.

Making that text costs; so where nothing but exact texts are searched for, `RecordSearch` leaves out the entries that
cannot hold one. A term that has no bracket is either inside one of the bracketed texts, which are in the record as
they are, or between them; there, all that is not a digit is the same for all entries of a message type.
"""

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from amps._core.journal.search import TOPIC_HOLDS_TEXT, TOPIC_WANTED, RecordSearch
from amps._core.values.value import derived_publisher_id, publisher_id
from amps.journal.entries import FLAG_NUMBERED_BY_SERVER, KIND_NAMES, Entry
from amps.journal.layout import PREFIXES, entry_text, entry_values
from amps.journal.opening import Stream

LINE_BYTES_MAX = 1 << 24
RECORD_BYTES_MAX = 1 << 28
"""Longer lines and records are taken in pieces: what is searched need not be a log at all."""

_RECORD_START = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|_{40,}$|File Name +: ")
_LARGEST = 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a text: its lines with their ends, and the number of the first one."""

    line_number: int
    text: bytes


def text_records(stream: Stream) -> Iterator[Record]:
    """The records of a text."""
    lines: list[bytes] = []
    size = first = number = 0
    in_record = False
    while line := stream.readline(LINE_BYTES_MAX):
        number += 1
        starts = _RECORD_START.match(line) is not None
        if lines and (starts or not in_record or size > RECORD_BYTES_MAX):
            yield Record(first, b"".join(lines))
            lines = []
        in_record = in_record or starts
        if not lines:
            first, size = number, 0
        lines.append(line)
        size += len(line)
    if lines:
        yield Record(first, b"".join(lines))


@dataclass(frozen=True, slots=True)
class Query:
    """What is searched for: one of the terms or expressions, and one of the clients (name or hash), if given."""

    terms: Sequence[bytes] = ()
    expressions: Sequence[str] = ()
    clients: Sequence[str] = ()
    ignore_case: bool = False
    invert: bool = False
    _patterns: list[tuple[re.Pattern[str], bool]] = field(default_factory=list)
    """Expressions, and whether only values are searched."""

    def __post_init__(self) -> None:
        """Raises re.error."""
        case = re.IGNORECASE if self.ignore_case else re.NOFLAG
        self._patterns.extend(
            (re.compile(expression, case | re.MULTILINE), False) for expression in self.expressions
        )
        if self.ignore_case:
            self._patterns.extend(
                (re.compile(re.escape(_decoded(term)), case), _fits_label(term.lower(), ignore_case=True))
                for term in self.terms
            )

    def finds_text(self, text: bytes) -> bool:
        """Whether a record of an event log is wanted. It is a client's if it has the name or its hash in it."""
        found = self._holds(text, lambda: text)
        if found and self.clients:
            found = any(name in text for client in self.clients for name in _client_texts(client))
        return found is not self.invert

    def finds_entry(self, entry: Entry, text: bytes, publishers: Sequence[int]) -> bool:
        """Whether an entry is wanted; `publishers` are the ids of the clients in its journal, `text` its full text."""
        found = self._holds(text, functools.cache(lambda: entry_values(entry)))
        if found and self.clients:
            found = entry.publisher_id in publishers or (
                bool(entry.flags & FLAG_NUMBERED_BY_SERVER) and entry.source_txid in publishers
            )
        return found is not self.invert

    def _holds(self, text: bytes, values: Callable[[], bytes]) -> bool:
        """`values`: what is searched for texts that could be a part of a label."""
        if not (self.terms or self.expressions):
            return True
        if not self.ignore_case and any(
            term in text and (not _fits_label(term) or term in values()) for term in self.terms
        ):
            return True
        return any(
            pattern.search(_decoded(values() if in_values else text)) is not None
            for pattern, in_values in self._patterns
        )

    def publishers(self, instance_name: str) -> list[int]:
        """Ids under which the clients may have published on an instance."""
        ids = set()
        for client in self.clients:
            ids |= {publisher_id(client), derived_publisher_id(client, instance_name)}
            if (hash_ := _hash(client)) is not None:
                ids.add(hash_)
        return sorted(ids)

    def search(self, publishers: Sequence[int], *, include_noops: bool) -> RecordSearch:
        """What to read of a journal: all that may be wanted, and as little else as can be told beforehand."""
        if self.invert:
            return RecordSearch(include_noops=include_noops)
        if self._patterns or not self.terms:
            return RecordSearch(publishers=publishers, include_noops=include_noops)

        @functools.cache
        def may_stand_in_frame(message_type: bytes) -> bool:
            frame = _frame(message_type)
            return any(_fits_frame(term, frame) for term in self.terms)

        def topic_flags(topic: bytes, message_type: bytes) -> int:
            possible = may_stand_in_frame(message_type) or any(term in topic for term in self.terms)
            return TOPIC_WANTED | (TOPIC_HOLDS_TEXT if possible else 0)

        return RecordSearch(
            publishers=publishers,
            texts=self.terms,
            whole_record=True,
            topic_flags=topic_flags,
            include_noops=include_noops,
        )


@functools.cache
def _fits_label(term: bytes, *, ignore_case: bool = False) -> bool:
    """Whether the label of a value could hold a text, with what stands between them."""
    return any(term in (prefix.lower() if ignore_case else prefix) for prefix in PREFIXES)


def _hash(client: str) -> int | None:
    if client.isascii() and client.isdigit() and 0 < int(client) <= _LARGEST:
        return int(client)
    return None


def _client_texts(client: str) -> tuple[bytes, ...]:
    name = client.encode("utf-8", "surrogateescape")
    return (name,) if _hash(client) is not None else (name, str(publisher_id(client)).encode())


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


def _frame(message_type: bytes) -> bytes:
    """Everything that may stand around the texts of an entry with that message type, numbers aside."""
    zeros = (0,) * 7
    return b"".join(
        entry_text(
            Entry(
                0,
                0,
                0,
                0,
                kind,
                flags,
                *zeros,
                None,
                0,
                0,
                b"",
                message_type,
                0,
                b"",
                b"",
                b"",
                b"key",
                b"name",
                b"",
                None,
            )
        )
        for kind in (0, *KIND_NAMES)
        for flags in range(8)
    )


def _fits_frame(term: bytes, frame: bytes) -> bool:
    """Whether a term might stand outside of the bracketed texts. If in doubt, yes."""
    if any(character in term for character in b"[]\n"):
        return True
    return all(part in frame for part in re.split(rb"\d+", term))
