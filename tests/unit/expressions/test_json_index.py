"""The index with which JSON messages are read, against a byte-by-byte model, and cases at its limits.

The reader handles 64 bytes at once, and windows one after the other: of 128 bytes, of 512, and then of 1,024. Names are
told apart by their first bytes.
"""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amps._core.messages.json import JsonExtractor, tokens_of
from amps._core.values.fields import FieldSet, FieldValues
from tests.unit.expressions.test_json_fields import EXAMPLES, Path, json_messages, read, values_of


def tokens_one_by_one(text: bytes) -> tuple[list[int], list[int]]:
    """The places of braces, brackets and backslashes in strings, and those of strings, behind the first byte.

    The lists end at a value in the wrong place, or at a missing value.
    """
    found: list[int] = []
    strings: list[int] = []
    needed = True
    place = 1
    while place < len(text):
        byte = text[place]
        if byte in b" \t\r\n":
            place += 1
            continue
        before = text[:place].rstrip(b" \t\r\n")[-1:]
        is_empty = needed and before + text[place : place + 1] in (b"{}", b"[]")
        if byte in b'{}[]:,"' and needed != (byte in b'{["') and not is_empty:
            break
        if byte in b"{}[]:,":
            if byte in b"{}[]":
                found.append(place)
            needed = byte in b"{[:,"
            place += 1
        elif byte == ord('"'):
            strings.append(place)
            place += 1
            while place < len(text) and text[place] != ord('"'):
                if text[place] == ord("\\"):
                    found.append(place)
                    place += 1
                    if text[place : place + 1] == b"\\":
                        found.append(place)
                place += 1
            place += 1
            needed = False
        else:
            if not needed or byte not in b"0123456789-tfn":
                break
            while place < len(text) and text[place] not in b'{}[]:," \t\r\n':
                place += 2 if text[place : place + 2] in (b'\\"', b"\\\\") else 1
            needed = False
    return found, strings


pieces = st.sampled_from(
    [
        *(bytes([byte]) for byte in b'{}[]:,"\\ \n'),
        b'\\"',
        b"\\\\",
        b"a" * 31,
        b"12",
        b"\xff",
        *(
            b"{}",
            b"[ ]",
            b"[,",
            b"{]",
            b'"c,d"',
            b'"a":1,',
            b'"' + b"b" * 64 + b'":[',
            b'":"',
            b'","',
            b"true,",
            b"-1,",
        ),
    ]
)


def openings_of(name: bytes) -> list[bytes]:
    """The possible first three bytes of a member's text with this name, or an empty text for an empty name."""
    if not name:
        return [b""]
    return [(name + b'"' + behind)[:3] for behind in (b":", b",", b"}", b"]", b" ", b"\t", b"\n", b"\r")]


@EXAMPLES
@given(
    st.one_of(st.lists(pieces, max_size=150).map(b"".join), json_messages()),
    st.integers(0, 70),
    st.lists(st.sampled_from([b"", b"a", b"c,d", b"c,e", b"aaaa", b"\xff", b"bbb", b"zzz"]), min_size=1),
)
@example(b'"' + b"\\" * 129 + b'"{', 0, [b"a"])
@example(b'"' + b"\\" * 63 + b'"{"', 0, [b"a"])
@example(b"[" * 4200, 3, [b"a"])
@example(b'"aaaa":' * 700, 3, [b"aaaa"])
@example(b'"a":"' + b"b" * 57 + b'"x', 0, [b"a"])
@example(b'"a":"' + b"b" * 55 + b'" \n \t ,{ } ,[   ] , "a":1', 0, [b"a"])
@example(b'"a":1' + b" " * 200 + b",", 0, [b"a"])
@example(b"1" * 100 + b" 2", 0, [b"a"])
def test_tokens_are_found_in_blocks_as_byte_by_byte(text: bytes, shift: int, names: list[bytes]) -> None:
    text = b"{" + b" " * shift + text
    others, strings = tokens_one_by_one(text)
    fields = FieldSet((name,) for name in names)
    assert tokens_of(text, fields, plain=True) == sorted(others + strings)
    found = tokens_of(text, fields, plain=False)
    openings = tuple(opening for name in names for opening in openings_of(name))
    wanted = [place for place in strings if text.startswith(openings, place + 1)]
    assert set(others + wanted) <= set(found) <= set(others + strings)
    assert found == sorted(found)


@pytest.mark.skipif(
    tokens_of(b'{"other":1', FieldSet([(b"status",)]), plain=False) != [],
    reason="needs a processor with wide registers",
)
def test_unwanted_members_leave_no_token() -> None:
    message = b'{"stop":1,"status":"stable","state":"stop","":"","a":"\xff\xfe\xfd","z":[]}'
    everything = tokens_of(message, FieldSet([(b"status",)]), plain=False)
    assert everything == [
        message.index(part) for part in (b'"status"', b'"stable"', b'"state"', b"[", b"]")
    ] + [len(message) - 1]
    eight = FieldSet((bytes([97 + each]) * 5,) for each in range(8))
    assert tokens_of(b'{"aab":1,"bba":1,"fffgg":1,"hgf":1,"iii":1', eight, plain=False) == [17]


LONG = b"abcdefghijklmnopqrstuvwxyz"


@pytest.mark.parametrize("padding", [b"", b" " * 40])
@pytest.mark.parametrize(
    "names",
    [
        [LONG[:length]] * 2 for length in range(21)
    ] + [
        [LONG[:length] for length in range(21)],
        [b"price", b"priority", b"pr", b"p", b"prices"],
        [b"p", b"q", b"", b"pq"],
        [bytes([97 + number % 26, 97 + number // 26]) for number in range(200)],
    ],
)  # fmt: skip
def test_names_are_told_apart_whatever_their_length_and_beginning(names: list[bytes], padding: bytes) -> None:
    text = b",".join(b'"%s#":-1,"%s":%d' % (name, name, number) for number, name in enumerate(names))
    wanted = [(name,) for name in dict.fromkeys(names)]
    expected = [[names.index(name)] for (name,) in wanted]
    assert read(b'{"other":"%s",%s%s}' % (names[0], text, padding), wanted) == (True, expected)


@pytest.mark.parametrize("length", range(1, 21))
def test_names_that_differ_in_one_byte_are_told_apart(length: int) -> None:
    for place in range(length):
        other = LONG[:place] + b"#" + LONG[place + 1 : length]
        assert read(b'{"%s":1,"%s":2,"z":"%s"}' % (other, LONG[:length], LONG), [(LONG[:length],)]) == (
            True,
            [[2]],
        )


@pytest.mark.parametrize("path", [(b"a", b"b"), (b"a", 0, b"b"), (b"a", 0, b"b", 0, b"c")])
def test_nothing_is_read_behind_the_last_wanted_value(path: Path) -> None:
    """47: this also holds if its container must be read twice, as itself and as its own first element."""
    value = b'{"c":5}' if path[-1] == b"c" else b"5"
    assert read(b'{"a":{"x":{},"b":%s,"e":[}}}' % value, [path]) == (True, [[5]])


@pytest.mark.parametrize("name", [b'a"b', b"a\\b", b'"', b"\\", b'a"'])
def test_a_name_with_a_quote_or_backslash_is_only_found_escaped(name: bytes) -> None:
    escaped = name.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    assert read(b'{"x":0,"%s":1,"z":"%s"}' % (escaped, b"z" * 40), [(name,)]) == (True, [[1]])
    parsed, found = read(b'{"x":0,"%s":1,"z":"%s"}' % (name, b"z" * 40), [(name,)])
    assert not parsed or found == [[]]


WANTED: list[Path] = [(b"a",), (b"b", b"a")]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b'{"x":"a","a":1}', [[1], []]),
        (b'{"x" : "a" ,"a" : 1}', [[1], []]),
        (b'{"x":["a","a",{"a":2}],"a":1}', [[1], []]),
        (b'{"x":{"a":2,"b":{"a":3}},"b":{"x":{"a":4},"a":5},"a":1}', [[1], [5]]),
        (b'{"x\\"":"\\"a\\"","a":"a\\\\","b":{"\\u0061":"\\\\\\""}}', [[b"a\\"], [b'\\"']]),
        (b'{"b":"a","b":{"a":1},"a":1}', [[1], []]),
    ],
)
def test_only_names_of_members_at_the_path_are_taken(message: bytes, expected: list[list[object]]) -> None:
    assert read(message, WANTED) == (True, expected)


@pytest.mark.parametrize(
    "message",
    [
        b'{"x":1 "a":1}', b'{"x":"a":1}', b'{"x":"y""a":1}', b'{"a" 1}', b'{"a"}', b'{"a":1 "x":2}',
        b'{"a":1;"x":2}', b'{"a":}',
        b'{"a":1]', b'{"a":[1}', b'{"a":[1 2]}', b'{"a":[1,]}', b'{"x":[1,2,"a":1}', b'{"x":1', b'{"x":"y}',
        b'{,{"a":1}', b'{"x":1,["a"]}', b'{"x":1}}', b'{\\"a":1}', b'{"\\a":1}', b'{"\\u00":1}', b'{"x":1,"a\\"',
        b'{"a":tru}', b'{"a":nul', b'{"a":01}', b'{"a":"\\x"}', b'{x:y,"b":{}}',
        b'{"x":1\\","a":1}', b'{"x":\\"a":1}', b'{"x":1,\\"a":1}',
    ],
)  # fmt: skip
def test_errors_around_wanted_values_are_unparsable(message: bytes) -> None:
    assert not read(message, [*WANTED, (b"missing",)])[0]


def test_unwanted_values_are_checked_for_strings_brackets_and_order_only() -> None:
    """expressions.md §12.3: a message is parsed as far as needed."""
    for message in (b'{"x":tru,"a":1}', b'{"x","a":1}', b'{"x":{1:2,"y":[3}},"a":1}', b'{"x":"\\x","a":1}'):
        assert read(message, [(b"a",)]) == (True, [[1]])
        assert not read(message, [(b"a",)], early_termination=False)[0]
    for message in (
        b'{"x":y,"a":1}', b'{"x" 1,"a":1}', b'{"x":1 2,"a":1}', b'{"x":,"a":1}', b'{"x":[1,],"a":1}', b'{,"a":1}',
        b'{"x":{]},"a":1}', b'{x:1,"a":1}', b'{"x":"y"z","a":1}', b'{"x":"y" "z","a":1}', b'{"x":{} {},"a":1}',
        b'{"x":1' + b" " * 70 + b'2,"a":1}', b'{"x":[' + b" " * 70 + b'},"a":1}', b'{"x":"' + b"y" * 70 + b'"z,"a":1}',
    ):  # fmt: skip
        assert not read(message, [(b"a",)])[0]
    assert read(b'{"a":1,"x":y}', [(b"a",)]) == (True, [[1]])


@pytest.mark.parametrize("fill", [b'"', b"\\\\", b'\\"', b"{", b"x"])
@pytest.mark.parametrize(
    "length", [*range(60, 190, 7), *range(570, 700, 7), *range(1600, 1730, 7), 1024, 2048, 3100]
)
def test_values_across_windows_are_read_as_a_whole(fill: bytes, length: int) -> None:
    """Long strings with quotes and backslashes, and nested containers, before the wanted value and in it."""
    inner = fill.decode() * (length // len(fill))
    document = {
        "fill": inner,
        "o": {"fill": inner, "list": [{"fill": [inner], "k": 1}, {"k": [2, inner]}]},
        "last": 3,
    }
    message = json.dumps(document).encode()
    assert values_of(message, (b"last",)) == [3]
    assert values_of(message, (b"o", b"list", b"k")) == [1, 2, inner.encode()]
    assert values_of(message, (b"o", b"list", 0, b"k")) == [1]
    assert values_of(message, (b"o", b"list", 1, b"k")) == [2, inner.encode()]
    assert values_of(message, (b"o", 0, b"list", 0, b"fill")) == [inner.encode()]
    last = len(message) - 1
    for cut in {last, last // 2, *(min(at, last) for at in (128, 129, 640, 1024, 1664))}:
        assert not JsonExtractor().read(message[:cut], FieldSet([(b"missing",)]), FieldValues())
