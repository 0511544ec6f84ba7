"""Types of the builder of BSON messages; see build_bson.pyx."""

from amps._core.message_builder import MessageBuilder

class BsonBuilder(MessageBuilder): ...
