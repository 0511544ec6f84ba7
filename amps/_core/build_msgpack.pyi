"""Types of the builder of MessagePack messages; see build_msgpack.pyx."""

from amps._core.message_builder import MessageBuilder

class MsgpackBuilder(MessageBuilder): ...
