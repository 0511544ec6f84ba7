"""Prebuilt load: payloads and whole publish commands as bytes, made before the clock starts.

Every message of one load has the same size, so a position in the bytes is a message number and back. Payloads
are JSON, differ from each other, and contain the byte `MARKER` exactly once (as the last one inside), so that
a receiver counts messages by counting one byte, in any protocol.
"""

import random
import string
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

PAYLOAD_BYTES = 256
MARKER = ord("~")
TIMESTAMP_DIGITS = 19
TIMESTAMP_KEY = b'"at":"'
NUMBER_DIGITS = 10
FIRST_NUMBER = 1_000_000_000  # ten digits from the first to the last message

Bytes2D = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Load:
    """`count` messages of `message_bytes` each, back to back."""

    data: memoryview
    message_bytes: int
    count: int


def payload(number: int = FIRST_NUMBER, size_bytes: int = PAYLOAD_BYTES, seed: int = 0) -> bytes:
    """One JSON payload of exactly `size_bytes`, with room for a timestamp in nanoseconds."""
    head = b'{"n":"%010d",%s%019d","pad":"' % (number, TIMESTAMP_KEY, 0)
    tail = b'~"}'
    letters = random.Random(seed).choices(
        string.ascii_letters + string.digits, k=size_bytes - len(head) - len(tail)
    )
    return head + "".join(letters).encode() + tail


def timestamp_offset() -> int:
    """Offset of the digits of the timestamp in a payload."""
    return payload().index(TIMESTAMP_KEY) + len(TIMESTAMP_KEY)


def write_numbers(rows: Bytes2D, column: int, first: int) -> None:
    """Write consecutive ten-digit numbers into every row, beginning at `column`."""
    write_digits(rows, column, np.arange(first, first + len(rows), dtype=np.int64))


def write_digits(rows: Bytes2D, column: int, numbers: npt.NDArray[np.int64]) -> None:
    """Write a ten-digit number into each row, beginning at `column`."""
    for digit in range(NUMBER_DIGITS):
        power = 10 ** (NUMBER_DIGITS - 1 - digit)
        rows[:, column + digit] = (numbers // power) % 10 + ord("0")


def build(
    prefix: bytes,
    suffix: bytes,
    count: int,
    sequence_at: int | None = None,
    payload_bytes: int = PAYLOAD_BYTES,
) -> Load:
    """`count` messages `prefix payload suffix`.

    `sequence_at` is the place of a ten-digit number in the prefix that must rise from message to message.
    """
    variants = [prefix + payload(size_bytes=payload_bytes, seed=seed) + suffix for seed in range(64)]
    size = len(variants[0])
    pattern = np.frombuffer(b"".join(variants), dtype=np.uint8).reshape(len(variants), size)
    rows = np.empty((count, size), dtype=np.uint8)
    for start in range(0, count, len(variants)):
        part = rows[start : start + len(variants)]
        part[:] = pattern[: len(part)]
    write_numbers(rows, len(prefix) + len(b'{"n":"'), FIRST_NUMBER)
    if sequence_at is not None:
        write_numbers(rows, sequence_at, FIRST_NUMBER)
    return Load(rows.reshape(-1).data, size, count)


def in_batches(load: Load, batch: int, end: bytes) -> Load:
    """The same messages with `end` behind each `batch` of them; an item of the result is a batch with its end.

    Messages that do not fill a batch are left out.
    """
    count = load.count // batch
    size = batch * load.message_bytes
    rows = np.empty((count, size + len(end)), dtype=np.uint8)
    rows[:, :size] = np.frombuffer(load.data[: count * size], dtype=np.uint8).reshape(count, size)
    rows[:, size:] = np.frombuffer(end, dtype=np.uint8)
    return Load(rows.reshape(-1).data, size + len(end), count)


class MarkerCounter:
    """Counts messages in received bytes by their marker byte, many times faster than any parser."""

    def __init__(self, buffer: bytearray) -> None:
        self.bytes = np.frombuffer(buffer, dtype=np.uint8)
        self.hits = np.empty(len(buffer), dtype=np.bool_)

    def count(self, size_bytes: int) -> int:
        hits = self.hits[:size_bytes]
        np.equal(self.bytes[:size_bytes], MARKER, out=hits)
        return int(np.count_nonzero(hits))
