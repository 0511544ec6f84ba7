"""Reading fields of messages of any type as the server does: by a type's extractor, for paths or for a filter.

In the server, other bytes surround a message. So each message is also read and changed between bytes that would
continue it: reading beyond its end changes the result.
"""

from collections.abc import Callable, Sequence
from types import EllipsisType

from amps._core.values.fields import Extractor, FieldSet, FieldValues, MessageBuilder, MessageContext
from amps.expressions import compile_expression

Path = tuple[bytes | int, ...]
Found = list[bool | int | float | bytes | EllipsisType | None]

SURROUNDINGS = [(b"{<a=\x01", b"\x01=|a=1|"), (b"\\", b"7</a>"), (b"", b'>"}]}\0\xff')]
SURROUNDED_BYTES_MAX = 20_000


def surrounded(message: bytes) -> list[memoryview]:
    if len(message) > SURROUNDED_BYTES_MAX:
        return []
    return [
        memoryview(before + message + behind)[len(before) : len(before) + len(message)]
        for before, behind in SURROUNDINGS
    ]


def read(extractor: Extractor, message: bytes, paths: Sequence[Path]) -> list[Found] | None:
    """All values at each of these paths, or None if the message cannot be parsed."""
    return reader(extractor, paths)(message)


def reader(extractor: Extractor, paths: Sequence[Path]) -> Callable[[bytes], list[Found] | None]:
    """`read` for many messages one after the other, with the paths prepared once."""
    fields = FieldSet()
    slots = [fields.add(path) for path in paths]

    def read_one(message: bytes | memoryview) -> list[Found] | None:
        values = FieldValues()
        if not extractor.read(message, fields, values):
            return None
        return [values.values_of(slot) for slot in slots]

    def read_surrounded(message: bytes) -> list[Found] | None:
        found = read_one(message)
        shown = repr(found)
        for view in surrounded(message):
            assert repr(read_one(view)) == shown
        return found

    return read_surrounded


def matches(extractor: Extractor, message: bytes, text: str) -> bool:
    """True if a message passes a filter; a message that cannot be parsed does not."""
    expression = compile_expression(text)
    assert expression.program is not None
    fields = FieldSet(expression.fields)
    program = expression.program.bind(fields)
    values = FieldValues()
    return extractor.read(message, fields, values) and program.matches(values, MessageContext())


def merge(builder: MessageBuilder, message: bytes, values: Sequence[object]) -> bytes:
    """The message with a builder's fields changed. ValueError: it cannot be parsed."""
    try:
        merged = builder.merge(message, values)
    except ValueError:
        for view in surrounded(message):
            try:
                raise AssertionError(builder.merge(view, values))
            except ValueError:
                pass
        raise
    for view in surrounded(message):
        assert builder.merge(view, values) == merged
    return merged
