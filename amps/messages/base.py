"""What the server needs to know about a message type, whatever its format.

A type is one module here: a subclass of MessageType that makes two objects, both compiled and both with a state of
their own. An Extractor finds fields in messages; a MessageBuilder writes messages with given fields. Nothing else in
the server knows formats.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from amps._core.values.fields import Extractor, MessageBuilder
from amps.messages.settings import TypeSettings


class MessageType(ABC):
    """One configured message type."""

    def __init__(self, settings: TypeSettings, known: Mapping[str, "MessageType"]) -> None:
        """known: types that are there already, for composites. ValueError: settings that cannot work."""
        self.settings = settings
        self.name = settings.name

    @abstractmethod
    def extractor(self) -> Extractor:
        """A new extractor. It keeps state: each user has its own."""

    def builder(self, paths: Iterable[tuple[bytes, ...]]) -> MessageBuilder:
        """A new builder of messages with these fields. ValueError: this type cannot hold them, or builds nothing."""
        raise ValueError(f"the message type {self.name} cannot be written by the server")
