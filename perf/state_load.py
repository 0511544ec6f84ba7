"""Prebuilt records for programs that keep the last value of each key: bytes with a key and a version in them.

A template is a whole command of a protocol, or only a record, in which `KEY` and `VERSION` stand for ten digits. All
templates of one load have the same size and the same places, so that the digits are written at once for all messages.
"""

import random
import re
import string
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perf.load import FIRST_NUMBER, NUMBER_DIGITS, Load, write_digits

KEY = b"%010d" % FIRST_NUMBER
VERSION = b"2000000000"
SEQUENCE = b"3000000000"
"""Stands for a number that rises from message to message."""
GROUP = b"4000000000"
"""Stands for the number of a group of records."""
FIRST_VERSION = int(VERSION)
FIRST_GROUP = int(GROUP)
VARIANTS = 64
RECORD_BYTES = 256

Numbers = npt.NDArray[np.int64]


def key_numbers(count: int) -> Numbers:
    """The keys of a topic."""
    return np.arange(FIRST_NUMBER, FIRST_NUMBER + count, dtype=np.int64)


def shuffled(numbers: Numbers, seed: int) -> Numbers:
    return np.random.default_rng(seed).permutation(numbers)


def records(size_bytes: int = RECORD_BYTES) -> list[bytes]:
    """Records of this size, as templates: a key, a version, and different texts."""
    head, tail = b'{"n":"%s","version":%s,"pad":"' % (KEY, VERSION), b'~"}'
    letters = string.ascii_letters + string.digits
    room = size_bytes - len(head) - len(tail)
    return [
        head + "".join(random.Random(seed).choices(letters, k=room)).encode() + tail
        for seed in range(VARIANTS)
    ]


SHORT_RECORDS = [b'{"n":"%s","v":%s}' % (KEY, VERSION)]
"""Records that are little more than a key."""
ORDER_CHANGES = [b'{"id":%s,"price":%s,"quantity":%s}' % (KEY, VERSION, VERSION)]
"""Changes of two fields of an order."""
OTHER_ORDERS = [
    b'{"id":%s,"symbol":"S9999","status":"filled","price":%s,"quantity":1,"account":{"region":"south"},'
    b'"currency":"JPY","pad":"%s"}' % (KEY, VERSION, b"x" * 128)
]
"""Orders that no query finds; they are updated while queries run."""


GROUPED_RECORDS = [record.replace(b'"pad":"', b'"group":"%s","pad":"' % GROUP) for record in records(232)]
"""Records that belong to a group."""


def keyed_load(
    templates: Sequence[bytes], numbers: Numbers, version: int, groups: Numbers | None = None
) -> Load:
    """A message for each of the keys, in this order. `groups`: the group of each."""
    variants = np.frombuffer(b"".join(templates), dtype=np.uint8).reshape(len(templates), -1)
    rows = np.empty((len(numbers), variants.shape[1]), dtype=np.uint8)
    for start in range(0, len(numbers), len(variants)):
        part = rows[start : start + len(variants)]
        part[:] = variants[: len(part)]
    for column in places(templates[0], KEY):
        write_digits(rows, column, numbers)
    for column in places(templates[0], VERSION):
        write_digits(rows, column, np.full(len(numbers), FIRST_VERSION + version, dtype=np.int64))
    for column in places(templates[0], SEQUENCE):
        write_digits(rows, column, np.arange(FIRST_NUMBER, FIRST_NUMBER + len(numbers), dtype=np.int64))
    for column in places(templates[0], GROUP) if groups is not None else ():
        write_digits(rows, column, groups)
    return Load(rows.reshape(-1).data, rows.shape[1], len(numbers))


def places(template: bytes, text: bytes) -> list[int]:
    return [found.start() for found in re.finditer(re.escape(text), template)]


def rows_of(load: Load) -> list[tuple[int, bytes]]:
    """Keys and records of a load whose templates are bare records."""
    size = load.message_bytes
    data = load.data.tobytes()
    at = data.index(b"1", 0)  # the first digit of the first key
    return [
        (int(data[start + at : start + at + NUMBER_DIGITS]), data[start : start + size])
        for start in range(0, len(data), size)
    ]
