"""Publisher ids are part of the journal format and of every bookmark: these values never change."""

from hypothesis import given
from hypothesis import strategies as st

from amps._core.values.value import derived_publisher_id, publisher_id, topic_hash

MASK = 0xFFFFFFFFFFFFFFFF


def defined(data: bytes) -> int:
    """The definition: FNV-1a, then the finalizer of MurmurHash3; 0 becomes 1."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & MASK
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & MASK
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & MASK
    value ^= value >> 33
    return value or 1


PINNED = {
    "": 0xEFD01F60BA992926,
    "a": 0x82A2A958A9BECE5B,
    "client-1": 0xF93BD2C16AC6882D,
    "orders publisher": 0x4B77C28A7597F39F,
    "ünïcode €": 0xE53BD6E8D42C2F0F,
    "x" * 300: 0x08231E9AD7B58D59,
}


def test_identity_pinned_values() -> None:
    assert {name: publisher_id(name) for name in PINNED} == PINNED
    assert derived_publisher_id("client", "instance") == 0x4C31DAF763A6A1B2
    assert topic_hash("orders", "json") == 0xFA1AFDC6CBFBC1E8


@given(st.text())
def test_identity_is_as_defined(name: str) -> None:
    data = name.encode("utf-8", "surrogatepass")
    assert publisher_id(name) == defined(data)
    assert derived_publisher_id(name, "i") == defined(data + b"\0i")
    assert topic_hash(name, "json") == defined(b"json\0" + data)


def test_identity_a_derived_id_is_different() -> None:
    """transaction_log.md §4.3: it never conflicts with the numbers that the publisher uses itself."""
    names = [f"client-{n}" for n in range(1000)]
    ids = {publisher_id(name) for name in names} | {derived_publisher_id(name, "i") for name in names}
    assert len(ids) == 2000
    assert 0 not in ids
