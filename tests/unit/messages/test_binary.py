"""Binary messages have no fields."""

import pytest

from amps.messages import TypeSettings, make_message_types
from tests.unit.messages.reading import matches, read

BINARY = make_message_types([TypeSettings("raw", "binary")])["raw"]


@pytest.mark.parametrize("content", [b"", b'{"x":1}', b"\x00\xff", b"x=1\x01"])
def test_no_field_is_found_and_nothing_is_malformed(content: bytes) -> None:
    """expressions.md §13 row 117, §15 item 45"""
    extractor = BINARY.extractor()
    assert read(extractor, content, [(b"x",)]) == [[]]
    assert not matches(extractor, content, "/x = 1")
    assert matches(extractor, content, "1=1")
    assert matches(extractor, content, "/x IS NULL")


def test_the_server_writes_no_binary_messages() -> None:
    """expressions.md §12.1"""
    with pytest.raises(ValueError, match="the message type raw cannot be written by the server"):
        BINARY.builder([(b"x",)])
