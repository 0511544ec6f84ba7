"""Preprocessing and enrichment: the fields that the server computes (sow.md §15; expressions.md §11)."""

import json

import pytest

from amps._core.expressions.machine import UserFunction
from amps._core.sow.shaping import FieldStage, KeyMaker
from amps._core.values.fields import MessageContext
from amps.expressions import CURRENT, PREVIOUS, Functions, Usage, parse_field_constructor
from amps.messages import TypeSettings, make_message_types, standard_settings

TYPES = make_message_types(
    [
        *standard_settings().values(),
        TypeSettings("pair", "composite-local", parts=("json", "nvfix")),
        TypeSettings("last", "json", early_termination=False),
    ]
)


def preprocessing(*fields: str, of: str = "json") -> FieldStage:
    return FieldStage([parse_field_constructor(field) for field in fields], TYPES[of])


def enrichment(*fields: str, of: str = "json", functions: Functions | None = None) -> FieldStage:
    made = [parse_field_constructor(field, Usage.ENRICHMENT, functions or Functions()) for field in fields]
    return FieldStage(made, TYPES[of], (CURRENT, PREVIOUS))


def enriched(field: str | tuple[str, ...], message: object, previous: object = None) -> object:
    fields = (field,) if isinstance(field, str) else field
    stored = None if previous is None else json.dumps(previous).encode()
    result = enrichment(*fields).apply(json.dumps(message).encode(), stored)
    assert result is not None
    return json.loads(result)


# --- what a stage writes ---


def test_a_key_that_preprocessing_makes() -> None:
    """sow.md §25, 47: two publishes with equal a, b are one record that holds k."""
    stage = preprocessing("CONCAT(/a,'-',/b) AS /k")
    key = KeyMaker(b"t", [(b"k",)], TYPES["json"].extractor())
    first, second = stage.apply(b'{"a":1,"b":2,"x":1}'), stage.apply(b'{"b":2,"a":1,"k":"own","x":2}')
    assert first is not None
    assert second is not None
    assert json.loads(first) == {"a": 1, "b": 2, "x": 1, "k": "1-2"}
    assert json.loads(second) == {"a": 1, "b": 2, "x": 2, "k": "1-2"}
    assert key.key(first) == key.key(second) != key.key(b'{"k":"1-3"}')


def test_default_values() -> None:
    """sow.md §25, 47."""
    field = "COALESCE(/x OF CURRENT, /x OF PREVIOUS, 'd') AS /x"
    assert enriched(field, {"id": 1}) == {"id": 1, "x": "d"}
    assert enriched(field, {"id": 1, "x": 5}, {"id": 1, "x": "d"}) == {"id": 1, "x": 5}
    assert enriched(field, {"id": 1}, {"id": 1, "x": 5}) == {"id": 1, "x": 5}


def test_null_is_written_unless_it_is_optional() -> None:
    """sow.md §25, 48."""
    text = "IF(/s IN ('a','e'), /s, NULL) AS /s"
    assert enriched(text, {"s": "z"}) == {"s": None}
    assert enriched(text, {"s": "a"}) == {"s": "a"}
    assert enriched(f"{text} HINT OPTIONAL", {"s": "z", "t": 1}) == {"t": 1}
    assert enriched(f"{text} HINT OPTIONAL", {"s": "e"}) == {"s": "e"}
    assert enriched("'' AS /s", {"t": 1}) == {"t": 1, "s": None}
    assert enriched("'' AS /s HINT OPTIONAL", {"t": 1, "s": 2}) == {"t": 1}


def test_null_of_an_absent_record() -> None:
    """sow.md §15: on a first message with qty -1."""
    field = "IF(/qty < 0, /qty OF PREVIOUS, /qty) AS /qty"
    assert enriched(field, {"qty": -1}) == {"qty": None}
    assert enriched(field, {"qty": -1}, {"qty": 7}) == {"qty": 7}
    assert enriched(field, {"qty": 2}, {"qty": 7}) == {"qty": 2}


def test_later_fields_see_a_value_only_with_set_current() -> None:
    """sow.md §25, 48."""
    hinted = ("/p * 2 AS /q HINT SET_CURRENT", "/q + 1 AS /r")
    assert enriched(hinted, {"p": 3}) == {"p": 3, "q": 6, "r": 7}
    assert enriched(("/p * 2 AS /q", "/q + 1 AS /r"), {"p": 3}) == {"p": 3, "q": 6, "r": None}
    assert enriched(("/p * 2 AS /q", "/q + 1 AS /r"), {"p": 3, "q": 10}) == {"p": 3, "q": 6, "r": 11}


def test_set_current_and_optional_together() -> None:
    fields = ("IF(/q > 5, NULL, /q) AS /q HINT SET_CURRENT,OPTIONAL", "COALESCE(/q, 'none') AS /r")
    assert enriched(fields, {"q": 9}) == {"r": "none"}
    assert enriched(fields, {"q": 4}) == {"q": 4, "r": 4}


def test_set_current_does_not_change_the_previous_message() -> None:
    fields = ("1 AS /q HINT SET_CURRENT", "/q OF PREVIOUS AS /old", "/q OF CURRENT AS /new")
    assert enriched(fields, {}, {"q": 8}) == {"q": 1, "old": 8, "new": 1}


def test_set_current_is_seen_by_later_fields_only() -> None:
    fields = ("/q AS /before", "5 AS /q HINT SET_CURRENT", "/q AS /after")
    assert enriched(fields, {"q": 1}) == {"q": 5, "before": 1, "after": 5}


def test_set_current_reaches_fields_above_and_below() -> None:
    scalar = ("7 AS /a HINT SET_CURRENT", "/a/b AS /below", "/a AS /same")
    assert enriched(scalar, {"a": {"b": 1}}) == {"a": 7, "below": None, "same": 7}
    inner = ("7 AS /a/b HINT SET_CURRENT", "IF(/a IS NULL, 1, 2) AS /above", "/a/b AS /same", "/a/c AS /other")
    assert enriched(inner, {"x": 1}) == {"x": 1, "a": {"b": 7}, "above": 2, "same": 7, "other": None}
    assert enriched(inner, {"a": 3}) == {"a": {"b": 7}, "above": 2, "same": 7, "other": None}
    assert enriched(inner, {"a": {"c": 4}}) == {"a": {"c": 4, "b": 7}, "above": 2, "same": 7, "other": 4}
    left_out = ("'' AS /a/b HINT SET_CURRENT,OPTIONAL", "IF(/a IS NULL, 1, 2) AS /above")
    assert enriched(left_out, {"x": 1}) == {"x": 1, "above": 1}


def test_set_current_is_seen_through_subscripts() -> None:
    """expressions.md §9: a single value is also its own first element."""
    assert enriched(("7 AS /a/b HINT SET_CURRENT", "/a[0]/b AS /r"), {"a": {"b": 1}}) == {"a": {"b": 7}, "r": 7}


def test_a_container_has_no_value() -> None:
    """expressions.md §11: so it is NULL, and left out if it is optional."""
    assert enriched("/o AS /c HINT OPTIONAL", {"o": {"x": 1}, "c": 2}) == {"o": {"x": 1}}
    fields = ("/o AS /c HINT SET_CURRENT", "IF(/c IS NULL, 'null', 'value') AS /r")
    assert enriched(fields, {"o": {"x": 1}}) == {"o": {"x": 1}, "c": None, "r": "null"}


def test_set_current_replaces_an_array() -> None:
    fields = ("9 AS /a HINT SET_CURRENT", "IF(/a = 2, 'old', 'new') AS /r")
    assert enriched(fields, {"a": [1, 2, 3]}) == {"a": 9, "r": "new"}


def test_of_two_fields_with_one_destination_the_later_one_counts() -> None:
    """expressions.md §11."""
    assert enriched(("1 AS /a", "2 AS /a"), {}) == {"a": 2}
    assert enriched(("1 AS /a", "'' AS /a HINT OPTIONAL"), {"a": 5}) == {}


def test_other_fields_are_untouched() -> None:
    """sow.md §15: byte for byte."""
    message = b' {"z" : 1.50, "a":"\\u00e9", "list":[1, {"x":null}] }'
    result = enrichment("2 AS /q").apply(message)
    assert result is not None
    assert result.replace(b',"q":2', b"") == message


def test_a_number_keeps_its_spelling() -> None:
    assert enrichment("/a OF PREVIOUS AS /b").apply(b"{}", b'{"a":1.10}') == b'{"b":1.10}'


def test_nested_fields_and_the_first_element_of_an_array() -> None:
    fields = ("/o/list OF PREVIOUS AS /p/first", "/o/list[1] OF PREVIOUS AS /p/second", "/o AS /container")
    message, stored = {"o": {"list": [3]}}, {"o": {"list": ["a", "b"]}}
    assert enriched(fields, message, stored) == {
        "o": {"list": [3]},
        "p": {"first": "a", "second": "b"},
        "container": None,
    }


def test_fields_named_like_the_two_sides_are_ordinary() -> None:
    fields = ("/current AS /a", "/previous OF PREVIOUS AS /b", "/previous/current AS /c")
    message = {"current": 1, "previous": {"current": 2}}
    assert enriched(fields, message, {"previous": 3, "current": 4}) == {**message, "a": 1, "b": 3, "c": 2}


# --- the stored record ---


def test_only_a_stage_that_reads_the_record_asks_for_it() -> None:
    assert enrichment("/a OF PREVIOUS AS /b").reads_previous
    assert not enrichment("/a OF CURRENT AS /b", "1 AS /c").reads_previous
    assert not preprocessing("/a AS /b").reads_previous


def test_values_do_not_outlive_their_message() -> None:
    stage = enrichment("COALESCE(/a OF PREVIOUS, /b, 'none') AS /r")
    assert stage.apply(b'{"b":1}', b'{"a":"old"}') == b'{"b":1,"r":"old"}'
    assert stage.apply(b'{"b":2}') == b'{"b":2,"r":2}'
    assert stage.apply(b"{}", b'{"c":1}') == b'{"r":"none"}'


@pytest.mark.parametrize("stored", [b"{", b'{"a":1,"b":', b"x", b'{"x":[}'])
def test_a_stored_record_that_cannot_be_parsed_counts_as_absent(stored: bytes) -> None:
    stage = enrichment("COALESCE(/a OF PREVIOUS, 'none') AS /r", "/b OF PREVIOUS AS /s", "/c AS /t")
    assert stage.apply(b'{"c":1}', stored) == b'{"c":1,"r":"none","s":null,"t":1}'
    assert stage.unreadable == 0


@pytest.mark.parametrize("stored", [b"", b"{}"])
def test_an_empty_stored_record_has_no_fields(stored: bytes) -> None:
    assert enrichment("/a OF PREVIOUS AS /a").apply(b'{"b":1}', stored) == b'{"b":1,"a":null}'


# --- messages that have no result ---


@pytest.mark.parametrize("message", [b"{", b"[1]", b"5", b'{"a":1', b'{"a":1}x', b'{"z":1,"a"}'])
def test_an_unreadable_message_has_no_result(message: bytes) -> None:
    for stage in (preprocessing("/a AS /b"), enrichment("/a AS /b"), enrichment("1 AS /b")):
        assert stage.apply(message) is None
        assert (stage.unreadable, stage.exhausted) == (1, 0)
        assert stage.apply(b'{"a":1}') in (b'{"a":1,"b":1}',)


def test_an_empty_message_gets_the_fields() -> None:
    assert preprocessing("1 AS /a").apply(b"") == b'{"a":1}'


def test_a_pattern_that_takes_too_long_stores_nothing() -> None:
    stage = preprocessing("REGEXP_REPLACE(/a, '(x+x+)+[yz]', 'b') AS /b")
    assert stage.apply(b'{"a":"%s"}' % (b"x" * 40)) is None
    assert (stage.unreadable, stage.exhausted) == (0, 1)
    assert stage.apply(b'{"a":"xxy"}') == b'{"a":"xxy","b":"b"}'


# --- types, functions, facts ---


@pytest.mark.parametrize("of", ["json", "fix", "nvfix", "xml", "bson", "msgpack", "bflat", "last"])
def test_every_type_that_the_server_writes(of: str) -> None:
    """expressions.md §12.1: enrichment of all standard types but binary."""
    message_type = TYPES[of]
    names = ("1", "2", "3") if of == "fix" else ("r/a", "r/b", "r/c") if of == "xml" else ("a", "b", "c")
    paths = [tuple(step.encode() for step in name.split("/")) for name in names]
    message = message_type.builder([paths[0]]).build([b"new"])
    stored = message_type.builder([paths[1]]).build([b"old"])
    one, two, three = names
    stage = enrichment(f"CONCAT(/{one}, '+', /{two} OF PREVIOUS) AS /{three}", of=of)
    result = stage.apply(message, stored)
    assert result is not None
    made = KeyMaker(b"", paths, message_type.extractor()).fields.texts(result)
    assert made == (b"new", b"", b"new+old")


def test_composite_messages() -> None:
    """expressions.md §12.1: composite-local."""
    message_type = TYPES["pair"]
    paths = [(b"0", b"a"), (b"1", b"b")]
    message = message_type.builder(paths).build([b"new", b"n"])
    stored = message_type.builder(paths).build([b"old", b"o"])
    result = enrichment("CONCAT(/0/a, /1/b OF PREVIOUS) AS /1/c", of="pair").apply(message, stored)
    assert result is not None
    made = KeyMaker(b"", [*paths, (b"1", b"c")], message_type.extractor()).fields.texts(result)
    assert made == (b"new", b"n", b"newo")


def test_the_last_of_equal_members_counts_without_early_termination() -> None:
    assert enrichment("/a AS /b", of="last").apply(b'{"a":1,"a":2}') == b'{"a":1,"a":2,"b":2}'


def test_own_functions() -> None:
    """expressions.md §10.11."""
    twice = UserFunction("TWICE", lambda value: value * 2, 1, 1)
    stage = enrichment("TWICE(/a OF PREVIOUS) AS /b", functions=Functions(own={"TWICE": twice}))
    assert stage.apply(b"{}", b'{"a":4}') == b'{"b":8}'


def test_facts_about_the_message() -> None:
    """sow.md §15: metadata can be read."""
    context = MessageContext()
    stage = FieldStage([parse_field_constructor("TOPIC_NAME() AS /t")], TYPES["json"], (), context)
    assert stage.context is context
    context.set("topic_name", b"orders")
    assert stage.apply(b"{}") == b'{"t":"orders"}'


def test_the_number_of_shards_bounds_the_keys() -> None:
    """sow.md §15: `CRC32(/user) % 16 AS /shard` with Key /shard keeps at most 16 records."""
    stage = preprocessing("CRC32(/user) % 16 AS /shard")
    shards = {
        json.loads(stage.apply(b'{"user":"u%d"}' % number) or b"")["shard"] for number in range(300)
    }
    assert shards == set(range(16))


def test_fields_of_neither_message_are_refused() -> None:
    with pytest.raises(ValueError, match="fields of neither message"):
        FieldStage([parse_field_constructor("/a AS /b")], TYPES["json"], (CURRENT, PREVIOUS))


def test_types_that_the_server_does_not_write() -> None:
    """sow.md §15."""
    with pytest.raises(ValueError, match="cannot be written"):
        preprocessing("1 AS /a", of="binary")
