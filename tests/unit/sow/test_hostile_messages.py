"""Keys and computed fields of any bytes: they agree with the plain readers and writers of the message type."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amps._core.sow.shaping import FieldStage, KeyMaker
from amps._core.values.fields import FieldSet, FieldValues
from amps.expressions import CURRENT, PREVIOUS, Usage, compile_expression, parse_field_constructor
from amps.messages import make_message_types, standard_settings

TYPES = make_message_types(standard_settings().values())
NAMES = {"fix": ("1", "2", "3"), "xml": ("r/a", "r/b", "r/c")}
WRITTEN = ("json", "fix", "nvfix", "xml", "bson", "msgpack", "bflat")


def names_of(of: str) -> tuple[str, str, str]:
    return NAMES.get(of, ("a", "b", "c"))


def path_of(name: str) -> tuple[bytes, ...]:
    return tuple(step.encode() for step in name.split("/"))


@st.composite
def messages(draw: st.DrawFn, of: str) -> bytes:
    """A message of the type, often with changed bytes, or only bytes."""
    paths = [path_of(name) for name in names_of(of)[:2]]
    values = draw(st.lists(st.sampled_from([None, b"x", b"12", b"1.50", 7]), min_size=2, max_size=2))
    whole = TYPES[of].builder(paths).build(values)
    how = draw(st.integers(0, 3))
    if how == 0:
        return draw(st.binary(max_size=60))
    if how == 1 and whole:
        at = draw(st.integers(0, len(whole) - 1))
        return whole[:at] + draw(st.binary(max_size=3)) + whole[at + draw(st.integers(0, 2)) :]
    if how == 2:
        return whole[: draw(st.integers(0, len(whole)))]
    return whole


@pytest.mark.parametrize("of", WRITTEN)
@given(data=st.data())
def test_a_key_exists_exactly_if_the_message_can_be_read(of: str, data: st.DataObject) -> None:
    message_type = TYPES[of]
    path = path_of(names_of(of)[0])
    maker = KeyMaker(b"t", [path], message_type.extractor())
    fields, values = FieldSet([path]), FieldValues()
    for message in data.draw(st.lists(messages(of), min_size=1, max_size=4)):
        if message_type.extractor().read(message, fields, values):
            text = values.text_of(0) or b""
            assert maker.key(message) == maker.text_key(text) != 0
            assert maker.fields.texts(message) == (text,)
        else:
            assert maker.key(message) == 0
            assert maker.fields.texts(message) is None


@pytest.mark.parametrize("of", WRITTEN)
@given(data=st.data())
def test_a_stage_writes_what_the_builder_writes(of: str, data: st.DataObject) -> None:
    """One object for all messages, so that nothing of a message, read or not, is seen in the next one."""
    message_type = TYPES[of]
    one, two, three = names_of(of)
    expression = compile_expression(f"COALESCE(/{one}, /{two}, 'none')", Usage.FIELD)
    assert expression.program is not None
    fields, values = FieldSet(), FieldValues()
    program = expression.program.bind(fields)
    builder = message_type.builder([path_of(three)])
    constructor = parse_field_constructor(
        f"COALESCE(/{one}, /{two} OF PREVIOUS, /{two}, 'none') AS /{three}", Usage.ENRICHMENT
    )
    stage = FieldStage([constructor], message_type, (CURRENT, PREVIOUS))
    for message in data.draw(st.lists(messages(of), min_size=1, max_size=4)):
        made = None
        if message_type.extractor().read(message, fields, values):
            try:
                made = builder.merge(message, [program.evaluate(values)])
            except ValueError:
                made = None
        result = stage.apply(message)
        assert (result is None) == (made is None)
        if result is not None and made is not None:
            assert same(texts(of, result), texts(of, made))
        stage.apply(message, data.draw(messages(of)))  # any bytes may have been stored


def texts(of: str, message: bytes) -> tuple[bytes, ...] | None:
    return KeyMaker(b"", [path_of(name) for name in names_of(of)], TYPES[of].extractor()).fields.texts(message)


def same(one: tuple[bytes, ...] | None, other: tuple[bytes, ...] | None) -> bool:
    """Whether two messages have equal texts; a computed number may keep its spelling, which Python objects lose."""
    if one is None or other is None or one == other:
        return one == other
    return one[:2] == other[:2] and float(one[2]) == float(other[2])


def test_a_message_that_takes_too_much_memory_is_refused() -> None:
    """A short message that would become longer than all memory."""
    text = f"CONCAT({', '.join(['/a'] * 64)}) AS /a HINT SET_CURRENT"
    stage = FieldStage([parse_field_constructor(text)] * 6, TYPES["json"])
    assert stage.apply(b'{"a":"0123456789"}') is None
    assert (stage.unreadable, stage.exhausted) == (0, 1)
    assert stage.apply(b'{"a":""}') == b'{"a":null}'


def test_a_message_that_takes_too_much_time_is_refused() -> None:
    """The work for one message is bounded: comparing two long arrays, again and again, would take seconds."""
    stage = FieldStage([parse_field_constructor("IF(/a = /b, 1, 2) AS /c")] * 40, TYPES["json"])
    ones, twos = b",".join([b"1"] * 6_000), b",".join([b"2"] * 6_000)
    assert stage.apply(b'{"a":[%s],"b":[%s]}' % (ones, twos)) is None
    assert (stage.unreadable, stage.exhausted) == (0, 1)
    assert stage.apply(b'{"a":[1],"b":[2]}') == b'{"a":[1],"b":[2],"c":2}'


def test_a_key_that_takes_too_much_time_is_none() -> None:
    """Each level is read as a value and as the first element of itself: the work doubles with each."""
    paths: list[tuple[bytes | int, ...]] = [()]
    for _ in range(12):
        paths = [path + step for path in paths for step in ((b"a",), (b"a", 0))]
    maker = KeyMaker(b"t", [(*path, b"z") for path in paths], TYPES["json"].extractor())
    inner = b'{"y":"' + b"x," * 500_000 + b'","z":1}'
    assert maker.key(b'{"a":' * 12 + inner + b"}" * 12) == 0
    assert maker.unreadable == 1
    assert maker.key(b'{"a":' * 12 + b'{"z":1}' + b"}" * 12) != 0
