"""The keys of SOW records (sow.md §3, D2 to D5): an independent model, each message type, and cases at the limits."""

import json
import struct
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amps._core.sow.shaping import KeyMaker, may_be_publisher_key
from amps.messages import MessageType, TypeSettings, make_message_types, standard_settings

ID = (b"id",)
TYPES = make_message_types(standard_settings().values())
MASK = 2**64 - 1


def hashed(identity: bytes) -> int:
    """The hash of publisher ids (transaction_log.md §20, 2), as its text says."""
    value = 0xCBF29CE484222325
    for byte in identity:
        value = (value ^ byte) * 0x100000001B3 & MASK
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & MASK
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & MASK
    return value ^ value >> 33 or 1


def maker(*paths: tuple[bytes | int, ...], domain: bytes = b"orders", of: str = "json") -> KeyMaker:
    return KeyMaker(domain, paths or (ID,), TYPES[of].extractor())


# --- the identity ---


def test_a_key_is_the_hash_of_domain_and_texts() -> None:
    """sow.md §3, D2."""
    assert maker().key(b'{"id":1}') == hashed(b"orders\x011")
    assert maker((b"a",), (b"b", b"c")).key(b'{"b":{"c":"x"},"a":7}') == hashed(b"orders\x017\x01x")


def test_a_key_is_stored_and_never_changes() -> None:
    """sow.md §25, 6: the same after a restart, of 64 bits. Journals hold these numbers."""
    assert maker().key(b'{"id":1}') == 1286810314026235129
    assert KeyMaker(b"t").text_key(b"abc") == 5247861721703308994


@given(st.binary(max_size=300), st.lists(st.text(max_size=70), min_size=1, max_size=4))
def test_keys_by_the_model(domain: bytes, texts: list[str]) -> None:
    names = [b"f%d" % number for number in range(len(texts))]
    message = json.dumps(dict(zip([name.decode() for name in names], texts, strict=True))).encode()
    made = KeyMaker(domain, [(name,) for name in names], TYPES["json"].extractor())
    spelled = [text.encode("utf-8", "surrogatepass") for text in texts]
    assert made.key(message) == hashed(domain + b"".join(b"\x01" + text for text in spelled))
    assert made.fields.texts(message) == tuple(spelled)
    assert made.missing == texts.count("")


def test_topics_differ_unless_they_share_a_domain() -> None:
    """sow.md §25, 5."""
    message = b'{"id":1}'
    assert maker(domain=b"a").key(message) != maker(domain=b"b").key(message)
    assert maker(domain=b"d").key(message) == maker(domain=b"d").key(message)


def test_the_order_of_composite_keys_counts() -> None:
    """sow.md §25, 7."""
    pair = maker((b"a",), (b"b",))
    assert pair.key(b'{"a":1,"b":2}') != pair.key(b'{"a":2,"b":1}')
    assert pair.key(b'{"a":1,"b":2}') == pair.key(b'{"b":2,"x":[1,2],"a":1}')
    assert pair.key(b'{"a":1,"b":2}') != maker((b"b",), (b"a",)).key(b'{"a":1,"b":2}')


def test_a_field_may_be_used_twice() -> None:
    assert maker(ID, ID).key(b'{"id":5}') == hashed(b"orders\x015\x015")


def test_fields_are_divided() -> None:
    pair = maker((b"a",), (b"b",))
    assert pair.key(b'{"a":"x","b":"yz"}') != pair.key(b'{"a":"xy","b":"z"}')


# --- the text of a value ---


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1", b"1"),
        ('"1"', b"1"),  # the same key
        ("1.0", b"1.0"),
        ("1e3", b"1e3"),
        ("-0", b"-0"),
        ("123456789012345678901234567890", b"123456789012345678901234567890"),
        ("0.1000000000000000055511151231257827", b"0.1000000000000000055511151231257827"),
        ("true", b"true"),
        ("false", b"false"),
        (r'"a\"b\u00e9\n"', 'a"bé\n'.encode()),
        ('"é"', "é".encode()),
        ("[7,8]", b"7"),
    ],
)
def test_the_text_is_that_of_the_message(value: str, text: bytes) -> None:
    """sow.md D3."""
    made = maker()
    message = b'{"id":%s}' % value.encode()
    assert made.key(message) == hashed(b"orders\x01" + text)
    assert made.fields.texts(message) == (text,)
    assert made.missing == 0


@pytest.mark.parametrize("message", [b"{}", b"", b'{"id":null}', b'{"id":""}', b'{"id":{"a":1}}', b'{"id":[]}'])
def test_a_missing_field_is_the_empty_text(message: bytes) -> None:
    """sow.md D4: such messages share a record, and are counted."""
    made = maker()
    assert made.key(message) == hashed(b"orders\x01")
    assert made.fields.texts(message) == (b"",)
    assert (made.missing, made.unreadable) == (1, 0)
    assert maker(ID, (b"b",)).key(b'{"b":2}') == hashed(b"orders\x01\x012")


def test_a_struct_message_has_keys_of_its_values() -> None:
    settings = [*standard_settings().values(), TypeSettings("tick", "struct", fields=("/id = i", "/on = ?"))]
    tick = make_message_types(settings)["tick"]
    made = KeyMaker(b"t", (ID, (b"on",)), tick.extractor())
    assert made.key(struct.pack("=i?", -7, True)) == hashed(b"t\x01-7\x01true")


def test_every_type_with_fields_gives_the_text_of_a_field() -> None:
    """sow.md §3: equal values have equal keys, also those of two message types."""
    for name in ("json", "fix", "nvfix", "xml", "bson", "msgpack", "bflat"):
        message_type: MessageType = TYPES[name]
        path = (b"7",) if name == "fix" else (b"r", b"id") if name == "xml" else ID
        message = message_type.builder([path]).build([b"A1"])
        made = KeyMaker(b"t", [path], message_type.extractor())
        assert made.key(message) == hashed(b"t\x01A1"), name


# --- messages that cannot be read ---


@pytest.mark.parametrize("message", [b"{", b'{"a":1', b"x", b'{"id":}', b'{"id":"\\ud"}', b'{"id":1'])
def test_an_unreadable_message_has_no_key(message: bytes) -> None:
    made = maker()
    assert made.key(message) == 0
    assert made.fields.texts(message) is None
    assert (made.missing, made.unreadable) == (0, 1)
    assert made.key(b'{"id":1}') == hashed(b"orders\x011")  # and the next one is read as ever


def test_what_is_wrong_behind_the_key_does_not_matter() -> None:
    """expressions.md §12.3."""
    assert maker().key(b'{"id":1,x') == hashed(b"orders\x011")


# --- keys of texts ---


def test_the_key_that_a_publisher_provides() -> None:
    """sow.md §3, §25, 8."""
    assert KeyMaker(b"t").text_key(b"abc") == hashed(b"t\x01abc")
    assert KeyMaker(b"t").text_key(b"") == hashed(b"t\x01")
    assert KeyMaker(b"t").text_key(b"a" * 100_000) == hashed(b"t\x01" + b"a" * 100_000)


def test_a_topic_without_key_fields_makes_no_keys_of_messages() -> None:
    for made in (KeyMaker(b"t"), KeyMaker(b"t", [ID, (b"b",)], TYPES["json"].extractor(), generator="chaining")):
        with pytest.raises(ValueError, match="made of texts"):
            made.key(b'{"id":1}')


def test_key_fields_need_an_extractor() -> None:
    with pytest.raises(ValueError, match="need an extractor"):
        KeyMaker(b"t", [ID])


@pytest.mark.parametrize("text", [b"a", b"Z", b"0", b"9", b"z", b"A", b"+/=", b"AbC123=="])
def test_characters_of_base64_make_a_key(text: bytes) -> None:
    """sow.md D5."""
    assert may_be_publisher_key(text)


def test_other_characters_do_not() -> None:
    """sow.md D5."""
    assert not may_be_publisher_key(b"")
    allowed = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
    assert [byte for byte in range(256) if may_be_publisher_key(bytes([byte]))] == sorted(allowed)
    assert not may_be_publisher_key(b"abc-")
    assert not may_be_publisher_key(b"\x00abc")


# --- definitions and logical topics ---


def test_the_definition_tells_domains_and_fields_apart() -> None:
    made = {
        KeyMaker(b"a", paths, TYPES["json"].extractor(), generator).definition
        for paths, generator in (
            ([], ""),
            ([(b"x",)], ""),
            ([(b"x",), (b"y",)], ""),
            ([(b"y",), (b"x",)], ""),
            ([(b"x", b"y")], ""),
            ([(b"x", 0, b"y")], ""),
            ([(b"x",), (b"y",)], "chaining"),
        )
    }
    assert len(made) == 7
    assert maker(domain=b"b").definition != maker(domain=b"a").definition
    assert maker(domain=b"a").definition == crc32(b"0:1:a4:2:id") == 3321820203  # stored in journals


def test_logical_topics_share_all_but_the_domain() -> None:
    """sow.md §7: equal ids in two logical topics are two records (§25, 59)."""
    container = maker(domain=b"bucket")
    one, other = container.for_domain(b"/orders/a"), container.for_domain(b"/orders/b")
    message = b'{"id":1}'
    assert one.key(message) == hashed(b"/orders/a\x011")
    assert other.key(message) == hashed(b"/orders/b\x011")
    assert container.key(message) == hashed(b"bucket\x011")
    assert one.text_key(b"k") == hashed(b"/orders/a\x01k")
    assert one.definition == other.definition == container.definition
    assert one.domain == b"/orders/a"
    assert one.fields is other.fields
    other.key(b"{}")
    assert (one.missing, other.missing) == (0, 1)
    with pytest.raises(ValueError, match="made of texts"):
        KeyMaker(b"t").for_domain(b"u").key(message)
