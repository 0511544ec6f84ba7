"""Message types: how fields are found in messages and written to them (expressions.md §12).

One module per type, each a subclass of MessageType (base.py) made of TypeSettings (settings.py), which is what a
configuration says about it. MODULES is the one list of them: a new type is a module and a line here. Nothing here reads
files of configuration or knows the server; both ask for types by name.
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
"""Message types that exist without being declared, each called as its module is."""

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
    """The types of a configuration that declares none, by name."""
    return {name: TypeSettings(name, name) for name in STANDARD_MESSAGE_TYPES}


def make_message_type(settings: TypeSettings, known: Mapping[str, MessageType]) -> MessageType:
    """One type. known: those made before, which the parts of a composite may be of.

    ValueError: settings that cannot work, with a sentence for who wrote them.
    """
    return MODULES[settings.module](settings, known)


def make_message_types(settings: Iterable[TypeSettings]) -> dict[str, MessageType]:
    """All types of a configuration, by name; in its order, because composites are made of earlier ones."""
    made: dict[str, MessageType] = {}
    for one in settings:
        made[one.name] = make_message_type(one, made)
    return made
