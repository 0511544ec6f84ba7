"""Types of the builder of MessagePack messages; see build_msgpack.pyx."""

from collections.abc import Iterable

from amps._core.message_builder import MessageBuilder

class MsgpackBuilder(MessageBuilder):
    def __init__(self, paths: Iterable[tuple[bytes, ...]]) -> None: ...
