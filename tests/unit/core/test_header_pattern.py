"""Headers like the previous one, read without scanning, give the result of scanning (wire/header_pattern.pxi)."""

import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amps._core.shm.memory import ControlPage, Ring
from amps._core.wire import ingress as inbound
from amps._core.wire.ingress import Ingress
from amps._core.wire.topics import TopicTable

BODY = b'{"a":1}'
TOPICS = ("t", "topic-2")


class Entrance:
    """A connection's input and the ring that it fills."""

    def __init__(self) -> None:
        self.ring = Ring(1 << 20)
        self.table = TopicTable(lambda topic, message_type: (True, False, None, None))
        for topic in TOPICS:
            self.table.entry(topic, "json").mark_declared()
        self.ingress = self.connect()

    def connect(self) -> Ingress:
        ingress = Ingress(0, 1, self.ring, ControlPage(), self.table, 1 << 20)
        ingress.log_on("json", 7, 8, b"user", True, True, False, True)
        return ingress

    def take(self, header: bytes) -> tuple[object, ...]:
        """All effects of a frame with that header."""
        ingress = self.ingress
        payload = header + BODY
        data = len(payload).to_bytes(4, "big") + payload
        ingress.receive_buffer()[: len(data)] = data
        ingress.received(len(data))
        before = ingress.ack_requests
        result = ingress.parse()
        seen: object = None
        if result == inbound.COMMAND:
            seen = ingress.raw_header, ingress.body, ingress.frame_sequence
        elif result in (inbound.NEW_TOPIC, inbound.DENIED):
            seen = ingress.raw_header
        if result == inbound.BAD_HEADER:
            self.ingress = self.connect()
        ingress.discard(len(data))
        self.ring.publish_pushed()
        return result, seen, ingress.ack_requests - before, self.ring.pop_all()


def assert_read_as_scanned(headers: Sequence[bytes]) -> None:
    following = Entrance()
    for header in headers:
        scanning = Entrance()
        assert following.take(header) == scanning.take(header), headers


def publish(sequence: object, **more: str) -> bytes:
    """A header in which `front` stands before the sequence and `back` behind it."""
    front, back = more.get("front", ""), more.get("back", "")
    return f'{{"c":"p","t":"t",{front}"s":{sequence}{back}}}'.encode()


SEQUENCES = (
    st.integers(0, 30).map(str)
    | st.integers(0, 2**64 + 5).map(str)
    | st.sampled_from(
        [
            "9",
            "10",
            "007",
            '"12"',
            '"13"',
            "-1",
            "",
            "1.5",
            "99999999999999999999",
            "18446744073709551615",
            "18446744073709551616",
            "10000000000000000000001",
            "true",
            "1 ",
            "12,",
        ]
    )
)
FRONTS = st.sampled_from(
    ["", '"a":"persisted",', '"x":"corr\\"elated",', '"s":5,', '"e":10,', '"k":"12",', " "]
)
BACKS = st.sampled_from(
    [
        "",
        ',"a":"persisted"',
        ',"a":"none"',
        ',"x":"123"',
        ',"e":3',
        ',"e":"no"',
        ',"a":"received"',
        " ",
        "}",
        ',"t":"topic-2"',
    ]
)


@given(
    st.lists(st.builds(lambda s, f, b: publish(s, front=f, back=b), SEQUENCES, FRONTS, BACKS), max_size=12)
)
@example([publish(9), publish(10), publish(1000000), publish(3)])
@example([publish(9, back=',"x":"123"'), publish(10, back=',"x":"123"')])
@example([publish(9, back=',"a":"persisted"'), publish(10, back=',"a":"persisteX"')])
@example([publish(1), publish(2, back="}")])
@example([publish(1), publish("99999999999999999999"), publish("18446744073709551615")])
@example([publish(1), b'{"c":"p","t":"t","s":', publish(2)])
def test_following_headers_are_read_as_if_scanned(headers: list[bytes]) -> None:
    assert_read_as_scanned(headers)


@given(st.lists(st.tuples(SEQUENCES, st.integers(0, 40), st.integers(0, 255)), min_size=1, max_size=8))
def test_a_header_that_differs_in_one_byte_is_another_one(changes: list[tuple[str, int, int]]) -> None:
    headers = [publish(1, back=',"a":"persisted"')]
    for sequence, at, byte in changes:
        header = bytearray(publish(sequence, back=',"a":"persisted"'))
        header[at % len(header)] = byte
        headers += [publish(2, back=',"a":"persisted"'), bytes(header)]
    assert_read_as_scanned(headers)


@pytest.mark.parametrize("header", [b'{"c":"p","t":"t"}', b'{"t":"topic-2","c":"publish","a":"none"}'])
def test_a_header_without_a_sequence_is_followed_by_the_same_bytes(header: bytes) -> None:
    assert_read_as_scanned([header, header, header[:-1] + b',"s":5}', header, header[:-1] + b" }"])


def test_fields_behind_the_sequence_move_with_its_length() -> None:
    """The correlation id is read at its place in this header, not at its place in the header before."""
    entrance = Entrance()
    records = [
        entrance.take(publish(sequence, back=',"x":"correlated"'))[3] for sequence in (9, 10, 10**18, 11, 7)
    ]
    assert all(b"correlated" in record for (record,) in records)  # type: ignore[misc,attr-defined]


def test_a_publish_cut_short_is_not_taken_for_the_one_before() -> None:
    """The header of a shorter frame does not take in bytes of the frame behind it."""
    entrance = Entrance()
    header = publish(5)
    assert entrance.take(header)[0] == inbound.NEED_MORE
    frame = header[:-1]
    data = len(frame).to_bytes(4, "big") + frame + b"}" * 40
    entrance.ingress.receive_buffer()[: len(data)] = data
    entrance.ingress.received(len(data))
    assert entrance.ingress.parse() == inbound.BAD_HEADER


def test_a_header_may_not_go_on_behind_its_frame() -> None:
    """Bytes behind a frame that is too short may equal the ones missing in it."""
    entrance = Entrance()
    header = b'{"c":"p","t":"t"}'
    assert entrance.take(header)[0] == inbound.NEED_MORE
    data = (len(header) - 3).to_bytes(4, "big") + header + BODY
    entrance.ingress.receive_buffer()[: len(data)] = data
    entrance.ingress.received(len(data))
    assert entrance.ingress.parse() == inbound.BAD_HEADER


def test_another_logon_resets_the_pattern() -> None:
    """A publish may need other treatment after it: here acknowledgements are no longer conflated."""
    entrance = Entrance()
    header = publish(5, back=',"a":"persisted"')
    assert entrance.take(header)[0] == inbound.NEED_MORE
    entrance.ingress.log_on("json", 7, 8, b"user", True, False, False, True)
    assert entrance.take(header)[0] == inbound.COMMAND


def test_headers_that_never_repeat_stop_learning_for_a_while_only() -> None:
    """Learning is suspended and tried again later."""
    headers = [publish(n, back=f',"x":"{n}"') for n in range(1, 600)]
    assert_read_as_scanned(headers + [publish(n) for n in range(600, 900)])


def test_a_header_cut_behind_a_backslash_is_not_read_beyond_its_end() -> None:
    """A long string that ends within an escape, in front of memory that must not be read."""
    program = """
import ctypes, mmap
from amps._core.wire.framing import HeaderError, parse_header
pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + mmap.PAGESIZE), mmap.PAGESIZE, 0) == 0
for length in range(80):
    for end in (b"", b"\\\\", b"\\\\\\\\"):
        header = b'{"c":"p","f":"' + b"a" * length + end
        place = memoryview(pages)[mmap.PAGESIZE - len(header) : mmap.PAGESIZE]
        place[:] = header
        try:
            parse_header(place)
        except HeaderError:
            continue
        raise AssertionError(header)
print("refused")
"""
    said = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (0, "refused\n"), said.stderr
