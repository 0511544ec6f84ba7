"""The interface between the server and a message type, independent of its format.

A type is one module of this package: a subclass of MessageType that creates three objects, all compiled and all with
state. An Extractor finds fields in messages; a MessageBuilder writes messages with given fields; Documents merges,
compares and reduces whole messages. No other part of the server depends on formats.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from amps._core.values.documents import Documents
from amps._core.values.fields import Extractor, MessageBuilder
from amps.messages.settings import TypeSettings


class MessageType(ABC):
    """One configured message type.

    has_deltas: messages can be merged and compared; if not, they are stored and delivered as they are (sow.md §14).
    has_select_lists: a message can be reduced to some of its fields (sow.md §18).
    """

    has_deltas = False
    has_select_lists = False

    def __init__(self, settings: TypeSettings, known: Mapping[str, "MessageType"]) -> None:
        """known: the types created before, for composites. ValueError: the settings are not valid."""
        self.settings = settings
        self.name = settings.name

    @abstractmethod
    def extractor(self) -> Extractor:
        """Create an extractor. It has state, so each user needs its own."""

    def builder(self, paths: Iterable[tuple[bytes, ...]]) -> MessageBuilder:
        """Create a builder of messages with these fields.

        ValueError: the type cannot hold them, or cannot be written.
        """
        raise ValueError(f"the message type {self.name} cannot be written by the server")

    def documents(self) -> Documents:
        """Create the operations of deltas and select lists. It has state, so each user needs its own.

        ValueError: the type has neither. Some types have only one of them.
        """
        raise ValueError(f"the message type {self.name} has no deltas and no select lists")
