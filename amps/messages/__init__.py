"""Message types: how fields are read from messages and written to them (expressions.md §12).

There is one module per type, with a subclass of MessageType (base.py) that is created from TypeSettings (settings.py),
the settings of the type in a configuration. MODULES lists all types: a new type is a module and an entry there. This
package reads no configuration files and does not depend on the server; both look up types by name.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from amps.messages.base import MessageType
from amps.messages.bflat import BflatType
from amps.messages.binary import BinaryType
from amps.messages.bson import BsonType
from amps.messages.composite import CompositeGlobalType, CompositeLocalType
from amps.messages.fix import FixType, NvfixType
from amps.messages.json import JsonType
from amps.messages.msgpack import MsgpackType
from amps.messages.protobuf import ProtobufType
from amps.messages.settings import TypeSettings
from amps.messages.struct import StructType
from amps.messages.xml import XmlType

__all__ = [
    "MODULES",
    "STANDARD_MESSAGE_TYPES",
    "MessageType",
    "TypeSettings",
    "make_message_type",
    "make_message_types",
    "standard_settings",
]

STANDARD_MESSAGE_TYPES: Final = ("json", "fix", "nvfix", "xml", "bson", "msgpack", "bflat", "binary")
"""Message types that need no declaration. Each has the name of its module."""

MODULES: Final[Mapping[str, type[MessageType]]] = {
    "json": JsonType,
    "fix": FixType,
    "nvfix": NvfixType,
    "xml": XmlType,
    "bson": BsonType,
    "msgpack": MsgpackType,
    "bflat": BflatType,
    "binary": BinaryType,
    "protobuf": ProtobufType,
    "struct": StructType,
    "composite-local": CompositeLocalType,
    "composite-global": CompositeGlobalType,
}
"""The implementation of each module."""


def standard_settings() -> dict[str, TypeSettings]:
    """The types of a configuration without declarations, by name."""
    return {name: TypeSettings(name, name) for name in STANDARD_MESSAGE_TYPES}


def make_message_type(settings: TypeSettings, known: Mapping[str, MessageType]) -> MessageType:
    """Create one type. known: the types created before, which the parts of a composite may have.

    ValueError: the settings are not valid. Its text is for the author of the configuration.
    """
    return MODULES[settings.module](settings, known)


def make_message_types(settings: Iterable[TypeSettings]) -> dict[str, MessageType]:
    """Create all types of a configuration, by name; in its order, because composites consist of earlier types."""
    made: dict[str, MessageType] = {}
    for one in settings:
        made[one.name] = make_message_type(one, made)
    return made
