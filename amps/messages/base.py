"""What the server needs to know about a message type, whatever its format.

A type is one module here: a subclass of MessageType that says what the type can do and makes the two objects that do
the work, both compiled and both with a state of their own: an Extractor finds fields in messages, a MessageBuilder
writes messages with given fields. Nothing else in the server knows formats.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from amps._core.values.fields import Extractor, MessageBuilder
from amps.messages.settings import TypeSettings


class MessageType(ABC):
    """One configured message type. What it can do: expressions.md §12.1."""

    is_view_type = True
    """Whether views can be of this type."""
    is_underlying_type = True
    """Whether views can be made from this type."""
    has_deltas = True
    """Whether parts of a message can be published and delivered."""
    has_enrichment = True
    has_select_lists = True
    has_server_topics = True
    """Whether the server's own topics can be had in this type."""

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
