"""Types of the builder of JSON messages; see build_json.pyx."""

from collections.abc import Iterable

from amps._core.message_builder import MessageBuilder

class JsonBuilder(MessageBuilder):
    def __init__(self, paths: Iterable[tuple[bytes, ...]], early_termination: bool = True) -> None: ...
