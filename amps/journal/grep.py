"""Searching event logs and journals for texts, whole records at a time (transaction_log.md §16.3).

A record of an event log is a line that begins with a time, and the lines up to the next such line. The output of the
utilities for journals can be searched too; there a record is the text between two lines of underscores. In other texts
every line is a record. An entry of a journal is searched as the text that `layout` makes of it, so that a search for a
topic, a client's hash or a payload finds it. Every entry has the same labels. So an exact text that could be a part of
a label is searched in the values only.

Making that text takes time. So in a search for exact texts only, `RecordSearch` skips the entries that cannot contain
one of them. A term without a bracket is either inside one of the bracketed texts, which are unchanged in the record, or
between them. Between them, all characters except digits are the same for all entries of a message type.
"""

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from amps._core.journal.search import TOPIC_HOLDS_TEXT, TOPIC_WANTED, RecordSearch
from amps._core.values.value import derived_publisher_id, publisher_id
from amps.journal.entries import KIND_NAMES, Entry
from amps.journal.layout import PREFIXES, entry_text, entry_values
from amps.journal.opening import Stream

LINE_BYTES_MAX = 1 << 24
RECORD_BYTES_MAX = 1 << 28
"""Longer lines and records are read in pieces, because the searched file need not be a log."""

_RECORD_START = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|_{40,}$|File Name +: ")
_LARGEST = 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a text: its lines with their line ends, and the number of the first line."""

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
    """A search for records with one of the terms or expressions, and with one of the clients, if given.

    Each client is a name or a hash.
    """

    terms: Sequence[bytes] = ()
    expressions: Sequence[str] = ()
    clients: Sequence[str] = ()
    ignore_case: bool = False
    invert: bool = False
    _patterns: list[tuple[re.Pattern[str], bool]] = field(default_factory=list)
    """(expression, True if only the values of entries are searched)."""

    def __post_init__(self) -> None:
        """Compile the expressions. Raises re.error."""
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
        """True if a record of an event log matches. It belongs to a client if it contains the client's name or hash."""
        found = self._holds(text, lambda: text)
        if found and self.clients:
            found = any(name in text for client in self.clients for name in _client_texts(client))
        return found is not self.invert

    def finds_entry(self, entry: Entry, text: bytes, publishers: Sequence[int]) -> bool:
        """True if an entry matches. text: its full text. publishers: the ids of the clients in its journal."""
        found = self._holds(text, functools.cache(lambda: entry_values(entry)))
        if found and self.clients:
            found = entry.publisher_id in publishers or entry.client_id in publishers
        return found is not self.invert

    def _holds(self, text: bytes, values: Callable[[], bytes]) -> bool:
        """True if a text contains a term or expression. values: the text to search for terms that fit in a label."""
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
        """The ids under which the clients may have published on an instance."""
        ids = set()
        for client in self.clients:
            ids |= {publisher_id(client), derived_publisher_id(client, instance_name)}
            if (hash_ := _hash(client)) is not None:
                ids.add(hash_)
        return sorted(ids)

    def search(self, publishers: Sequence[int], *, include_noops: bool) -> RecordSearch:
        """The search for the entries of a journal that may match; it excludes as many others as possible."""
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
    """True if a text could be a part of a label with its separator."""
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
    """All text that can be around the bracketed texts of an entry with that message type, except numbers."""
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
                0,
                1,
            )
        )
        for kind in (0, *KIND_NAMES)
        for flags in range(8)
    )


def _fits_frame(term: bytes, frame: bytes) -> bool:
    """True if a term may occur outside the bracketed texts, also in case of doubt."""
    if any(character in term for character in b"[]\n"):
        return True
    return all(part in frame for part in re.split(rb"\d+", term))
