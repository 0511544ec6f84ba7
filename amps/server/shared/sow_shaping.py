"""What makes the keys and computes the fields of a SOW topic, from its configuration (sow.md §3, §7, §15).

Transports make keys and run `Preprocessing`; the core runs `Enrichment` and the key generator for chains. Each process
makes its own objects, because extractors and builders have state. Core and transports use this module, so that they
agree on the domain of keys.
"""

from amps._core.sow.shaping import FieldStage, KeyMaker
from amps._core.values.fields import MessageContext
from amps.config import ServerConfig, SowTopicConfig
from amps.expressions import CURRENT, PREVIOUS, Functions, Usage, parse_field, parse_field_constructor
from amps.messages import MessageType

CHAINING = "chaining"


def key_maker(topic: SowTopicConfig, message_type: MessageType) -> KeyMaker:
    """Return the keys of a topic, or of the container that a topic with `Pattern` is; see `logical_key_maker`.

    Without `Key` only texts have keys: those of publishers, or, with a key generator, the identifiers of chains.
    """
    texts = topic.keys
    if topic.key_generator is not None:
        texts = (topic.key_generator.primary, *topic.key_generator.secondaries)
    return KeyMaker(
        (topic.key_domain or topic.name).encode(),
        [parse_field(text) for text in texts],
        message_type.extractor() if texts else None,
        CHAINING if topic.key_generator is not None else "",
    )


def logical_key_maker(container: KeyMaker, topic: SowTopicConfig, logical_topic: str) -> KeyMaker:
    """Return the keys of a logical topic of a container (sow.md D2): its name is always a part of them.

    Without `KeyDomain`, they are those of a topic of that name. With it, the byte 2 divides both.
    """
    name = logical_topic.encode("utf-8", "surrogatepass")
    if topic.key_domain is not None:
        name = topic.key_domain.encode() + b"\x02" + name
    return container.for_domain(name)


def instance_context(config: ServerConfig) -> MessageContext:
    """Return the facts that fields may be computed from: those about the instance (expressions.md §7)."""
    return MessageContext(
        config.name.encode("utf-8", "surrogatepass"), config.group.encode("utf-8", "surrogatepass")
    )


def preprocessing_stage(
    topic: SowTopicConfig,
    message_type: MessageType,
    functions: Functions,
    context: MessageContext | None = None,
) -> FieldStage | None:
    """Return the stage before the key; None if the topic has none. `context`: see `instance_context`."""
    if not topic.preprocessing:
        return None
    constructors = [parse_field_constructor(text, Usage.FIELD, functions) for text in topic.preprocessing]
    return FieldStage(constructors, message_type, (), context)


def enrichment_stage(
    topic: SowTopicConfig,
    message_type: MessageType,
    functions: Functions,
    context: MessageContext | None = None,
) -> FieldStage | None:
    """Return the stage behind the key, which may read the stored record; None if the topic has none."""
    if not topic.enrichment:
        return None
    constructors = [parse_field_constructor(text, Usage.ENRICHMENT, functions) for text in topic.enrichment]
    return FieldStage(constructors, message_type, (CURRENT, PREVIOUS), context)
