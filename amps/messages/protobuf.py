"""Protocol buffers, proto2 and proto3: nested messages whose fields .proto files describe (expressions.md §12.5)."""

from collections.abc import Mapping

from amps._core.messages.protobuf import ProtobufDocuments, ProtobufExtractor
from amps.messages.base import MessageType
from amps.messages.descriptors import descriptions, schema
from amps.messages.protoc import compiled
from amps.messages.settings import TypeSettings


class ProtobufType(MessageType):
    """The module protobuf. The files are compiled when the type is created."""

    def __init__(self, settings: TypeSettings, known: Mapping[str, MessageType]) -> None:
        super().__init__(settings, known)
        if not settings.proto_paths or settings.proto_file is None or settings.proto_type is None:
            raise ValueError(f"the message type {self.name} needs a ProtoPath, a ProtoFile and a Type")
        described = descriptions(compiled(settings.proto_paths, settings.proto_file))
        if described.syntax not in ("proto2", "proto3"):
            raise ValueError(
                f"{settings.proto_file} has another syntax than proto2 and proto3: {described.syntax}"
            )
        type_name = settings.proto_type.removeprefix(".")
        if type_name not in described.top_level:
            there = ", ".join(described.top_level) or "none"
            raise ValueError(f"{settings.proto_file} has no message {type_name}; there are: {there}")
        self._schema = schema(described, f".{type_name}")
        # A field of proto3 with its default is not on the wire, so no delta could set it. A message of proto2 is not
        # valid without its required fields, so none can be left out.
        self.has_deltas = described.syntax == "proto2"
        self.has_select_lists = described.syntax == "proto3"

    def extractor(self) -> ProtobufExtractor:
        return ProtobufExtractor(self._schema)

    def documents(self) -> ProtobufDocuments:
        return ProtobufDocuments(self._schema)
