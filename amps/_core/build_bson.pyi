"""Types of the builder of BSON messages; see build_bson.pyx."""

from collections.abc import Iterable

from amps._core.message_builder import MessageBuilder

class BsonBuilder(MessageBuilder):
    def __init__(self, paths: Iterable[tuple[bytes, ...]]) -> None: ...
