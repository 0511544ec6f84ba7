"""A group of messages and a projection of it, from texts and bytes, through the whole engine, for tests."""

from collections.abc import Sequence

from amps._core.expressions.aggregates import GROUP_BYTES_MAX, Group
from amps._core.values.fields import FieldSet, FieldValues, MessageContext
from amps.expressions import SHIPPED, Functions, Projection, Usage, parse_field_constructor
from amps.messages import make_message_types, standard_settings

TYPES = make_message_types(standard_settings().values())

AGGREGATES = (
    "ANY",
    "AVG",
    "COUNT",
    "COUNT_DISTINCT",
    "GROUP_CONCAT",
    "MAX",
    "MIN",
    "STDDEV_POP",
    "STDDEV_SAMP",
    "SUM",
    "UNIQUE",
)


class Grouped:
    """One group. Fields are expressions. They are named /f0, /f1 and so on, or have an AS of their own."""

    def __init__(
        self,
        *fields: str,
        message_type: str = "json",
        limit_bytes: int = GROUP_BYTES_MAX,
        functions: Functions = SHIPPED,
    ) -> None:
        texts = [text if " AS " in text.upper() else f"{text} AS /f{at}" for at, text in enumerate(fields)]
        self.projection = Projection(
            [parse_field_constructor(text, Usage.PROJECTION, functions) for text in texts]
        )
        self.fields = FieldSet()
        self.bound = self.projection.bind(self.fields, limit_bytes)
        self.group = Group(self.bound)
        self.type = TYPES[message_type]
        self._extractor = self.type.extractor()
        self._values = FieldValues()

    def read(self, message: bytes) -> FieldValues:
        assert self._extractor.read(message, self.fields, self._values)
        return self._values

    def add(self, *messages: bytes, context: MessageContext | None = None) -> "Grouped":
        for message in messages:
            self.group.add(self.read(message), context)
        return self

    def remove(self, *messages: bytes, context: MessageContext | None = None) -> "Grouped":
        for message in messages:
            self.group.remove(self.read(message), context)
        return self

    def values(self) -> list[bool | int | float | bytes | None]:
        return self.group.values()

    def built(self) -> bytes:
        return self.group.build(self.type.builder(self.projection.destinations))


def aggregated(fields: Sequence[str], *messages: bytes) -> list[bool | int | float | bytes | None]:
    """The values of a projection of a group of JSON messages."""
    return Grouped(*fields).add(*messages).values()


def json_values(*texts: str) -> list[bytes]:
    """Messages with one field /v, of which the value is given as JSON."""
    return [b'{"v":%s}' % text.encode() for text in texts]
