"""Types of the builder of BFlat messages; see build_bflat.pyx."""

from collections.abc import Iterable

from amps._core.message_builder import MessageBuilder

class BflatBuilder(MessageBuilder):
    def __init__(self, paths: Iterable[tuple[bytes, ...]]) -> None: ...
