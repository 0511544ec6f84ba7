"""Writing a journal as text, in the layout that transaction_log.md §16.1 documents.

It has `label : value` lines with the values aligned, a line of underscores before each entry and before the footer, and
texts in brackets, byte for byte as they were published. Numbers that this file format does not have are computed: the
previous entry's transaction id and size by walking, times on the documented scale (microseconds since Julian day 0).
"""

import time
from collections.abc import Sequence

from amps._core.journal.reader import FORMAT_VERSION
from amps._core.values.value import SERVER_NAMES
from amps.journal.entries import Entry, JournalFile, Survey

JULIAN_OFFSET_US = 210_866_803_200_000_000
VERSION_TEXT = f"amps-server::journal/v{FORMAT_VERSION}"
HEADER_LABELS = ("File Name", "File Size", "Version", "Extents", "First Timestamp", "Last Timestamp")
FOOTER_LABELS = ("Total Entries", "Total Bytes", "Remaining Bytes")
EXTENT_LABELS = ("Local Extents", "Replication Extents")
_UPSTREAM = SERVER_NAMES + "from "
SEPARATOR = b"_" * 80 + b"\n"
ENTRY_LABELS = (
    "entry",
    "crc32",
    "type",
    "flags",
    "file offset",
    "tx byte count",
    "msg byte count",
    "msg type",
    "local txid",
    "previous local txid",
    "source txid",
    "source name hash",
    "client name hash",
    "client seq",
    "topic hash",
    "sow expiration time",
    "iso8601 timestamp",
    "timestamp",
    "previous byte count",
    "topic byte count",
    "topic",
    "data",
    "correlation id byte count",
    "correlation id",
    "auth id byte count",
    "auth id",
    "rep path byte count",
    "rep path",
)
_WIDTH = max(map(len, ENTRY_LABELS))
_FURTHER = ("sow key", "client name", "deliver at", "transaction", "upstream")
_PREFIXES = {label: f"{label:<{_WIDTH}} : ".encode() for label in (*ENTRY_LABELS, *_FURTHER)}
PREFIXES = tuple(_PREFIXES.values())
"""The beginnings of the lines of an entry, before their values."""


def iso8601(timestamp_ns: int, *, local: bool = False) -> str:
    """A time as `20240321T220952.535075Z`. local: in the process's time zone, with its UTC offset instead of `Z`."""
    seconds, rest_ns = divmod(timestamp_ns, 10**9)
    parts = time.localtime(seconds) if local else time.gmtime(seconds)
    zone = time.strftime("%z", parts) if local else "Z"
    return f"{time.strftime('%Y%m%dT%H%M%S', parts)}.{rest_ns // 1000:06d}{zone}"


def raw_timestamp(timestamp_ns: int) -> int:
    """A time in microseconds since Julian day 0, counted from midnight."""
    return timestamp_ns // 1000 + JULIAN_OFFSET_US


def block(labels: Sequence[str], values: Sequence[object]) -> bytes:
    """Lines `label : value` with the values aligned."""
    width = max(map(len, labels))
    lines = (f"{label:<{width}} : {value}\n" for label, value in zip(labels, values, strict=True))
    return "".join(lines).encode("utf-8", "surrogateescape")


def header_text(file: JournalFile, survey: Survey | None, *, local: bool = False) -> bytes:
    """The header of a dump. Without a survey (a stream can be read only once) it ends with the version."""
    values: list[object] = [file.name, file.size, VERSION_TEXT]
    if survey is not None:
        times = (survey.first_timestamp_ns, survey.last_timestamp_ns) if survey.entry_count else ()
        values += [_extent(survey), *(iso8601(time_ns, local=local) for time_ns in times)]
    return block(HEADER_LABELS[: len(values)], values)


def footer_text(file: JournalFile, survey: Survey) -> bytes:
    """The footer of a dump."""
    return block(
        FOOTER_LABELS, (survey.entry_count, survey.end_offset, max(0, file.size - survey.end_offset))
    )


def extents_text(survey: Survey) -> bytes:
    """The extents of the file: transaction ids of this instance, and of each instance that sent entries here."""
    sent = ", ".join(
        f"{name.decode('utf-8', 'replace').removeprefix(_UPSTREAM)} [{first}:{last}]"
        for name, first, last in survey.upstreams
    )
    return block(EXTENT_LABELS, (_extent(survey), sent or "none"))


def path_text(path: bytes) -> bytes:
    """The instances of a replication path in one line: `name (group, epoch)`, in the order of their hops."""
    hops = [hop.split(b"\t") for hop in path.split(b"\n") if hop]
    return b", ".join(hop[0] + (b" (%b)" % b", ".join(hop[1:]) if len(hop) > 1 else b"") for hop in hops)


def _extent(survey: Survey) -> str:
    return f"[{survey.first_txid}:{survey.last_txid}]"


def entry_text(entry: Entry, *, local: bool = False, with_data: bool = True) -> bytes:
    """The text of a whole entry, without the line of underscores before it.

    `sow expiration time` is the time at which it expires, on the scale of `timestamp`; 0 = never. The SOW key, the
    client name, the time until which it is delayed, its place in a transaction and its upstream are not in the
    documented layout. They follow at the end if they are known.
    """
    return b"".join(
        b"%b%b\n" % (_PREFIXES[label], value)
        for label, value in _lines(entry, local)
        if with_data or label != "data"
    )


def entry_values(entry: Entry) -> bytes:
    """The values behind the labels in an entry's text, one per line."""
    return b"".join(b"%b\n" % value for _, value in _lines(entry, False))


def _lines(entry: Entry, local: bool) -> list[tuple[str, bytes]]:
    """The labels and values of an entry's text."""
    expires = raw_timestamp(entry.expiry_ns) if entry.expiry_ns else 0
    numbers: tuple[object, ...] = (
        entry.number,
        entry.checksum,
        entry.kind_name,
        "|".join(entry.flag_names) or "none",
        entry.file_offset,
        entry.byte_count,
        entry.payload_byte_count,
        entry.message_type.decode("utf-8", "replace"),
        entry.txid,
        entry.previous_txid,
        entry.source_txid,
        entry.source_name_hash,
        entry.publisher_id,
        entry.sequence,
        entry.topic_hash,
        expires,
        iso8601(entry.timestamp_ns, local=local),
        raw_timestamp(entry.timestamp_ns),
        entry.previous_byte_count,
        len(entry.topic),
    )
    labelled = zip(ENTRY_LABELS[: len(numbers)], numbers, strict=True)
    lines = [(label, str(value).encode()) for label, value in labelled]
    lines += [("topic", b"[%b]" % entry.topic), ("data", b"[%b]" % entry.payload)]
    rest = [("correlation id", entry.correlation_id), ("auth id", entry.user_id), ("rep path", path_text(entry.path))]
    for label, text in rest:
        lines += [(f"{label} byte count", b"%d" % len(text)), (label, b"[%b]" % text)]
    if entry.sow_key:
        lines.append(("sow key", b"[%b]" % entry.sow_key))
    if entry.client_name:
        lines.append(("client name", b"[%b]" % entry.client_name))
    if entry.deliver_at_ns:
        lines.append(("deliver at", iso8601(entry.deliver_at_ns, local=local).encode()))
    if entry.transaction is not None:
        lines.append(("transaction", b"%d of %d" % entry.transaction))
    if entry.upstream:
        lines.append(("upstream", b"[%b]" % entry.upstream))
    return lines
