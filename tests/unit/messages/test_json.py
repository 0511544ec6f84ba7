"""The message type json: the effects of its settings, and rules for reading and writing that the server relies on.

Finding fields in any document is tested with the expressions (tests/unit/expressions/test_json_fields.py).
"""

import pytest

from amps._core.values.fields import OMIT
from amps.messages.json import JsonType
from amps.messages.settings import TypeSettings
from tests.unit.messages.reading import matches, read

JSON = JsonType(TypeSettings("json", "json"), {})
LAST_COUNTS = JsonType(TypeSettings("json-last", "json", early_termination=False), {})


@pytest.mark.parametrize(("kind", "first"), [(JSON, True), (LAST_COUNTS, False)])
def test_which_of_two_equal_members_counts(kind: JsonType, first: bool) -> None:
    """expressions.md §15 item 43"""
    message = b'{"code":1,"d":"x","code":2}'
    assert matches(kind.extractor(), message, "/code = 1") is first
    assert matches(kind.extractor(), message, "/code = 2") is not first


@pytest.mark.parametrize("kind", [JSON, LAST_COUNTS])
def test_a_changed_field_has_its_new_value_whichever_counts(kind: JsonType) -> None:
    message = b'{"code":1,"o":{"code":1},"code":2,"o":{"x":0,"code":2}}'
    merged = kind.builder([(b"code",), (b"o", b"code")]).merge(message, [7, 8])
    assert read(kind.extractor(), merged, [(b"code",), (b"o", b"code")]) == [[7], [8]]


def test_unparsable_messages() -> None:
    """expressions.md §15 items 46 and 47"""
    assert not matches(JSON.extractor(), b'{"id"', "/id = 1")
    assert not matches(JSON.extractor(), b'{"id":1', "/id = 1 AND /x IS NULL")
    assert matches(JSON.extractor(), b'{"id":1,"x":2} trailing', "/id = 1")
    assert not matches(LAST_COUNTS.extractor(), b'{"id":1,"x":2} trailing', "/id = 1")


def test_odd_names() -> None:
    """expressions.md §13 row 109"""
    assert matches(JSON.extractor(), b'{"order id":5}', "[/order id] = 5")


def test_large_integers_pass_unchanged() -> None:
    """expressions.md §15 item 44"""
    extractor = JSON.extractor()
    message = b'{"n":18446744073709551615}'
    assert matches(extractor, message, "/n > 9223372036854775807")
    values = read(extractor, message, [(b"n",)])
    assert values is not None
    assert JSON.builder([(b"m",)]).build(values[0]) == b'{"m":18446744073709551615}'


def test_null_and_optional_results() -> None:
    """Results as enrichment writes them: expressions.md §15 items 53, 57, 58 and 59."""
    assert JSON.builder([(b"s",)]).build([float("nan")]) == b'{"s":null}'
    assert JSON.builder([(b"q",)]).merge(b'{"id":1,"q":-1}', [None]) == b'{"id":1,"q":null}'
    assert JSON.builder([(b"s",)]).merge(b'{"id":1,"s":"z"}', [OMIT]) == b'{"id":1}'
    assert JSON.builder([(b"s",)]).merge(b'{"id":1,"s":"z"}', [None]) == b'{"id":1,"s":null}'
    assert JSON.builder([(b"b",), (b"c",)]).merge(b'{"id":1,"a":1}', [2, 3]) == b'{"id":1,"a":1,"b":2,"c":3}'
