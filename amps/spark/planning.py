"""Cutting journals into splits, on the driver: which parts of which files are read, and by how many tasks.

Parts of files that cannot contain selected records are not read. The header of a file has its range of log positions.
Its index has its times and their places; its topic index has the places of the entries of each topic. A file without an
index, such as the one that a server is writing to, is searched for split points if it is too large for one piece
(`amps._core.journal.search`).

The log ends at its durable position. While a server writes, the watermark file has this position, and later records
belong to later reads. Only in the newest file may the records end without an end-of-file record.
A plan stays valid while files are compressed and archived; a file that is removed meanwhile is an error.

Damage of an index costs only time. Damage of a journal itself is an error, or is skipped and counted
(`Plan.skipped`), according to the options; most damage is found by the readers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy

from amps._core.columns.columns import NO_LIMIT
from amps._core.journal.reader import FILE_HEADER_SIZE, LogDamaged, LogFile, LogMissing, LogOfOtherVersion
from amps._core.journal.search import TopicIndexReader, find_message, last_name, places
from amps._core.journal.writer import IndexDamaged, IndexReader
from amps.journal.files import JournalHeader, read_header
from amps.journal.listing import read_index
from amps.journal.names import (
    find_journals,
    instance_names,
    reading_places,
    topic_index_places,
    watermark_path,
)
from amps.journal.topic_index import open_topic_index
from amps.journal.watermark import read_watermark
from amps.spark.options import Message, ReadOptions
from amps.spark.selection import Selection

GAP_BYTES = 1 << 16
"""Entries of a topic with smaller gaps between them are read as one range."""


@dataclass(frozen=True, slots=True)
class Split:
    """A part of one journal."""

    directory: Path
    archive: Path | None
    instance: str
    number: int
    ranges: tuple[tuple[int, int], ...]
    """Ranges of file offsets (first, end): records that begin in the range; one begins at `first`."""
    last_topic_offset: int
    """File offset of a topic record after all topic records needed before the ranges; 0 = none."""
    last_name_offset: int
    """File offset of a name record after all name records needed before the ranges; 0 = none."""
    topics: tuple[tuple[int, bytes, bytes], ...]
    """(topic id, topic, message type) of the selected topics, if the ranges were chosen for them alone."""
    to_end: bool
    """Whether the last range extends to the end of the records of the file."""
    is_newest: bool
    """Whether the file is the newest: its records may end without an end-of-file record."""
    durable_offset: int
    """File offset up to which there must be records; 0 = not known."""

    @property
    def byte_count(self) -> int:
        """The approximate number of bytes to read. A topic index does not have the length of the last entry of a range:
        GAP_BYTES are assumed.
        """
        last_entries = GAP_BYTES * len(self.ranges) if self.topics else 0
        return sum(end - first for first, end in self.ranges) + last_entries


@dataclass(slots=True)
class Plan:
    """The splits to read, and the damage that is skipped."""

    selection: Selection
    splits: list[Split] = field(default_factory=list)
    skipped: list[LogDamaged] = field(default_factory=list)

    @property
    def byte_count(self) -> int:
        """The approximate number of bytes to read."""
        return sum(split.byte_count for split in self.splits)

    def tasks(self, size: int) -> list[tuple[Split, ...]]:
        """Return the splits in the order of the log, grouped into tasks that read about `size` bytes each."""
        tasks: list[list[Split]] = []
        taken = 0
        for split in self.splits:
            if not tasks or taken + split.byte_count // 2 >= size:
                tasks.append([split])
                taken = 0
            elif tasks[-1][-1].number == split.number:
                tasks[-1][-1] = _joined(tasks[-1][-1], split)
            else:
                tasks[-1].append(split)
            taken += split.byte_count
        return [tuple(task) for task in tasks]


def _joined(split: Split, following: Split) -> Split:
    """Join two splits of the same journal, so that a task opens the file once."""
    *before, (first, end) = split.ranges
    (begin, last), *after = following.ranges
    middle = [(first, last)] if end == begin else [(first, end), (begin, last)]
    return replace(split, ranges=(*before, *middle, *after), to_end=following.to_end)


@dataclass(frozen=True, slots=True)
class _Log:
    """The journals of one instance, oldest first."""

    options: ReadOptions
    instance: str
    headers: list[JournalHeader]
    watermark: int

    def is_newest(self, header: JournalHeader) -> bool:
        return header is self.headers[-1]

    def end_offset(self, header: JournalHeader) -> int:
        """Return the file offset up to which the file currently belongs to the log."""
        return self.durable_offset(header) or header.size

    def durable_offset(self, header: JournalHeader) -> int:
        """Return the offset of the durable position in the newest file; 0: another file, or not known."""
        if not self.is_newest(header) or self.watermark <= header.start_position:
            return 0
        return min(self.watermark - header.start_position, header.size)

    def index(self, header: JournalHeader) -> IndexReader | None:
        return read_index(self.options.path, self.options.archive, self.instance, header)

    def topic_index(self, header: JournalHeader) -> TopicIndexReader | None:
        for path in topic_index_places(self.options.path, self.options.archive, self.instance, header.number):
            try:
                reader = open_topic_index(path)
            except (OSError, IndexDamaged):
                continue
            if reader.start_position == header.start_position and reader.file_size == header.size:
                return reader
        return None

    def open(self, number: int) -> LogFile:
        return open_wherever(self.options.path, self.options.archive, self.instance, number)


def open_wherever(directory: Path, archive: Path | None, instance: str, number: int) -> LogFile:
    """Open a journal, plain or compressed, at its current place. Raises LogMissing, LogDamaged, OSError."""
    # Files move forward only: checking the places in order, twice, also finds a file that moves meanwhile.
    for prefix, suffix in reading_places(directory, archive, instance) * 2:
        try:
            return LogFile(f"{prefix}{number:010d}{suffix}", number)
        except FileNotFoundError:
            continue
    path = f"{directory}/{instance}.{number:010d}.journal"
    raise LogMissing(path, 0, "the file is not there any more; was it removed, or archived somewhere else?")


def instance_of(options: ReadOptions) -> str | None:
    """Return the instance whose journals are read; None if there are none. Raises ValueError, OSError."""
    names = instance_names(options.path, options.archive)
    if options.instance is not None:
        return options.instance if options.instance in names else None
    if len(names) > 1:
        raise ValueError(
            f"there are journals of several instances in {options.path}: choose one by the option 'instance', of "
            + ", ".join(names)
        )
    return names[0] if names else None


def make_plan(options: ReadOptions, selection: Selection) -> Plan:
    """Return the plan of a read. Raises ValueError for a bookmark that is not in the log, LogDamaged, OSError."""
    instance = instance_of(options)
    plan = Plan(selection)
    if instance is None:
        return plan
    headers = _headers(options, instance, plan)
    watermark = read_watermark(watermark_path(options.path, instance))
    if headers and 0 < watermark <= headers[-1].start_position:
        headers.pop()  # just taken into use, no record of it is durable; the files before it are complete
    if not headers:
        return plan
    log = _Log(options, instance, headers, watermark)
    if options.first_message is not None:
        position = _position_of(log, options.first_message, "from", plan)
        plan.selection = plan.selection.with_positions(position + (not options.first_message.included))
    if options.last_message is not None:
        position = _position_of(log, options.last_message, "to", plan)
        plan.selection = plan.selection.with_positions(end=position + options.last_message.included)
    if plan.selection.is_empty:
        return plan
    for header in headers:
        plan.splits += _splits(log, header, plan)
    return plan


@dataclass(frozen=True, slots=True)
class Bounds:
    """The current start and end of the log, as log positions."""

    first: int
    """Start of the oldest journal."""
    newest: int
    """Start of the newest journal in use."""
    durable: int
    """Durable position of the log; 0 = not known: the log ends with its last record."""


def log_bounds(options: ReadOptions) -> Bounds | None:
    """Return the bounds of the log; None: there is no log. Raises ValueError, LogDamaged, OSError."""
    instance = instance_of(options)
    headers = [] if instance is None else _headers(options, instance, Plan(Selection()))
    if instance is None or not headers:
        return None
    newest = headers[-1]
    # The watermark may lie in an older file: then no record of the newest file is durable.
    watermark = read_watermark(watermark_path(options.path, instance))
    end = newest.start_position + newest.size
    return Bounds(headers[0].start_position, newest.start_position, min(watermark, end))


def _headers(options: ReadOptions, instance: str, plan: Plan) -> list[JournalHeader]:
    """Return the headers of the journals in use, oldest first."""
    found: list[JournalHeader] = []
    broken: list[LogDamaged] = []
    for number, header in _each_header(options, instance):
        if isinstance(header, LogOfOtherVersion):
            raise header  # the file may be intact, so it must not be skipped
        if isinstance(header, LogDamaged):
            broken.append(header)
        elif header.in_use:
            # An unreadable file before a file in use is not a spare journal.
            _tell(options, plan, broken)
            broken = []
            if found and number != found[-1].number + 1 and not options.skips_damage:
                missing = f"{options.path}/{instance}.{found[-1].number + 1:010d}.journal"
                raise LogMissing(missing, 0, "the file is not there, and later ones are")
            found.append(header)
    # After the newest file there are spare journals, one of which may be incomplete. It may also be the only file.
    if broken and not found and any(damage.offset != 0 for damage in broken):
        _tell(options, plan, broken)
    return found


def _each_header(options: ReadOptions, instance: str) -> Iterator[tuple[int, JournalHeader | LogDamaged]]:
    for number in find_journals(options.path, options.archive, instance):
        for prefix, suffix in reading_places(options.path, options.archive, instance) * 2:
            try:
                yield number, read_header(Path(f"{prefix}{number:010d}{suffix}"))
            except FileNotFoundError:
                continue
            except LogDamaged as damage:
                yield number, damage
            break


def _tell(options: ReadOptions, plan: Plan, broken: list[LogDamaged]) -> None:
    if broken and not options.skips_damage:
        raise broken[0]
    plan.skipped += broken


def _position_of(log: _Log, message: Message, option: str, plan: Plan) -> int:
    """Return the log position of a message. Raises ValueError if it is not in the log."""
    for header in reversed(log.headers):
        index = log.index(header)
        if index is not None and not index.may_hold(message.publisher_id, message.sequence):
            continue
        ranges = [(FILE_HEADER_SIZE, log.end_offset(header))]
        if index is not None:
            blocks = index.candidate_blocks(message.publisher_id, message.sequence)
            ranges = [(first, end or header.size) for first, end in map(index.block_range, blocks)]
        try:
            file = log.open(header.number)
            for first, end in ranges:
                offset = find_message(file, first, end, message.publisher_id, message.sequence)
                if offset is not None:
                    return header.start_position + offset
        except LogDamaged as damage:
            _tell(log.options, plan, [damage])
    raise ValueError(
        f"the message that the option {option!r} names, {message.publisher_id}|{message.sequence}|, is not in the "
        f"journals of {log.options.path}: was its journal removed, or archived elsewhere (option 'archive')?"
    )


def _splits(log: _Log, header: JournalHeader, plan: Plan) -> list[Split]:
    """Return the parts of one journal that may contain selected records."""
    selection = plan.selection
    end_position = header.start_position + log.end_offset(header)
    if selection.end_position <= header.start_position or selection.first_position >= end_position:
        return []
    index = log.index(header)
    first, end = _wanted_range(log, header, index, selection)
    if first >= end:
        return []
    if selection.names_topics and not log.is_newest(header):
        topic_index = log.topic_index(header)
        if topic_index is not None:
            last_name_offset = (
                last_name(log.open(header.number), end) if index is None else index.last_name_offset
            )
            return _topic_splits(log, header, topic_index, selection, first, end, last_name_offset)
    size = log.options.split_bytes
    if index is not None:
        chains = (index.last_topic_offset, index.last_name_offset)
        cuts = [(first, *chains)]
        while cuts[-1][0] + size < end:
            cut = _block_at(index, cuts[-1][0] + size)
            if cut <= cuts[-1][0] or cut >= end:
                break
            cuts.append((cut, *chains))
    elif end - FILE_HEADER_SIZE <= size:
        cuts = [(FILE_HEADER_SIZE, 0, 0)]
    else:
        cuts = _split_point_cuts(log, header, first, end, plan)
    ends = [offset for offset, *_ in cuts[1:]] + [end]
    return [
        _split(log, header, ((offset, to),), last_topic, last_name, to == log.end_offset(header))
        for (offset, last_topic, last_name), to in zip(cuts, ends, strict=True)
    ]


def _split(
    log: _Log,
    header: JournalHeader,
    ranges: tuple[tuple[int, int], ...],
    last_topic_offset: int,
    last_name_offset: int,
    to_end: bool,
    topics: tuple[tuple[int, bytes, bytes], ...] = (),
) -> Split:
    return Split(
        directory=log.options.path,
        archive=log.options.archive,
        instance=log.instance,
        number=header.number,
        ranges=ranges,
        last_topic_offset=last_topic_offset,
        last_name_offset=last_name_offset,
        topics=topics,
        to_end=to_end,
        is_newest=log.is_newest(header),
        durable_offset=log.durable_offset(header),
    )


def _wanted_range(
    log: _Log, header: JournalHeader, index: IndexReader | None, selection: Selection
) -> tuple[int, int]:
    """Return file offsets (first, end) of the range in which selected records begin; a record begins at the first."""
    first, end = FILE_HEADER_SIZE, log.end_offset(header)
    if selection.end_position < header.start_position + end:
        end = selection.end_position - header.start_position
    if index is None:
        return first, end
    if index.first_timestamp_ns and (
        index.first_timestamp_ns // 1000 > selection.last_time_us
        or index.last_timestamp_ns // 1000 < selection.first_time_us
    ):
        return end, end
    if selection.first_position > header.start_position + FILE_HEADER_SIZE:
        first = _block_at(index, selection.first_position - header.start_position)
    block_of_time = index.block_before(selection.first_time_us * 1000)
    if block_of_time is not None:
        first = max(first, block_of_time)
    if selection.last_time_us != NO_LIMIT:
        last_block = index.block_before((selection.last_time_us + 1) * 1000)
        block_end = index.block_range(last_block)[1] if last_block is not None else 0
        if block_end:
            end = min(end, block_end)
    return first, end


def _block_at(index: IndexReader, offset: int) -> int:
    """Return the file offset of the last block of the index that begins at an offset or before it."""
    first, end = index.block_range(offset)
    before_all = not end and first == offset and first != index.block_range(index.end_offset)[0]
    return FILE_HEADER_SIZE if before_all else first


def _split_point_cuts(
    log: _Log, header: JournalHeader, first: int, end: int, plan: Plan
) -> list[tuple[int, int, int]]:
    """Return split points of a file without an index, beginning with the last one at `first` or before it."""
    try:
        found = places(log.open(header.number), end, log.options.split_bytes)
    except LogDamaged as damage:
        if not log.options.skips_damage:
            raise
        plan.skipped.append(damage)
        return [(FILE_HEADER_SIZE, 0, 0)]
    wanted = max(first, plan.selection.first_position - header.start_position)
    return found[max((number for number, place in enumerate(found) if place[0] <= wanted), default=0) :]


def _topic_splits(
    log: _Log,
    header: JournalHeader,
    index: TopicIndexReader,
    selection: Selection,
    first: int,
    end: int,
    last_name_offset: int,
) -> list[Split]:
    """Return splits with ranges around the entries of the selected topics."""
    topics = tuple(
        (topic_id, topic, message_type)
        for topic_id, (topic, message_type, _) in enumerate(index.topics())
        if selection.wants_topic(topic, message_type)
    )
    if not topics:
        return []
    offsets = numpy.sort(numpy.concatenate([index.offsets(topic_id) for topic_id, _, _ in topics]))
    offsets = offsets[(offsets >= first) & (offsets < end)]
    if not len(offsets):
        return []
    breaks = numpy.flatnonzero(numpy.diff(offsets) > GAP_BYTES)
    firsts = offsets[numpy.append(0, breaks + 1)].tolist()
    lasts = offsets[numpy.append(breaks, len(offsets) - 1)].tolist()
    splits: list[Split] = []
    ranges: list[tuple[int, int]] = []
    size = 0
    for begin, last in zip(firsts, lasts, strict=True):
        ranges.append((begin, last + 1))
        size += last - begin + GAP_BYTES
        if size >= log.options.split_bytes:
            splits.append(_split(log, header, tuple(ranges), 0, last_name_offset, False, topics))
            ranges, size = [], 0
    if ranges:
        splits.append(_split(log, header, tuple(ranges), 0, last_name_offset, False, topics))
    return splits
