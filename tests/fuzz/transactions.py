"""The body of a `transaction` against a second, independent reader of queue_guarantees.md §4.

The model reads a body with slices and the regular expressions of `codec`. The ingress reads it in its receive buffer,
in every way in which a server lets it: as a plain transaction, and for Python; received at once, and in pieces; with
other bytes behind it. All of them must decide as the model does, and an accepted body must give the model's publishes.
"""

import re
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

from amps._core.shm.memory import ControlPage, Ring
from amps._core.wire import ingress as inbound
from amps._core.wire.framing import encode_frame
from amps._core.wire.ingress import AckList, Ingress, LeaseTable
from amps._core.wire.topics import TopicEntry, TopicTable
from tests.fuzz import cases
from tests.fuzz.codec import Finding, raw_header
from tests.support.peer import Value, frame
from tests.support.records import HEADER_BYTES, padded
from tests.support.transactions import GROUP, KIND_QUEUE_ACKNOWLEDGEMENT, KIND_TRANSACTION, TRANSACTION_BYTES

PUBLISHES_MAX = 4096
PART_BYTES_MAX = 65535
NEVER_S = 2**32 - 1
DELAY_MS_MAX = 3653 * 86_400_000
NOT_BEFORE_MS_MAX = 2**63 // 10**6
SEQUENCE_MAX = 2**64 - 1
ALLOWED = {"cmd", "topic", "expiration", "sow_key", "correlation_id", "delay", "not_before"}

SLOT, SERIAL = 0, 1
PUBLISHER, DERIVED, USER = 7, 8, b"user"
QUEUE = "Q"
TARGETS = {"T": "T", "ä": "ä", QUEUE: "T"}
"""The topics that a transaction may publish to, with those under which the log has the messages."""
UNRECORDED, DENIED, ENTITLED_TO_OTHERS, UNCHECKED, NEW = "plain", "/AMPS/no", "theirs", "unchecked", "new"
JOBS = [(9, 1, 4096), (9, 2, 4224), (11, 2**64 - 1, 8192)]
"""Publisher id, sequence and log position of the messages that the connection holds."""

ANSWER: dict[str, Value] = {"cmd": "ack", "cmd_id": "7", "ack_type": "persisted", "status": "success"}

_HEADER = struct.Struct("<II6QIIHHHHHHI")
_DELIVER_AT = struct.Struct("<HHQ")


@dataclass(frozen=True)
class Publish:
    """One publish as it is recorded."""

    topic: str
    payload: bytes
    expiration_s: int = NEVER_S
    sow_key: bytes = b""
    correlation_id: bytes = b""
    deliver_at_ms: tuple[int, int] = (0, 0)
    """The earliest and the latest time that is right."""


@dataclass(frozen=True)
class Refused:
    """The reason, a result of laying out, and the number of the publish from 0."""

    result: int
    number: int


Decision = list[Publish] | Refused


# --- the model ------------------------------------------------------------------------------------------------------


def decide(body: bytes, sequence: int, is_checked: bool, time_ms: tuple[int, int]) -> Decision:
    """What §4 says about a body. time_ms: between these times the server reads it."""
    frames = []
    at = 0
    while at < len(body):
        length = int.from_bytes(body[at : at + 4], "big")
        if len(body) < at + 4 + length:
            return Refused(inbound.LAYING_MALFORMED, 0)
        frames.append(body[at + 4 : at + 4 + length])
        at += 4 + length
    publishes: list[Publish] = []
    for number, payload in enumerate(frames):
        if number == PUBLISHES_MAX:
            return Refused(inbound.LAYING_TOO_MANY, number)
        if sequence + number + 1 > SEQUENCE_MAX:
            return Refused(inbound.LAYING_SEQUENCE, number)
        one = _publish(payload, is_checked, time_ms)
        if isinstance(one, int):
            return Refused(one, number)
        publishes.append(one)
    return publishes


def _publish(payload: bytes, is_checked: bool, time_ms: tuple[int, int]) -> Publish | int:
    """One publish, or the reason against it."""
    found = raw_header(payload)
    if found is None:
        return inbound.LAYING_MALFORMED
    fields = {name: text[1:-1] if text[:1] == b'"' else text for name, text in found[0].items()}
    topic = fields.get("topic", b"")
    numbers = {
        name: _number(fields[name]) for name in ("expiration", "delay", "not_before") if name in fields
    }
    limits = {"expiration": NEVER_S - 1, "delay": DELAY_MS_MAX, "not_before": NOT_BEFORE_MS_MAX}
    if (
        fields.keys() - ALLOWED
        or fields.get("cmd", b"p") not in (b"p", b"publish")
        or not topic
        or b"\\" in topic
        or {"delay", "not_before"} <= fields.keys()
        or any(number is None or number > limits[name] for name, number in numbers.items())
        or any(len(fields.get(name, b"")) > PART_BYTES_MAX for name in ("sow_key", "correlation_id"))
    ):
        return inbound.LAYING_FIELD
    refusal = _refusal(topic, is_checked)
    if refusal:
        return refusal
    deliver_at_ms = (0, 0)
    if "delay" in fields:
        delay_ms = numbers["delay"] or 0
        deliver_at_ms = time_ms[0] + delay_ms, time_ms[1] + delay_ms
    elif "not_before" in fields:
        deliver_at_ms = (numbers["not_before"] or 0,) * 2
    return Publish(
        TARGETS[topic.decode()],
        payload[found[1] :],
        numbers.get("expiration", NEVER_S) or 0,
        fields.get("sow_key", b""),
        fields.get("correlation_id", b""),
        deliver_at_ms,
    )


def _number(text: bytes) -> int | None:
    """An unsigned integer of 64 bits in at most 20 digits."""
    number = int(text) if re.fullmatch(rb"[0-9]{1,20}", text) else SEQUENCE_MAX + 1
    return number if number <= SEQUENCE_MAX else None


def _refusal(topic: bytes, is_checked: bool) -> int:
    if topic == DENIED.encode():
        return inbound.LAYING_DENIED
    if topic not in [name.encode() for name in (*TARGETS, UNRECORDED, ENTITLED_TO_OTHERS, UNCHECKED)]:
        return inbound.LAYING_NEW_TOPIC
    if topic == UNCHECKED.encode() and is_checked:
        return inbound.LAYING_PERMISSION
    if topic == ENTITLED_TO_OTHERS.encode() and is_checked:
        return inbound.LAYING_DENIED
    return 0 if topic.decode() in TARGETS else inbound.LAYING_UNRECORDED


# --- the ingress ----------------------------------------------------------------------------------------------------


class _Queues:
    def queue(self, name: str, message_type: str) -> int | None:
        return 0 if name == QUEUE else None

    def publish_target(self, name: str, message_type: str) -> str | None:
        return TARGETS[name]

    def is_own_topic(self, index: int) -> bool:
        return False


class Entrance:
    """The input of a connection that holds JOBS of the queue."""

    def __init__(
        self,
        is_checked: bool,
        first_number: int = 0,
        publisher_id: int = PUBLISHER,
        jobs: Sequence[tuple[int, int, int]] = JOBS,
    ) -> None:
        """`first_number`: of the topics; lower ones belong to others."""
        self.is_checked = is_checked
        self.jobs = list(jobs)
        self.ring = Ring(1 << 20)
        self.table = TopicTable(
            lambda topic, message_type: (
                topic not in (UNRECORDED, ENTITLED_TO_OTHERS, UNCHECKED),
                False,
                "denied" if topic == DENIED else None,
                None,
            ),
            _Queues(),
        )
        for number in range(first_number):
            self.table.entry(f"other {number}", "xml")
        self.names = [*TARGETS, UNRECORDED, DENIED, ENTITLED_TO_OTHERS, UNCHECKED]
        for name in self.names:
            self.entry(name).mark_declared()
        self.ingress = Ingress(SLOT, SERIAL, self.ring, ControlPage(), self.table, 1 << 24)
        self.ingress.log_on("json", publisher_id, DERIVED, USER, True, True, is_checked, True)
        if is_checked:
            for name in self.names:
                if name != UNCHECKED:
                    self.ingress.set_permission(self.entry(name), name != ENTITLED_TO_OTHERS)
            self.ingress.allow_acknowledging(self.entry(QUEUE))

    def entry(self, name: str) -> TopicEntry:
        return self.table.entry(name, "json")

    def numbers(self) -> dict[int, str]:
        return {self.entry(name).number: name for name in self.names}

    def command(self, body: bytes, sequence: int, acks: str) -> bytes:
        """The frame of a transaction of all jobs; one is named twice."""
        bookmarks = ",".join(f"{publisher}|{number}|" for publisher, number, _ in [*self.jobs, self.jobs[0]])
        header = (
            f'{{"c":"transaction","t":"{QUEUE}","bm":"{bookmarks}","s":{sequence},"a":"{acks}","cid":"7"}}'
        )
        return frame(header.encode(), body)

    def receive(self, pieces: Sequence[bytes], behind: bytes = b"") -> int:
        """Receive bytes piece by piece, and let `behind` lie in memory behind them. Returns the last result."""
        result = inbound.NEED_MORE
        for piece in pieces:
            at = 0
            while at < len(piece):
                buffer = self.ingress.receive_buffer()
                part = piece[at : at + len(buffer)]
                buffer[: len(part)] = part
                rest = behind[: len(buffer) - len(part)]
                buffer[len(part) : len(part) + len(rest)] = rest
                self.ingress.received(len(part))
                at += len(part)
                result = self.ingress.parse()
                if result == inbound.NEED_MORE:
                    self.ingress.keep()
        return result

    def plain(self, pieces: Sequence[bytes], behind: bytes = b"") -> bytes | None:
        """The record of a plain transaction; None: it is a command for Python."""
        leases = LeaseTable()
        for publisher, sequence, position in self.jobs:
            leases.add(publisher, sequence, position, position // 128, 0)
        self.ingress.set_leases(leases)
        result = self.receive(pieces, behind)
        self.ring.publish_pushed()
        records = self.ring.pop_all()
        answers = self._answers()
        self._end(result)
        if result == inbound.COMMAND and not records and not answers and leases.count == len(self.jobs):
            return None
        if result != inbound.NEED_MORE or len(records) != 1 or leases.count:
            raise Finding(
                f"result {result}, {len(records)} records, answers {answers!r}, {leases.count} leases"
            )
        sequence = _HEADER.unpack_from(records[0])[6]
        last = sequence + GROUP.unpack_from(records[0], HEADER_BYTES)[1] - 1
        _expect("answers", answers, encode_frame(ANSWER | {"seq": last}, b""))
        return records[0]

    def _answers(self) -> bytes:
        """The answers to the transactions since the last call, if the core has read them and they are durable."""
        pending = self.ingress.transactions
        if pending is None:
            return b""
        if pending.decide(self.ring.pushed, 1, 0) is not None:
            raise Finding("Python is to answer a plain transaction")
        frames, is_attended_due = pending.answers(1)
        if is_attended_due or len(pending):
            raise Finding("a plain transaction is not answered")
        return bytes(frames)

    def for_python(self, pieces: Sequence[bytes], behind: bytes = b"") -> bytes | Refused:
        """The record that Python makes for a command."""
        result = self.receive(pieces, behind)
        if result != inbound.COMMAND:
            raise Finding(f"result {result} for a transaction")
        acks = AckList()
        if not acks.parse_text(self.ingress.header["bookmark"].encode(), None, 0):
            raise Finding("the bookmarks are malformed")
        raw = self.ingress.raw_header
        made = self.ingress.transaction_record(acks, self.entry(QUEUE))
        if self.ingress.raw_header != raw:
            raise Finding("laying out changed the current frame")
        self._end(result)
        if not isinstance(made, bytearray):
            return Refused(*made[:2])
        if inbound.transaction_publishes(made) != GROUP.unpack_from(made, HEADER_BYTES)[1] - 1:
            raise Finding("the number of publishes is wrong")
        positions = {(publisher, sequence): position for publisher, sequence, position in self.jobs}
        for number, publisher, sequence in acks.unknown_bookmarks():
            acks.set_position(number, positions[publisher, sequence])
        acks.fill_transaction_entries(made)
        return bytes(made)

    def _end(self, result: int) -> None:
        self.ingress.discard(self.ingress.unparsed_bytes)
        self.ingress.keep()
        if result not in (inbound.NEED_MORE, inbound.COMMAND):
            raise Finding(f"result {result} for a transaction")


def read_record(
    record: bytes, entrance: Entrance, sequence: int, publisher_id: int = PUBLISHER
) -> list[tuple[Publish, int]]:
    """The publishes of a transaction's record, with `deliver_at_ns`; checks everything else of it."""
    numbers = entrance.numbers()
    head = _HEADER.unpack_from(record)
    bytes_, count, _ = GROUP.unpack_from(record, HEADER_BYTES)
    _expect(
        "transaction",
        (head[0], head[8], head[10]),
        (len(record), entrance.entry(QUEUE).number, KIND_TRANSACTION),
    )
    _expect("group", bytes_, len(record) - TRANSACTION_BYTES)
    at = TRANSACTION_BYTES
    found: list[tuple[Publish, int]] = []
    for number in range(count):
        (
            length,
            _,
            position,
            _,
            _,
            publisher,
            own_sequence,
            _,
            topic,
            expiration_s,
            kind,
            flags,
            *lengths,
        ) = _HEADER.unpack_from(record, at)
        _expect(
            "identity",
            (position, publisher, own_sequence, flags),
            (SERIAL << 32 | SLOT, publisher_id, sequence + number, 0),
        )
        _expect("length", length, HEADER_BYTES + sum(lengths))
        if record[at : at + (length + 7) // 8 * 8] != padded(record[at : at + length]):
            raise Finding("the padding is not zero")
        parts = []
        begin = at + HEADER_BYTES
        for part_length in (lengths[3], *lengths[:3], lengths[4]):  # the extension comes first
            parts.append(record[begin : begin + part_length])
            begin += part_length
        extension, correlation_id, user_id, sow_key, payload = parts
        at += (length + 7) // 8 * 8
        if number == 0:
            _expect("kind", (kind, topic), (KIND_QUEUE_ACKNOWLEDGEMENT, entrance.entry(QUEUE).number))
            entries = [
                struct.unpack_from("<QQQ", payload, 32 + 32 * one) for one in range(len(payload) // 32 - 1)
            ]
            _expect("messages", entries, sorted(entrance.jobs, key=lambda job: job[2]))
            _expect("acknowledgement", payload[:32], struct.pack("<II24x", 0, len(entries)))
            continue
        _expect("kind", (kind, user_id), (1, USER))
        deliver_at_ns = 0
        if extension:
            tag, size, deliver_at_ns = _DELIVER_AT.unpack(extension)
            _expect("extension", (tag, size), (6, 8))
        one = Publish(numbers[topic], payload, expiration_s, sow_key, correlation_id)
        found.append((one, deliver_at_ns))
    _expect("end", at, len(record))
    return found


def _expect(what: str, got: object, expected: object) -> None:
    if got != expected:
        raise Finding(f"{what}: {got}, expected {expected}")


def _same_publishes(found: Sequence[tuple[Publish, int]], expected: Sequence[Publish]) -> None:
    _expect("publishes", len(found), len(expected))
    for (one, deliver_at_ns), model in zip(found, expected, strict=True):
        earliest, latest = model.deliver_at_ms
        if not earliest * 10**6 <= deliver_at_ns <= latest * 10**6:
            raise Finding(f"delivered at {deliver_at_ns}, expected {model.deliver_at_ms} ms")
        _expect("publish", one, Publish(*(vars(model)[name] for name in list(vars(model))[:5])))


def check_body(body: bytes, rng: cases.Random, is_checked: bool, sequence: int) -> Decision:
    """Check that all ways to read a body decide as the model does. Returns the decision."""
    try:
        return _check_body(body, rng, is_checked, sequence)
    except Finding as finding:
        raise Finding(f"{finding}\n checked {is_checked}, sequence {sequence}, body {body!r}") from None


def _check_body(body: bytes, rng: cases.Random, is_checked: bool, sequence: int) -> Decision:
    entrance = Entrance(is_checked)
    plain, other = (entrance.command(body, sequence, acks) for acks in ("persisted", "processed,persisted"))
    begin_ms = time.time_ns() // 10**6
    records: list[bytes | Refused | None] = [
        entrance.plain([plain]),
        entrance.plain([plain], b'","t":"T"}' * 50),
        entrance.plain(cases.cuts(rng, plain)),
    ]
    for_python = [
        entrance.for_python([other]),
        entrance.for_python([other], b'","t":"T"}' * 50),
        entrance.for_python(cases.cuts(rng, other)),
    ]
    time_ms = begin_ms, time.time_ns() // 10**6 + 1
    expected = decide(body, sequence, is_checked, time_ms)
    if isinstance(expected, Refused):
        _expect("plain", records, [None] * len(records))
        _expect("for Python", for_python, [expected] * len(for_python))
        return expected
    for record in for_python:
        if isinstance(record, Refused):
            raise Finding(f"{record} for Python, expected {expected}")
        _same_publishes(read_record(record, entrance, sequence), expected)
        if len(record) > entrance.ring.capacity // 8 or records[0] is None:
            # A plain transaction leaves room for the longest form of each record.
            _expect("plain", records, [None] * len(records))
            if len(record) < entrance.ring.capacity // 16:
                raise Finding("a short transaction is not plain")
    for record in records:
        if isinstance(record, bytes):
            _same_publishes(read_record(record, entrance, sequence), expected)
    return expected


# --- generators -----------------------------------------------------------------------------------------------------


def random_publish(rng: cases.Random) -> bytes:
    """A publish as it is in a body, mostly valid, without its length."""
    header: dict[str, Value] = {"topic": rng.choice(["T", "T", "T", "T", "ä", QUEUE])}
    if rng.random() < 0.6:
        header["cmd"] = rng.choice(["p", "publish"])
    if rng.random() < 0.2:
        header["expiration"] = rng.choice([0, 1, NEVER_S - 1])
    if rng.random() < 0.2:
        header["sow_key"] = rng.choice(["k", "", "}", "x" * 300, "é"])
    if rng.random() < 0.2:
        header["correlation_id"] = rng.choice(["abc+/=", '"', "x" * 3000])
    if rng.random() < 0.2:
        header["unknown"] = rng.choice(["s", 1, True])
    if rng.random() < 0.2:
        header[rng.choice(["delay", "not_before"])] = rng.choice([0, 1, 10_000, DELAY_MS_MAX])
    return cases.encode_oddly(rng, header) + rng.choice(
        [b"", b"{}", b"\0" * 9, rng.randbytes(rng.randrange(300)), _nested(rng)]
    )


def strange_publish(rng: cases.Random) -> bytes:
    """A publish with one thing that may be wrong."""
    header: dict[str, Value] = {"cmd": "p", "topic": "T"}
    match rng.randrange(6):
        case 0:
            header["topic"] = rng.choice(
                [UNRECORDED, DENIED, ENTITLED_TO_OTHERS, UNCHECKED, NEW, "", '"', "\0", "^T", "t" * 5000]
            )
        case 1:
            header["cmd"] = rng.choice([*cases.COMMANDS, *cases.STRANGE_COMMANDS, "transaction"])
        case 2:
            field = rng.choice(cases.FIELDS)
            header[field] = cases.random_value(rng, field)
        case 3:
            header[rng.choice(["expiration", "delay", "not_before"])] = rng.choice(
                [
                    *cases.NUMBERS,
                    NEVER_S,
                    NEVER_S + 1,
                    DELAY_MS_MAX + 1,
                    NOT_BEFORE_MS_MAX,
                    NOT_BEFORE_MS_MAX + 1,
                ]
            )
        case 4:
            header |= {"delay": 1, "not_before": rng.choice([0, 1])}
        case _:
            header[rng.choice(["sow_key", "correlation_id"])] = "x" * (PART_BYTES_MAX + rng.randrange(2))
    made = cases.encode_oddly(rng, header)
    if rng.random() < 0.3:
        twice = rng.choice(
            [b'"c":"x",', b'"t":"U",', b'"t":"\\u0054",', b'"s":1,', b'"e":-1,', b'"\\u0073":1,']
        )
        made = made[:1] + twice + made[1:] if rng.random() < 0.5 else made[:-1] + b"," + twice[:-1] + b"}"
    return made + rng.choice([b"", b"{}"])


def _nested(rng: cases.Random) -> bytes:
    """A body of another transaction, with or without its command: an ordinary payload."""
    inner = frame(b'{"c":"p","t":"U"}', b"inner") * rng.randrange(3)
    return rng.choice([inner, frame(b'{"c":"transaction","t":"Q","bm":"1|1|","s":9}', inner)])


def valid_body(rng: cases.Random) -> bytes:
    """A list of publishes, none of which has an escaped topic."""
    count = rng.choice([0, 1, 1, 2, 3, 5, 20])
    publishes = [random_publish(rng) for _ in range(count)]
    return b"".join(frame(one) for one in publishes)


def random_body(rng: cases.Random) -> bytes:
    """A valid body, or one that is wrong in some way."""
    kind = rng.random()
    if kind < 0.05:
        return cases.random_bytes(rng, 200)
    if kind < 0.4:
        return valid_body(rng)
    publishes = [random_publish(rng) for _ in range(rng.randrange(3))]
    publishes.insert(rng.randrange(len(publishes) + 1), strange_publish(rng))
    body = b"".join(frame(one) for one in publishes)
    if kind < 0.7:
        return body
    if kind < 0.85:
        return cases.mutate(rng, body)
    at = 0
    for one in publishes[: rng.randrange(len(publishes))]:
        at += 4 + len(one)
    length = int.from_bytes(body[at : at + 4], "big")
    wrong = rng.choice([0, length - 1, length + 1, len(body), len(body) - at - 4, 2**31, 2**32 - 1])
    return body[:at] + (wrong % 2**32).to_bytes(4, "big") + body[at + 4 :]


def run(seed: int) -> None:
    """Check one random body."""
    rng = cases.Random(seed)
    sequence = rng.choice([1, 1, 1, 1000, 2**63, SEQUENCE_MAX - 4096, SEQUENCE_MAX - 3, SEQUENCE_MAX])
    check_body(random_body(rng), rng, rng.random() < 0.5, sequence)
