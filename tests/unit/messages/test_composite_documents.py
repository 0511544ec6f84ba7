"""Deltas and select lists of composite-local messages (sow.md §14, §17, §18; expressions.md §12.6)."""

import struct

import pytest

from amps.messages import TypeSettings, make_message_types
from tests.unit.messages.document_models import Checked

TYPES = make_message_types(
    [
        *(TypeSettings(name, name) for name in ("json", "nvfix", "binary")),
        TypeSettings("local", "composite-local", parts=("json", "json", "binary")),
        TypeSettings("deep", "composite-local", parts=("local", "nvfix")),
    ]
)
LOCAL = Checked(TYPES["local"].documents())
DEEP = Checked(TYPES["deep"].documents())


def message(*parts: bytes, payload: bytes = b"") -> bytes:
    return b"".join(struct.pack(">I", len(part)) + part for part in parts) + payload


STORED = message(b'{"id":1,"a":2}', b'{"b":{"x":1,"y":2}}', b"\0\1", payload=b"tail")


@pytest.mark.parametrize(
    ("delta", "merged"),
    [
        # sow.md §14: a part of zero length is unchanged.
        (
            message(b"", b'{"b":{"x":3}}', b""),
            message(b'{"id":1,"a":2}', b'{"b":{"x":3,"y":2}}', b"\0\1", payload=b"tail"),
        ),
        (message(b'{"a":5}', b"", b"\7"), message(b'{"id":1,"a":5}', b'{"b":{"x":1,"y":2}}', b"\7", payload=b"tail")),
        # The payload of the delta is ignored.
        (message(b"", b"", b"", payload=b"other"), STORED),
        (b"", STORED),
    ],
)  # fmt: skip
def test_merging_a_delta(delta: bytes, merged: bytes) -> None:
    assert LOCAL.merge(STORED, delta) == merged


def test_merging_into_an_empty_message() -> None:
    assert LOCAL.merge(b"", message(b'{"a":1,"b":null}', b"", b"\1")) == message(b'{"a":1}', b"", b"\1")
    assert LOCAL.merge(b"", b"") == message(b"", b"", b"")


def test_the_difference_of_two_states() -> None:
    new = message(b'{"id":1,"a":2}', b'{"b":{"x":1,"y":9}}', b"\0\2", payload=b"new")
    keyed = message(b'{"id":1}', b'{"b":{"y":9}}', b"\0\2")
    assert LOCAL.difference(STORED, new, "/0/id") == (keyed, True)
    assert LOCAL.difference(STORED, new) == (message(b"", b'{"b":{"y":9}}', b"\0\2"), True)
    assert LOCAL.difference(STORED, STORED, "/0/id") == (message(b'{"id":1}', b"", b""), False)
    assert LOCAL.difference(STORED, STORED, "/1") == (message(b"", b'{"b":{"x":1,"y":2}}', b""), False)
    # A part that differs in its blanks only.
    other = message(b'{"id":1, "a":2}', b'{"b":{"x":1,"y":2}}', b"\0\1")
    assert LOCAL.difference(STORED, other) == (message(b"", b"", b""), False)
    assert LOCAL.difference(b"", STORED) == (message(b'{"id":1,"a":2}', b'{"b":{"x":1,"y":2}}', b"\0\1"), True)


@pytest.mark.parametrize(
    ("directives", "left"),
    [
        ("[-/1,-/0/a]", message(b'{"id":1}', b"", b"\0\1", payload=b"tail")),
        ("[-/,+/1/b/x]", message(b"", b'{"b":{"x":1}}', b"")),
        ("[-/]", message(b"", b"", b"")),
        ("[-/,+/2]", message(b"", b"", b"\0\1")),
        # The part cannot be reduced, so it may hold what is excluded.
        ("[-/2/x]", message(b'{"id":1,"a":2}', b'{"b":{"x":1,"y":2}}', b"", payload=b"tail")),
    ],
)
def test_select_lists(directives: str, left: bytes) -> None:
    assert LOCAL.select(STORED, directives) == left
    assert LOCAL.select(b"", directives) == b""


def test_composites_in_composites() -> None:
    stored = message(STORED, b"k=1\x01v=2\x01")
    delta = message(message(b'{"a":7}', b"", b""), b"v=3\x01")
    merged = message(STORED.replace(b'"a":2', b'"a":7'), b"k=1\x01v=3\x01")
    assert DEEP.merge(stored, delta) == merged
    assert DEEP.difference(stored, merged, "/0/0/id", "/1/k") == (
        message(message(b'{"id":1,"a":7}', b"", b""), b"k=1\x01v=3\x01"), True,
    )  # fmt: skip
    assert DEEP.select(stored, "[-/,+/0/0/id,+/1]") == message(message(b'{"id":1}', b"", b""), b"k=1\x01v=2\x01")


@pytest.mark.parametrize(
    "malformed", [b"\0\0", message(b"{}"), message(b"{}", b"{}", b"")[:-1], message(b"{", b"{", b"")]
)
def test_malformed_messages_are_refused(malformed: bytes) -> None:
    delta = message(b'{"a":1}', b'{"c":1}', b"")
    for first, second in ((malformed, delta), (delta, malformed)):
        with pytest.raises(ValueError, match="cannot be parsed"):
            LOCAL.merge(first, second)
        with pytest.raises(ValueError, match="cannot be parsed"):
            LOCAL.difference(first, second, "/0/id")
    with pytest.raises(ValueError, match="cannot be parsed"):
        LOCAL.select(malformed, "[-/0/a,-/1/a]")
