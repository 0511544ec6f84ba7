"""Keys and computed fields from the configuration of a topic (sow.md §§3, 7, 15)."""

import json

from amps.config import ChainingConfig, SowTopicConfig
from amps.expressions import SHIPPED
from amps.messages import make_message_types, standard_settings
from amps.server.shared.sow_shaping import (
    enrichment_stage,
    key_maker,
    logical_key_maker,
    preprocessing_stage,
)

TYPES = make_message_types(standard_settings().values())
JSON = TYPES["json"]
MESSAGE = b'{"id":1,"b":2}'


def topic(name: str = "t", **more: object) -> SowTopicConfig:
    return SowTopicConfig(name, "json", **{"keys": ("/id",), **more})  # type: ignore[arg-type]


def key(config: SowTopicConfig, message: bytes = MESSAGE) -> int:
    return key_maker(config, JSON).key(message)


def test_topics_without_key_domain_have_keys_of_their_own() -> None:
    """sow.md §25, 5."""
    assert key(topic("a")) != key(topic("b"))
    assert key(topic("a", key_domain="d")) == key(topic("b", key_domain="d"))
    assert key(topic("a", key_domain="b")) == key(topic("b"))


def test_composite_keys() -> None:
    """sow.md §25, 7."""
    pair = topic(keys=("/id", "/b"))
    assert key(pair) == key(pair, b'{"b":2,"x":3,"id":1}') != key(pair, b'{"id":2,"b":1}')


def test_keys_that_publishers_provide() -> None:
    """sow.md §25, 8: also of binary messages."""
    config = SowTopicConfig("t", "binary")
    maker = key_maker(config, TYPES["binary"])
    assert maker.text_key(b"abc") == key_maker(config, TYPES["binary"]).text_key(b"abc") != maker.text_key(b"abd")


def test_records_of_logical_topics_never_collide() -> None:
    """sow.md §7, D2, §25, 59."""
    container = topic("bucket", pattern="^/orders/")
    maker = key_maker(container, JSON)
    a = logical_key_maker(maker, container, "/orders/a")
    assert a.key(MESSAGE) != logical_key_maker(maker, container, "/orders/b").key(MESSAGE)
    assert a.key(MESSAGE) == key(topic("/orders/a"))
    of_domain = topic("bucket", pattern="^/orders/", key_domain="d")
    maker = key_maker(of_domain, JSON)
    keys = {logical_key_maker(maker, of_domain, f"/orders/{name}").key(MESSAGE) for name in "abc"}
    assert len(keys | {key(topic(key_domain="d"))}) == 4
    assert logical_key_maker(maker, of_domain, "/orders/a").definition == maker.definition


def test_the_definition_changes_with_the_way_keys_are_made() -> None:
    definitions = [
        key_maker(config, JSON).definition
        for config in (
            topic(),
            topic(key_domain="d"),
            topic(keys=("/id", "/b")),
            topic(keys=()),
            topic(keys=(), key_generator=ChainingConfig("/id", ("/b",))),
        )
    ]
    assert len(set(definitions)) == 5
    assert key_maker(topic(slab_size_bytes=4096, indexes=("/x",)), JSON).definition == definitions[0]


def test_chains_have_the_texts_of_primary_and_secondaries() -> None:
    """sow.md §3.1."""
    config = topic(keys=(), key_generator=ChainingConfig("/doc", ("/parent", "/other")))
    assert key_maker(config, JSON).fields.texts(b'{"parent":"p","doc":7}') == (b"7", b"p", b"")


def test_stages() -> None:
    """sow.md §25, 47."""
    config = topic(
        keys=("/k",),
        preprocessing=("CONCAT(/a,'-',/b) AS /k",),
        enrichment=("COALESCE(/x OF CURRENT, /x OF PREVIOUS, 'd') AS /x", "TOPIC_NAME() AS /t HINT OPTIONAL"),
    )
    before, behind = preprocessing_stage(config, JSON, SHIPPED), enrichment_stage(config, JSON, SHIPPED)
    assert before is not None
    assert behind is not None
    assert (before.reads_previous, behind.reads_previous) == (False, True)
    shaped = before.apply(b'{"a":1,"b":2}')
    assert shaped is not None
    assert key(config, shaped) == key(config, b'{"k":"1-2"}')
    stored = behind.apply(shaped)
    assert stored is not None
    assert json.loads(stored) == {"a": 1, "b": 2, "k": "1-2", "x": "d"}


def test_a_topic_without_stages_has_none() -> None:
    assert preprocessing_stage(topic(), JSON, SHIPPED) is None
    assert enrichment_stage(topic(), JSON, SHIPPED) is None
